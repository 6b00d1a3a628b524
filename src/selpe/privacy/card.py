"""The privacy card of a release: what is promised, to whom, on which assumptions, and what was spent. Fit to publish.

It follows the questions that NIST SP 800-226 tells a reader to ask of any claim of differential privacy. `build_card`
gives plain data, card_text.py renders it. Nothing in it is computed from private rows: no fingerprint, no path, no
count that the settings do not treat as public. Two private results that were paid for are told: which fields rows have
voted to have counted, and whether the release follows the counts.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from selpe.config import RunConfig
from selpe.privacy.card_measured import how_measured, measured_part
from selpe.privacy.card_methods import method_text, settings_of
from selpe.privacy.card_text import render_markdown
from selpe.privacy.ledger.charges import Budget, Charge, Spent, spent
from selpe.privacy.sealing import digest_of, told_charges
from selpe.schema import Schema
from selpe.version import __version__

__all__ = ["FORMAT", "NOT_PRIVATE", "build_card", "render_markdown"]

FORMAT = "selpe-privacy-card/1"
NOT_PRIVATE = "NOT PRIVATE"
_PACKAGES = ("opendp", "numpy")


class Spending(Protocol):
    """What is known of the spending on a table: its ledger."""

    @property
    def budget(self) -> Budget | None:
        """The cap in force."""

    def charges(self) -> list[Charge]:
        """Every charge ever made on the table."""

    def elsewhere(self) -> Mapping[str, Spent | None]:
        """What was spent on the same rows under other names; None where it is not known any more."""


class Drawn(Protocol):
    """A private result as far as card and manifest need it."""

    @property
    def mechanism(self) -> str:
        """The mechanism in words."""

    @property
    def private(self) -> bool:
        """False for controls and seeded draws."""


def build_card(
    *,
    schema: Schema,
    config: RunConfig,
    run: str,
    ledger: Spending,
    selections: Sequence[Drawn] = (),
    model: str = "",
    encoder: str = "",
    records: int | None = None,
    units: int | None = None,
    inferred: Sequence[str] = (),
    versions: Mapping[str, str] | None = None,
    measured: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The card of one run as plain data; the same for the same inputs.

    `units` is the number of protected units, if it is to be told: it is public under replace-one only. A number that
    the settings state is told in its place. `inferred` are columns whose types were found by a look at all rows.
    `measured` is what the release has of measured tables (run/measurements.py).
    """
    everything = ledger.charges()
    mine = [charge for charge in everything if charge.run == run]
    reasons = _reasons(mine, selections, config)
    total, told = spent(mine), told_charges(everything, run)
    return {
        "format": FORMAT,
        "dataset": config.dataset,
        "run": run,
        "stamp": NOT_PRIVATE if reasons else None,
        "stamp_reasons": reasons,
        "guarantee": _guarantee(mine, total, config, private=not reasons),
        "unit": _unit(config),
        "mechanism": _mechanism(mine, selections, config, counted=measured is not None),
        "measurements": measured_part(measured),
        "charges": told,
        "ledger": _ledger(told),
        "cumulative": _cumulative(spent(everything), ledger.budget, len(mine))
        | _elsewhere(spent(everything), ledger.elsewhere()),
        "public": _public(schema, config, units),
        "not_covered": _not_covered(config, everything, run, inferred),
        "trust": _trust(config, model, encoder, counted=measured is not None),
        "release": {"records": records, "fields": len(schema.fields), "model": model, "encoder": encoder},
        "versions": dict(versions) if versions is not None else _versions(),
    }


# -- the guarantee ----------------------------------------------------------------------------------------------------


def _reasons(mine: Sequence[Charge], selections: Sequence[Drawn], config: RunConfig) -> list[str]:
    """Why a run protects nobody; empty for one that keeps its promise."""
    reasons = []
    if math.isinf(config.epsilon) or any(not charge.private for charge in mine):
        reasons.append("a choice was made without noise (ε = ∞), as a reference")
    seeded = any("seeded" in drawn.mechanism for drawn in selections)
    if seeded or any("seeded" in charge.mechanism for charge in mine):
        reasons.append("the noise was seeded, so that whoever knows the seed can undo it")
    unknown = any(not drawn.private for drawn in selections) or any("not private" in charge.note for charge in mine)
    if unknown and not reasons:
        reasons.append("a choice was marked as not private by the mechanism that made it")
    return reasons


