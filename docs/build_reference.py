"""Writes the pages that code can write: configuration, commands, proof. `--check` fails where one is out of date."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def configuration() -> str:
    """Every setting with its kind, default and meaning, from the class that checks them."""
    from selpe.config import RunConfig

    lines = [
        "# Configuration",
        "",
        "`selpe.yaml` holds the settings of a run. An environment variable `SELPE_NAME` overrides the file, a flag of",
        "the command overrides both. Paths are relative to the file. This page is written from the code.",
        "",
        "| setting | kind | default | meaning |",
        "|---|---|---|---|",
    ]
    document = RunConfig.model_json_schema(by_alias=True)
    lines += list(_settings(RunConfig, document, document["properties"], ""))
    return "\n".join(lines) + "\n"


def _settings(model: Any, document: dict[str, Any], properties: dict[str, Any], prefix: str) -> Iterator[str]:
    """A row per setting; the settings of a group come as `group.name`."""
    for name, field in model.model_fields.items():
        key = field.alias or name
        group = properties[key].get("$ref", "").rpartition("/")[2]
        if group:
            yield from _settings(field.annotation, document, document["$defs"][group].get("properties", {}), f"{key}.")
            continue
        default = "required" if field.is_required() else _default(field.default)
        kind, meaning = _kind(properties[key]), _cell(field.description or "")
        yield f"| `{prefix}{key}` | {kind} | {default} | {meaning} |"


def _default(value: Any) -> str:
    if value is None:
        return "–"
    return f"`{round(value, 4) if isinstance(value, float) else value}`"


def _kind(field: dict[str, Any]) -> str:
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(_kind(branch) for branch in field["anyOf"] if branch.get("type") != "null")
    kind = str(field.get("type", "any"))
    low, high = field.get("minimum", field.get("exclusiveMinimum")), field.get("maximum", field.get("exclusiveMaximum"))
    return kind + (f", {low} to {high}" if low is not None and high is not None else "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def commands() -> str:
    """What every command says about itself."""
    import typer

    from selpe.cli import build

    app = typer.main.get_command(build())
    lines = ["# Command line", "", "What the commands say about themselves. This page is written from the code.", ""]
    for path, command in _walk(app, ()):
        lines += [f"## `{' '.join(('selpe', *path))}`", "", (command.help or "").strip(), ""]
        options = [parameter for parameter in command.params if parameter.name != "help"]
        if options:
            lines += ["| parameter | meaning |", "|---|---|"]
            lines += [f"| {_names(one)} | {_cell(getattr(one, 'help', None) or '')} |" for one in options]
            lines.append("")
    return "\n".join(lines)


def _walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, sub in getattr(command, "commands", {}).items():
        if not sub.hidden:
            yield from _walk(sub, (*path, name))


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{str(parameter.name).upper()}`"
    return ", ".join(f"`{name}`" for name in parameter.opts)


def proof() -> str:
    """The proof as it stands beside the code."""
    return (ROOT / "src/selpe/privacy/PROOF.md").read_text(encoding="utf-8")


PAGES = {"configuration.md": configuration, "commands.md": commands, "proof.md": proof}


def main() -> int:
    """Writes the pages, or says which are out of date."""
    stale = []
    for name, write in PAGES.items():
        path, text = ROOT / "docs" / name, write()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        sys.stderr.write(f"out of date: {', '.join(stale)}; run `make docs`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
