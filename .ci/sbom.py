"""The bill of materials in requirements/sbom.json (CycloneDX 1.6): every locked package and every model, with hashes.

    python .ci/sbom.py            writes it anew where something has changed
    python .ci/sbom.py --check    fails where something has changed

Versions, hashes, markers and who needs whom come from requirements/selpe.lock; licences from the installed packages
(one that is not installed on this system keeps the licence of the last bill); models from the registry.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

from selpe import __version__
from selpe.models.store.registry import REGISTRY, HubSource, ModelEntry, ModelFile

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / "selpe.lock"
BILL = ROOT / "requirements" / "sbom.json"
_OURS = f"pkg:pypi/selpe@{__version__}"
_PIN = re.compile(
    r"^(?P<name>[a-z0-9][a-z0-9.-]*)(?:\[[^]]*\])?==(?P<version>[^ ;\\]+)(?: ; (?P<marker>[^\\]+?))? *\\?$"
)
_NEEDED_BY = re.compile(r"^    #(?: via)? +([a-z0-9][a-z0-9.-]*)(?:\[[^]]*\])?(?: \(pyproject\.toml(?::[a-z]+)?\))?$")


@dataclass(slots=True)
class Pin:
    """One locked version: where it applies, the hashes of its files, and which packages need it."""

    name: str
    version: str
    marker: str = ""
    hashes: list[str] = field(default_factory=list)
    via: list[str] = field(default_factory=list)

    @property
    def purl(self) -> str:
        """Its address, as package databases write it."""
        return f"pkg:pypi/{self.name}@{self.version}"


def read_lock(path: Path = LOCK) -> list[Pin]:
    """The pins of a lock, in its order; raises ValueError at a line that is none of what a lock holds."""
    pins: list[Pin] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if found := _PIN.match(line):
            pins.append(Pin(found["name"], found["version"], found["marker"] or ""))
        elif found := re.fullmatch(r"    --hash=sha256:([0-9a-f]{64})(?: \\)?", line):
            pins[-1].hashes.append(found[1])
        elif found := _NEEDED_BY.match(line):
            pins[-1].via.append(found[1])
        elif not re.fullmatch(r"    # (?: *-c .*|via(?: -c .*)?)|# .*|", line):
            raise ValueError(f"{path.name}:{number} is no pin, hash or remark")
    return pins


def bill() -> dict[str, Any]:
    """The bill of materials, without the moment it was made."""
    pins = read_lock()
    before = {each["name"]: each["licenses"] for each in _old().get("components", []) if "licenses" in each}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "authors": [{"name": "The SelPE developers"}],
            "component": {
                "type": "library", "bom-ref": _OURS, "name": "selpe", "version": __version__, "purl": _OURS,
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": [*(_package(pin, before) for pin in pins), *(_model(entry) for entry in REGISTRY.values())],
        "dependencies": list(_dependencies(pins)),
    }  # fmt: skip


def same(made: dict[str, Any], old: dict[str, Any]) -> bool:
    """Whether two bills say the same, the moment and the licences (which need installed packages) apart."""

    def essence(given: dict[str, Any]) -> dict[str, Any]:
        told = json.loads(json.dumps(given))
        told.pop("serialNumber", None)
        told.get("metadata", {}).pop("timestamp", None)
        for component in told.get("components", []):
            component.pop("licenses", None)
        return dict(told)

    return essence(made) == essence(old)


def _old() -> dict[str, Any]:
    return dict(json.loads(BILL.read_text(encoding="utf-8"))) if BILL.exists() else {}


def _package(pin: Pin, before: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "library", "bom-ref": pin.purl, "name": pin.name, "version": pin.version, "purl": pin.purl,
        "externalReferences": [{
            "type": "distribution", "url": f"https://pypi.org/project/{pin.name}/{pin.version}/",
            "hashes": [{"alg": "SHA-256", "content": each} for each in pin.hashes],
        }],
    }  # fmt: skip
    if licence := _licence(pin.name) or before.get(pin.name):
        made["licenses"] = licence
    if pin.marker:
        made["properties"] = [{"name": "selpe:where", "value": pin.marker}]
    return made


def _licence(name: str) -> list[dict[str, Any]] | None:
    try:
        about = metadata(name)
    except PackageNotFoundError:
        return None
    said = str(about["License-Expression"] or "").strip()
    if not said:
        kinds = [each.split(" :: ")[-1] for each in about.get_all("Classifier") or [] if each.startswith("License ::")]
        said = " and ".join(kind for kind in kinds if kind != "OSI Approved") or str(about["License"] or "").strip()
    if not said or "\n" in said:
        return None
    return [{"expression": said}] if about["License-Expression"] else [{"license": {"name": said}}]


def _model(entry: ModelEntry) -> dict[str, Any]:
    return {
        "type": "machine-learning-model", "bom-ref": f"model:{entry.name}", "name": entry.name,
        "description": entry.description, "publisher": entry.publisher,
        "licenses": [{"expression": entry.licence}],
        "components": [_file(entry, file) for file in entry.files],
    }  # fmt: skip


def _file(entry: ModelEntry, file: ModelFile) -> dict[str, Any]:
    hubs = [source for source in file.sources if isinstance(source, HubSource)]
    made: dict[str, Any] = {"type": "file", "bom-ref": f"model:{entry.name}/{file.name}", "name": file.name}
    made["hashes"] = [{"alg": "SHA-256", "content": file.sha256}]
    if hubs:
        made["externalReferences"] = [
            {"type": "distribution", "url": f"https://huggingface.co/{hub.repo}/resolve/{hub.revision}/{hub.file}"}
            for hub in hubs
        ]
    return made


def _dependencies(pins: list[Pin]) -> Iterator[dict[str, Any]]:
    """Who needs whom. Of a package that is locked in several versions, each is needed somewhere."""
    models = [f"model:{name}" for name in REGISTRY]
    yield {"ref": _OURS, "dependsOn": sorted({pin.purl for pin in pins if "selpe" in pin.via}) + models}
    for pin in pins:
        yield {"ref": pin.purl, "dependsOn": sorted({other.purl for other in pins if pin.name in other.via})}


def main() -> int:
    """Writes or checks the bill; 0 where all is well."""
    made, old = bill(), _old()
    if same(made, old):
        sys.stdout.write(f"{BILL.name} is up to date: {len(made['components'])} components\n")
        return 0
    if "--check" in sys.argv[1:]:
        sys.stderr.write(f"{BILL.name} does not match {LOCK.name} and the registry; run: make sbom\n")
        return 1
    made["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(made, sort_keys=True))}"
    made["metadata"]["timestamp"] = datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
    BILL.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
    sys.stdout.write(f"{BILL.name} written: {len(made['components'])} components\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
