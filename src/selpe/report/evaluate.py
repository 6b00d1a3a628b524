"""The whole evaluation as one function: is it useful, is it faithful, is it private?

    found = selpe.evaluate("runs/patients", test="test.csv")
    found.verdict["headline"]
    found.write("internal")            # evaluation.json and report.html

What comes out was computed against real rows without noise. It is for the data's owner, and not for release.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from selpe.errors import PrivacyError, RunError
from selpe.evaluation.attack import attack
from selpe.evaluation.embedding import Remembering, require_local
from selpe.evaluation.fidelity import fidelity, synthetic_only
from selpe.evaluation.normalise import normalised
from selpe.evaluation.plain import plain
from selpe.evaluation.utility import DEFAULT_VIEWS, Utility, utility
from selpe.evaluation.winners import winners_over_rounds
from selpe.models.encoders.base import Encoder
from selpe.owner_only import make_folder, tighten, write_text
from selpe.report.gather import Material, gather
from selpe.report.summarize import NOTICE, sampled, summarize
from selpe.run.workspace import InternalFolder, Workspace
from selpe.schema import Record, Schema

Progress: TypeAlias = Callable[[str, float], None]  # what is under way, and the share of the whole that is done

_SEED = "as many real rows"


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation:
    """A finished evaluation: plain data, and the page that shows it."""

    content: dict[str, Any]
    schema: Schema
    folder: Path | None = None  # of the run, if it was one

    def __repr__(self) -> str:
        return f"Evaluation({self.content['subject']['name']!r}: {self.verdict['headline']})"

    @property
    def verdict(self) -> Mapping[str, Any]:
        """Grade, headline, three findings, and what to do next."""
        found: Mapping[str, Any] = self.content["verdict"]
        return found

    def as_dict(self) -> dict[str, Any]:
        """Everything that was found, as plain data (see report/summarize.py for the shape)."""
        return self.content

    def html(self) -> str:
        """The report as one self-contained page."""
        from selpe.report.render import report_page

        return report_page(self.content, self.schema)

    def write(self, folder: str | Path | None = None) -> Path:
        """Writes evaluation.json and report.html, by default into the run's `internal/`; returns the page's path."""
        if folder is None and self.folder is None:
            raise RunError("this table belongs to no run", hint="say where the report is to go: write('some/folder')")
        own = Workspace(Path(self.folder or ""))
        place = own.internal if folder is None else InternalFolder(Path(folder))
        target = place.folder
        require_outside_release(target)
        try:
            make_folder(target)
            if self.folder is not None:
                tighten(self.folder, keep=own.release.folder.name)  # an earlier version may have made it
            write_text(place.note, NOTICE + "\n")
            text = json.dumps(self.content, ensure_ascii=False, indent=1, allow_nan=False)
            write_text(place.evaluation, text + "\n")
            write_text(place.report, self.html())
        except OSError as error:
            raise RunError(f"the report cannot be written ({error.strerror})", where=str(target)) from None
        return place.report


def require_outside_release(target: Path) -> None:
    """Raises PrivacyError for a place inside a run's `release/`: internal files must not be in the release."""
    place = target.resolve()
    for folder in (place, *place.parents):
        run = Workspace(folder.parent)
        if run.is_run and folder == run.release.folder:
            raise PrivacyError(
                "an evaluation must not lie in a release folder", where=str(target), hint="use internal/"
            )


