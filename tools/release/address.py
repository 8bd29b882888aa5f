"""The project's address: a placeholder in the checkout, which a release replaces by the real one."""

import re
from pathlib import Path
from typing import Final

from tools.release.checkout import Checkout, NotReleasableError

# Under a name that never resolves (RFC 6761, section 6.5): a checkout does not know where it is published. With a path
# it is that file of the repository.
PLACEHOLDER: Final = "https://gpu-memory-watchdog.example"
_ADDRESS: Final = re.compile(r"https?://[\w.-]+(:\d+)?(/[\w.~-]+)*/?", re.ASCII)


def address(given: str) -> str:
    """The address without a slash at its end. Raises NotReleasableError for what is no plain http or https address."""
    if given and _ADDRESS.fullmatch(given) is None:
        raise NotReleasableError(f"PROJECT_URL={given} must be the repository's address, as https://HOST/OWNER/NAME")
    return given.rstrip("/")


def put_in(tree: Path, url: str, checkout: Checkout) -> None:
    """Replace the placeholder in exported files; paths lead to the files of this very version, as on GitHub."""
    ref = f"v{checkout.base_version}" if checkout.tagged else checkout.revision
    for path in tree.rglob("*"):
        # The address in here is the rule itself, and tests compare with it.
        if not path.is_file() or path.is_symlink() or path.suffix == ".py":
            continue
        content = path.read_bytes()
        if PLACEHOLDER.encode() in content:
            content = content.replace(f"{PLACEHOLDER}/".encode(), f"{url}/blob/{ref}/".encode())
            path.write_bytes(content.replace(PLACEHOLDER.encode(), url.encode()))
