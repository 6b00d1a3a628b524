"""SelPE in Python: `SelPE(schema, epsilon=2.0).fit(df).sample()`."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selpe.config import Adjacency, RunConfig, check_config
from selpe.errors import ConfigError, RunError
from selpe.events import Emit, silence
from selpe.schema import Record, Schema

if TYPE_CHECKING:
    import pandas as pd

    from selpe.baselines.base import SpendingPlan
    from selpe.encode.base import Encoder
    from selpe.evaluate.whole import Evaluation
    from selpe.generate import Proposal
    from selpe.llm.base import ChatModel
    from selpe.run import Outcome, Run

IN_MEMORY = "frame"  # stands for a table that has no file
_MOST_WAVES = 40


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
        records: int = 200,
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
        """Itself, after a run on this table: a pandas or polars frame, records, or a path. Spends ε.

        With the `name` of an interrupted run of the same settings, it goes on with that one. `emit` hears the run's
        events. `insist` is your word that rows known under another data set's name are to be counted anew.
        """
        from selpe.run import Run

        source = None if isinstance(data, str | Path) else data
        config = self._config(_located(data) if source is None else IN_MEMORY)
        run = self._again(config, name)
        if run is None:
            self._require_budget(config, source)
            run = Run.create(config, name=name, schema=self.schema)
        try:
            model = self._open_model()
            try:
                self._outcome = run.execute(
                    model=model, encoder=self._open_encoder(), source=source, emit=emit, insist=insist
                )
            finally:
                self._close(model)
        except Exception:
            run.discard()
            raise
        return self

    def plan(self, rows: int) -> SpendingPlan:
        """What ε buys on a table of this many rows, before anything is spent."""
        from selpe.baselines import recipe_of

        config = self._config(IN_MEMORY)
        return recipe_of(config.method).plan(config, self.schema, rows)

    # -- what came of it -----------------------------------------------------------------------------------------

    def sample(self, n: int | None = None, *, seed: int = 0) -> pd.DataFrame:
        """Synthetic records as a frame: all of them, or `n`.

        Fewer than were written: a seeded choice with the classes in proportion. More: further ones are generated
        from what the run released, without touching the private table, and cost nothing.
        """
        from selpe.table import to_frame

        records = self.records
        if n is not None and n < 1:
            raise ConfigError(f"n must be at least 1. Got {n} instead")
        if n is not None and n < len(records):
            records = self._fewer(n, seed)
        elif n is not None and n > len(records):
            records = records + self._more(n - len(records), seed)
        return to_frame(records, self.schema)

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
        from selpe.evaluate.whole import evaluate, require_outside_release

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
            Path(path).write_text(made.html(), encoding="utf-8")
        return made

    @property
    def records(self) -> list[Record]:
        """The released records."""
        return [dict(record) for record in self._fitted().records]

    @property
    def card(self) -> dict[str, Any]:
        """The privacy card: what is promised, under which assumptions, and what it cost."""
        path = self.run_folder / "release" / "privacy-card.json"
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

    def _config(self, data: str) -> RunConfig:
        return check_config({**self._settings, "data": data}, where="SelPE")

    def _require_budget(self, config: RunConfig, source: Any) -> None:
        from selpe.preflight import preflight
        from selpe.privacy.ledger import Ledger

        preflight(config, Ledger.open(config.dataset), source=source, schema=self.schema).require_budget()

    def _again(self, config: RunConfig, name: str | None) -> Run | None:
        """The run of this name and these settings that is there already, to go on with; None for a new one."""
        from selpe.run import Run

        if name is None or not (Path(config.out) / name / "manifest.json").is_file():
            return None
        found = Run.open(Path(config.out) / name)
        same = {"data_schema": config.data_schema}
        if found.config.model_copy(update=same) != config:
            raise RunError("there is a run of this name with other settings", where=name, hint="give another name")
        return found

    def _shares(self, count: int) -> dict[str, int]:
        """`count` records spread over the classes as the release spreads them, largest remainders first."""
        sizes = Counter(self.schema.label_of(record) or "" for record in self.records)
        exact = {label: count * size / sizes.total() for label, size in sorted(sizes.items())}
        shares = {label: int(part) for label, part in exact.items()}
        for label in sorted(exact, key=lambda one: shares[one] - exact[one])[: count - sum(shares.values())]:
            shares[label] += 1
        return shares

    def _fewer(self, count: int, seed: int) -> list[Record]:
        """A seeded choice of the released records."""
        chance, taken = random.Random(f"fewer:{seed}"), list[Record]()
        for label, share in self._shares(count).items():
            group = [record for record in self.records if (self.schema.label_of(record) or "") == label]
            taken += chance.sample(group, share)
        chance.shuffle(taken)
        return taken

    def _more(self, count: int, seed: int) -> list[Record]:
        """Further records from the guide and the exemplars that the run ended with."""
        from selpe.assemble import generator_of

        if self._fitted().evolved is None:
            raise RunError(
                "this method writes no more records than it was asked for",
                hint="ask for as many in `records`, or use method selpe",
            )
        missing, found = self._shares(count), list[Record]()
        model = self._open_model()
        try:
            generator = generator_of(self._config(IN_MEMORY), self.schema, model)
            for wave in range(_MOST_WAVES):
                proposals = self._proposals(missing, seed, wave)
                for made in generator.generate(proposals, taken=[*self.records, *found]).candidates:
                    if made is not None:
                        found.append(made.record)
                        missing[made.proposal.label or ""] -= 1
                if len(found) == count:
                    random.Random(f"more:{seed}").shuffle(found)
                    return found
        finally:
            self._close(model)
        raise RunError(
            f"only {len(found)} of {count} further records could be written that are new and valid",
            hint="ask for fewer, or use a larger model",
        )

    def _proposals(self, missing: Mapping[str, int], seed: int, wave: int) -> list[Proposal]:
        """What to ask for next; as in a run, a third of it is written without exemplars."""
        from selpe.generate import Proposal

        evolved = self._fitted().evolved
        if evolved is None:
            return []
        return [
            Proposal(
                evolved.guide,
                _seed(seed, wave, label, i),
                label=label or None,
                positives=evolved.context[label].positives if i % 3 else (),
                negatives=evolved.context[label].negatives if i % 3 else (),
            )
            for label, share in missing.items()
            for i in range(share)
        ]

    def _open_model(self) -> ChatModel:
        if not isinstance(self._llm, str):
            return self._llm
        from selpe.llm.open import open_model

        return open_model(self._llm)

    def _open_encoder(self) -> Encoder:
        if not isinstance(self._encoder, str):
            return self._encoder
        from selpe.llm.open import open_encoder

        return open_encoder(self._encoder)

    def _close(self, model: ChatModel) -> None:
        """Closes a model that we opened; the caller's own stays open."""
        if model is not self._llm:
            model.close()


def _schema(given: str | Path | Schema | Mapping[str, Any]) -> Schema:
    if isinstance(given, Schema):
        return given
    return Schema.from_dict(given) if isinstance(given, Mapping) else Schema.load(given)


def _located(data: str | Path) -> str:
    return str(data) if "://" in str(data) else str(Path(data).expanduser().resolve())


def _seed(seed: int, wave: int, label: str, number: int) -> int:
    digest = hashlib.sha256(f"more:{seed}:{wave}:{label}:{number}".encode()).digest()
    return int.from_bytes(digest[:6], "big")
