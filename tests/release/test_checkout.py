"""Which commits are released, and under which version."""

from pathlib import Path

import pytest

from tests.release.repository import AUTHOR, git
from tools.release.checkout import NotReleasableError, read_checkout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small repository with the file that has the version."""
    made = tmp_path / "repository"
    (made / "watchdog").mkdir(parents=True)
    (made / "watchdog" / "__init__.py").write_text('"""Ours."""\n\n__version__ = "1.2.3"\n', encoding="utf-8")
    git(made, "init", "-q", "-b", "main")
    git(made, "add", "-A")
    git(made, *AUTHOR, "commit", "-q", "-m", "first")
    return made


def test_a_tagged_commit_has_the_version_alone(folder: Path, tmp_path: Path) -> None:
    """The tag v1.2.3 makes 1.2.3 of it, everywhere the same; an annotated tag does too."""
    git(folder, *AUTHOR, "tag", "-a", "-m", "1.2.3", "v1.2.3")
    checkout = read_checkout(folder)
    assert (checkout.version, checkout.python_version, checkout.tagged) == ("1.2.3", "1.2.3", True)
    checkout.export(tmp_path / "tree")
    assert '__version__ = "1.2.3"' in (tmp_path / "tree/watchdog/__init__.py").read_text(encoding="utf-8")


def test_an_untagged_commit_is_marked(folder: Path, tmp_path: Path) -> None:
    """Without the tag the versions say that it is no release, and of which commit it is; the program says so too."""
    checkout = read_checkout(folder)
    commit = git(folder, "rev-parse", "--short=12", "HEAD").strip()
    assert (checkout.version, checkout.python_version) == (f"1.2.3-dev.g{commit}", f"1.2.3.dev0+g{commit}")
    checkout.export(tmp_path / "tree")
    assert f'__version__ = "1.2.3.dev0+g{commit}"' in (tmp_path / "tree/watchdog/__init__.py").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("name", ["new.txt", "watchdog/__init__.py"])
def test_what_is_not_committed_is_named(folder: Path, name: str) -> None:
    """A release that would differ from what lies there is refused, with the file's name."""
    (folder / name).write_text("x\n", encoding="utf-8")
    with pytest.raises(NotReleasableError, match=f"not committed: {name}"):
        read_checkout(folder)


def test_a_tag_of_another_version_is_refused(folder: Path) -> None:
    """A forgotten version would be released under the name of the one before."""
    git(folder, "tag", "v1.2.4")
    with pytest.raises(NotReleasableError, match=r"tagged v1\.2\.4, and watchdog/__init__\.py says 1\.2\.3"):
        read_checkout(folder)


def test_without_git_there_is_no_release(tmp_path: Path) -> None:
    """An unpacked archive has no commit and no time: one sentence reports it."""
    with pytest.raises(NotReleasableError, match="is no git checkout"):
        read_checkout(tmp_path)


def test_modes_are_not_those_of_the_machine(folder: Path, tmp_path: Path) -> None:
    """The exported files have the modes that git keeps, whatever is configured: they get into the image."""
    git(folder, "config", "tar.umask", "0077")
    read_checkout(folder).export(tmp_path / "tree")
    assert (tmp_path / "tree/watchdog").stat().st_mode & 0o777 == 0o755
