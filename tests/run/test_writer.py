"""`llm: auto`: what is taken, what is only named, and that a run keeps what it began with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from selpe.config import RunConfig, check_config
from selpe.errors import ConfigError
from selpe.models import nearby
from selpe.models.machine import ENGINES, Machine
from selpe.models.open import open_model
from selpe.models.store.curated import BY_NAME, CURATED, curated
from selpe.models.store.hub import is_reachable
from selpe.models.store.store import ModelStore
from selpe.run.lifecycle import Run
from selpe.run.writer import Option, WriterChoice, choose, choose_writer, settle_writer
from small_world import SCHEMA
from web_site import Site, site

GB = 10**9
MACHINE = Machine(
    system="Linux", processor="any", cores=8, usable_cores=8.0, instruction_sets=("avx512f", "avx2"), memory=32 * GB,
    free_memory=24 * GB, load=0.0,
)  # fmt: skip
SMALL = Option("smollm2", "SmolLM2", 0.135, "store", 60.0)


def an_option(name: str, billions: float, **changes: Any) -> Option:
    return replace(Option(name, name, billions, "store", 100.0 * billions), **changes)


def a_choice(*more: Option, minutes: float = 30.0, is_offline: bool = False) -> WriterChoice:
    return choose([SMALL, *more], MACHINE, minutes=minutes, is_offline=is_offline)


# -- the rule


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ([], "smollm2"),
        ([an_option("a", 1.5)], "a"),
        ([an_option("a", 1.5), an_option("b", 0.5)], "a"),  # the largest, in any order
        ([an_option("a", 1.5, place="hub", download=GB)], "smollm2"),  # nothing is fetched unasked
        ([an_option("a", 1.5, seconds=1801.0), an_option("b", 0.5)], "b"),  # half an hour is allowed
        ([an_option("a", 7.0, obstacle="no memory")], "smollm2"),
        ([an_option("http://127.0.0.1:1/v1#m", 3.0, place="server")], "http://127.0.0.1:1/v1#m"),
        ([an_option("a", 0.1)], "smollm2"),
    ],
)
def test_the_largest_that_is_here_and_fast_enough_is_taken(options: list[Option], taken: str) -> None:
    assert a_choice(*options).llm == taken


def test_more_time_never_gives_a_smaller_model() -> None:
    options = [an_option(f"m{k}", k / 2, seconds=300.0 * k) for k in range(1, 12)]
    sizes = {one.llm: one.billions for one in (SMALL, *options)}
    taken = [sizes[a_choice(*options, minutes=minutes).llm] for minutes in range(1, 70, 3)]
    assert taken == sorted(taken)
    assert len(set(taken)) > 5


def test_a_larger_model_is_named_with_what_it_costs() -> None:
    choice = a_choice(
        an_option("middle", 1.5, place="hub", download=1_100_000_000, title="Middle", licence="Special"),
        an_option("large", 30.0, place="hub", download=20 * GB),  # 50 minutes
    )
    assert choice.larger is not None
    assert choice.larger.llm == "middle"
    for words in ("Middle", "1.1 GB", "2 min", "Special", "selpe models pull middle"):
        assert words in choice.advice
    assert "more than" not in choice.advice


def test_if_all_larger_ones_are_too_slow_the_nearest_is_named_with_that() -> None:
    choice = a_choice(
        an_option("middle", 1.5, place="hub", seconds=7200.0), an_option("huge", 9.0, place="hub", seconds=9e4)
    )
    assert choice.larger is not None
    assert choice.larger.llm == "middle"
    assert "2 h 00 min" in choice.advice
    assert "more than the 30 min" in choice.advice


def test_offline_is_said_and_nothing_is_offered() -> None:
    choice = a_choice(an_option("middle", 1.5, place="hub"), is_offline=True)
    assert (choice.llm, choice.advice) == ("smollm2", "")
    assert "Network use is off" in choice.why


def test_it_says_why_something_larger_was_not_taken_and_what_a_server_gets() -> None:
    assert "too old" in a_choice(an_option("a", 1.5, obstacle="it is too old")).why
    assert "5 h 00 min" in a_choice(an_option("a", 1.5, seconds=18_000.0)).why
    assert "nothing of private rows" in a_choice(an_option("s", 3.0, place="server")).why


# -- on this machine


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        yield served


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelStore:
    for name in ("SELPE_OFFLINE", "HF_HUB_OFFLINE", "SELPE_MODELS", "HF_TOKEN", "SELPE_API_KEY", "SELPE_API_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "no-hub-cache"))
    monkeypatch.setenv("SELPE_CACHE", str(tmp_path / "cache"))
    runs_on(monkeypatch, MACHINE)
    return ModelStore()


def runs_on(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    for place in ("selpe.run.writer", "selpe.models.machine"):
        monkeypatch.setattr(f"{place}.this_machine", lambda: machine)


def a_config(tmp_path: Path, **changes: Any) -> RunConfig:
    content = {"dataset": "t", "data": "t.csv", "out": str(tmp_path / "runs"), "records": 100, **changes}
    return check_config(content, where="test")


def published(hub: Site, name: str, body: bytes, commit: str = "c0ffee") -> str:
    """Puts a model of the list on the hub; returns the address of its file."""
    repo, _, file = BY_NAME[name].hub.removeprefix("hf:").partition(":")
    sha256 = hashlib.sha256(body).hexdigest()
    held = {"rfilename": file, "size": len(body), "lfs": {"sha256": sha256}}
    hub.pages[f"/api/models/{repo}/revision/main"] = json.dumps({"sha": commit, "siblings": [held]}).encode()
    hub.pages[f"/{repo}/resolve/{commit}/{file}"] = body
    return f"/{repo}/resolve/{commit}/{file}"


def test_auto_is_the_default_and_asks_neither_the_hub_nor_anybody_else(
    tmp_path: Path, hub: Site, store: ModelStore
) -> None:
    config = a_config(tmp_path)
    assert config.llm == "auto"
    settled, choice = settle_writer(config, SCHEMA, store=store)
    assert settled.llm == "smollm2"
    assert choice is not None
    assert choice.larger is not None
    assert not hub.seen
    assert settle_writer(settled) == (settled, None)


def test_a_model_of_the_list_is_taken_once_it_was_pulled(tmp_path: Path, hub: Site, store: ModelStore) -> None:
    file = published(hub, "qwen2.5-1.5b", b"weights")
    path = store.ensure("qwen2.5-1.5b")
    assert path.read_bytes() == b"weights"
    (held,) = store.list()
    assert (held.name, held.revision, held.files[0].sha256) == (
        "qwen2.5-1.5b", "c0ffee", hashlib.sha256(b"weights").hexdigest(),
    )  # fmt: skip
    published(hub, "qwen2.5-1.5b", b"changed", commit="beef")  # whatever the hub has later, the first stays
    assert store.ensure("qwen2.5-1.5b") == path
    assert len(hub.asked(file)) == 1
    assert choose_writer(a_config(tmp_path), SCHEMA, store=store).llm == "qwen2.5-1.5b"


def test_other_bytes_than_the_hub_told_are_refused(hub: Site, store: ModelStore) -> None:
    file = published(hub, "qwen2.5-0.5b", b"weights")
    hub.pages[file] = b"weighty"
    with pytest.raises(Exception, match="no source handed over"):
        store.ensure("qwen2.5-0.5b")
    assert store.list() == ()


def test_the_cache_of_the_hubs_own_tools_serves_without_network(
    store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELPE_OFFLINE", "1")
    repo, _, file = BY_NAME["llama-3.2-1b"].hub.removeprefix("hf:").partition(":")
    folder = tmp_path / "no-hub-cache" / "hub" / f"models--{repo.replace('/', '--')}"
    blob = folder / "blobs" / hashlib.sha256(b"weights").hexdigest()
    link = folder / "snapshots" / "abc123" / file
    for path in (blob, link):
        path.parent.mkdir(parents=True)
    blob.write_bytes(b"weights")
    link.symlink_to(blob)
    assert store.ensure("llama-3.2-1b").read_bytes() == b"weights"
    assert store.list()[0].revision == "abc123"


def test_whether_the_hub_is_there_is_known_at_once(hub: Site) -> None:
    assert is_reachable(seconds=30.0)  # an answer is an answer, even 'not found'
    hub.delay = 20.0
    assert not is_reachable(seconds=0.2)


def test_memory_time_and_engines_set_limits(
    tmp_path: Path, hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("qwen2.5-0.5b", "qwen2.5-7b", "gemma-3-4b"):
        published(hub, name, name.encode())
        store.ensure(name)
    config = a_config(tmp_path, llm_minutes=600)
    monkeypatch.setattr("selpe.run.writer.ENGINES", tuple(replace(one, packages=()) for one in ENGINES))  # all are here
    assert choose_writer(config, SCHEMA, store=store).llm == "qwen2.5-7b"
    runs_on(monkeypatch, replace(MACHINE, free_memory=12 * GB))
    assert choose_writer(config, SCHEMA, store=store).llm == "llamacpp:gemma-3-4b"
    absent = tuple(replace(one, packages=("no-such-package",) if one.name == "llama.cpp" else ()) for one in ENGINES)
    monkeypatch.setattr("selpe.run.writer.ENGINES", absent)
    assert choose_writer(config, SCHEMA, store=store).llm == "qwen2.5-0.5b"
    slow = replace(MACHINE, usable_cores=1.0, instruction_sets=())
    runs_on(monkeypatch, slow)
    hurried = choose_writer(a_config(tmp_path, llm_minutes=0.1), SCHEMA, store=store)
    assert hurried.llm == "smollm2"
    assert "llm_minutes" in hurried.why or "needs" in hurried.why


def test_a_server_on_this_machine_is_taken_unless_a_key_is_set(
    tmp_path: Path, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site() as served:
        monkeypatch.setenv(nearby.VARIABLE, served.url)
        monkeypatch.setattr(nearby, "PATIENCE", 5.0)
        served.pages["/v1/models"] = json.dumps({"data": [{"id": "qwen2.5:7b"}]}).encode()
        runs_on(monkeypatch, replace(MACHINE, gpu="any"))
        choice = choose_writer(a_config(tmp_path), SCHEMA, store=store)
        assert (choice.llm, choice.place) == (f"{served.url}/v1#qwen2.5:7b", "server")
        runs_on(monkeypatch, replace(MACHINE, usable_cores=1.0))  # it would take hours
        assert choose_writer(a_config(tmp_path, llm_minutes=5), SCHEMA, store=store).llm == "smollm2"
        runs_on(monkeypatch, replace(MACHINE, gpu="any"))
        monkeypatch.setenv("SELPE_API_KEY", "secret")
        kept = choose_writer(a_config(tmp_path), SCHEMA, store=store)
        assert kept.llm == "smollm2"
        assert "SELPE_API_KEY" in kept.why


def test_a_run_keeps_its_choice_when_a_larger_model_comes(tmp_path: Path, hub: Site, store: ModelStore) -> None:
    run = Run.create(a_config(tmp_path), schema=SCHEMA, name="first")
    assert run.config.llm == run.manifest["settings"]["llm"] == "smollm2"
    assert run.manifest["writer"]["asked"] == "auto"
    published(hub, "qwen2.5-1.5b", b"weights")
    store.ensure("qwen2.5-1.5b")
    assert Run.open(run.folder).config.llm == "smollm2"
    assert Run.create(a_config(tmp_path), schema=SCHEMA, name="second").config.llm == "qwen2.5-1.5b"


def test_a_cluster_gets_the_embedded_default(tmp_path: Path, store: ModelStore) -> None:
    choice = choose_writer(a_config(tmp_path, execute="ray"), SCHEMA, store=store)
    assert choice.llm == "smollm2"
    assert "node" in choice.why


def test_auto_is_no_model_to_open(store: ModelStore) -> None:
    with pytest.raises(ConfigError, match="a run chooses"):
        open_model("auto", store=store)


# -- the list


def test_the_list_is_in_order_and_every_entry_can_be_had() -> None:
    sizes = [model.billions for model in CURATED]
    assert sizes == sorted(sizes)
    assert CURATED[0].name == "smollm2"
    for model in CURATED:
        assert curated(model.llm) is model
        assert model.hub.startswith("hf:") or model.name in ("smollm2", "qwen2.5-coder-1.5b")
        assert model.size < model.memory
        assert model.licence
