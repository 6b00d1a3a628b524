"""The matrix of faulty endpoints: a fault that passes is survived, one that lasts ends as documented."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from faulty_server import (
    MODELS,
    Behaviour,
    FastClock,
    FaultyServer,
    cut,
    cut_stream,
    drip,
    garbage,
    hang,
    hang_up,
    huge,
    make_certificate,
    ok,
    raw,
    said,
    status,
)
from selpe.errors import ModelError, PromptTooLongError
from selpe.models import Answer, Message, Request
from selpe.models.http.faults import POLICIES, FaultKind, clean, from_status, retry_after
from selpe.models.http.model import HttpModel
from selpe.models.http.transport import Timeouts

HELLO = Request(messages=(Message("user", "hello"),), key="k")
QUICK = Timeouts(connect=2.0, first_byte=0.25, total=0.5)
CALM = Timeouts(connect=5.0, first_byte=5.0, total=10.0)
PAGE = b"<html>It works!</html>"


def model(*urls: str, **settings: Any) -> HttpModel:
    usual: dict[str, Any] = {"timeouts": CALM, "clock": FastClock(), "attempts": 3, "patience": 30.0}
    return HttpModel(list(urls), "toy", **(usual | settings))


def ask(url: str, request: Request = HELLO, **settings: Any) -> Answer:
    with model(url, **settings) as client:
        (answer,) = client.generate([request])
    return answer


def dead_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@dataclass(frozen=True)
class Case:
    """A fault, what its kind is called, and how a request ends that meets nothing else."""

    name: str
    behaviour: Behaviour
    kind: FaultKind
    tries: int | None = 3
    retryable: bool = True
    raised: bool = False

    @property
    def timeouts(self) -> Timeouts:
        return QUICK if self.kind == "timeout" else CALM


CASES = (
    Case("429 that names a wait", status(429, headers={"Retry-After": "2"}), "busy", tries=None),
    Case("429 without a word", status(429), "busy", tries=None),
    Case("500", status(500), "server"),
    Case("502 of a proxy, as a page", status(502, PAGE, {"content-type": "text/html"}), "server"),
    Case("503 while starting", status(503, headers={"Retry-After": "1"}), "overloaded", tries=None, raised=True),
    Case("no answer", hang, "timeout"),
    Case("an answer that never ends", drip, "timeout"),
    Case("cut in the body", cut, "cut"),
    Case("cut in a body that comes in pieces", cut_stream, "cut"),
    Case("hung up", hang_up, "cut"),
    Case("garbage bytes", garbage, "garbage"),
    Case("invalid JSON", raw(b'{"choices": [{]'), "garbage"),
    Case("a page instead of JSON", raw(PAGE, "text/html"), "garbage"),
    Case("JSON that is no answer", raw(b'{"hello": "world"}'), "garbage"),
    Case("an error inside a 200", raw(b'{"error": {"message": "x", "code": 502}}'), "server"),
    Case("a huge body", huge(8 << 20), "too-big", tries=1, retryable=False),
    Case("400, also without our extras", status(400), "refused", tries=2, retryable=False),
    Case("a redirect", status(307, headers={"location": "http://127.0.0.1:1/"}), "refused", tries=1, retryable=False),
    Case("401", status(401), "auth", tries=1, retryable=False, raised=True),
    Case("unknown model", status(404, {"error": {"code": "model_not_found"}}), "absent", 1, False, True),
    Case("unknown route", status(404), "no-route", tries=1, retryable=False),
)
LARGEST = 1 << 20


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fault_that_lasts_ends_as_documented(case: Case) -> None:
    budget = 100.0 if case.kind == "busy" else 300.0
    with FaultyServer(rest=case.behaviour) as server:
        if case.raised:
            with pytest.raises(ModelError) as raised:
                ask(server.url, timeouts=case.timeouts, max_body=LARGEST, budget=budget)
            error: ModelError | None = raised.value
        else:
            answer = ask(server.url, timeouts=case.timeouts, max_body=LARGEST, budget=budget)
            assert (answer.finish, answer.text, answer.request) == ("error", "", HELLO)
            error = answer.error
        assert error is not None
        assert error.retryable is case.retryable
        assert POLICIES[case.kind].meaning.partition(" (")[0] in str(error)
        assert f"127.0.0.1:{server.port}" in str(error)
        assert error.hint
        assert len(server.posts) == case.tries if case.tries else len(server.posts) > 1


@pytest.mark.parametrize("case", [c for c in CASES if c.retryable], ids=lambda case: case.name)
def test_a_fault_that_passes_is_survived(case: Case) -> None:
    with FaultyServer(script=[case.behaviour, case.behaviour]) as server:
        answer = ask(server.url, timeouts=case.timeouts)
        assert (answer.finish, answer.text) == ("stop", "fine")
        assert len(server.posts) == 3


def test_every_kind_of_fault_is_in_the_matrix() -> None:
    elsewhere = {"unreachable", "tls", "too-long"}
    assert {case.kind for case in CASES} | elsewhere == set(POLICIES)


def test_a_dead_port_raises_once_patience_is_over_and_says_that_the_run_can_resume() -> None:
    port = dead_port()
    with model(f"http://127.0.0.1:{port}") as client:
        stream = client.generate(HELLO for _ in range(50))
        with pytest.raises(ModelError) as raised:
            list(stream)
    assert raised.value.retryable
    assert "resume" in raised.value.hint
    assert f"127.0.0.1:{port}" in str(raised.value)


def test_a_server_that_comes_back_in_time_loses_no_request() -> None:
    looks = iter(range(10))  # more than a request has attempts: looking whether a server is up is charged to nobody

    async def starting(call: Any) -> None:
        await (status(200, MODELS) if next(looks, None) is None else status(500))(call)

    patient = {"patience": 1e9, "budget": 1e9}
    with FaultyServer(models=starting, rest=ok()) as server, model(server.url, **patient) as client:
        assert [a.finish for a in client.generate([HELLO] * 5)] == ["stop"] * 5
        assert next(looks, None) is None


def test_a_slow_first_token_is_waited_for_up_to_the_limit() -> None:
    with FaultyServer(rest=ok(after=0.1)) as server:
        assert ask(server.url).finish == "stop"
        slow = ask(server.url, timeouts=Timeouts(2.0, 0.03, 5.0), attempts=2)
    assert slow.finish == "error"
    assert slow.error is not None
    assert "no byte came in time" in slow.error.message


def test_a_json_answer_is_read_whatever_its_content_type() -> None:
    content = str(said("fine")).replace("'", '"').encode()
    with FaultyServer(rest=raw(content, "text/plain")) as server:
        assert ask(server.url).text == "fine"


def test_reading_a_huge_body_stops_at_the_cap() -> None:
    with FaultyServer(rest=huge(64 << 20)) as server:
        answer = ask(server.url, max_body=1 << 16)
        assert answer.finish == "error"
        assert server.posts[0].sent < 32 << 20


def test_a_wait_longer_than_the_budget_is_handed_to_the_caller() -> None:
    with FaultyServer(rest=status(429, headers={"Retry-After": "3600"})) as server:
        answer = ask(server.url)
    assert answer.error is not None
    assert answer.error.retryable
    assert answer.error.retry_after == pytest.approx(3600, abs=30)


def test_the_server_s_wait_is_kept() -> None:
    clock = FastClock()
    with FaultyServer(script=[status(429, headers={"Retry-After": "20"})]) as server:
        began = clock.now()
        assert ask(server.url, clock=clock).finish == "stop"
        assert clock.now() - began >= 20


def test_a_prompt_beyond_the_context_is_its_own_error() -> None:
    body = {"error": {"message": "request (9001 tokens) exceeds the available context size (2048 tokens)"}}
    with FaultyServer(rest=status(400, body)) as server:
        answer = ask(server.url)
    assert isinstance(answer.error, PromptTooLongError)
    assert not answer.error.retryable


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def test_a_certificate_that_nobody_vouches_for_is_refused_at_once(certificate: tuple[Path, Path]) -> None:
    with FaultyServer(certificate=certificate) as server, pytest.raises(ModelError) as raised:
        ask(server.url)
    assert "TLS" in str(raised.value)
    assert not raised.value.retryable
    assert server.calls == []


def test_a_certificate_named_by_the_user_is_trusted(certificate: tuple[Path, Path]) -> None:
    with FaultyServer(certificate=certificate) as server:
        assert ask(server.url, ca_file=str(certificate[0])).finish == "stop"


def test_https_to_a_plain_port_is_a_tls_error() -> None:
    with FaultyServer() as server, pytest.raises(ModelError, match="TLS"):
        ask(server.url.replace("http:", "https:"))


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        (formatdate(1_000_090, usegmt=True), 90.0),
        (formatdate(999_000, usegmt=True), 0.0),
        ("99999999999", 86_400.0),
        ("nan", None),
        ("soon", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, wall=1_000_000.0) == seconds


def test_a_server_s_words_are_shown_without_key_control_characters_or_length() -> None:
    shown = clean("bad\x1b[31m key sk-SECRET\n" + "x" * 5000, "sk-SECRET")
    assert "SECRET" not in shown
    assert shown.isprintable()
    assert len(shown) == 200


def test_a_quiet_client_keeps_no_word_of_the_body() -> None:
    body = b'{"error": {"message": "cannot embed: PRIVATE"}}'
    fault = from_status(400, {}, body, host="h", quiet=True)
    assert "PRIVATE" not in repr(fault)
    assert "PRIVATE" not in str(fault.error())


def rows() -> list[str]:
    """The documented table, from the code's own."""
    yes = {True: "yes", False: "no"}
    lines = [
        "| fault | meaning | tried again | counts as an attempt | benched | fewer at once |",
        "|---|---|---|---|---|---|",
    ]
    for kind, policy in POLICIES.items():
        cells = [
            f"`{kind}`",
            policy.meaning,
            yes[policy.retried],
            yes[policy.charged],
            policy.bench,
            yes[policy.slower],
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def test_the_documented_table_is_the_one_in_use() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "servers.md").read_text(encoding="utf-8")
    assert "\n".join(rows()) in text
