"""SelPE in Python: `SelPE(schema, epsilon=2.0).fit(df).sample()`."""

from __future__ import annotations

import copy
import inspect
import json
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from selpe.config import IN_MEMORY, Adjacency, RunConfig, check_config, tells_a_secret
from selpe.errors import ConfigError, InferredTypesWarning, NotFittedError, RunError, did_you_mean
from selpe.events import Emit, Finished, silence, together
from selpe.owner_only import write_text
from selpe.run.workspace import Workspace, folder_of_run, require_run_name
from selpe.schema import Record, Schema, Value

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from selpe.intake import Table
    from selpe.models.base import ChatModel
    from selpe.models.encoders.base import Encoder
    from selpe.privacy.card_view import PrivacyCard
    from selpe.report.evaluate import Evaluation
    from selpe.run.lifecycle import Begun, Run
    from selpe.run.methods import SpendingPlan
    from selpe.run.outcome import Outcome
    from selpe.run.session import Session

FrameName = Literal["pandas", "polars"]
_ELSEWHERE = {"data": "give the table to fit()", "data_schema": "give the schema first, by itself"}
_LONG = 60  # characters of a parameter in `repr`


@dataclass(frozen=True, slots=True)
class _FittedRun:
    """What `fit` or `open` brought, as it was then: later changes of parameters do not reach it."""

    run: Run
    outcome: Outcome
    llm: str | ChatModel
    encoder: str | Encoder
    frame: FrameName = "pandas"


