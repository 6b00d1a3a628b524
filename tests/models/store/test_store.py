"""The model store: what it keeps, what it refuses, and how it behaves when a source fails."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from selpe.errors import ModelError, ModelNotFoundError, RunError
from selpe.models.encoders import bert, minilm
from selpe.models.store.download import Step
from selpe.models.store.registry import DEFAULT_ENCODER, REGISTRY, HubSource, IndexSource, ModelEntry, ModelFile
from selpe.models.store.store import ModelStore
from web_site import Site, site

BODY = bytes(range(256)) * 8192  # 2 MiB: two chunks of a download
SHA = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with site() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        monkeypatch.setattr("selpe.models.store.download._pause", lambda *_: 0.0)
        yield served


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelStore:
    for name in ("SELPE_OFFLINE", "HF_HUB_OFFLINE", "SELPE_MODELS", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "no-hub-cache"))
    return ModelStore(tmp_path / "store")


def hub_model(monkeypatch: pytest.MonkeyPatch, sha256: str = SHA, *more: ModelFile) -> None:
    file = ModelFile("toy.gguf", sha256, len(BODY), (HubSource("org/toy", "toy.gguf"),))
    entry = ModelEntry("toy", "gguf", (file, *more), "Apache-2.0", "org")
    monkeypatch.setitem(REGISTRY, "toy", entry)


FILE = "/org/toy/resolve/main/toy.gguf"


def leftovers(store: ModelStore) -> list[str]:
    """Everything that a fetch left, apart from locks."""
    found = store.root.rglob("*")
    return sorted(str(p.relative_to(store.root)) for p in found if p.is_file() and p.suffix != ".lock")


# -- fetching from the hub


def test_a_model_is_fetched_once_checked_and_found_again(
    hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_model(monkeypatch)
    hub.pages[FILE] = BODY
    steps: list[Step] = []
    path = store.ensure("toy", steps.append)
    assert path.name == "toy.gguf"
    assert path.read_bytes() == BODY
    assert (steps[-1].done, steps[-1].total) == (len(BODY), len(BODY))
    assert store.ensure("toy") == store.path("toy") == path
    assert len(hub.asked(FILE)) == 1
    (held,) = store.list()
    assert (held.name, held.licence, held.files[0].sha256) == ("toy", "Apache-2.0", SHA)


def test_a_cut_connection_is_resumed_where_it_broke(
    hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_model(monkeypatch)
    hub.pages[FILE] = BODY
    hub.cut_after = [1 << 20, 1 << 19]
    assert store.ensure("toy").read_bytes() == BODY
    starts = [headers.get("range", "") for headers in hub.asked(FILE)]
    assert starts[0] == ""
    assert starts[1] == f"bytes={1 << 20}-"
    assert len(starts) == 3


def test_a_part_from_an_earlier_process_is_resumed(
    hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_model(monkeypatch)
    hub.pages[FILE] = BODY
    part = store.root / "partial" / f"{SHA}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(BODY[:1000])
    assert store.ensure("toy").read_bytes() == BODY
    assert [headers.get("range") for headers in hub.asked(FILE)] == ["bytes=1000-"]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(
    hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    hub_model(monkeypatch)
    hub.pages[FILE] = BODY
    hub.statuses = [status, status]
    assert store.ensure("toy").read_bytes() == BODY
    assert len(hub.asked(FILE)) == 3


@pytest.mark.parametrize(("status", "word"), [(404, "no such file"), (401, "access refused"), (500, "500")])
def test_a_source_that_fails_is_named_with_its_reason(
    hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch, status: int, word: str
) -> None:
    hub_model(monkeypatch)
    hub.statuses = [status] * 20
    with pytest.raises(ModelNotFoundError, match=word) as caught:
        store.ensure("toy")
    assert "org/toy" in caught.value.message
    assert caught.value.hint


def test_a_dead_host_is_named(store: ModelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    hub_model(monkeypatch)
    monkeypatch.setattr("selpe.models.store.download._pause", lambda *_: 0.0)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelNotFoundError, match=r"127\.0\.0\.1 cannot be reached"):
        store.ensure("toy")


def test_a_wrong_hash_is_refused_and_nothing_is_kept(
    hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_model(monkeypatch)
    hub.pages[FILE] = BODY[:-1] + b"!"
    with pytest.raises(ModelNotFoundError, match="another hash"):
        store.ensure("toy")
    assert leftovers(store) == []


def test_a_file_that_is_too_long_is_refused_and_nothing_is_kept(
    hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_model(monkeypatch)
    hub.pages[FILE] = BODY * 2
    steps: list[Step] = []
    with pytest.raises(ModelNotFoundError, match="larger than the pinned one"):
        store.ensure("toy", steps.append)
    assert max(step.done for step in steps) <= len(BODY)
    assert leftovers(store) == []


def test_a_hash_that_the_hub_announces_is_refused_before_a_byte_is_read(
    hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_model(monkeypatch)
    hub.redirects[FILE] = f"{hub.url}/cdn"
    hub.headers[FILE] = {"X-Linked-Etag": f'"{"0" * 64}"'}
    hub.pages["/cdn"] = BODY
    steps: list[Step] = []
    with pytest.raises(ModelNotFoundError, match="another hash"):
        store.ensure("toy", steps.append)
    assert max(step.done for step in steps) == 0


def test_the_token_goes_to_the_hub_alone(
    hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hub_model(monkeypatch)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    caplog.set_level("DEBUG")
    with site() as cdn:
        cdn.pages["/blob"] = BODY
        hub.redirects[FILE] = f"{cdn.url}/blob"
        store.ensure("toy")
        assert hub.asked(FILE)[0]["authorization"] == "Bearer hf_secret"
        assert "authorization" not in cdn.asked("/blob")[0]
    manifest = (store.root / "names" / "toy.json").read_text()
    assert "hf_secret" not in manifest + caplog.text


# -- disks and processes


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_that_fills_up_gives_its_space_back(
    hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_model(monkeypatch)
    hub.pages[FILE] = BODY
    part = store.root / "partial" / f"{SHA}.part"
    part.parent.mkdir(parents=True)
    part.symlink_to("/dev/full")
    with pytest.raises(ModelError, match="disk is full") as caught:
        store.ensure("toy")
    assert "SELPE_CACHE" in caught.value.hint
    assert leftovers(store) == []


def test_a_disk_without_room_is_noticed_before_fetching(
    hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_model(monkeypatch)
    monkeypatch.setattr("selpe.models.store.fetching.shutil.disk_usage", lambda _: _Full())
    with pytest.raises(ModelError, match="disk is full"):
        store.ensure("toy")
    assert hub.seen == []


class _Full:
    free = 10


_FETCHER = """
import sys
from pathlib import Path
from selpe.models.store.store import ModelStore
print(ModelStore(Path(sys.argv[1])).ensure("hf:org/toy:toy.gguf").read_bytes() == bytes(range(256)) * 8192)
"""


def listing(**files: str) -> bytes:
    """What the hub's API says about a repository: path and sha256 ('' for a small file without one)."""
    siblings = [
        {"rfilename": path, "size": len(BODY), **({"lfs": {"sha256": sha}} if sha else {})}
        for path, sha in files.items()
    ]
    return json.dumps({"sha": "c0ffee", "siblings": siblings, "cardData": {"license": "mit"}}).encode()


