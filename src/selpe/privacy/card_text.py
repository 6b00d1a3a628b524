"""A privacy card as Markdown, for people. Everything it says is in the card's plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_RELATIONS = {"replace_one": "one unit replaced", "add_remove": "one unit added or removed"}
_APART = {**_RELATIONS, "add_remove": "one unit added or removed, apart from the number of units"}


def render_markdown(card: Mapping[str, Any]) -> str:
    """The card as Markdown; its first paragraph is the promise, or the stamp that there is none."""
    parts = [
        f"# Privacy card: {_text(card['dataset'])}",
        _headline(card),
        _guarantee(card),
        _unit(card["unit"]),
        _charges(card),
        _cumulative(card["cumulative"]),
        _mechanism(card["mechanism"]),
        *_measured(card.get("measurements")),
        _public(card["public"]),
        "## What is not covered\n\n" + _listed(card["not_covered"]),
        _trust(card["trust"]),
        _made_with(card),
    ]
    return "\n\n".join(parts) + "\n"


def reveals_no_number(card: Mapping[str, Any]) -> bool:
    """Whether the add-remove line holds as it is printed: the plan was made from a stated number, or nothing was read.

    Cards of earlier versions do not tell: their plans were made from the true one.
    """
    return bool(card["public"]["units"].get("stated")) or not any(
        value == "inf" or value > 0 for value in card["guarantee"]["epsilon"].values()
    )


def _headline(card: Mapping[str, Any]) -> str:
    statement = _text(card["guarantee"]["statement"])
    if card["stamp"] is None:
        return statement
    reasons = "; ".join(_text(reason) for reason in card["stamp_reasons"])
    return f"**{card['stamp']}**: {reasons}. {statement}"


def _guarantee(card: Mapping[str, Any]) -> str:
    guarantee, named = card["guarantee"], _RELATIONS if reveals_no_number(card) else _APART
    rows = [(named[name], _epsilon(value), _small(guarantee["delta"])) for name, value in guarantee["epsilon"].items()]
    asked = guarantee["asked_for"]
    note = f"Asked for: ε = {_epsilon(asked['epsilon'])} under {asked['adjacency']}. "
    note += f"Composition is {guarantee['composition']}."
    return "## Guarantee of this run\n\n" + _table(("neighbouring tables", "ε", "δ"), rows) + "\n\n" + note


def _unit(unit: Mapping[str, Any]) -> str:
    warning = f"\n\n**Mind:** {_text(unit['warning'])}" if unit["warning"] else ""
    return f"## Unit of privacy\n\n{_text(unit['statement'])}{warning}"


def _charges(card: Mapping[str, Any]) -> str:
    head = ("#", "selection", "mechanism", "ε (replaced)", "ε (added or removed)", "δ")
    rows = [
        (
            charge["number"],
            charge["selection"],
            charge["mechanism"],
            _epsilon(charge["epsilon_replace_one"]),
            _epsilon(charge["epsilon_add_remove"]),
            _small(charge["delta"]),
        )
        for charge in card["charges"]
    ]
    ledger = card["ledger"]
    charged = _table(head, rows) if rows else "Nothing: no private row took part in a choice."
    return f"## What this run was charged\n\n{charged}\n\n{ledger['statement']} Digest: `{_code(ledger['digest'])}`."


def _cumulative(total: Mapping[str, Any]) -> str:
    rows = [(_RELATIONS[name], _epsilon(value), _small(total["delta"])) for name, value in total["epsilon"].items()]
    cap = total["cap"]
    said = (
        "No cap is set."
        if cap is None
        else f"The cap is ε = {cap['epsilon']:g} ({cap['adjacency']}), δ = {cap['delta']:g}."
    )
    lines = [f"{_text(total['statement'])} Runs: {total['runs']}; charges: {total['charges']}. {said}"]
    if total["controls_without_noise"]:
        lines.append(f"Besides, {total['controls_without_noise']} choices without noise were made as a reference.")
    lines += _elsewhere(total)
    return (
        "## Spent on this table so far\n\n"
        + _table(("neighbouring tables", "ε", "δ"), rows)
        + "\n\n"
        + "\n\n".join(lines)
    )


def _elsewhere(total: Mapping[str, Any]) -> list[str]:
    """What was spent on the same rows under other names; cards of earlier versions do not say it."""
    lines = []
    for other in total.get("elsewhere", ()):
        if other["epsilon"] is None:
            said = "its ledger is gone, so that what was spent there is not known"
        else:
            said = f"{_spent(other)} was spent on them there"
            if other["controls_without_noise"]:
                said += f", besides {other['controls_without_noise']} choices without noise"
        lines.append(f"**Mind:** the owner has allowed these rows another ledger, '{_text(other['dataset'])}': {said}.")
    if lines:
        least = "at least " if any(other["epsilon"] is None for other in total["elsewhere"]) else ""
        lines.append(f"All of it together is what these rows have paid: {least}{_spent(total['together'])}.")
    return lines


def _spent(total: Mapping[str, Any]) -> str:
    epsilon = total["epsilon"]
    return (
        f"ε = {_epsilon(epsilon['replace_one'])} (one unit replaced), ε = {_epsilon(epsilon['add_remove'])} "
        f"(added or removed), δ = {_small(total['delta'])}"
    )


def _mechanism(mechanism: Mapping[str, Any]) -> str:
    names = ", ".join(_text(name) for name in mechanism["names"]) or "none"
    method = mechanism.get("method", "selpe")  # cards of earlier versions do not say it
    how = f"{names}. Votes" if method == "selpe" else f"The method is {_text(method)}, a baseline. {names}"
    return (
        f"## Mechanism\n\n{how}: {_text(mechanism['how'])}. Noise: {_text(mechanism['noise'])}. "
        f"Library: {_text(mechanism['library'])}. The argument: `{mechanism['proof']}`."
    )


def _measured(measured: Mapping[str, Any] | None) -> list[str]:
    """What was counted; nothing where nothing was, and cards of earlier versions do not say it."""
    if measured is None:
        return []
    rows = [
        (
            look["look"],
            table["table"],
            " × ".join(str(size) for size in table["codes"]),
            "none" if look["law"] == "none" else f"{look['law']}, scale {look['scale']:.4g}",
            f"± {look['half_width_95']:g}",
        )
        for look in measured["looks"]
        for table in look["tables"]
    ]
    share = measured["written_by_the_counts"]
    used = "The released records follow them." if share == 1 else f"{100 * share:.0f} % of the records follow them."
    if not share:
        used = "The last choice was for records that were written without them."
    if measured.get("rest_of_any_class"):
        used += (
            " Everything else in a record comes from records of any class: here only what was measured tells "
            "classes apart."
        )
    counted = _table(("charge", "table", "codes", "noise on a count", "95 % of it"), rows)
    return [f"## What was measured\n\n{_text(measured['statement'])} {used}\n\n{counted}"]


def _public(public: Mapping[str, Any]) -> str:
    schema, settings = public["schema"], public["settings"]
    classes = (
        f", classes of `{_code(schema['label'])}`: {', '.join(map(_text, schema['classes']))}"
        if schema["classes"]
        else ""
    )
    fields = [(field["name"], field["kind"], field["domain"]) for field in schema["fields"]]
    given = [(name, _value(value)) for name, value in settings.items() if value is not None]
    units = public["units"]["number"]
    said = "The number of protected units" + (", as stated by the owner" if public["units"].get("stated") else "")
    lines = [
        f"The schema '{_text(schema['name'])}' with all bounds and categories{classes}:",
        _table(("field", "kind", "domain"), fields),
        "Rules: " + "; ".join(f"`{_code(rule)}`" for rule in schema["rules"]) + "." if schema["rules"] else "",
        f"{said}: {units:,}." if units is not None else f"{said}.",
        ""
        if public["class_sizes"] is None
        else f"Class sizes, by the owner's word: {_text(_value(public['class_sizes']))}.",
        f"What was generated: {_text(public['generated'])}.",
        "The settings:",
        _table(("setting", "value"), given),
    ]
    return "## What was treated as public\n\n" + "\n\n".join(line for line in lines if line)


def _trust(trust: Mapping[str, Any]) -> str:
    hosts = ", ".join(_text(host) for host in trust["private_text_may_go_to"])
    sent = f"private text may have been sent to {hosts}" if hosts else "no private text was sent to another host"
    return "## Whom to trust\n\n" + _listed(
        [trust["model"], trust["where"], sent, trust["language_model"], trust["encoder"]]
    )


def _made_with(card: Mapping[str, Any]) -> str:
    release = card["release"]
    many = f"{release['records']:,} records of " if release["records"] is not None else ""
    versions = ", ".join(f"{name} {number}" for name, number in card["versions"].items())
    made = f"{many}{release['fields']} fields, run {_text(card['run'])}"
    return f"## Made with\n\n{made}. Software: {versions}. Card format: {card['format']}."


# -- Markdown ---------------------------------------------------------------------------------------------------------


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_text(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _listed(items: Sequence[str]) -> str:
    return "\n".join(f"- {_text(item)}" for item in items)


def _text(value: Any) -> str:
    """A value as one line that Markdown and HTML leave alone: names and domains come from users."""
    line = " ".join(str(value).split())
    for mark in "\\`*_[]<>|#":
        line = line.replace(mark, f"\\{mark}") if mark != "<" else line.replace(mark, "&lt;")
    return line


def _code(value: Any) -> str:
    return " ".join(str(value).split()).replace("`", "'").replace("|", "\\|")


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_value(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(_value(item) for item in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _epsilon(value: float | str) -> str:
    return "∞" if value == "inf" else f"{float(value):.6g}"


def _small(value: float) -> str:
    return f"{value:g}"