class SelPE:
    """Differentially private synthetic records of one schema.

    `fit` spends ε on a private table and makes a run, with its folder, its privacy card and its entry in the table's
    ledger. `sample` only ever reads what `fit` released. `dataset` names the private table; its budget is kept under
    that name, so use the same name for the same table. Other settings of a run, such as `rounds` or `unit`, are given
    by their names (docs/configuration.md).

    `llm` and `encoder` are what `llm:` and `encoder:` take in a settings file, or objects. Parameters are kept as they
    are given and checked by `fit` and `plan`; `get_params`, `set_params` and `sklearn.base.clone` do as they do in
    scikit-learn.

    >>> schema = {"name": "visits", "fields": {"pain": {"kind": "integer", "min": 0, "max": 10}}}
    >>> made = SelPE(schema, epsilon=1.0, llm="fake")
    >>> made
    SelPE('visits', epsilon=1.0, llm='fake'), not fitted
    >>> made.set_params(epsilon=2.0, rounds=1).get_params()["rounds"]
    1
    """

    def __init__(
        self,
        schema: str | Path | Schema | Mapping[str, Any],
        *,
        epsilon: float = 2.0,
        records: int = 300,
        dataset: str | None = None,
        llm: str | ChatModel = "auto",
        encoder: str | Encoder = "minilm",
        adjacency: Adjacency = "replace-one",
        seed: int = 0,
        out: str | Path = "runs",
        **settings: Any,
    ) -> None:
        self._params: dict[str, Any] = {
            "schema": schema, "epsilon": epsilon, "records": records, "dataset": dataset, "llm": llm,
            "encoder": encoder, "adjacency": adjacency, "seed": seed, "out": out,
        }  # fmt: skip
        self._made: _FittedRun | None = None
        self.set_params(**settings)

    @classmethod
    def open(
        cls,
        run: str | Path,
        *,
        out: str | Path = "runs",
        llm: str | ChatModel | None = None,
        encoder: str | Encoder | None = None,
    ) -> SelPE:
        """A finished run as if it had been fitted just now: its folder, or its name in the folder `out`.

        Neither needs the private table nor spends anything. A run that is not finished is refused, and so is one whose
        release is not, to the byte, what the run has sealed. `llm` and `encoder` stand in for those of the run.
        """
        from selpe.run.lifecycle import Run
        from selpe.run.outcome import outcome_of

        found = Run.open(folder_of_run(run, Path(out)))
        outcome = outcome_of(found)
        settings = found.config.model_dump(exclude_defaults=True, exclude={"data", "data_schema", "test"})
        opened = cls(outcome.schema, **(settings | {"llm": llm or found.config.llm}))
        opened._made = _FittedRun(found, outcome, llm or found.config.llm, encoder or found.config.encoder)
        return opened

    def __repr__(self) -> str:
        defaults = inspect.signature(SelPE.__init__).parameters
        shown = [_schema_name(self._params["schema"])]
        shown += [
            f"{name}={_shown(value)}"
            for name, value in self._params.items()
            if name != "schema" and not (name in defaults and value == defaults[name].default)
        ]
        state = f"fitted in {self._made.run.folder}" if self._made else "not fitted"
        return f"SelPE({', '.join(shown)}), {state}"

    def _repr_html_(self) -> str:
        from selpe.notebook import result_view, settings_view

        title = f"SelPE on {_schema_name(self._params['schema'])}"
        if self._made is None:
            return settings_view(title, {name: _shown(value) for name, value in self._params.items()})
        return result_view(title, self._released().outcome, self.card)

    # -- parameters, as in scikit-learn --------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters as they were given, and the defaults of those that were not. `deep` changes nothing here."""
        return dict(self._params)

    def set_params(self, **params: Any) -> SelPE:
        """Itself with other parameters, for the next `fit`; what was fitted stays as it was made."""
        known = {*self._params, *RunConfig.model_fields} - set(_ELSEWHERE)
        for name in params:
            if name not in known:
                hint = _ELSEWHERE.get(name) or f"{did_you_mean(name, known)}docs/configuration.md lists every setting"
                raise ConfigError(f"there is no setting '{name}' here", where="SelPE", hint=hint)
        self._params |= params
        return self

    def __sklearn_clone__(self) -> SelPE:
        """An unfitted SelPE with the same parameters. Models are shared: they are large, and hold no state of a fit."""
        return SelPE(**{name: _copied(value) for name, value in self._params.items()})

    def __sklearn_is_fitted__(self) -> bool:
        return self._made is not None

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags  # only scikit-learn asks for them

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    @property
    def schema(self) -> Schema:
        """The schema of the parameters, read where it was given as a file or as plain data."""
        given: str | Path | Schema | Mapping[str, Any] = self._params["schema"]
        if isinstance(given, Schema):
            return given
        return Schema.from_dict(given) if isinstance(given, Mapping) else Schema.load(given)

    @property
    def epsilon(self) -> float:
        """The parameter ε."""
        return float(self._params["epsilon"])

    # -- the private step ----------------------------------------------------------------------------------------

    def fit(
        self,
        data: Any,
        *,
        name: str | None = None,
        emit: Emit = silence,
        insist: bool = False,
        progress: bool | None = None,
    ) -> SelPE:
        """Itself, after a run on this table: a path, what `read_table` gives, records, or a frame. Spends ε.

        With the `name` of an interrupted run of the same settings, it resumes that one; a finished run's release
        is written again where it was lost, and refused where it was changed. `emit` hears the run's
        events. `insist` is your word that rows known under another data set's name are to be counted anew. `progress`
        shows how far it is, or does not; None shows it in notebooks and on terminals.
        """
        from selpe.intake.frames import frame_library
        from selpe.run.lifecycle import Run
        from selpe.run.preflight import size_notes
        from selpe.run.writer import settle_writer, warn_if_poor

        schema, in_memory = self.schema, not isinstance(data, str | Path)
        config = self._config(schema, IN_MEMORY if in_memory else _located(data))
        schema.require_confirmed()
        source = self._taken(data, schema, config) if in_memory else None
        run = _again(config, name)
        if run is None:
            config, writer = settle_writer(config, schema)
            run = Run.create(config, name=name, schema=schema, writer=writer)
        try:
            begun = run.begin(source=source, insist=insist)
            for note in size_notes(config, len(begun.private)):
                warnings.warn(note, stacklevel=2)
            with self._session(run, begun, progress) as (session, shown):
                heard = together(warn_if_poor, emit, shown)
                outcome = run.execute(**session.parts(), source=source, emit=heard, insist=insist)
        except Exception:
            run.discard()
            raise
        frame: FrameName = "polars" if frame_library(data) == "polars" else "pandas"
        given = self._params["llm"]
        llm = run.config.llm if isinstance(given, str) else given  # what `auto` stood for
        self._made = _FittedRun(run, outcome, llm, self._params["encoder"], frame)
        return self

    def plan(self, rows: int | None = None) -> SpendingPlan:
        """What ε buys on a table of this many rows, before anything is spent; the setting `rows` if none is given.

        Without either, what is fitted tells the plan that it was made by.
        """
        from selpe.run.methods import recipe_of

        if rows is None and self._made is not None:
            return self._made.run.plan
        schema = self.schema
        config = self._config(schema)
        schema.require_confirmed()
        units = config.rows if rows is None else rows
        if units is None:
            raise ConfigError("a plan needs the number of rows", hint="give it here, or as the setting 'rows'")
        return recipe_of(config.method).plan(config, schema, units)

    # -- what came of it -----------------------------------------------------------------------------------------

    @overload
    def sample(
        self, n: int | None = ..., *, given: Mapping[str, Value] | None = ..., seed: int = ...,
        frame: Literal["pandas"], progress: bool | None = ...,
    ) -> pd.DataFrame: ...  # fmt: skip

    @overload
    def sample(
        self, n: int | None = ..., *, given: Mapping[str, Value] | None = ..., seed: int = ...,
        frame: Literal["polars"], progress: bool | None = ...,
    ) -> pl.DataFrame: ...  # fmt: skip

    @overload
    def sample(
        self, n: int | None = ..., *, given: Mapping[str, Value] | None = ..., seed: int = ...,
        frame: None = ..., progress: bool | None = ...,
    ) -> Any: ...  # fmt: skip

    def sample(
        self,
        n: int | None = None,
        *,
        given: Mapping[str, Value] | None = None,
        seed: int = 0,
        frame: FrameName | None = None,
        progress: bool | None = None,
    ) -> Any:
        """Synthetic records as a frame: all of them, or `n`.

        Fewer than were written: a seeded choice with the classes in proportion. More: further ones are generated
        from what the run released, the measured tables among it, without touching the private table, and cost nothing.
        With `given` they are written anew, all with these values: `sample(50, given={"stars": "1"})`.

        `frame` is 'pandas' or 'polars'. Without it, a polars frame that was fitted brings polars frames, and everything
        else pandas. `progress` is as in `fit`.
        """
        from selpe.intake.write import framed, joined
        from selpe.run.sampling import fewer
        from selpe.schema.given import checked_given

        made = self._released()
        library, records, schema = frame or made.frame, made.outcome.records, made.outcome.schema
        if library not in ("pandas", "polars"):
            raise ConfigError("frame must be 'pandas' or 'polars'")
        if n is not None and (not isinstance(n, int) or isinstance(n, bool) or n < 1):
            raise ConfigError(f"n must be a whole number of at least 1. Got {n!r} instead")
        if given:
            return self._more(len(records) if n is None else n, seed, library, progress, checked_given(given, schema))
        if n is None or n == len(records):
            return framed(records, schema, library)
        if n < len(records):
            return framed(fewer(made.outcome, n, seed), schema, library)
        whole, more = framed(records, schema, library), self._more(n - len(records), seed, library, progress)
        return joined(whole, more, library)

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
        found = evaluate(
            self.run_folder,
            test=holdout if test is None else test,
            private=private,
            holdout=None if test is None else holdout,
            control=control,
            encoder=settings.pop("encoder", None) or self._open_encoder(),
            **settings,
        )
        found.write()
        if path is not None:
            write_text(Path(path), found.html())
        return found

    @property
    def records(self) -> list[Record]:
        """The released records, all of them in memory; those of a large release lie in its files (docs/scale.md)."""
        return [dict(record) for record in self._released().outcome.records]

    @property
    def card(self) -> PrivacyCard:
        """The privacy card: what is promised, under which assumptions, and what it cost. A dict."""
        from selpe.privacy.card_view import PrivacyCard

        return PrivacyCard(json.loads(self._release().card.read_text(encoding="utf-8")))

    @property
    def measurements(self) -> dict[str, Any] | None:
        """The noisy counts of the release (docs/measuring.md); None where nothing was counted."""
        path = self._release().measurements
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    @property
    def run_folder(self) -> Path:
        """The folder of the run that `fit` made."""
        return self._fitted().run.folder

    # -- inside --------------------------------------------------------------------------------------------------

    def _fitted(self) -> _FittedRun:
        if self._made is None:
            raise _not_fitted()
        return self._made

    def _released(self) -> _FittedRun:
        """What came of `fit`, where its release is still as the run has sealed it."""
        from selpe.privacy.sealing import require_whole

        made = self._fitted()
        require_whole(made.run.release, made.run.manifest)
        return made

    def _release(self) -> Any:
        return self._released().run.workspace.release

    def _config(self, schema: Schema, data: str = IN_MEMORY) -> RunConfig:
        """The parameters as checked settings of a run."""
        settings = {name: value for name, value in self._params.items() if name != "schema"}
        for model in ("llm", "encoder"):
            settings[model] = settings[model] if isinstance(settings[model], str) else settings[model].name
        settings["dataset"] = settings["dataset"] or schema.name
        settings["out"] = str(Path(settings["out"]).expanduser().resolve())
        return check_config(settings | {"data": data}, where="SelPE")

    def _taken(self, data: Any, schema: Schema, config: RunConfig) -> Table:
        """A table in memory, with a warning where a frame's types may have come from all rows together."""
        from selpe.intake import inferred_fields, read_table

        table = read_table(data)
        inferred = inferred_fields(table, schema, unit=config.unit, decimal=config.decimal)
        if inferred:
            warnings.warn(
                f"columns of one type for all rows: {', '.join(inferred)}. If a program chose the types by looking at "
                "the rows, one row can change how others are read, and the guarantee starts after that. "
                "Give selpe.read_table(path), or read with dtype=str.",
                InferredTypesWarning,
                stacklevel=3,
            )
        return table

    @contextmanager
    def _session(self, run: Run, begun: Begun, progress: bool | None) -> Iterator[tuple[Session, Emit]]:
        """Models and encoders of a run, and who shows its progress; what the caller gave as objects stays open."""
        from selpe.models.base import Counting
        from selpe.notebook import progress_display
        from selpe.run.lifecycle import list_runs
        from selpe.run.methods import recipe_of
        from selpe.run.progress import Meter
        from selpe.run.session import opened

        config, display = run.config, progress_display(progress)
        given = {name: None if isinstance(self._params[name], str) else self._params[name] for name in _MODELS}
        with ExitStack() as stack:
            with display.fetching() as fetching:
                session = stack.enter_context(
                    opened(config, progress=fetching, model=given["llm"], encoder=given["encoder"])
                )
            model, earlier = session.model, list_runs(Path(config.out))
            meter = Meter(
                epsilon=config.epsilon,
                adjacency=config.adjacency,
                expected=recipe_of(config.method).estimate(config, begun.schema, begun.plan, earlier),
                computed=(lambda: model.computed) if isinstance(model, Counting) else None,
            )
            yield session, stack.enter_context(display.showing(meter))

    def _more(
        self, count: int, seed: int, library: FrameName, progress: bool | None, given: Mapping[str, Value] | None = None
    ) -> Any:
        """A frame of further records. Nothing is opened where there is nothing to write them from."""
        from selpe.intake.write import framed
        from selpe.notebook import progress_display
        from selpe.run.progress import Meter
        from selpe.run.sampling import composition_of, more
        from selpe.run.session import executing

        made, display = self._fitted(), progress_display(progress)
        composition_of(made.outcome)
        with ExitStack() as stack:
            model = made.llm
            if isinstance(model, str):
                with display.fetching() as fetching:
                    model = stack.enter_context(executing(made.run.config, fetching)).model(model)
            emit = stack.enter_context(display.showing(Meter()))
            asked = more(made.outcome, made.run.config, model, count, seed=seed, given=given, emit=emit)
            records = stack.enter_context(asked)
            emit(Finished(count))
            return framed(records, made.outcome.schema, library)

    def _open_encoder(self) -> Encoder:
        from selpe.run.session import open_encoder

        encoder = self._fitted().encoder
        return open_encoder(encoder) if isinstance(encoder, str) else encoder


