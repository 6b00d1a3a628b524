"""From settings to a finished run for somebody at a terminal: what cannot be is said at once, then the outlook.

`selpe run`, its controls and `selpe demo` begin here.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selpe.cli.console import err, json_mode, out, waiting
from selpe.cli.questions import can_ask, require_yes
from selpe.errors import ConfigError

if TYPE_CHECKING:
    from selpe.config import RunConfig
    from selpe.run.lifecycle import Run
    from selpe.run.preflight import Preflight

_LEAST_A_CLASS = 4  # records that show what a class is like


def begin(
    settings: RunConfig,
    *,
    name: str | None = None,
    ledger: Path | None = None,
    dry_run: bool = False,
    yes: bool = False,
    watch: bool = False,
    port: int = 0,
    insist: bool = False,
    profile: bool = False,
    allow_fake: bool = False,
    controlled: Run | None = None,
    within: float | None = None,
) -> Run | None:
    """Outlook, question, run and result; None after a dry run. `controlled` is the run whose plan is copied.

    `within` is the time in seconds that it may take: on a slow machine fewer records are then written.

    A model on this machine is opened first and tried for a second or two, unless earlier runs tell how fast it is.
    """
    from contextlib import ExitStack

    from selpe.cli.conduct import conduct, opened
    from selpe.cli.grades import warn_if_poor
    from selpe.cli.outcome import show_outlook
    from selpe.cli.writer import settled
    from selpe.run.estimate import is_measurable
    from selpe.run.lifecycle import Run
    from selpe.run.workspace import require_run_name
    from selpe.schema import Schema

    if name is not None:
        require_run_name(name)
    schema = Schema.load(settings.data_schema) if controlled is None else controlled.schema
    settings, writer = settled(settings, schema, ask=not (yes or dry_run) and can_ask())
    _require_possible(settings, name, dry_run=dry_run, allow_fake=allow_fake)
    with waiting("reading the table and planning"):
        found = _outlook(settings, ledger, controlled)
    with ExitStack() as stack:
        session, since = None, time.monotonic()
        measurable = is_measurable(settings, found.estimate) and found.refusal is None
        measurable &= yes or settings.epsilon == 0 or dry_run or can_ask()  # else it will not be started
        if measurable and (not dry_run or _is_here(settings.llm)):  # a dry run fetches nothing
            session = stack.enter_context(opened(settings))
            with err().status("measuring how fast the model is here"):
                found = _fitted(found.measured(session.model), within, ledger)
            settings = found.config
        opening = time.monotonic() - since
        show_outlook(found)
        warn_if_poor(settings, schema)
        if dry_run:
            if not json_mode():
                refused = "" if found.refusal is None else f"; {found.refusal.message}"
                out().print(f"[dim]dry run:[/] nothing was spent{refused}")
            return None
        found.require_budget()
        _confirm(found, yes=yes)
        own = None if controlled is None else schema
        made = Run.create(settings, name=name, ledger=ledger, schema=own, writer=writer)
        outcome = conduct(made, watch=watch, port=port, insist=insist, outlook=found, session=session, opening=opening)
    conclude(made, outcome, profile=profile)
    return made


def begin_control(run: Run, *, changed: bool, name: str | None, **how: Any) -> None:
    """A control of a run, called after it unless it has a name of its own."""
    from selpe.run.control import control_settings

    if changed:
        raise ConfigError(
            "a control takes all settings from the run that it controls",
            where="--control",
            hint="leave the other settings out; --name, --out, --dry-run and --watch may stay",
        )
    settings = control_settings(run).model_copy(update={"out": str(run.folder.resolve().parent)})
    kept = run.manifest.get("ledger")
    ledger = Path(str(kept)) if kept else None
    made = begin(settings, name=name or f"{run.name}-control", ledger=ledger, controlled=run, **how)
    if made is not None and not json_mode():
        from selpe.cli.conduct import shown

        out().print(
            f"What the private table added: selpe evaluate {shown(run.folder)} --control {shown(made.folder)}",
            markup=False,
            soft_wrap=True,
        )


def _require_possible(settings: RunConfig, name: str | None, *, dry_run: bool, allow_fake: bool) -> None:
    """Raises at once for what would else be noticed late: after reading, planning, fetching, or a minute of waiting."""
    from selpe.models.names import require_listening, require_names
    from selpe.run.preflight import spends

    folder = Path(settings.out) / name if name else None
    if folder is not None and folder.exists():
        raise ConfigError(
            f"there is a run '{name}' already",
            where=settings.out,
            hint=f"give --name another name; `selpe resume {name}` finishes that one if it is not done",
        )
    if settings.execute == "local":  # elsewhere the workers know what they have
        require_names(settings.llms)
    if dry_run:
        return
    if "fake" in settings.llms and spends(settings) and not allow_fake:
        raise ConfigError(
            f"the fake model writes records that mean nothing, and ε = {settings.epsilon:g} of this table would be "
            "spent on them",
            where="llm: fake",
            hint="take a real model (`selpe models list`), try the fake one with --epsilon 0, or add --allow-fake",
        )
    if settings.execute == "local":
        for llm in settings.llms:
            require_listening(llm)


def _outlook(settings: RunConfig, ledger: Path | None, controlled: Run | None) -> Preflight:
    from selpe.privacy.ledger import Ledger
    from selpe.run.preflight import preflight

    known = Ledger.open(settings.dataset, root=ledger)
    if controlled is None:
        return preflight(settings, known)
    from selpe.run.control import control_outlook

    return control_outlook(controlled, known)


def _fitted(found: Preflight, within: float | None, ledger: Path | None) -> Preflight:
    """The outlook with as many records as can be written here in so many seconds, though with a few of every class."""
    classes = max(1, len(found.schema.labels))
    least = _LEAST_A_CLASS * classes
    while within is not None and found.estimate.seconds > within and found.config.records > least:
        pace, records = found.estimate.pace, found.config.records
        if pace is None:
            break
        fewer = max(least, min(records - 1, int(records * within / found.estimate.seconds)) // classes * classes)
        smaller = _outlook(found.config.model_copy(update={"records": fewer}), ledger, None)
        found = replace(smaller, estimate=smaller.estimate.at(pace))
    return found


def _is_here(llm: str) -> bool:
    """Whether a model's weights are on this machine already."""
    from selpe.errors import ModelNotFoundError
    from selpe.models.store.store import ModelStore

    try:
        ModelStore().path(llm.removeprefix("llamacpp:").removeprefix("transformers:"))
    except ModelNotFoundError:
        return False
    return True


