"""What is shipped and from what it is built: files, versions, locks, bill of materials, container and CI file.

Building and installing the packages takes a minute and the package index: that is `make package`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module, util
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

import selpe
from selpe.cli.demo import EXAMPLES
from selpe.models.store.registry import REGISTRY

ROOT = Path(__file__).resolve().parents[1]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    spec = util.spec_from_file_location("sbom", ROOT / ".ci" / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules["sbom"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def project() -> ProjectMetadata[Any]:
    return ProjectMetadata(str(ROOT), PluginManager())


def listed(builder: Any) -> dict[str, Path]:
    """The files that a builder would pack, by their name in the package."""
    found = builder.recurse_included_files()
    return {file.distribution_path.replace(os.sep, "/"): Path(file.path) for file in found}


# -- what is in the packages -----------------------------------------------------------------------------------------


def test_the_wheel_holds_the_package_and_its_data_and_nothing_else() -> None:
    wheel = set(listed(WheelBuilder(str(ROOT))))
    package = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "selpe").rglob("*.*")}
    data = {name for name in package if not name.endswith((".py", ".pyc"))}
    assert {
        "selpe/py.typed",
        "selpe/watch/page.html",
        "selpe/studio/static/studio.js",
        "selpe/privacy/PROOF.md",
    } <= data
    assert any(name.endswith(".j2") for name in data)
    assert data <= wheel
    for example in EXAMPLES:
        assert {f"selpe/examples/{example}/{name}" for name in ("private.csv", "schema.yaml", "selpe.yaml")} <= wheel
    assert {name.partition("/")[0] for name in wheel} == {"selpe"}
    assert not [name for name in wheel if "__pycache__" in name or "/tests/" in name or "test_" in name]


def test_the_source_package_can_be_built_and_tested_and_holds_nothing_large() -> None:
    sdist = listed(SdistBuilder(str(ROOT)))
    needed = {"README.md", "LICENSE", "Makefile", "mkdocs.yml", ".ci/package.py", "requirements/dev.lock"}
    assert needed <= set(sdist)
    assert {"src/selpe/py.typed", "tests/conftest.py", "examples/triage/private.csv"} <= set(sdist)
    assert not [name for name, path in sdist.items() if path.stat().st_size > 1_000_000]
    assert not [name for name in sdist if PurePosixPath(name).suffix in {".gguf", ".safetensors", ".parquet", ".whl"}]


# -- metadata --------------------------------------------------------------------------------------------------------


def test_the_version_is_written_in_one_place(project: ProjectMetadata[Any]) -> None:
    assert project.version == selpe.__version__
    files = (path for path in (ROOT / "src").rglob("*.py") if path != ROOT / "src" / "selpe" / "version.py")
    assert not [path for path in (*files, ROOT / "pyproject.toml") if selpe.__version__ in path.read_text("utf-8")]


def test_the_metadata_names_the_pythons_that_are_tested(project: ProjectMetadata[Any]) -> None:
    named = {kind.rpartition(" :: ")[2] for kind in project.core.classifiers if " :: Python :: 3." in kind}
    assert named == set(PYTHONS)
    allowed = SpecifierSet(project.core.requires_python)
    assert all(python in allowed for python in PYTHONS)
    assert "3.9" not in allowed


def test_the_command_leads_to_a_function(project: ProjectMetadata[Any]) -> None:
    module, _, name = project.core.scripts["selpe"].partition(":")
    assert callable(getattr(import_module(module), name))


def test_the_licence_is_shipped(project: ProjectMetadata[Any]) -> None:
    assert project.core.license_expression == "Apache-2.0"
    assert project.core.license_files == ["LICENSE"]
    assert "Apache License" in (ROOT / "LICENSE").read_text("utf-8")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_help_can_be_shown_where_the_encoding_lacks_our_letters(encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "selpe", "plan", "--help"],
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"Usage" in done.stdout


# -- locks and the bill of materials ---------------------------------------------------------------------------------


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_holds_exact_versions_with_hashes_and_nothing_else(lock: Path, sbom: ModuleType) -> None:
    pins = sbom.read_lock(lock)
    assert pins
    assert not [pin.name for pin in pins if not pin.hashes]
    assert len({(pin.name, pin.version) for pin in pins}) == len(pins)


def test_a_line_that_is_no_pin_is_noticed(sbom: ModuleType, tmp_path: Path) -> None:
    lock = tmp_path / "bad.lock"
    for line in (
        "numpy>=2",
        "git+https://example.org/numpy",
        "--index-url https://example.org",
        "numpy==2 --hash=md5:1",
    ):
        lock.write_text(f"{line}\n", encoding="utf-8")
        with pytest.raises(ValueError, match=r"bad\.lock:1"):
            sbom.read_lock(lock)


def test_what_users_install_is_what_is_tested(sbom: ModuleType) -> None:
    tested = {(pin.name, pin.version, tuple(pin.hashes)) for pin in sbom.read_lock(ROOT / "requirements" / "dev.lock")}
    assert {(pin.name, pin.version, tuple(pin.hashes)) for pin in sbom.read_lock()} <= tested


def test_every_dependency_is_locked_in_a_version_that_is_allowed(
    sbom: ModuleType, project: ProjectMetadata[Any]
) -> None:
    locked: dict[str, list[str]] = {}
    for pin in sbom.read_lock():
        locked.setdefault(pin.name, []).append(pin.version)
    extras = project.core.optional_dependencies
    for text in (*project.core.dependencies, *extras["server"], *extras["sql"]):
        asked = Requirement(text)
        versions = locked[canonicalize_name(asked.name)]
        assert all(asked.specifier.contains(version, prereleases=True) for version in versions), text


def test_the_bill_of_materials_is_up_to_date(sbom: ModuleType) -> None:
    assert sbom.same(sbom.bill(), sbom._old()), "run: make sbom"


def test_the_bill_of_materials_names_every_package_and_every_file_of_a_model_by_hash(sbom: ModuleType) -> None:
    told = sbom._old()
    packages = {each["purl"]: each for each in told["components"] if each["type"] == "library"}
    for pin in sbom.read_lock():
        (source,) = packages[pin.purl]["externalReferences"]
        assert [each["content"] for each in source["hashes"]] == pin.hashes
    models = {each["name"]: each for each in told["components"] if each["type"] == "machine-learning-model"}
    assert set(models) == set(REGISTRY)
    for name, entry in REGISTRY.items():
        hashes = [file["hashes"][0]["content"] for file in models[name]["components"]]
        assert hashes == [file.sha256 for file in entry.files]
        assert all(hashes)
    known = {told["metadata"]["component"]["bom-ref"], *packages, *(f"model:{name}" for name in models)}
    assert {ref for each in told["dependencies"] for ref in (each["ref"], *each["dependsOn"])} <= known


def test_a_bill_with_another_version_or_hash_is_not_up_to_date(sbom: ModuleType) -> None:
    made, old = sbom.bill(), sbom._old()
    old["components"][0]["version"] = "0"
    assert not sbom.same(made, old)
    old = sbom._old()
    old["components"][0]["externalReferences"][0]["hashes"].pop()
    assert not sbom.same(made, old)


# -- container and CI ------------------------------------------------------------------------------------------------


def instructions() -> Iterator[str]:
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    yield from re.sub(r"\\\n", " ", text).splitlines()


def test_the_container_runs_as_an_ordinary_user_and_offline() -> None:
    lines = list(instructions())
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users == ["selpe"]
    stages = [line for line in lines if line.startswith("FROM ")]
    assert stages[-1].split()[1] == "bare", "the last image stands on the one that sets the user"
    assert any("SELPE_OFFLINE=1" in line for line in lines if line.startswith("ENV "))


def test_the_container_takes_nothing_from_the_index_without_a_hash() -> None:
    commands = [part for line in instructions() if line.startswith("RUN ") for part in line.split("&&")]
    installing = [part for part in commands if "pip install" in part]
    assert len(installing) == 3
    assert all("--require-hashes" in part or "--no-index" in part for part in installing)


def test_what_the_container_copies_exists_and_is_not_ignored() -> None:
    let_in = [line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").split() if line.startswith("!")]
    copying = [line.split() for line in instructions() if line.startswith("COPY ") and "--from" not in line]
    sources = [source for words in copying for source in words[1:-1]]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(PurePosixPath(source).match(pattern) for pattern in let_in), source


def test_the_ci_file_covers_every_python_and_system_and_pins_its_actions() -> None:
    content: Any = YAML(typ="safe").load(WORKFLOW.read_text("utf-8"))
    matrix = content["jobs"]["test"]["strategy"]["matrix"]
    assert tuple(matrix["python"]) == PYTHONS
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    assert content["permissions"] == {"contents": "read"}
    used = [step["uses"] for job in content["jobs"].values() for step in job["steps"] if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", each) for each in used)
