"""What libraries print by themselves is in the log, once."""

import json
from typing import Any

from tests.node.support import run_python


def _logged(code: str) -> list[dict[str, Any]]:
    """Every line on stdout, to which the log is written here, and on stderr; each must be JSON."""
    start = """
        import logging, sys, threading, warnings
        sys.stderr = sys.stdout
        from watchdog.export.log import capture_libraries, configure
        configure(sys.stdout)
        capture_libraries()
    """
    return [json.loads(line) for line in run_python(start + code).splitlines()]


def test_messages_of_a_library() -> None:
    """A message has its level and its logger's name, and is one line however often it comes and whatever is in it."""
    code = """
        for number in range(100):
            logging.getLogger("urllib3").warning("retry %d\\nof many", number)
        logging.error("exec: plugin failed")
        logging.getLogger("client").info("not shown")
        logging.getLogger("client").error("odd %d", "arguments")
    """
    lines = [(each["event"], each["level"], each["logger"], each["message"]) for each in _logged(code)]
    assert lines == [
        ("warning", "warning", "urllib3", "retry 0 of many"),
        ("error", "error", "root", "exec: plugin failed"),
        ("error", "error", "client", "odd %d"),
    ]


def test_warnings_of_a_library() -> None:
    """A warning has its kind, without the place in the source code that Python would print."""
    code = """
        warnings.simplefilter("always")
        for number in range(100):
            warnings.warn(f"request {number} is not verified")
    """
    (line,) = _logged(code)
    assert (line["level"], line["logger"]) == ("warning", "builtins")
    assert line["message"] == "UserWarning: request 0 is not verified"


def test_a_thread_that_ends() -> None:
    """A thread that ends by a defect, and an error in a finalizer, are one line with the traceback in a field."""
    code = """
        thread = threading.Thread(target=lambda: 1 / 0, name="api-pods")
        thread.start()
        thread.join()
        class Odd:
            def __del__(self):
                raise KeyError("gone")
        Odd()
    """
    ended, ignored = _logged(code)
    assert (ended["level"], ended["logger"]) == ("error", "python")
    assert ended["message"].startswith("the thread api-pods has ended unexpectedly; please report this: ZeroDivision")
    assert "Traceback" in ended["traceback"]
    assert ignored["message"] == "an error was ignored; please report this: KeyError('gone')"
