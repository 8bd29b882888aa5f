"""`python -m tools.release`: builds the release of the commit that is checked out."""

import argparse
import json
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tools import ROOT
from tools.programs import NoProgramsError
from tools.release import debian, python
from tools.release.address import PLACEHOLDER, address, put_in
from tools.release.artifacts import IMAGE, build_python, copy_files, pack_chart, render_manifests
from tools.release.checkout import Checkout, NotReleasableError, read_checkout
from tools.release.image import Wanted, build_image, can_build, save_image, unpinned
from tools.release.krew import pack_plugin
from tools.release.layers import read_image
from tools.release.packing import sha256
from tools.release.sbom import Subject, image_sbom, wheel_sbom
from tools.release.store import Store

_PROGRAMS: Final = ("git", "buildah", "setpriv", "tar")


def main() -> int:
    """Build it, or say in a sentence why it can't be."""
    options = _options()
    os.umask(0o022)  # what is released is for others to read
    try:
        made = _build(options)
    except (NotReleasableError, NoProgramsError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    kind = "" if made.tagged else f", not a release: the commit has no tag v{made.base_version}"
    print(f"{options.out}: {made.version}{kind}")
    if not options.url:
        print(f"links in it lead to {PLACEHOLDER}, a placeholder: PROJECT_URL=https://HOST/OWNER/NAME replaces it")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    own = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}.get(os.uname().machine, "")
    parser.add_argument("--source", type=Path, default=ROOT, help="the checkout (default: this one)")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "release", help="the folder to write; its old content is removed"
    )
    parser.add_argument("--image", default=IMAGE, help="your registry's name for the image, without a tag")
    parser.add_argument("--url", default="", help="the repository's address, for links; empty: a placeholder")
    parser.add_argument("--base", default="", help="what the image is built on; `debootstrap` makes a small Debian")
    parser.add_argument("--run-base", default="", help="what it stands on, if it is another one")
    parser.add_argument("--platform", default=own, help="linux/amd64, linux/arm64, or both with a comma between")
    return parser.parse_args()


def _build(options: argparse.Namespace) -> Checkout:
    if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
        raise NotReleasableError(f"needs {', '.join(missing)}; on Debian and Ubuntu: apt-get install git buildah")
    platforms = options.platform.split(",")
    for platform in platforms:
        if reason := can_build(platform, os.uname().machine, Path("/proc/sys/fs/binfmt_misc")):
            raise NotReleasableError(reason)
    options.url = address(options.url)
    checkout = read_checkout(options.source)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    # Next to its place, so that a whole release is moved there, or none.
    scratch = Path(tempfile.mkdtemp(prefix=".release-", dir=options.out.parent))
    try:
        to = scratch / "release"
        to.mkdir(mode=0o755)
        checkout.export(scratch / "tree")
        if checkout.tagged and (reason := unpinned(scratch / "tree", options.base, options.run_base)):
            raise NotReleasableError(reason)
        if options.url:
            put_in(scratch / "tree", options.url, checkout)
        print(f"release {checkout.version}: wheel, chart, manifests, plugin", flush=True)
        _without_image(scratch / "tree", to, checkout, options.image)
        pack_plugin(scratch / "tree", to, scratch, checkout, options.url)
        images = [_image(scratch, to, checkout, options, each) for each in platforms]
        _sums(to, checkout, options, images)
        shutil.rmtree(options.out, ignore_errors=True)
        to.rename(options.out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return checkout


def _without_image(tree: Path, to: Path, checkout: Checkout, image: str) -> None:
    wheel = build_python(tree, to, checkout)
    subject = Subject(version=checkout.python_version, sha256=sha256(wheel), epoch=checkout.epoch)
    pins = python.locked((tree / "requirements" / "run.txt").read_text(encoding="utf-8"))
    project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    direct = frozenset(python.normal(each.partition(">")[0]) for each in project["dependencies"])
    text = wheel_sbom(python.with_licences(pins), direct, subject)
    wheel.with_suffix(".cdx.json").write_text(text, encoding="utf-8")
    copy_files(tree, to)
    render_manifests(tree, to, checkout, image)
    pack_chart(tree, to, checkout, image)


def _image(scratch: Path, to: Path, checkout: Checkout, options: argparse.Namespace, platform: str) -> dict[str, str]:
    print(f"release {checkout.version}: image for {platform}", flush=True)
    wanted = Wanted(name=options.image, base=options.base, run_base=options.run_base, platform=platform)
    stem = f"{IMAGE}-{checkout.version}-{platform.replace('/', '-')}"
    archive = to / f"{stem}.oci.tar"
    with _store(scratch / stem) as store:
        base = build_image(store, scratch / "tree", checkout, wanted)
        layout = scratch / f"{stem}.oci"
        digest = save_image(store, f"{options.image}:{checkout.version}", layout, archive, checkout.epoch)
        shutil.rmtree(layout)
    read = read_image(archive, lambda path: debian.is_wanted(path) or python.is_wanted(path))
    subject = Subject(version=checkout.version, sha256=sha256(archive), epoch=checkout.epoch)
    (to / f"{stem}.cdx.json").write_text(image_sbom(read, base, subject), encoding="utf-8")
    return {
        "platform": platform,
        "archive": archive.name,
        "digest": digest,
        "base": base.name,
        "base_digest": base.digest,
    }


@contextmanager
def _store(folder: Path) -> Iterator[Store]:
    folder.mkdir()
    store = Store(folder)
    try:
        yield store
    finally:
        store.close()


def _sums(to: Path, checkout: Checkout, options: argparse.Namespace, images: list[dict[str, str]]) -> None:
    about = {
        "version": checkout.version,
        "python_version": checkout.python_version,
        "revision": checkout.revision,
        "source_date_epoch": checkout.epoch,
        "released": checkout.tagged,
        "url": options.url or None,
        "image": f"{options.image}:{checkout.version}",
        "images": images,
    }
    (to / "release.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    files = sorted(path for path in to.iterdir())
    lines = [f"{sha256(path)}  {path.name}\n" for path in files]
    (to / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
