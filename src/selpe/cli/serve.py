"""`selpe serve`: runs over HTTP, for this machine, with a token."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selpe.cli.console import emit, err, json_mode, out
from selpe.errors import ConfigError

if TYPE_CHECKING:
    from selpe.serve.clients import ClientRecord, Door
    from selpe.serve.trail import Trail

_MB = 2**20


def register(app: typer.Typer) -> None:
    """Adds `selpe serve`."""
    app.command("serve")(serve)


def serve(
    *,
    root: Annotated[Path, typer.Option(help="The folder of tables, runs and token.")] = Path("selpe-server"),
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for a free one.")] = 8460,
    token_file: Annotated[
        Path | None, typer.Option(help="The token; made if it is not there. Default: token in the folder.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="A model that clients may use, as name=what `llm` says; can be repeated. Default: by name."),
    ] = None,
    encoder: Annotated[
        list[str] | None, typer.Option(help="An encoder in the same way. Default: minilm and hash.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Runs at once.")] = 1,
    max_upload: Annotated[int, typer.Option(min=1, help="The largest table, in MB.")] = 100,
    max_records: Annotated[int, typer.Option(min=1, help="The most records that a run may write.")] = 100_000,
    max_epsilon: Annotated[float, typer.Option(min=0.0, help="The most ε of a run, and of a budget it sets.")] = 100.0,
    max_hours: Annotated[
        float, typer.Option(min=0.01, help="How long a run may take at once, in hours; it can be resumed.")
    ] = 168.0,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="A further name of this server (host or host:port), as behind a proxy.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="A certificate, to serve by TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key.")] = None,
    second_person: Annotated[
        bool, typer.Option("--second-person", help="A run that spends waits until somebody else has approved it.")
    ] = False,
    open_to_network: Annotated[
        bool, typer.Option("--open-to-network", help="Allow a --host that other machines can reach.")
    ] = False,
) -> None:
    """Serve runs over HTTP to this machine: upload, plan, run, watch, fetch. See docs/server.md."""
    if any(find_spec(name) is None for name in ("fastapi", "uvicorn")):
        raise ConfigError("the server is not installed", hint="pip install 'selpe[server]'")
    from selpe.serve.limits import IN_PROCESS_ENCODERS, Limits, Operator, known_models
    from selpe.serve.server import ListenAddress, is_loopback
    from selpe.serve.server import serve as listen

    os.umask(0o077)  # whatever is written from here on is for this user alone
    limits = Limits(
        table_bytes=max_upload * _MB, records=max_records, epsilon=max_epsilon, workers=workers,
        run_seconds=3600.0 * max_hours,
    )  # fmt: skip
    models, encoders = _named(model, "--model"), _named(encoder, "--encoder")
    operator = Operator(models or known_models(), encoders or IN_PROCESS_ENCODERS, limits, second_person)
    address = ListenAddress(host, port, tuple(allowed_host or ()), tls_cert, tls_key, open_to_network)
    door, trail, opened_by = _door(root, token_file, second_person=second_person)
    if not is_loopback(host):
        _warn(plain=tls_cert is None)

    def ready(url: str) -> None:
        emit({"serve": {"url": url, "root": str(root), **opened_by}})
        if not json_mode():
            out().print(f"[bold]{url}[/]", soft_wrap=True)
            said = (
                f"The token is in {opened_by['token_file']}." if "token_file" in opened_by else "Clients have tokens."
            )
            out().print(f"[dim]{said} Ctrl-C stops the server; runs can be resumed.[/]", soft_wrap=True)

    listen(root, operator, door, address, ready=ready, trail=trail)


def _door(root: Path, token_file: Path | None, *, second_person: bool) -> tuple[Door, Trail, dict[str, Any]]:
    """Who may come in, what is logged, and what to tell of it: a team's clients, else whoever has the one token."""
    from selpe.privacy.ledger.key import make_key
    from selpe.serve.audit_log import FOLDER, AuditLog
    from selpe.serve.clients import Clients
    from selpe.serve.token import load_token
    from selpe.serve.trail import Trail

    clients = Clients(root)
    if clients.exist:
        if token_file is not None:
            raise ConfigError(
                "clients of this server have tokens of their own", where="--token-file", hint="leave it out"
            )
        live = [record for record in clients.records() if record.revoked is None]
        if second_person:
            _require_two(live)
        return clients, Trail(AuditLog(root / FOLDER, make_key())), {"clients": len(live)}
    if (root / FOLDER).exists():
        raise ConfigError(
            "there is an audit log, and the list of clients is gone", where=str(clients.path),
            hint=f"restore it; to go back to one token for everything, move {root / FOLDER} away",
        )  # fmt: skip
    if second_person:
        raise ConfigError(
            "with one token for everybody nobody can be told apart", where="--second-person",
            hint="give each client a token: selpe server make-token NAME --role submit",
        )  # fmt: skip
    path = token_file or root / "token"
    return load_token(path), Trail(), {"token_file": str(path)}


def _require_two(live: list[ClientRecord]) -> None:
    """Raises where no run could ever be approved."""
    pairs = [(a, b) for a in live for b in live if "submit" in a.roles and "approve" in b.roles]
    if not any(a.person != b.person for a, b in pairs):
        raise ConfigError(
            "nobody could approve what another person submits", where="--second-person",
            hint="it takes two persons, one with the role 'submit' and one with 'approve': selpe server tokens",
        )  # fmt: skip


def _named(pairs: list[str] | None, option: str) -> dict[str, str]:
    """Names and what they stand for; a bare name stands for itself."""
    found: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, spec = pair.partition("=")
        if not name.strip() or (equals and not spec.strip()):
            raise ConfigError("must be name=what it stands for", where=f"{option} {pair}")
        found[name.strip()] = spec.strip() or name.strip()
    return found


def _warn(*, plain: bool) -> None:
    err().print("[bold red]Other machines can reach this server, its private tables and its budgets.[/]")
    if plain:
        err().print("[bold red]Without TLS the token and every uploaded table can be read on the way.[/]")
        err().print("[dim]what to do:[/] --tls-cert and --tls-key, or a proxy with TLS on this machine and no --host")
