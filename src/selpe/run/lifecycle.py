"""A run and its folder: what was asked, what came out, and enough on disk to go on after any interruption.

What lies where in the folder is told in run/workspace.py.

Resuming is running again: model answers come from `work/`, private choices from the ledger, and the algorithm, being a
function of those and the settings, ends where it would have ended.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import random
import secrets
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from selpe.config import RunConfig, check_config
from selpe.errors import ModelError, RunError, StoppedError
from selpe.events import Answered, Emit, Event, Graded, PoolReady, Selected, silence, together
from selpe.intake.addresses import without_password
from selpe.lasting import put_for_good
from selpe.models.answers import AnswerStore, RememberingModel
from selpe.models.base import ChatModel
from selpe.models.encoders.base import Encoder, PublicEncoder
from selpe.models.encoders.vectors import RememberingEncoder, VectorStore
from selpe.operating_system import plainly, refusal
from selpe.owner_only import FILE_MODE, make_folder, tighten, write_text, write_whole
from selpe.privacy.ledger import Ledger, ledger_root
from selpe.privacy.ledger.charges import spent
from selpe.privacy.load import load_private
from selpe.privacy.measure_plan import MeasurePlan
from selpe.privacy.plan import Plan
from selpe.privacy.table import PrivateTable
from selpe.run.affordable import affordable
from selpe.run.event_log import EventLog
from selpe.run.large.composition import Composition
from selpe.run.manifest import read_manifest, write_manifest
from selpe.run.methods import Parts, SpendingPlan, Synthesized, recipe_of
from selpe.run.outcome import Outcome
from selpe.run.preflight import cap_of, spends
from selpe.run.release import require_writable, write_release
from selpe.run.workspace import Workspace, require_run_name, workspaces
from selpe.run.writer import WriterChoice, settle_writer
from selpe.schema import Record, Schema
from selpe.version import __version__

log = logging.getLogger(__name__)

INTERNAL_NOTE = "What lies here was computed against private rows without noise. It must not be released.\n"
_SPENT = ("epsilon_replace_one", "epsilon_add_remove")
_VERSIONS = ("opendp", "numpy", "openvino", "openvino-genai", "llguidance", "scikit-learn", "pandas")


@dataclass(slots=True)
class Tally:
    """Counts of a run, kept by listening to its events."""

    answers: int = 0
    replayed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    forced_tokens: int = 0
    thrown_tokens: int = 0
    candidates: int = 0
    retries: dict[str, int] = field(default_factory=dict)
    given_up: dict[str, int] = field(default_factory=dict)
    selections: list[dict[str, Any]] = field(default_factory=list)

    def listen(self, event: Event) -> None:
        """Counts one event."""
        if isinstance(event, Answered):
            self.answers += event.count
            self.replayed += event.count if event.replayed else 0
            self.prompt_tokens += event.prompt_tokens
            self.completion_tokens += event.completion_tokens
            self.cached_tokens += event.cached_tokens
            self.forced_tokens += event.forced_tokens
        elif isinstance(event, PoolReady):
            self.candidates += event.found
            self.thrown_tokens += sum(event.thrown.values())
            for counts, more in ((self.retries, event.retries), (self.given_up, event.given_up)):
                for reason, count in more.items():
                    counts[reason] = counts.get(reason, 0) + count
        elif isinstance(event, Selected):
            self.selections.append({key: value for key, value in event.as_dict().items() if key != "records"})


@dataclass(frozen=True, slots=True)
class Begun:
    """A run that may look at its table: what it looks at, how, and at which prices, all of them reserved."""

    schema: Schema
    private: PrivateTable
    plan: SpendingPlan
    prices: Mapping[str, float]


class Run:
    """One run. `Run.create` begins one, `Run.open` takes one up again; `execute` does or finishes the work."""

    def __init__(self, folder: Path, config: RunConfig, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self.workspace = Workspace(folder)
        self.config = config
        self.manifest = manifest
        self._begun: Begun | None = None

    @classmethod
    def create(
        cls,
        config: RunConfig,
        *,
        name: str | None = None,
        ledger: Path | None = None,
        schema: Schema | None = None,
        writer: WriterChoice | None = None,
    ) -> Run:
        """A new run folder. Nothing private is read and nothing is spent yet.

        `ledger` is where budgets are kept, if not in the usual place; `schema` stands in for the file of the settings.
        `writer` says how its model was chosen, where `llm: auto` was settled already; else it is settled here.
        """
        if name is not None:
            require_run_name(name)
        if writer is None:
            config, writer = settle_writer(config, schema)
        stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
        # The ledger knows a run by its name for ever, so a name must not come twice, even after a deleted folder.
        name = require_run_name(name or f"{config.dataset}-{stamp}-{secrets.token_hex(2)}")
        folder = Path(config.out) / name
        place, draft = Workspace(folder), Workspace(_beside(folder))
        if os.path.lexists(folder):
            raise _taken(folder)
        try:
            for part in (draft.work, draft.internal):
                make_folder(part.folder)
        except OSError as error:
            shutil.rmtree(draft.folder, ignore_errors=True)
            raise RunError(f"the run folder cannot be made ({error.strerror})", where=str(folder)) from None
        if schema is not None:
            config = config.model_copy(update={"data_schema": str(place.own_schema().resolve())})
        settings = config.model_dump(mode="json", by_alias=True)
        settings["epsilon"] = str(config.epsilon)  # JSON knows no infinity
        for source in ("data", "allow_private_text_to"):
            settings[source] = settings[source] and without_password(settings[source])
        manifest = {
            "name": name, "state": "created", "created": _now(), "selpe": __version__,
            # A run belongs to one ledger: resumed against another one, it would draw and pay for everything again.
            "ledger": str((ledger or ledger_root()).resolve()),
            "settings": settings, **({} if writer is None else {"writer": writer.as_dict()}),
        }  # fmt: skip
        try:
            write_text(draft.internal.note, INTERNAL_NOTE)
            if schema is not None:
                schema.save(draft.own_schema())
            write_manifest(draft.folder, manifest)
            # A run's folder is there whole or not at all: half of one would be in the way of the next try.
            put_for_good(draft.folder, folder)
        except OSError as error:
            taken = draft.folder.exists() and os.path.lexists(folder)  # by another process, in the meantime
            shutil.rmtree(draft.folder, ignore_errors=True)
            if taken:
                raise _taken(folder) from None
            raise refusal(error, where=str(folder)) from None
        return cls(folder, config, manifest)

    @classmethod
    def open(cls, folder: Path) -> Run:
        """The run that lives in a folder."""
        manifest = read_manifest(folder)
        if manifest is None:
            raise RunError("this is not a run folder", where=str(folder), hint="`selpe runs` lists them")
        settings = dict(manifest["settings"])
        if "epsilon" in settings:
            settings["epsilon"] = float(settings["epsilon"])
        return cls(folder, check_config(settings, where=f"{folder.name}/manifest.json"), manifest)

    @property
    def name(self) -> str:
        """The run's name, by which the ledger knows it."""
        return str(self.manifest["name"])

    @property
    def schema(self) -> Schema:
        """The schema of this run as it was: its own copy, else the file of its settings if that has not changed."""
        for path in (self.workspace.work.schema, Path(self.config.data_schema)):
            if path.is_file() and (schema := Schema.load(path)).fingerprint() == self.manifest.get("schema"):
                return schema
        raise RunError("the schema of this run is gone or has changed", where=self.name, hint="put the old one back")

    @property
    def ledger(self) -> Ledger:
        """The ledger that this run pays from."""
        return Ledger.open(self.config.dataset, root=Path(self.manifest.get("ledger") or ledger_root()))

    @property
    def plan(self) -> SpendingPlan:
        """The plan that this run was made by, at the prices that were paid; raises where it has not begun."""
        if "plan" not in self.manifest:
            raise RunError("this run has no plan yet", where=self.name)
        prices = {name: float(price) for name, price in self.manifest.get("prices", {}).items()}
        planned = self._planned(self.schema, int(self.manifest["plan"]["units"]), shown=None)
        return planned.at(prices) if prices else planned

    @property
    def release(self) -> Path:
        """The folder that may be released."""
        return self.workspace.release.folder

    def move(self, place: Mapping[str, Any]) -> None:
        """Has the rest of the run done elsewhere: `execute` and settings of `ray`. What it makes stays the same."""
        if place:
            ray = {**self.config.ray.model_dump(), **place.get("ray", {})}
            settings = {**self.config.model_dump(by_alias=True), **place, "ray": ray}
            self.config = check_config(settings, where=self.name)
            self.manifest["settings"] |= self.config.model_dump(mode="json", by_alias=True, include={"execute", "ray"})

    def discard(self) -> None:
        """Removes the folder of a run that never began, and frees what it reserved; does nothing to any other."""
        if self.manifest.get("state") == "created":
            gone = _beside(self.folder)
            with suppress(OSError):
                self.folder.rename(gone)
            for folder in (gone, self.folder):
                shutil.rmtree(folder, ignore_errors=True)
            self.ledger.settle(self.name, "given up")

    def begin(self, *, source: Any = None, insist: bool = False, plan: SpendingPlan | None = None) -> Begun:
        """Reads the private table, plans, and reserves the ε of the whole run. Nothing is looked at or spent yet.

        It comes before models are opened, so that a run that does not fit beside others is refused at once. `plan` is
        the one that its owner was shown, if there was one.
        """
        if self._begun is None:
            require_writable(self)
            schema, ledger = Schema.load(self.config.data_schema), self.ledger
            loaded = load_private(self.config, schema, ledger, run=self.name, source=source, insist=insist)
            private, inferred = loaded.table, loaded.inferred
            for remark in loaded.remarks:
                log.warning("%s", remark)
            self.manifest["inferred"] = list(inferred)
            plan = self._planned(schema, self.config.rows or len(private), shown=plan)
            prices = self._priced(plan)
            if spends(self.config):
                charges = plan.at(prices).charges(self.name, private.unit)
                ledger.reserve(self.name, charges, folder=str(self.folder.resolve()), cap=cap_of(self.config))
            self._begun = Begun(schema, private, plan, prices)
        return self._begun

    def execute(
        self,
        *,
        model: ChatModel,
        encoder: Encoder,
        source: Any = None,
        emit: Emit = silence,
        cancel: threading.Event | None = None,
        insist: bool = False,
        test_seed: int | None = None,
        models: Sequence[ChatModel] = (),
        public_encoder: PublicEncoder | None = None,
    ) -> Outcome:
        """Does the run, or the rest of it, and writes `release/`. Needs a confirmed schema and enough budget.

        Setting `cancel` stops it with StoppedError; `insist` is the owner's word that rows known under another name
        are to be counted anew. `models` are further ones, for methods that use several. `public_encoder` may encode
        synthetic texts in the encoder's place; private text goes through the encoder itself.
        """
        with (
            plainly(self.folder),
            self._locked(),
            self._remembering((model, *models)) as remembering,
            self._public_vectors(encoder, public_encoder) as public_vectors,
            EventLog(self.workspace.work.events) as log,
        ):
            require_writable(self)
            tally = Tally()
            listen = together(tally.listen, log.listen, self._note_grade, emit)
            began = time.monotonic()
            begun = self.begin(source=source, insist=insist)
            schema = begun.schema
            self._same_versions()
            parts = Parts(
                self.config, schema, begun.plan, remembering, encoder, self.workspace.work, emit=listen,
                cancel=cancel, test_seed=test_seed, public_encoder=public_vectors,
            )  # fmt: skip
            synthesizer = recipe_of(self.config.method).build(parts)
            self._keep_schema(schema)
            asked = {"method": self.config.method, "model": model.name, "encoder": encoder.name}
            self._note("running", **asked, plan=begun.plan.at(begun.prices).to_dict())
            try:
                made = synthesizer.fit(begun.private, schema, begun.prices)
            except (KeyboardInterrupt, StoppedError):
                self._note("interrupted", seconds=self._seconds(began))
                raise
            except ModelError:
                self._note("stopped", seconds=self._seconds(began))
                raise
            self._write_raw(made)
            composition = None if made.evolved is None else Composition.of(made.evolved)
            if composition is not None:
                composition.save(self.workspace.work.composition)
            records, seal = write_release(self, schema, made)
            self.ledger.settle(self.name, "done")
            self._note(
                "done",
                seal=seal.to_dict(),
                finished=_now(),
                card=seal.files["privacy-card.json"],
                seconds=self._seconds(began),
                records=len(records),
                spent=self._spent(),
                **made.notes,
                counts={
                    "answers": tally.answers, "replayed": tally.replayed, "candidates": tally.candidates,
                    "prompt_tokens": tally.prompt_tokens, "completion_tokens": tally.completion_tokens,
                    "cached_tokens": tally.cached_tokens, "forced_tokens": tally.forced_tokens,
                    "thrown_tokens": tally.thrown_tokens, "retries": tally.retries, "given_up": tally.given_up,
                },
                selections=tally.selections,
                private=all(drawn.private for drawn in made.drawn),
            )  # fmt: skip
        return Outcome(self.folder, schema, records, self.manifest, composition)

    # -- putting the parts together ------------------------------------------------------------------------------

    def _planned(self, schema: Schema, units: int, *, shown: SpendingPlan | None) -> SpendingPlan:
        """The plan of this run: chosen once, and kept when a later version of the planner would choose otherwise."""
        chosen = self.manifest.get("chosen", {})
        if shown is not None and not chosen:
            plan = shown
        else:
            settings = self.config.model_copy(update={**chosen, **self._measured_or_not()})
            plan = recipe_of(self.config.method).plan(settings, schema, units)
        if isinstance(plan, Plan):
            if kept := self.manifest.get("measurement"):
                begun = {name: float(price) for name, price in self.manifest.get("prices", {}).items()}
                plan = plan.measuring(MeasurePlan.from_dict(kept), begun)
            self.manifest["chosen"] = {"rounds": len(plan.rounds), "batches": plan.batches, "alpha": plan.alpha}
            self.manifest["measurement"] = plan.to_dict()["measure"]
        return plan

    def _measured_or_not(self) -> dict[str, Any]:
        """Settings by which a run that began without measured tables goes on without; those of old versions did."""
        begun = "chosen" in self.manifest
        paid = any(name.startswith("measure-") for name in self.manifest.get("prices", {}))
        return {"measure": "off"} if begun and not paid else {}

    def _priced(self, plan: SpendingPlan) -> dict[str, float]:
        """The price of each private step, kept in the manifest: a stored result stands only for its own price."""
        known = {k: float(v) for k, v in self.manifest.get("prices", plan.prices()).items()}
        prices = affordable(plan, known, self.ledger, self.name)
        self._note(str(self.manifest["state"]), prices={name: str(price) for name, price in prices.items()})
        return prices

    def _same_versions(self) -> None:
        """A resumed run keeps its plan; settings that changed since would make another run of it."""
        fingerprint = Schema.load(self.config.data_schema).fingerprint()
        known = self.manifest.setdefault("schema", fingerprint)
        if known != fingerprint:
            raise RunError(
                "the schema has changed since this run began",
                where=self.name,
                hint="put the old schema back to finish it, or start a new run",
            )

    def ordered(self, records: Iterable[Record]) -> tuple[Record, ...]:
        """The records in a seeded order: sorted by class they would tell nothing, but read badly."""
        ordered = list(records)
        random.Random(f"order:{self.config.seed}").shuffle(ordered)
        return tuple(ordered)

    def _spent(self) -> dict[str, float | str]:
        """ε and δ that this run has truly spent, lost draws included, under both neighbour relations."""
        mine = [charge for charge in self.ledger.charges() if charge.run == self.name]
        total = spent(mine)
        endless = any(not charge.private for charge in mine)
        epsilon = (total.epsilon_replace_one, total.epsilon_add_remove)
        said = {name: "inf" if endless else value for name, value in zip(_SPENT, epsilon, strict=True)}
        return {**said, "delta": total.delta}

    # -- files ---------------------------------------------------------------------------------------------------

    def _write_raw(self, made: Synthesized) -> None:
        """The outputs behind the release, for whoever measures validity: `raw.jsonl` has them as the model wrote them
        (a JSON string a line), `extracted.jsonl` what could be read of them, fit for release or not."""
        files = {
            self.workspace.work.raw: (output.raw for output in made.raw),
            self.workspace.work.extracted: (
                {"label": output.label, "record": output.record, "released": output.released} for output in made.raw
            ),
        }
        for path, lines in files.items():
            write_whole(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))

    def _keep_schema(self, schema: Schema) -> None:
        """Keeps the schema as it was, which a release is checked against."""
        text, path = schema.to_yaml(), self.workspace.work.schema
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_whole(path, text)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process per run folder."""
        from filelock import FileLock, Timeout

        tighten(self.folder, keep=self.release.name)  # folders of earlier versions can be read by others
        lock = FileLock(self.workspace.work.lock, mode=FILE_MODE)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise RunError("another process is working on this run", where=self.name) from None
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def _remembering(self, models: Sequence[ChatModel]) -> Iterator[tuple[RememberingModel, ...]]:
        store = AnswerStore(self.workspace.work.answers)
        try:
            yield tuple(RememberingModel(model, store) for model in models)
        finally:
            store.close()

    @contextmanager
    def _public_vectors(self, encoder: Encoder, public: PublicEncoder | None) -> Iterator[PublicEncoder]:
        """The encoder as far as it may remember: for synthetic text. Private text never goes through this."""
        store = VectorStore(self.workspace.work.vectors)
        try:
            yield RememberingEncoder(encoder, store, public)
        finally:
            store.close()

    def _seconds(self, began: float) -> float:
        return round(time.monotonic() - began + float(self.manifest.get("seconds", 0.0)), 1)

    def _note(self, state: str, **more: Any) -> None:
        if "seal" in self.manifest and (state != "done" or self.manifest["state"] == "done"):
            return  # it was done and sealed: going over it again, to write a lost release, changes nothing
        self.manifest |= {"state": state, "versions": _versions(), **more}
        self._save()

    def _note_grade(self, event: Event) -> None:
        if isinstance(event, Graded):
            self._note(str(self.manifest["state"]), grade=event.as_dict())

    def _save(self) -> None:
        write_manifest(self.folder, self.manifest)


def _beside(folder: Path) -> Path:
    """Where a run's folder is made, or removed, out of sight of whoever lists runs."""
    return folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")


def _taken(folder: Path) -> RunError:
    return RunError(f"there is a run '{folder.name}' already", hint=f"`selpe resume {folder}` resumes it")


def list_runs(out: Path) -> list[dict[str, Any]]:
    """The manifests of all runs in a folder, oldest first."""
    folders = (place.folder for place in workspaces(out))
    found = [{**manifest, "folder": str(folder)} for folder in folders if (manifest := read_manifest(folder))]
    return sorted(found, key=lambda manifest: str(manifest.get("created", "")))


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "selpe": __version__}
    for package in _VERSIONS:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
