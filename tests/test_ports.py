"""No two tests get the same port, in whichever process they run."""

from tests.node.support import run_python
from tests.ports import claim, free_port


def test_another_process_gets_other_ports() -> None:
    """What one worker has claimed no other run of the tests takes, although nobody listens there; it ends with it."""
    port = free_port()
    assert run_python(f"from tests.ports import claim; print(claim({port}))").split() == ["False"]
    theirs, again = run_python("from tests.ports import claim, free_port; p = free_port(); print(p, claim(p))").split()
    assert again == "False"
    assert claim(int(theirs))