def _guarantee(mine: Sequence[Charge], total: Spent, config: RunConfig, *, private: bool) -> dict[str, Any]:
    infinite = any(not charge.private for charge in mine) or math.isinf(config.epsilon)
    epsilon = {
        "replace_one": math.inf if infinite else total.epsilon_replace_one,
        "add_remove": math.inf if infinite else total.epsilon_add_remove,
    }
    return {
        "statement": _statement(epsilon, total.delta, config, private=private),
        "epsilon": {name: _number(value) for name, value in epsilon.items()},
        "delta": total.delta,
        "asked_for": {"epsilon": _number(config.epsilon), "adjacency": config.adjacency, "delta": config.delta},
        "composition": method_text(config).composition,
    }


def _statement(epsilon: Mapping[str, float], delta: float, config: RunConfig, *, private: bool) -> str:
    if not private:
        return "This output carries no privacy guarantee. It is a reference for measurements and must not be released."
    if not any(epsilon.values()):
        return "No private row took part in making this release: ε = 0 under either neighbour relation."
    noun = _unit_noun(config)
    # Where the owner states no public number, the plan is made from the true one, and its marks are in the release.
    apart = "" if config.rows is not None else f", apart from {_number_of(config)}, which this release may reveal"
    return (
        f"This release is differentially private with ε = {epsilon['replace_one']:.6g} if one {noun} is replaced by "
        f"any other, and with ε = {epsilon['add_remove']:.6g} if one {noun} is added or removed{apart} (δ = {delta:g})."
    )


def _number_of(config: RunConfig) -> str:
    return "the number of records" if config.unit is None else f"the number of different values of '{config.unit}'"


def _unit_noun(config: RunConfig) -> str:
    return "record" if config.unit is None else f"'{config.unit}' with all its records"


def _unit(config: RunConfig) -> dict[str, Any]:
    if config.unit is None:
        return {
            "kind": "record",
            "column": None,
            "statement": "One record is protected.",
            "warning": "A person with several records in the table is not covered by this guarantee.",
        }
    return {
        "kind": "unit",
        "column": config.unit,
        "statement": f"One '{config.unit}' is protected, however many records it has: one of them, drawn at random, "
        "takes part in each selection.",
        "warning": "",
    }


def _mechanism(
    mine: Sequence[Charge], selections: Sequence[Drawn], config: RunConfig, *, counted: bool
) -> dict[str, Any]:  # fmt: skip
    names = dict.fromkeys([charge.mechanism for charge in mine] + [drawn.mechanism for drawn in selections])
    text = method_text(config)
    return {
        "names": list(names),
        "method": config.method,
        "votes": text.votes,
        "how": how_measured(text.how, mine) if counted else text.how,
        "library": text.library,
        "noise": "from the operating system's generator",
        "proof": "src/selpe/privacy/PROOF.md",
    }


def _ledger(told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "statement": "The charges are numbered as in the ledger of the data set, where its owner finds them with "
        "`selpe budget history`; the digest is the SHA-256 of their list as it stands in privacy-card.json.",
        "charges": [charge["number"] for charge in told],
        "digest": digest_of(told),
    }


def _cumulative(total: Spent, cap: Budget | None, mine: int) -> dict[str, Any]:
    return {
        "statement": "Everything ever charged to this data set by runs on this ledger, earlier runs included. The "
        "number of records, where a run was planned from it, is not counted.",
        "epsilon": {"replace_one": total.epsilon_replace_one, "add_remove": total.epsilon_add_remove},
        "delta": total.delta,
        "runs": len(total.runs),
        "charges": total.charges,
        "charges_of_this_run": mine,
        "controls_without_noise": total.controls,
        "cap": None if cap is None else cap.to_dict(),
    }


