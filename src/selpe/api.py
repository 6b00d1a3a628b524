"""SelPE in Python: `SelPE(schema, epsilon=2.0).fit(df).sample()`."""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from selpe.config import IN_MEMORY, Adjacency, RunConfig, check_config
from selpe.errors import ConfigError, InferredTypesWarning, RunError
from selpe.events import Emit, silence
from selpe.owner_only import write_text
from selpe.run.workspace import Workspace
from selpe.schema import Record, Schema, Value

if TYPE_CHECKING:
    import pandas as pd

    from selpe.intake import Table
    from selpe.models.base import ChatModel
    from selpe.models.encoders.base import Encoder
    from selpe.report.evaluate import Evaluation
    from selpe.run.lifecycle import Outcome, Run
    from selpe.run.methods import SpendingPlan
    from selpe.run.session import Session


class SelPE:
    """Differentially private synthetic records of one schema.

    `fit` spends ε on a private table and makes a run, with its folder, its privacy card and its entry in the table's
    ledger. `sample` only ever reads what `fit` released. `dataset` names the private table; its budget is kept under
    that name, so use the same name for the same table. Other settings of a run, such as `rounds` or `unit`, are given
    by their names (docs/configuration.md).

    `llm` and `encoder` are what `llm:` and `encoder:` take in a settings file, or objects.
    """

    def __init__(
        self,
        schema: str | Path | Schema | Mapping[str, Any],
        *,
        epsilon: float = 2.0,
        records: int = 300,
        dataset: str | None = None,
        llm: str | ChatModel = "smollm2",
        encoder: str | Encoder = "minilm",
        adjacency: Adjacency = "replace-one",
        seed: int = 0,
        out: str | Path = "runs",
        **settings: Any,
    ) -> None:
        self.schema = _schema(schema)
        self.epsilon = epsilon
        self._llm, self._encoder = llm, encoder
        self._outcome: Outcome | None = None
        for taken in ("data", "schema", "data_schema"):
            if taken in settings:
                raise ConfigError(f"'{taken}' is not a setting here", hint="give the table to fit(), the schema first")
        self._settings: dict[str, Any] = {
            "dataset": dataset or self.schema.name, "epsilon": epsilon, "records": records, "adjacency": adjacency,
            "llm": llm if isinstance(llm, str) else llm.name, "seed": seed, "out": str(Path(out).resolve()),
            "encoder": encoder if isinstance(encoder, str) else encoder.name, **settings,
        }  # fmt: skip
        self._config(IN_MEMORY)  # mistakes in settings show here, not after the table is read

    def __repr__(self) -> str:
        fitted = f", fitted in {self.run_folder}" if self._outcome else ", not fitted"
        return f"SelPE({self.schema.name!r}, epsilon={self.epsilon:g}{fitted})"

    # -- the private step ----------------------------------------------------------------------------------------

    def fit(self, data: Any, *, name: str | None = None, emit: Emit = silence, insist: bool = False) -> SelPE:
        """Itself, after a run on this table: a path, what `read_table` gives, records, or a frame. Spends ε.

        With the `name` of an interrupted run of the same settings, it resumes that one; a finished run's release
        is written again where it was lost, and refused where it was changed. `emit` hears the run's
        events. `insist` is your word that rows known under another data set's name are to be counted anew.
        """
        from selpe.run.lifecycle import Run
        from selpe.run.preflight import size_notes

        source = None if isinstance(data, str | Path) else self._taken(data)
        config = self._config(_located(data) if source is None else IN_MEMORY)
        run = self._again(config, name)
        if run is None:
            run = Run.create(config, name=name, schema=self.schema)
        try:
            begun = run.begin(source=source, insist=insist)
            for note in size_notes(config, len(begun.private)):
                warnings.warn(note, stacklevel=2)
            with self._opened(config) as session:
                self._outcome = run.execute(**session.parts(), source=source, emit=emit, insist=insist)
        except Exception:
            run.discard()
            raise
        return self

    def plan(self, rows: int | None = None) -> SpendingPlan:
        """What ε buys on a table of this many rows, before anything is spent; the setting `rows` if none is given."""
        from selpe.run.methods import recipe_of

        config = self._config(IN_MEMORY)
        units = config.rows if rows is None else rows
        if units is None:
            raise ConfigError("a plan needs the number of rows", hint="give it here, or as the setting 'rows'")
        return recipe_of(config.method).plan(config, self.schema, units)

    # -- what came of it -----------------------------------------------------------------------------------------

    def sample(self, n: int | None = None, *, given: Mapping[str, Value] | None = None, seed: int = 0) -> pd.DataFrame:
        """Synthetic records as a frame: all of them, or `n`.

        Fewer than were written: a seeded choice with the classes in proportion. More: further ones are generated
        from what the run released, the measured tables among it, without touching the private table, and cost nothing.
        With `given` they are written anew, all with these values: `sample(50, given={"stars": "1"})`.
        """
        from selpe.intake import to_frame

        records = self._released().records
        if n is not None and n < 1:
            raise ConfigError(f"n must be at least 1. Got {n} instead")
        if given:
            return self._more(len(records) if n is None else n, seed, self._given(given))
        if n is not None and n < len(records):
            return to_frame(self._fewer(n, seed), self.schema)
        frame = to_frame(records, self.schema)
        if n is None or n == len(records):
            return frame
        import pandas as pd

        more: pd.DataFrame = pd.concat([frame, self._more(n - len(records), seed)], ignore_index=True)
        return more

    def report(
        self,
        path: str | Path | None = None,
        *,
        test: Any = None,
        private: Any = None,
        holdout: Any = None,
        control: Any = None,
        **settings: Any,
    ) -> Evaluation:
        """The evaluation of what `fit` made, written into the run's `internal/`, and its page to `path` as well.

        `test` are real records to test on, `holdout` real records that were not used (either stands in for the other),
        `private` the table that `fit` was given: it is not kept, so attacks need it again. Further settings are those
        of `selpe.evaluate`. The page looks at real rows without noise: it is not for release.
        """
        from selpe.report.evaluate import evaluate, require_outside_release

        if path is not None:
            require_outside_release(Path(path))
        made = evaluate(
            self.run_folder,
            test=holdout if test is None else test,
            private=private,
            holdout=None if test is None else holdout,
            control=control,
            encoder=settings.pop("encoder", None) or self._open_encoder(),
            **settings,
        )
        made.write()
        if path is not None:
            write_text(Path(path), made.html())
        return made

    @property
    def records(self) -> list[Record]:
        """The released records, all of them in memory; those of a large release lie in its files (docs/scale.md)."""
        return [dict(record) for record in self._released().records]

    @property
    def card(self) -> dict[str, Any]:
        """The privacy card: what is promised, under which assumptions, and what it cost."""
        path = Workspace(self._released().folder).release.card
        card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return card

    @property
    def run_folder(self) -> Path:
        """The folder of the run that `fit` made."""
        return self._fitted().folder

    # -- inside --------------------------------------------------------------------------------------------------

    def _fitted(self) -> Outcome:
        if self._outcome is None:
            raise RunError("this SelPE is not fitted yet", hint="call fit(table) first")
        return self._outcome

    def _taken(self, data: Any) -> Table:
        """A table in memory, with a warning where a frame's types may have come from all rows together."""
        from selpe.intake import inferred_fields, read_table

        table, config = read_table(data), self._config(IN_MEMORY)
        inferred = inferred_fields(table, self.schema, unit=config.unit, decimal=config.decimal)
        if inferred:
            warnings.warn(
                f"columns of one type for all rows: {', '.join(inferred)}. If a program chose the types by looking at "
                "the rows, one row can change how others are read, and the guarantee starts after that. "
                "Give selpe.read_table(path), or read with dtype=str.",
                InferredTypesWarning,
                stacklevel=3,
            )
        return table

    def _released(self) -> Outcome:
        """What came of `fit`, where its release is still as the run has sealed it."""
        from selpe.privacy.sealing import require_whole

        fitted = self._fitted()
        require_whole(Workspace(fitted.folder).release.folder, fitted.manifest)
        return fitted

    def _config(self, data: str) -> RunConfig:
        return check_config({**self._settings, "data": data}, where="SelPE")

    def _again(self, config: RunConfig, name: str | None) -> Run | None:
        """The run of this name and these settings that is there already, to go on with; None for a new one."""
        from selpe.run.lifecycle import Run

        if name is None or not Workspace(Path(config.out) / name).is_run:
            return None
        found = Run.open(Path(config.out) / name)
        same = {"data_schema": config.data_schema}
        if found.config.model_copy(update=same) != config:
            raise RunError("there is a run of this name with other settings", where=name, hint="give another name")
        return found

    def _shares(self, count: int) -> dict[str, int]:
        """`count` records spread over the classes as the release spreads them, largest remainders first."""
        sizes = Counter(self.schema.label_of(record) or "" for record in self._fitted().records)
        exact = {label: count * size / sizes.total() for label, size in sorted(sizes.items())}
        shares = {label: int(part) for label, part in exact.items()}
        for label in sorted(exact, key=lambda one: shares[one] - exact[one])[: count - sum(shares.values())]:
            shares[label] += 1
        return shares

    def _fewer(self, count: int, seed: int) -> list[Record]:
        """A seeded choice of the released records."""
        records, places = self._fitted().records, dict[str, list[int]]()
        for place, record in enumerate(records):
            places.setdefault(self.schema.label_of(record) or "", []).append(place)
        chance, taken = random.Random(f"fewer:{seed}"), list[int]()
        for label, share in self._shares(count).items():
            taken += chance.sample(places[label], share)
        chance.shuffle(taken)
        return [records[place] for place in taken]

    def _given(self, given: Mapping[str, Value]) -> dict[str, Value]:
        """What is to be given, checked field by field."""
        for name, value in given.items():
            one = self.schema.field(name)
            right = one.optional if value is None else one.check(value) is None
            if not right:
                raise ConfigError(f"what is given for '{name}' must be {one.expected}", where="given")
        return dict(given)

    def _more(self, count: int, seed: int, given: Mapping[str, Value] | None = None) -> pd.DataFrame:
        """Further records, written as those of the release were (docs/scale.md), with what is given in all of them."""
        from selpe.intake import to_frame
        from selpe.method.from_settings import generator_of
        from selpe.models.answers import RememberingModel
        from selpe.run.large.answers import ChunkAnswers
        from selpe.run.large.composition import Composition
        from selpe.run.large.further import Further
        from selpe.run.large.known import KnownTexts, hashes_of

        outcome = self._fitted()
        if outcome.evolved is None:
            raise RunError(
                "this method writes no more records than it was asked for",
                hint="ask for as many in `records`, or use method selpe",
            )
        config, answers, known = self._config(IN_MEMORY), ChunkAnswers(), KnownTexts()
        known.add(hashes_of(self.schema.dumps(record) for record in outcome.records))
        label = self.schema.label_of(given) if given else None
        facts = {name: value for name, value in (given or {}).items() if name != self.schema.label}
        composition = Composition.of(outcome.evolved, given=facts)
        wanted = self._shares(count) if label is None else {label: count}
        with TemporaryDirectory() as place, self._opened_model(config) as model:
            generator = generator_of(config, self.schema, RememberingModel(model, answers))
            writer = Further(self.schema, generator, answers, composition, Path(place), seed=f"more:{seed}")
            made = writer.write((), wanted, known=known)
            if len(made) == count:
                return to_frame(made.write(Path(place) / "more.jsonl"), self.schema)
        raise RunError(
            f"only {len(made)} of {count} further records could be written that are new and valid",
            hint="ask for fewer, or use a larger model",
        )

    @contextmanager
    def _opened(self, config: RunConfig) -> Iterator[Session]:
        """The session of these settings; what the caller gave as objects stays open."""
        from selpe.run.session import opened

        model = None if isinstance(self._llm, str) else self._llm
        with opened(config, model=model, encoder=None if isinstance(self._encoder, str) else self._encoder) as session:
            yield session

    @contextmanager
    def _opened_model(self, config: RunConfig) -> Iterator[ChatModel]:
        from selpe.run.session import executing

        if not isinstance(self._llm, str):
            yield self._llm
            return
        with executing(config) as executor:
            yield executor.model(self._llm)

    def _open_encoder(self) -> Encoder:
        if not isinstance(self._encoder, str):
            return self._encoder
        from selpe.run.session import open_encoder

        return open_encoder(self._encoder)


def _schema(given: str | Path | Schema | Mapping[str, Any]) -> Schema:
    if isinstance(given, Schema):
        return given
    return Schema.from_dict(given) if isinstance(given, Mapping) else Schema.load(given)


def _located(data: str | Path) -> str:
    return str(data) if "://" in str(data) else str(Path(data).expanduser().resolve())
