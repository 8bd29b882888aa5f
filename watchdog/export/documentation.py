"""Where the documentation of this version is, for links in pages."""

from functools import cache
from importlib import metadata
from typing import Final, NamedTuple

_DISTRIBUTION: Final = "gpu-memory-watchdog"
# A host that never resolves (RFC 6761, section 6.5): a checkout does not know where it is published.
_PLACEHOLDER: Final = ".example"


class Document(NamedTuple):
    """A page of the documentation, or a part of one."""

    title: str
    # Below the folder `docs`: `runbooks.md#gpumemoryoverlimit`.
    path: str

    @property
    def url(self) -> str:
        """Its address; empty if it is not known."""
        folder = _folder()
        return f"{folder}{self.path}" if folder else ""


def runbook(alert: str) -> Document:
    """The runbook of an alert."""
    return Document(title=f"Runbook: {alert}", path=f"runbooks.md#{alert.lower()}")


@cache
def _folder() -> str:
    """The address of the folder of the documentation, with a slash at its end; empty if it is not known."""
    try:
        urls = metadata.metadata(_DISTRIBUTION).get_all("Project-URL", [])
    except metadata.PackageNotFoundError:
        return ""
    return folder_of(urls)


def folder_of(urls: list[str]) -> str:
    """The folder of the documentation, from the addresses in the metadata of a distribution: `Documentation, URL`."""
    pages = (url.partition(", ")[2] for url in urls if url.startswith("Documentation, "))
    folder, slash, _ = next(pages, "").rpartition("/")
    host = folder.partition("://")[2].partition("/")[0]
    return f"{folder}{slash}" if host and not host.endswith(_PLACEHOLDER) else ""
