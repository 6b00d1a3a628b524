"""`selpe server`: the tokens of a team's clients, and the log of what they asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selpe.cli.console import emit, err, json_mode, out, plain_console
from selpe.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from selpe.serve.audit_check import AuditVerdict
    from selpe.serve.audit_log import AuditLog, LogLine
    from selpe.serve.clients import ClientRecord

_MARKS = {"ok": "[green]✓[/]", "unchecked": "[yellow]•[/]", "wrong": "[red]✗[/]"}

Root = Annotated[Path, typer.Option(help="The server's folder.")]
Name = Annotated[str, typer.Argument(help="The client's name.", show_default=False)]
TokenTo = Annotated[
    Path | None,
    typer.Option("--to", help="A new file for the token, readable by you alone. Default: it is shown once."),
]
_ROOT = Path("selpe-server")


def register(app: typer.Typer) -> None:
    """Adds `selpe server` and its commands."""
    server = typer.Typer(no_args_is_help=True, help="The tokens of a server's clients, and its audit log.")
    server.command("tokens")(tokens)
    server.command("make-token")(make_token)
    server.command("rotate-token")(rotate_token)
    server.command("revoke-token")(revoke_token)
    server.command("log")(show_log)
    server.command("verify-log")(verify)
    server.command("renew-log")(renew)
    app.add_typer(server, name="server")


def tokens(*, root: Root = _ROOT) -> None:
    """Lists the clients: their roles, whom they belong to, since when. Tokens are kept nowhere, so none is shown."""
    from selpe.serve.clients import Clients

    clients = Clients(root)
    records = clients.records() if clients.exist else ()
    emit({"clients": [_about(record) for record in records]})
    if json_mode():
        return
    if not records:
        out().print("There are no clients: the one token of the server opens everything.")
        return
    from rich.table import Table

    table = Table(box=None, padding=(0, 2))
    for column in ("client", "person", "roles", "made", "rotated", "revoked"):
        table.add_column(column)
    for record in records:
        dates = (record.made, record.rotated or "–", record.revoked or "–")
        table.add_row(record.name, record.person, ", ".join(record.roles), *(date[:10] for date in dates))
    out().print(table)


def make_token(
    name: Name,
    *,
    role: Annotated[
        list[str],
        typer.Option(help="What it may be used for: submit, approve or read; can be repeated.", show_default=False),
    ],
    person: Annotated[
        str | None, typer.Option(help="Who answers for it, if one person has several clients. Default: its name.")
    ] = None,
    to: TokenTo = None,
    root: Root = _ROOT,
) -> None:
    """Makes a client with a token of its own. From the first one on the server's one token opens nothing any more."""
    from selpe.serve.clients import ROLES, Clients

    if unknown := [one for one in role if one not in ROLES]:
        raise ConfigError("there is no such role", where=f"--role {unknown[0]}", hint=f"roles: {', '.join(ROLES)}")
    clients = Clients(root)
    first = not clients.exist
    with clients.changing() as changed:
        roles: list[Any] = [one for one in ROLES if one in role]
        record, token = changed.make(name, person or name, roles)
        _tell(root, "made", record)
        _hand_over(token, to)
    _say(record, "made", token, to)
    if first and not json_mode():
        err().print("[yellow]This is the first client. A server that runs now takes it up when it is started again;[/]")
        err().print("[yellow]the one token that it had opens nothing from then on.[/]")


def rotate_token(name: Name, *, to: TokenTo = None, root: Root = _ROOT) -> None:
    """Gives a client another token. The one that it had is refused from now on, and so are its pages."""
    with _known(root).changing() as changed:
        record, token = changed.rotate(name)
        _tell(root, "rotated", record)
        _hand_over(token, to)
    _say(record, "rotated", token, to)


def revoke_token(name: Name, *, root: Root = _ROOT) -> None:
    """Takes a client's token away, from now on and for good. Runs that it has submitted go on."""
    with _known(root).changing() as changed:
        record = changed.revoke(name)
        _tell(root, "revoked", record)
    emit({"client": _about(record)})
    if not json_mode():
        out().print(f"The token of {name} is revoked.", markup=False)


def show_log(
    *,
    root: Root = _ROOT,
    table: Annotated[str | None, typer.Option(help="Only lines about this table.")] = None,
    client: Annotated[str | None, typer.Option(help="Only lines about this client.")] = None,
    last: Annotated[int, typer.Option(min=1, help="So many lines, the latest.")] = 100,
) -> None:
    """Shows the audit log: who asked what of which table, what was spent, what was refused. Every line is checked."""
    from collections import deque

    found: deque[LogLine] = deque(maxlen=last)

    def take(line: LogLine) -> None:
        if table in (None, line.data.get("table")) and client in (None, line.data.get("client")):
            found.append(line)

    _log(root).read(take)
    lines = [{"seq": line.seq, "time": line.time, "kind": line.kind, **line.data} for line in found]
    emit({"lines": lines})
    if json_mode():
        return
    from rich.markup import escape
    from rich.table import Table

    shown = Table(box=None, padding=(0, 2))
    for column in ("#", "time (UTC)", "line", "client", "table", "what"):
        shown.add_column(column)
    for line in found:
        more = {name: value for name, value in line.data.items() if name not in ("client", "table")}
        told = " ".join(f"{name}={_word(value)}" for name, value in more.items() if value is not None)
        cells = (line.kind, str(line.data.get("client", "–")), str(line.data.get("table", "–")), told)
        shown.add_row(str(line.seq), line.time[:19].replace("T", " "), *(escape(cell) for cell in cells))
    console = out()
    wide = console if console.is_terminal else plain_console(file=console.file, width=1000)
    wide.print(shown)


