"""Whether a container still has processes: who is asked, and how often the whole node is searched."""

from watchdog.core.model import Place, PlaceKind, ProcessKey
from watchdog.node.survivors import Survivors

ONE = Place(kind=PlaceKind.POD, pod="a", container="1" * 64)
OTHER = Place(kind=PlaceKind.POD, pod="a", container="2" * 64)
FIRST, SECOND = ProcessKey(pid=7, start_ticks=70), ProcessKey(pid=8, start_ticks=80)


class Searches:
    """A node with these living processes, all in container `ONE`, and how often it was searched."""

    def __init__(self, *living: ProcessKey) -> None:
        self.living = [*living]
        self.places: list[Place] = []

    def find(self, place: Place) -> ProcessKey | None:
        """A living process of a container."""
        self.places.append(place)
        return self.living[0] if self.living and place == ONE else None


def test_a_container_is_searched_again_only_once_the_known_process_has_ended() -> None:
    """Point 10: memory counts as long as there is any process; a search reads the cgroup of each one on the node."""
    node = Searches(FIRST, SECOND)
    survivors = Survivors(lambda key: key in node.living)
    assert [survivors.exist(ONE, node.find) for _ in range(3)] == [True] * 3
    assert node.places == [ONE]
    node.living.remove(FIRST)
    assert survivors.exist(ONE, node.find)
    assert node.places == [ONE, ONE]
    node.living.clear()
    assert not survivors.exist(ONE, node.find)


def test_a_container_without_processes_is_not_searched_at_each_reading() -> None:
    """Point 39: a dead PID that stays listed, in a container that has ended, costs no search a second later."""
    node = Searches()
    survivors = Survivors(lambda key: key in node.living)
    assert [survivors.exist(ONE, node.find) for _ in range(3)] == [False] * 3
    assert not survivors.exist(OTHER, node.find)
    assert node.places == [ONE, OTHER]
    survivors.forget_except({OTHER})
    survivors.exist(ONE, node.find)
    survivors.exist(OTHER, node.find)
    assert node.places == [ONE, OTHER, ONE]