def _confirm(found: Preflight, *, yes: bool) -> None:
    """Asks before ε is spent, or before a table without any privacy is made."""
    if found.config.epsilon == 0:
        return
    asked, unasked = "Start?", "a run that spends ε is not started unasked"
    if math.isinf(found.config.epsilon):
        asked = "What this control writes is NOT private. Start?"
        unasked = "a control without any privacy is not started unasked"
    elif found.left_after == 0:
        which = "the only" if found.left is None else "the last"
        asked = (
            f"This is {which} run that this table's budget allows: it spends all of ε = {found.config.epsilon:g}. "
            "Start?"
        )
        unasked = f"this would be {which} run that this table's budget allows, and is not started unasked"
    elif found.left_after is not None:
        asked = f"This spends ε = {found.config.epsilon:g}, and leaves {found.left_after:.4g} for later runs. Start?"
    require_yes(asked, yes=yes, unasked=f"{unasked}; nothing was spent", refused="not started; nothing was spent")


def conclude(made: Run, outcome: Any, *, profile: bool) -> None:
    """The end of a run on the screen: its result, and where its time went if that was asked for."""
    from selpe.cli.outcome import show_result
    from selpe.cli.profile import show_profile
    from selpe.privacy.ledger.charges import spent

    total = spent(charge for charge in made.ledger.charges() if charge.run == made.name)
    show_result(made, outcome, spent=total)
    if profile:
        show_profile(made)