def _elsewhere(total: Spent, others: Mapping[str, Spent | None]) -> dict[str, Any]:
    """What was spent on these rows under other names, and all of it together: sums, which hold whatever composes."""
    listed = [
        {
            "dataset": name,
            "epsilon": None if other is None else _both(other.epsilon_replace_one, other.epsilon_add_remove),
            "delta": None if other is None else other.delta,
            "controls_without_noise": None if other is None else other.controls,
        }
        for name, other in others.items()
    ]
    known = [total, *(other for other in others.values() if other is not None)]
    together = {
        "epsilon": _both(sum(one.epsilon_replace_one for one in known), sum(one.epsilon_add_remove for one in known)),
        "delta": sum(one.delta for one in known),
    }
    return {"elsewhere": listed, "together": together if others else None}


def _both(replace_one: float, add_remove: float) -> dict[str, float]:
    return {"replace_one": replace_one, "add_remove": add_remove}


# -- assumptions ------------------------------------------------------------------------------------------------------


def _public(schema: Schema, config: RunConfig, units: int | None) -> dict[str, Any]:
    settings = {name: _plain(value) for name, value in settings_of(config).items()}
    told = units if config.adjacency == "replace-one" else None
    stated = config.rows is not None
    return {
        "schema": {
            "name": schema.name,
            "label": schema.label,
            "classes": list(schema.labels),
            "fields": [{"name": field.name, "kind": field.kind, "domain": field.expected} for field in schema.fields],
            "rules": [rule.text for rule in schema.rules],
        },
        "settings": settings,
        "class_sizes": None if config.class_sizes is None else dict(config.class_sizes),
        "units": {
            "treated_as_public": True,
            "stated": stated,  # then nothing was made from the true number, and add-remove covers it
            "covered_by_guarantee": stated,
            "number": config.rows if stated else told,
        },
        "generated": "all candidates, prompts and models: none of them has seen a private row",
    }


def _not_covered(
    config: RunConfig, everything: Sequence[Charge], run: str, inferred: Sequence[str]
) -> list[str]:  # fmt: skip
    number = f"{_number_of(config)}: this run was planned from it, and its release may reveal it"
    if config.rows is not None:
        number = f"{_number_of(config)} as the owner has stated it ({config.rows:,}): it is taken to be public"
    found = [
        "that the data set exists, and what it is about",
        "the schema with its bounds and categories, the classes and all settings: they are taken to be public",
        number,
        "what holds for people in general: a conclusion about somebody that would be the same without their record",
        "records that depend on each other, such as those of one household",
        "how long a run took, how much memory it used, and that it failed",
        "evaluation reports in the folder internal/: they are computed from private rows and must not be released",
    ]
    if config.unit is None:
        found.insert(4, "people with several records: one record is protected, not one person")
    if config.class_sizes is not None:
        found.append("the sizes of the classes: the owner has stated them as public")
    if inferred:
        found.append(
            f"the types of the columns {', '.join(inferred)} were inferred over all rows by the program that made the "
            "frame; this guarantee starts from the typed columns"
        )
    if any(not charge.private and charge.run != run for charge in everything):
        found.append("the output of other runs on this table that were made without noise")
    return found


def _trust(config: RunConfig, model: str, encoder: str, *, counted: bool) -> dict[str, Any]:
    host = config.allow_private_text_to
    also = ", and facts drawn from noisy counts" if counted else ""
    return {
        "model": "central curator: whoever runs the program holds the private table and is trusted with it",
        "where": method_text(config).where,
        "private_text_may_go_to": [] if host is None else [_host(host)],
        "language_model": f"{model or 'the language model'} has seen public text and earlier winners only{also}",
        "encoder": f"{encoder or 'the encoder'} has seen private text, in order to compare it with candidates"
        + ("" if host is None else "; a server gets one text at a time and is trusted to answer it the same each time"),
    }


# -- plain data -------------------------------------------------------------------------------------------------------


def _versions() -> dict[str, str]:
    found = {"selpe": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _host(address: str) -> str:
    """A URL's host alone: what stands before it may be a password, what stands behind it a key."""
    rest = address.partition("://")[2] if "://" in address else address
    return rest.partition("/")[0].partition("?")[0].rpartition("@")[2]


def _number(value: float) -> float | str:
    return float(value) if math.isfinite(value) else "inf"


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
