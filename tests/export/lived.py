"""Nodes that have been watched for an hour: cycles of the real core, taken in by the real endpoints."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.report.build import Clock, Story
from watchdog.core.assessment import AccountKey
from watchdog.core.model import Snapshot
from watchdog.core.plan import CycleReport
from watchdog.core.policy import Do
from watchdog.core.utilization import NO_UTILIZATION, Utilization
from watchdog.export.endpoints import Endpoints
from watchdog.export.metrics import Metrics
from watchdog.export.web import respond
from watchdog.report.hour import Mark
from watchdog.report.status import RecentStatus


@dataclass
class Watched:
    """A story with the endpoints that show it; their clock goes along."""

    story: Story = field(default_factory=Story)
    clock: Clock = field(default_factory=Clock)
    recent: list[RecentStatus] = field(default_factory=list)
    # In every cycle the same.
    utilization: Utilization = NO_UTILIZATION

    def __post_init__(self) -> None:
        self.endpoints = Endpoints(Metrics(), 1.0, self.clock)

    def live(self, seen: Callable[[float], Snapshot], until: float, since: float = 0.0, every: float = 15.0) -> None:
        """A cycle every so many seconds, of what is seen at that second."""
        second = since
        while second <= until:
            self.clock.second = second
            report = self.story.see(seen(second), utilization=self.utilization)
            self.endpoints.publish(report)
            second += every

    def mark(self, second: float, do: Do, account: AccountKey, cards: tuple[str, ...] = ()) -> None:
        """An action at this second."""
        self.endpoints.hour.mark(cards, Mark(1000.0 + second, do, account))

    def act(self, action: RecentStatus) -> None:
        """An action that the journal has, the newest last."""
        self.recent.insert(0, action)
        self.endpoints.set_journal("", tuple(self.recent))

    def get(self, path: str) -> tuple[str, str]:
        """The head and the body of the response."""
        head, body = respond(self.endpoints, f"GET {path} HTTP/1.1\r\nHost: n\r\n\r\n".encode())
        return head.decode(), body.decode()

    @property
    def report(self) -> CycleReport:
        """The last cycle."""
        report = self.endpoints.report
        assert report is not None
        return report