def evaluate(
    synthetic: Any,
    *,
    schema: Schema | str | Path | None = None,
    test: Any = None,
    private: Any = None,
    holdout: Any = None,
    control: Any = None,
    views: Sequence[str] = DEFAULT_VIEWS,
    encoder: Encoder | str = "minilm",
    seeds: int = 1,
    bootstrap: int = 500,
    show_real: bool = False,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluates a synthetic table: a run's folder, or any table with its schema.

    `test` are real records to test models on and to compare with; `private` are those the table was made from (of a
    run they are read from where its settings say; False leaves them alone); `holdout` are real records that were not
    used, for attacks to be measured against (default: the test records); `control` is a run with ε = 0. Tables are
    paths, frames or lists of records.
    """
    read = schema if schema is None or isinstance(schema, Schema) else Schema.load(schema)
    material = gather(synthetic, schema=read, test=test, private=private, holdout=holdout, control=control)
    return judge_material(
        material, encoder=encoder, views=views, seeds=seeds, bootstrap=bootstrap, show_real=show_real, progress=progress
    )


def judge_material(
    material: Material,
    *,
    encoder: Encoder | str = "minilm",
    views: Sequence[str] = DEFAULT_VIEWS,
    seeds: int = 1,
    bootstrap: int = 500,
    show_real: bool = False,
    progress: Progress | None = None,
) -> Evaluation:
    """The evaluation of what has been gathered."""
    began = time.monotonic()
    remembering = Remembering(_opened(encoder))
    require_local(remembering, material.allowed or ())
    tell = progress or (lambda what, share: None)
    schema, real = material.schema, material.test or material.holdout or material.private
    found: dict[str, Any] = {
        "utility": _utility(material, remembering, tell, views=views, seeds=seeds, bootstrap=bootstrap),
        **_fidelity(material, remembering, tell, real),
        "attack": _attack(material, remembering, tell),
    }
    tell("winners over rounds", 0.95)
    samples = {"synthetic": sampled(schema, material.synthetic)}
    content = summarize(
        material.subject,
        tables=material.sizes,
        validity=_validity(material),
        **found,
        making=_told(material.making),
        winners=_winners(material, remembering),
        tested_on=_fingerprint(material),
        samples={**samples, "real": sampled(schema, real) if show_real and real else None},
        encoder=remembering.name,
        seconds=round(time.monotonic() - began, 1),
        notes=material.notes,
    )
    tell("done", 1.0)
    return Evaluation(plain(content), schema, material.folder)


def _utility(
    material: Material, encoder: Encoder, tell: Progress, *, views: Sequence[str], seeds: int, bootstrap: int
) -> dict[str, Any] | None:
    if not material.test or material.schema.label is None:
        return None
    found = utility(
        material.schema,
        material.synthetic,
        material.test,
        encoder=encoder,
        views=views,
        references=_references(material),
        seeds=seeds,
        bootstrap=bootstrap,
        allow_remote=True,  # the host has been checked
        progress=_part(tell, "utility", 0.0, 0.5),
    )
    return _with_all_real_rows(found, material).as_dict()


def _fidelity(
    material: Material, encoder: Encoder, tell: Progress, real: Sequence[Record] | None
) -> dict[str, dict[str, Any] | None]:
    """The table beside real rows, or, where there are none, by itself."""
    schema, made, outputs = material.schema, material.synthetic, material.outputs
    if not real:
        return {"synthetic": synthetic_only(schema, made, encoder=encoder, raw_outputs=outputs)}
    compared = fidelity(
        schema,
        made,
        real,
        encoder=encoder,
        raw_outputs=outputs,
        allow_private_text_to=material.allowed or (),
        progress=_part(tell, "fidelity", 0.5, 0.75),
    )
    return {"fidelity": compared.as_dict()}


def _attack(material: Material, encoder: Encoder, tell: Progress) -> dict[str, Any] | None:
    if not material.private:
        return None
    return attack(
        material.schema,
        material.synthetic,
        material.private,
        material.holdout or material.test,
        encoder=encoder,
        allow_private_text_to=material.allowed or (),
        progress=_part(tell, "attacks", 0.75, 0.95),
    ).as_dict()


def _opened(encoder: Encoder | str) -> Encoder:
    if not isinstance(encoder, str):
        return encoder
    from selpe.run.session import open_encoder

    return open_encoder(encoder)


def _part(tell: Progress, what: str, begin: float, end: float) -> Progress:
    """Progress of one part as progress of the whole."""

    def told(stage: str, share: float) -> None:
        tell(what if stage == "done" else f"{what}: {stage}", begin + (end - begin) * min(1.0, max(0.0, share)))

    return told


def _references(material: Material) -> dict[str, Sequence[Record]]:
    """What to compare the table with: the private rows, as many real rows, a control, and the schema's examples."""
    found: dict[str, Sequence[Record]] = {}
    if material.private:
        found["private rows"] = material.private
    spare = [*(material.private or ()), *(material.holdout or ())]
    if spare and not _are_private_rows(material):
        found["real rows"] = random.Random(_SEED).sample(spare, min(len(spare), len(material.synthetic)))
    if material.control:
        found["epsilon 0"] = material.control
    if material.schema.examples:
        found["schema examples"] = material.schema.examples
    return found


def _are_private_rows(material: Material) -> bool:
    """Whether 'as many real rows' would be the private rows, all of them: no others are there, and not too many."""
    return not material.holdout and len(material.private or ()) <= len(material.synthetic)


def _with_all_real_rows(found: Utility, material: Material) -> Utility:
    """The scores with 'as many real rows' also where these are the private rows once more; a note says if they are few.

    What is trained on the same rows is not trained twice.
    """
    real = len(material.private or ()) + len(material.holdout or ())
    if not real or not found.scores:
        return found
    scores, notes = list(found.scores), list(found.notes)
    if _are_private_rows(material):
        again = [replace(score, trained_on="real rows") for score in scores if score.trained_on == "private rows"]
        scores = [*scores, *again]
    if real < len(material.synthetic):
        said = f"There are {real:,} real rows to train on, fewer than the {len(material.synthetic):,} synthetic records"
        notes.append(f"{said}: 'as many real rows' are all of them.")
    return Utility(tuple(scores), tuple(notes))


def _fingerprint(material: Material) -> str | None:
    """A hash of the test records in any order; it is as internal as everything here."""
    if not material.test:
        return None
    lines = sorted(material.schema.dumps(record) for record in material.test)
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def _validity(material: Material) -> dict[str, Any]:
    total = len(material.synthetic) + material.invalid
    distinct = len({normalised(material.schema, record) for record in material.synthetic})
    return {
        "rate": len(material.synthetic) / total, "total": total, "invalid": material.invalid, "distinct": distinct,
    }  # fmt: skip


def _winners(material: Material, encoder: Encoder) -> list[dict[str, Any]] | None:
    real = material.private or material.test
    if material.making is None or not real:
        return None
    return winners_over_rounds(material.schema, material.making, material.candidates, real, encoder=encoder) or None


def _told(making: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """How the run was made, without the winners' records: they are in the run's own log."""
    if making is None:
        return None
    choices = [{key: value for key, value in one.items() if key != "records"} for one in making["choices"]]
    return {**making, "choices": choices}