def verify(
    *,
    root: Root = _ROOT,
    noted: Annotated[
        str | None, typer.Option(help="Number and sum of a line, as this command has told them before: 120:9f3c…")
    ] = None,
) -> None:
    """Checks the audit log: its chain, its seals, its end, and whether runs and ledgers agree with it."""
    from selpe.serve.audit_check import verify_log

    found = verify_log(root, noted=_noted(noted))
    emit(
        {
            "ok": found.ok,
            "lines": found.lines,
            "note": f"{found.lines}:{found.last}",
            "findings": [{"what": one.what, "state": one.state, "said": one.said} for one in found.checks],
            "cannot": list(found.cannot),
        }
    )
    if not json_mode():
        _show(found)
    if not found.ok:
        raise typer.Exit(int(ExitCode.BAD_INPUT))


def renew(
    *,
    root: Root = _ROOT,
    reason: Annotated[str, typer.Option(help="What happened to the old one; recorded for good.", show_default=False)],
) -> None:
    """Begins the audit log anew where the old one is damaged or lost. What is left of it is kept beside it."""
    from selpe.privacy.ledger.key import make_key
    from selpe.serve.audit_log import FOLDER, AuditLog

    if not reason.strip():
        raise ConfigError("beginning the log anew needs a reason, which is recorded", where="--reason")
    _known(root)
    with _no_server(root):
        kept = AuditLog(root / FOLDER, make_key()).renew(reason.strip())
    emit({"kept": str(kept) if kept else None})
    if not json_mode():
        out().print(f"The log begins anew. The old one: {kept or 'was not there'}", markup=False, soft_wrap=True)


# -- inside -----------------------------------------------------------------------------------------------------------


def _known(root: Path) -> Any:
    from selpe.serve.clients import Clients

    clients = Clients(root)
    if not clients.exist:
        raise ConfigError(
            "this server has no clients", where=str(root), hint="`selpe server make-token NAME --role submit` makes one"
        )
    return clients


@contextmanager
def _no_server(root: Path) -> Iterator[None]:
    """Holds a server's folder, in which none may work: it would go on from the end of a log that is gone."""
    from filelock import FileLock, Timeout

    from selpe.owner_only import FILE_MODE

    try:
        with FileLock(root / "lock", timeout=0, mode=FILE_MODE):
            yield
    except Timeout:
        raise ConfigError("a server works in this folder", where=str(root), hint="stop it first") from None


def _log(root: Path) -> AuditLog:
    from selpe.privacy.ledger.key import find_key
    from selpe.serve.audit_log import FOLDER, AuditLog

    log = AuditLog(root / FOLDER, find_key())
    if not log.path.exists() and log.mark is None:
        raise ConfigError("there is no audit log", where=str(root), hint="--root names the server's folder")
    return log


def _tell(root: Path, what: str, record: ClientRecord) -> None:
    """Writes the line about a token; before what it tells of is done."""
    from selpe.privacy.ledger.key import make_key
    from selpe.serve.audit_log import FOLDER, AuditLog
    from selpe.serve.trail import TOKEN

    data = {"what": what, "client": record.name, "person": record.person, "roles": list(record.roles)}
    AuditLog(root / FOLDER, make_key()).append([(TOKEN, data)])


def _hand_over(token: str, to: Path | None) -> None:
    """Writes a token into a new file of its owner."""
    from selpe.owner_only import open_text

    if to is None:
        return
    try:
        with open_text(to, "x") as file:
            file.write(token + "\n")
    except OSError as error:
        raise ConfigError(f"the token cannot be written ({error.strerror})", where=str(to)) from None


def _say(record: ClientRecord, what: str, token: str, to: Path | None) -> None:
    emit({"client": _about(record), **({"token_file": str(to)} if to else {"token": token})})
    if json_mode():
        return
    err().print(f"{what}: {record.name}, who may {', '.join(record.roles)}", markup=False)
    if to is not None:
        err().print(f"Its token is in {to}.", markup=False, soft_wrap=True)
        return
    err().print("[dim]This is its token. It is kept nowhere and cannot be shown again.[/]")
    out().print(token, markup=False, soft_wrap=True)


def _about(record: ClientRecord) -> dict[str, Any]:
    """What may be told of a client: nothing of its token."""
    return record.model_dump(exclude={"salt", "hash"})


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _noted(text: str | None) -> tuple[int, str] | None:
    if text is None:
        return None
    number, _, total = text.partition(":")
    if not number.isdigit() or len(total) < 16:
        raise ConfigError("must be a line's number and sum, as in 120:9f3c… (16 characters at least)", where="--noted")
    return int(number), total


def _show(found: AuditVerdict) -> None:
    from rich.markup import escape

    console = out()
    for one in found.checks:
        console.print(f"{_MARKS[one.state]} {one.what:<12} {escape(one.said)}", soft_wrap=True)
    said = "[green]It agrees with itself.[/]" if found.ok else "[bold red]It is not as it was written.[/]"
    console.print(f"{said} What this cannot show:")
    for line in found.cannot:
        console.print(f"  [dim]•[/] {escape(line)}", soft_wrap=True)
    if found.ok:
        console.print(f"Note this elsewhere, for --noted: {found.lines}:{found.last}", markup=False, soft_wrap=True)