API = "/api/models/org/toy/revision/main"


def test_two_processes_fetch_once(hub: Site, store: ModelStore) -> None:
    hub.pages[API] = listing(**{"toy.gguf": SHA})
    hub.pages["/org/toy/resolve/c0ffee/toy.gguf"] = BODY
    hub.delay = 0.3
    command = [sys.executable, "-c", _FETCHER, str(store.root)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=300)[0].strip() for process in both] == ["True", "True"]
    assert len(hub.asked("/org/toy/resolve/c0ffee/toy.gguf")) == 1


# -- names of the hub


def test_an_hf_name_is_pinned_to_a_commit_and_works_offline_afterwards(
    hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.pages[API] = listing(**{"toy-q8_0.gguf": SHA, "toy-q2_k.gguf": "1" * 64})
    hub.pages["/org/toy/resolve/c0ffee/toy-q8_0.gguf"] = BODY
    path = store.ensure("hf:org/toy")
    assert path.name == "toy-q8_0.gguf"
    (held,) = store.list()
    assert (held.revision, held.licence, held.kind) == ("c0ffee", "mit", "gguf")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    before = len(hub.seen)
    assert store.ensure("hf:org/toy") == path
    assert len(hub.seen) == before


def test_a_snapshot_is_a_folder_with_the_files_names(hub: Site, store: ModelStore) -> None:
    names = {"config.json": "", "model.safetensors": SHA, "1_Pooling/config.json": "", "onnx/model.onnx": "2" * 64}
    hub.pages[API] = listing(**names, **{"../../escape.json": ""})
    for name in names:
        hub.pages[f"/org/toy/resolve/c0ffee/{name}"] = BODY
    folder = store.ensure("hf:org/toy")
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert found == ["1_Pooling/config.json", "config.json", "model.safetensors"]


@pytest.mark.parametrize("name", ["hf:toy", "hf:org/toy:", "hf:a/b/c", "hf:"])
def test_a_malformed_hf_name_says_how_to_write_it(store: ModelStore, name: str) -> None:
    with pytest.raises(ModelNotFoundError, match="must be hf:org/name"):
        store.ensure(name)


def test_a_file_that_the_repository_lacks_names_those_it_has(hub: Site, store: ModelStore) -> None:
    hub.pages[API] = listing(**{"toy-q8_0.gguf": SHA})
    with pytest.raises(ModelNotFoundError) as caught:
        store.ensure("hf:org/toy:other.gguf")
    assert "toy-q8_0.gguf" in caught.value.hint


# -- offline, local files, and names


def test_offline_touches_no_network_and_says_what_to_do(
    hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_model(monkeypatch)
    hub.pages[FILE] = BODY
    monkeypatch.setenv("SELPE_OFFLINE", "1")
    for name in ("toy", "hf:org/toy"):
        with pytest.raises(ModelNotFoundError, match="network use is off") as caught:
            store.ensure(name)
        assert f"selpe models pull {name} --from" in caught.value.hint
    assert hub.seen == []


def test_a_model_can_be_brought_as_a_file(store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub_model(monkeypatch)
    brought = tmp_path / "any-name.bin"
    brought.write_bytes(BODY)
    assert store.adopt("toy", brought).read_bytes() == BODY
    assert brought.exists()


def test_a_brought_file_of_another_hash_is_not_taken(
    store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_model(monkeypatch)
    brought = tmp_path / "toy.gguf"
    brought.write_bytes(BODY[:-1] + b"!")
    with pytest.raises(ModelNotFoundError):
        store.adopt("toy", brought)


def test_the_hub_clients_own_cache_is_used(store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub_model(monkeypatch)
    monkeypatch.setenv("SELPE_OFFLINE", "1")
    blob = tmp_path / "no-hub-cache" / "hub" / "models--org--toy" / "blobs" / SHA
    blob.parent.mkdir(parents=True)
    blob.write_bytes(BODY)
    assert store.ensure("toy").read_bytes() == BODY


def test_an_unknown_name_gets_the_nearest_known_one(store: ModelStore) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        store.ensure("smolm2")
    assert "Did you mean 'smollm2'?" in caught.value.hint


def test_a_path_is_used_where_it_lies(store: ModelStore, tmp_path: Path) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(b"weights")
    assert store.ensure(str(own)) == own
    with pytest.raises(ModelNotFoundError, match="no such model file"):
        store.ensure(str(tmp_path / "absent.gguf"))


# -- checking, preparing, deleting


def test_damage_is_found_by_verify_and_healed_by_ensure(
    hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_model(monkeypatch)
    hub.pages[FILE] = BODY
    path = store.ensure("toy")
    assert store.verify("toy").files[0].sha256 == SHA
    kept = path.stat()
    path.chmod(0o644)
    path.write_bytes(b"!" + BODY[1:])
    os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))  # damage that neither size nor time tells
    with pytest.raises(ModelError, match=r"toy\.gguf is damaged"):
        store.verify("toy")
    assert store.ensure("toy").read_bytes() == BODY


def test_a_file_whose_time_changed_is_checked_before_use(
    hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_model(monkeypatch)
    hub.pages[FILE] = BODY
    path = store.ensure("toy")
    path.chmod(0o644)
    path.write_bytes(b"!" + BODY[1:])
    assert store.stored("toy") is None
    assert store.ensure("toy").read_bytes() == BODY
    assert len(hub.asked(FILE)) == 2


SMALL = b"{}".ljust(len(BODY))


def test_what_was_trusted_at_first_use_is_kept_to_when_it_must_be_fetched_again(hub: Site, store: ModelStore) -> None:
    hub.pages[API] = listing(**{"model.safetensors": SHA, "config.json": ""})
    hub.pages["/org/toy/resolve/c0ffee/model.safetensors"] = BODY
    hub.pages["/org/toy/resolve/c0ffee/config.json"] = SMALL
    folder = store.ensure("hf:org/toy")
    damaged = folder / "config.json"  # the hub tells no hash of small files: it was recorded
    damaged.chmod(0o644)
    damaged.write_bytes(b"{}")
    with pytest.raises(ModelError, match=r"config\.json is damaged"):
        store.verify("hf:org/toy")
    newer = json.loads(hub.pages[API])
    hub.pages[API] = json.dumps(newer | {"sha": "deadbeef"}).encode()  # the repository has moved on
    hub.pages["/org/toy/resolve/deadbeef/config.json"] = b"{another}".ljust(len(BODY))
    assert store.ensure("hf:org/toy") == folder
    (held,) = store.list()
    assert (held.revision, (folder / "config.json").read_bytes()) == ("c0ffee", SMALL)
    hub.pages["/org/toy/resolve/c0ffee/config.json"] = b"{another}".ljust(
        len(BODY)
    )  # nor may the old place hold other bytes
    (folder / "config.json").chmod(0o644)
    (folder / "config.json").write_bytes(b"{}")
    with pytest.raises(ModelNotFoundError, match="another hash"):
        store.ensure("hf:org/toy")


def test_libraries_that_load_by_name_are_given_what_was_met_first(
    hub: Site, store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.pages[API] = listing(**{"model.safetensors": SHA, "modeling_toy.py": "3" * 64, "pytorch_model.bin": "4" * 64})
    hub.pages["/org/toy/resolve/c0ffee/model.safetensors"] = BODY
    folder = Path(store.snapshot("toy", owner="org"))
    assert [path.name for path in folder.iterdir()] == ["model.safetensors"]  # neither code nor pickles
    monkeypatch.setenv("SELPE_OFFLINE", "1")
    assert store.snapshot("org/toy", owner="other") == str(folder)
    assert store.snapshot(str(tmp_path), owner="org") == str(tmp_path)
    assert store.snapshot("unknown", owner="org") == "unknown"


def test_a_refusal_of_the_hub_is_not_remembered(hub: Site, store: ModelStore) -> None:
    with pytest.raises(ModelNotFoundError, match="404"):
        store.ensure("hf:org/toy")
    hub.pages[API] = listing(**{"toy-q8_0.gguf": SHA})
    with pytest.raises(ModelNotFoundError, match="no such file there"):
        store.ensure("hf:org/toy")
    hub.pages["/org/toy/resolve/c0ffee/toy-q8_0.gguf"] = BODY
    assert store.ensure("hf:org/toy").read_bytes() == BODY


def test_a_store_that_cannot_be_written_says_where_another_may_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError) as caught:
        ModelStore(tmp_path / "file", offline=True).ensure("smollm2")
    assert "SELPE_CACHE" in caught.value.hint


def test_a_file_that_is_shorter_than_announced_is_given_up(hub: Site, store: ModelStore) -> None:
    hub.pages[API] = listing(**{"toy.gguf": SHA})
    hub.pages["/org/toy/resolve/c0ffee/toy.gguf"] = BODY[:1000]
    with pytest.raises(ModelNotFoundError, match="no source handed over"):
        store.ensure("hf:org/toy")


def test_a_new_pin_in_the_registry_fetches_anew(hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    hub_model(monkeypatch)
    hub.pages[FILE] = BODY
    store.ensure("toy")
    new = BODY[::-1]
    hub_model(monkeypatch, hashlib.sha256(new).hexdigest())
    hub.pages[FILE] = new
    assert store.ensure("toy").read_bytes() == new


def test_a_store_that_holds_more_than_is_pinned_is_used_as_it_is(
    hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ModelFile("unused.bin", SHA, len(BODY), (HubSource("org/toy", "toy.gguf"),))
    hub_model(monkeypatch, SHA, more)
    hub.pages[FILE] = BODY
    folder = store.ensure("toy")
    hub_model(monkeypatch)
    assert ModelStore(store.root, offline=True).ensure("toy") == folder


def test_every_file_of_the_default_encoder_is_one_that_it_opens() -> None:
    rooms = [Path(module.__file__ or "") for module in (minilm, bert)]
    code = "".join(path.read_text(encoding="utf-8") for path in rooms)
    assert [file.name for file in REGISTRY[DEFAULT_ENCODER].files if f'"{file.name}"' not in code] == []


def test_prepared_folders_differ_by_content_and_version(
    hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub_model(monkeypatch)
    hub.pages[FILE] = BODY
    with pytest.raises(ModelNotFoundError):
        store.prepared_dir("toy")
    store.ensure("toy")
    first = store.prepared_dir("toy")
    assert first.is_dir()
    assert store.prepared_dir("toy") == first
    assert store.prepared_dir("toy", {"layout": "2"}) != first
    same = tmp_path / "same.gguf"
    same.write_bytes(BODY)
    assert store.prepared_dir(str(same)) == first
    same.write_bytes(BODY[::-1])
    assert store.prepared_dir(str(same)) != first


def test_removing_frees_the_files_that_no_other_model_shares(
    hub: Site, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_model(monkeypatch)
    hub.pages[FILE] = BODY
    hub.pages[API] = listing(**{"toy.gguf": SHA})
    hub.pages["/org/toy/resolve/c0ffee/toy.gguf"] = BODY
    store.ensure("toy")
    store.prepared_dir("toy").joinpath("derived.bin").write_bytes(b"x" * 1000)
    other = store.ensure("hf:org/toy:toy.gguf")
    assert len(hub.asked("/org/toy/resolve/c0ffee/toy.gguf")) == 0  # the same content is not fetched twice
    assert store.remove("toy") < len(BODY)
    assert other.read_bytes() == BODY
    assert store.remove("hf:org/toy:toy.gguf") >= len(BODY)
    assert leftovers(store) == []
    with pytest.raises(ModelNotFoundError):
        store.remove("toy")


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SELPE_CACHE", str(tmp_path))
    assert ModelStore().root == tmp_path / "models"


def test_every_pinned_part_adds_up() -> None:
    for entry in REGISTRY.values():
        assert entry.licence
        assert entry.publisher
        for file in entry.files:
            assert len(file.sha256) == 64
            for source in file.sources:
                if isinstance(source, IndexSource):
                    assert sum(part.size for part in source.parts) == file.size
