"""Builds the source package and the wheel into dist/, and tries the wheel where nothing else of ours is.

    python .ci/package.py             build twice, look inside, install into a new environment, run the command
    python .ci/package.py --build     build twice and look inside only

The wheel is built from the unpacked source package, so that one is known to be complete. Both are built twice and must
be the same to the last byte. The trial needs the package index (or a mirror) for the locked dependencies, no model.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
LARGEST_FILE = 1_000_000  # bytes; there are no data sets and no weights in a package
LARGEST_PACKAGE = 8_000_000
BUILD_EPOCH = "1704067200"  # the moment that every file in the packages bears, unless the caller names another


class PackageError(Exception):
    """Something in a package is not as it must be."""


def main() -> int:
    """Builds, looks and tries; 0 where all is well."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", BUILD_EPOCH)
    DIST.mkdir(exist_ok=True)
    for old in DIST.glob("selpe-*"):
        old.unlink()
    try:
        sdist, wheel = build(DIST)
        look_into_sdist(sdist)
        look_into_wheel(wheel)
        if "--build" not in sys.argv[1:]:
            with tempfile.TemporaryDirectory(prefix="selpe-package-") as place:
                try_out(wheel, Path(place))
    except (PackageError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    for path in (sdist, wheel):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        sys.stdout.write(f"{path.relative_to(ROOT)}  {path.stat().st_size:,} bytes  sha256 {digest}\n")
    return 0


def build(target: Path) -> tuple[Path, Path]:
    """The source package and the wheel made from it; raises PackageError where a second build gives other bytes."""
    with tempfile.TemporaryDirectory(prefix="selpe-build-") as place:
        made = [_build_once(Path(place) / name) for name in ("first", "second")]
        for one, other in zip(*made, strict=True):
            if one.read_bytes() != other.read_bytes():
                raise PackageError(f"{one.name} comes out differently when it is built again")
        sdist, wheel = (path.replace(target / path.name) for path in made[0])
    return sdist, wheel


def _build_once(place: Path) -> tuple[Path, Path]:
    place.mkdir()
    _hatchling("sdist", ROOT, place)
    sdist = next(place.glob("*.tar.gz"))
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):  # every Python that is up to date
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(place / "unpacked")
    _hatchling("wheel", next((place / "unpacked").iterdir()), place)
    return sdist, next(place.glob("*.whl"))


def _hatchling(kind: str, source: Path, target: Path) -> None:
    _run([sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)], source)


def look_into_sdist(sdist: Path) -> None:
    """Raises PackageError where the source package is large, or holds what is not in the repository."""
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2]: member for member in archive if member.isfile() and (name := member.name)}
    large = [name for name, member in files.items() if member.size > LARGEST_FILE]
    if large or sdist.stat().st_size > LARGEST_PACKAGE:
        raise PackageError(f"the source package is too large: {', '.join(large) or sdist.name}")
    if missing := {"pyproject.toml", "README.md", "LICENSE", "requirements/selpe.lock", "Makefile"} - set(files):
        raise PackageError(f"the source package lacks {', '.join(sorted(missing))}")
    known = _tracked()
    if known and (strange := set(files) - known - {"PKG-INFO"}):
        raise PackageError(f"the source package holds what is not in the repository: {', '.join(sorted(strange))}")


def look_into_wheel(wheel: Path) -> None:
    """Raises PackageError where a file of the package is missing from the wheel, or one of another kind is in it."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.partition("/")[0].endswith(".dist-info")}
    package = {f.relative_to(ROOT / "src").as_posix() for f in (ROOT / "src" / "selpe").rglob("*") if f.is_file()}
    wanted = {name for name in package if "__pycache__" not in name}
    wanted |= {f"selpe/{f.relative_to(ROOT).as_posix()}" for f in (ROOT / "examples").glob("*/*") if f.is_file()}
    if missing := wanted - names:
        raise PackageError(f"the wheel lacks {', '.join(sorted(missing))}")
    if strange := names - wanted:
        raise PackageError(f"the wheel holds what does not belong in it: {', '.join(sorted(strange))}")


def _tracked() -> set[str]:
    """The files in the repository; empty where this is no repository, as in an unpacked source package."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    return set(done.stdout.decode().split("\0")) if done.returncode == 0 else set()


def try_out(wheel: Path, place: Path) -> None:
    """Installs the wheel with locked dependencies into a new environment and uses it, offline, in an empty folder."""
    venv.create(place / "venv", with_pip=True)
    scripts = place / "venv" / ("Scripts" if os.name == "nt" else "bin")
    python, selpe = str(scripts / "python"), str(scripts / "selpe")
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    lock = str(ROOT / "requirements" / "selpe.lock")
    _run([*pip, "install", "--quiet", "--only-binary", ":all:", "--require-hashes", "-r", lock], place)
    _run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], place)
    _run([*pip, "check"], place)
    empty = place / "empty"
    empty.mkdir()
    trials = (
        [selpe, "--version"],
        [selpe, "--help"],
        [selpe, "doctor", "--quick"],
        [selpe, "demo", "--llm", "fake", "--records", "32"],
        [python, "-c", "from selpe import SelPE, Schema; Schema.load('selpe-demo/schema.yaml')"],
        [selpe, "check", "selpe-demo/selpe.yaml"],
        [selpe, "init", "selpe-demo/private.csv", "--out", "drafted"],
    )
    for words in trials:
        _run(words, empty, {"SELPE_OFFLINE": "1", **_homeless(place)})


def _homeless(place: Path) -> dict[str, str]:
    """Variables that keep caches, keys and ledgers of the trial out of the user's own folders."""
    names = ("SELPE_CACHE", "SELPE_KEY", "SELPE_LEDGER")
    return {name: str(place / name.lower()) for name in names}


def _run(words: list[str], folder: Path, variables: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        words, cwd=folder, env={**os.environ, **(variables or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        told = (done.stderr.strip() or done.stdout.strip()).splitlines()[-5:]
        raise PackageError(f"`{' '.join(words)}` failed with {done.returncode}: {' | '.join(told)}")


if __name__ == "__main__":
    sys.exit(main())
