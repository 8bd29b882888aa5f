"""What is in a release, that it is right, and that it can be made again."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.image.builder import LEFT_OUT
from tests.node.support import REPOSITORY, cannot_run, need_root
from tests.release.conftest import IMAGE, URL, Released, release
from tools.programs import helm
from tools.release.base import base_archive
from tools.release.checkout import Checkout, NotReleasableError
from tools.release.image import Wanted, build_image
from tools.release.store import Store
from watchdog import __version__
from watchdog.config.scheme import all_schemes

pytestmark = [pytest.mark.slow, pytest.mark.node]

_PINNED: Final = re.compile(r"^([a-z0-9.-]+)==(\S+)", re.MULTILINE)
_CHART: Final = f"gpu-memory-watchdog-{__version__}.tgz"


def call(*command: str, folder: Path | None = None) -> str:
    """What a command prints, which must succeed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def components(listed: Path, kind: str) -> dict[str, dict[str, Any]]:
    """The components of one kind of package in a list of materials, by name."""
    found = json.loads(listed.read_text(encoding="utf-8"))["components"]
    return {each["name"]: each for each in found if each["purl"].startswith(f"pkg:{kind}/")}


def about(listed: Path) -> dict[str, str]:
    """What a list says of the image itself."""
    root = json.loads(listed.read_text(encoding="utf-8"))["metadata"]["component"]
    return {each["name"].removeprefix("gpu-memory-watchdog:"): each["value"] for each in root["properties"]}


def member(archive: Path, name: str) -> bytes:
    """A file of an archive."""
    with tarfile.open(archive) as tar:
        source = tar.extractfile(name)
        assert source is not None
        return source.read()


def blob(archive: Path, digest: str) -> bytes:
    return member(archive, f"blobs/sha256/{digest.removeprefix('sha256:')}")


def test_the_same_commit_gives_the_same_bytes(released: Released, again: Released) -> None:
    """A release can be made again to check it: every file of it is equal, the image and the lists included."""
    first, second = (
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in each.folder.iterdir()}
        for each in (released, again)
    )
    assert first == second
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in again.folder.iterdir())


def test_all_of_it_is_there(released: Released) -> None:
    """docs/release.md has a row for each file, and the release has no other."""
    text = (REPOSITORY / "docs" / "release.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \|", text.partition("## What is in it")[2].partition("\n## ")[0], re.MULTILINE)
    expected = {row.replace("VERSION", __version__) for row in rows}
    assert {path.name for path in released.folder.iterdir()} == expected