_MODELS = ("llm", "encoder")


def _not_fitted() -> NotFittedError:
    """Our error; where scikit-learn is loaded, one that its users can catch as its own."""
    kind: type[NotFittedError] = NotFittedError
    if (theirs := sys.modules.get("sklearn.exceptions")) is not None:
        kind = type("NotFittedError", (NotFittedError, theirs.NotFittedError), {})
    return kind("this SelPE is not fitted yet", hint="call fit(table) first, or SelPE.open(run) for a finished run")


def _again(config: RunConfig, name: str | None) -> Run | None:
    """The run of this name and these settings that is there already, to go on with; None for a new one."""
    from selpe.run.lifecycle import Run

    if name is None or not Workspace(Path(config.out) / require_run_name(name)).is_run:
        return None
    found = Run.open(Path(config.out) / name)
    same = {"data_schema": config.data_schema} | ({"llm": config.llm} if config.llm == "auto" else {})
    if found.config.model_copy(update=same) != config:
        raise RunError("there is a run of this name with other settings", where=name, hint="give another name")
    return found


def _located(data: str | Path) -> str:
    return str(data) if "://" in str(data) else str(Path(data).expanduser().resolve())


def _copied(value: Any) -> Any:
    return copy.deepcopy(value) if isinstance(value, dict | list) else value


def _schema_name(schema: Any) -> str:
    name = schema.name if isinstance(schema, Schema) else schema
    return repr(str(name.get("name", "")) if isinstance(name, Mapping) else str(name))


def _shown(value: Any) -> str:
    """A parameter in a few characters, without what might be a secret."""
    if isinstance(value, str) and any(tells_a_secret(address) for address in value.split(",")):
        return "'…'"
    plain = isinstance(value, str | int | float | list | dict | None)
    text = repr(value) if plain else repr(str(value) if isinstance(value, Path) else getattr(value, "name", "…"))
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"