def test_the_checksums_hold(released: Released, tmp_path: Path) -> None:
    """sha256sum accepts every file; with one byte changed it names the file."""
    reported = call("sha256sum", "--check", "--strict", "SHA256SUMS", folder=released.folder)
    names = {line.removesuffix(": OK") for line in reported.splitlines()}
    assert names == {path.name for path in released.folder.iterdir()} - {"SHA256SUMS"}
    broken = tmp_path / "broken"
    shutil.copytree(released.folder, broken)
    chart = broken / _CHART
    content = bytearray(chart.read_bytes())
    content[len(content) // 2] ^= 1
    chart.write_bytes(content)
    check = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    done = subprocess.run(check, cwd=broken, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, f"{_CHART}: FAILED\n")
    shutil.rmtree(broken)


def test_the_wheel_runs(released: Released, tmp_path: Path) -> None:
    """Installed by hash into a fresh environment, as docs/release.md says, it has its version and all schemes."""
    call(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    pip = [str(tmp_path / "venv/bin/pip"), "--disable-pip-version-check", "install", "--quiet"]
    call(*pip, "--require-hashes", "-r", str(released.folder / "requirements.txt"))
    call(*pip, "--no-deps", str(released.file("*.whl")))
    reported = call(str(tmp_path / "venv/bin/gpu-watchdog"), "--version", folder=tmp_path)
    assert reported == f"gpu-watchdog, version {__version__}\n"
    schemes = json.loads(call(str(tmp_path / "venv/bin/gpu-watchdog"), "check", "--schemes", "--json", folder=tmp_path))
    assert [each["name"] for each in schemes["schemes"]] == list(all_schemes())
    shutil.rmtree(tmp_path / "venv")  # 80 MB that pytest would keep


def test_the_image_is_loaded_and_runs(released: Released, tmp_path: Path) -> None:
    """The archive is an image that others load, with our command in it, and labels that say of what it was made."""
    archive, store = released.file("*.oci.tar"), Store(tmp_path)
    try:
        name = store.buildah("pull", "--quiet", f"oci-archive:{archive}").strip()
        container = store.buildah("from", "--pull-never", name).strip()
        root = store.buildah("mount", container).strip()
        reported = call("/usr/sbin/chroot", root, "/opt/gpu-watchdog/bin/gpu-watchdog", "--version")
        assert reported.split()[2] == __version__
        labels = json.loads(store.inspect(name)["Config"])["config"]["Labels"]
    finally:
        store.close()
    prefix = "org.opencontainers.image"
    says = json.loads(released.file("release.json").read_text(encoding="utf-8"))
    commit = call("git", "rev-parse", "HEAD", folder=released.source).strip()
    assert (labels[f"{prefix}.version"], labels[f"{prefix}.revision"]) == (__version__, commit)
    (image,) = says["images"]
    assert (labels[f"{prefix}.base.name"], labels[f"{prefix}.base.digest"]) == (image["base"], image["base_digest"])
    # What the workflow reads for the provenance.
    workflow = (REPOSITORY / ".github/workflows/release.yml").read_text(encoding="utf-8")
    (program,) = re.findall(r"jq --exit-status --raw-output '([^']+)' release\.json", workflow)
    assert call("jq", "-er", program, str(released.folder / "release.json")).strip() == image["digest"]
    assert labels[f"{prefix}.source"] == says["url"] == URL
    listed = about(released.file("*-linux-*.cdx.json"))
    assert (listed["oci:base.digest"], listed["oci:manifest.digest"]) == (image["base_digest"], image["digest"])
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", image["base_digest"])


def test_the_base_is_the_one_that_is_named(released: Released, tmp_path: Path) -> None:
    """The image's first layer is the base's own, bytes of the archive that debootstrap made."""
    archive = released.file("*.oci.tar")
    (image,) = json.loads(released.file("release.json").read_text(encoding="utf-8"))["images"]
    manifest = json.loads(blob(archive, image["digest"]))
    layer = tmp_path / "layer.tar.gz"
    layer.write_bytes(blob(archive, manifest["layers"][0]["digest"]))
    assert member(layer, "var/lib/dpkg/status") == member(base_archive(), "./var/lib/dpkg/status")


def test_the_images_list_has_what_is_locked_and_in_it(released: Released) -> None:
    """Each distribution of the lock file, in its version, by the hash of one wheel of it; none that was left out."""
    lock = (REPOSITORY / "requirements" / "run.txt").read_text(encoding="utf-8")
    expected = {name: version for name, version in _PINNED.findall(lock) if name not in LEFT_OUT}
    found = components(released.file("*-linux-*.cdx.json"), "pypi")
    assert {name: each["version"] for name, each in found.items()} == expected
    for name, each in found.items():
        (digest,) = each["hashes"]
        entry = lock.partition(f"\n{name}==")[2] or lock.partition(f"{name}==")[2]
        assert digest["content"] in entry.partition("==")[0], name
        assert each["licenses"], name


def test_the_images_list_has_what_dpkg_has(released: Released, tmp_path: Path) -> None:
    """The base's packages, in the versions that dpkg itself reads from its records; most with licences."""
    (tmp_path / "dpkg/updates").mkdir(parents=True)
    (tmp_path / "dpkg/status").write_bytes(member(base_archive(), "./var/lib/dpkg/status"))
    reported = call("dpkg-query", f"--admindir={tmp_path / 'dpkg'}", "-W", "-f", "${Package} ${Version}\n")
    found = components(released.file("*-linux-*.cdx.json"), "deb")
    assert {name: each["version"] for name, each in found.items()} == dict(
        line.split() for line in reported.splitlines()
    )
    assert sum("licenses" in each for each in found.values()) > len(found) / 2


def test_the_wheels_list_has_all_that_is_locked(released: Released) -> None:
    """The wheel installed by the lock file has what its list says, from files of these hashes."""
    lock = (REPOSITORY / "requirements" / "run.txt").read_text(encoding="utf-8")
    found = components(released.file("*any.cdx.json"), "pypi")
    assert {name: each["version"] for name, each in found.items()} == dict(_PINNED.findall(lock))
    listed = {digest["content"] for each in found.values() for digest in each["hashes"]}
    assert listed == set(re.findall(r"sha256:([0-9a-f]{64})", lock))


def test_lists_tell_what_needs_what(released: Released) -> None:
    """Each component hangs below the image or the wheel: a scanner can say by way of what it came in."""
    for listed in released.folder.glob("*.cdx.json"):
        content = json.loads(listed.read_text(encoding="utf-8"))
        below = {each["ref"]: each.get("dependsOn", []) for each in content["dependencies"]}
        reached, waiting = set(), [content["metadata"]["component"]["bom-ref"]]
        while waiting:
            if (each := waiting.pop()) not in reached:
                reached.add(each)
                waiting += below[each]
        assert {each["bom-ref"] for each in content["components"]} <= reached, listed.name


def test_the_chart_is_of_the_release(released: Released) -> None:
    """Helm reads the packed chart: its versions are the release's, and what it renders has the release's image."""
    chart = str(released.folder / _CHART)
    shown = yaml.safe_load(call(str(helm()), "show", "chart", chart))
    assert (shown["version"], shown["appVersion"]) == (__version__, __version__)
    assert shown["home"] == URL
    rules = "--set=prometheus.rules.create=true"
    rendered = call(str(helm()), "template", "x", chart, "--namespace=gpu-memory-watchdog", rules)
    alerts = released.file("alerts.yaml").read_text(encoding="utf-8")
    for text in (alerts, rendered):
        pages = {each.partition("#")[0] for each in re.findall(r"runbook_url: (\S+)", text)}
        assert pages == {f"{URL}/blob/v{__version__}/docs/runbooks.md"}
    assert set(re.findall(r'image: "(\S+)"', rendered)) == {f"{IMAGE}:{__version__}"}


@pytest.mark.parametrize("overlay", ["observe", "enforce", "capacity"])
def test_the_manifests_are_of_the_release(released: Released, overlay: str) -> None:
    """One file to apply, with the release's image, a policy of this kind, and a rule for the pods it belongs to."""
    objects = list(yaml.safe_load_all((released.folder / f"{overlay}.yaml").read_text(encoding="utf-8")))
    (daemons,) = [each for each in objects if each["kind"] == "DaemonSet"]
    containers = daemons["spec"]["template"]["spec"]["containers"]
    assert {each["image"] for each in containers} == {f"{IMAGE}:{__version__}"}
    (policy,) = [each["data"]["policy.toml"] for each in objects if each["kind"] == "ConfigMap"]
    assert ('\nmode = "enforce"' in policy, "\n[capacity]" in policy) == (overlay == "enforce", overlay == "capacity")


def test_what_can_not_be_released_leaves_the_last_release(released: Released, tmp_path: Path) -> None:
    """Refused in a sentence, with the remedy, and the release before it lies there as it was."""
    subprocess.run(["git", "clone", "-q", str(released.source), str(tmp_path / "clone")], check=True)
    (tmp_path / "clone" / "LICENSE").write_text("mine\n", encoding="utf-8")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").touch()
    made = release(tmp_path / "clone", tmp_path / "out")
    assert (made.returncode, made.stdout) == (1, "")
    assert made.stderr == "release: not committed: LICENSE. A release is made of a commit: commit or stash them\n"
    assert [path.name for path in tmp_path.rglob("old")] == ["old"]
    assert {path.name for path in tmp_path.iterdir()} == {"clone", "out"}


def test_a_base_that_can_not_be_had_is_named(tmp_path: Path) -> None:
    """Without a registry the remedy is named: another base, or one that debootstrap makes."""
    need_root()
    if shutil.which("buildah") is None:
        cannot_run("an image is built with buildah (Debian: apt-get install buildah)")
    checkout = Checkout(folder=REPOSITORY, base_version=__version__, revision="0" * 40, epoch=0, tagged=True)
    # Nothing listens there.
    wanted = Wanted(name="x", base="localhost:1/python:3.11", run_base="", platform="linux/amd64")
    with pytest.raises(
        NotReleasableError, match=r"the base localhost:1/python:3\.11 can't be had(.|\n)*BASE=debootstrap"
    ):
        build_image(Store(tmp_path), REPOSITORY, checkout, wanted)
