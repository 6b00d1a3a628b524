"""What a user writes under `llm:` and `encoder:`, and what is opened for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from selpe.errors import ConfigError, ModelError, ModelNotFoundError
from selpe.evaluation.views.roberta import RobertaView
from selpe.models.base import ChatModel
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.models.open import open_encoder, open_model
from selpe.models.store.store import ModelStore
from small_world import SCHEMA


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelStore:
    monkeypatch.setenv("SELPE_CACHE", str(tmp_path))
    monkeypatch.delenv("SELPE_API_KEY", raising=False)
    monkeypatch.delenv("SELPE_API_KEY_FILE", raising=False)
    return ModelStore(tmp_path / "models", offline=True)


def test_the_fake_model_and_the_hashing_encoder_need_nothing(store: ModelStore) -> None:
    assert isinstance(open_model("fake", store=store), FakeModel)
    encoder = open_encoder("hash", store=store, dimension=64)
    assert isinstance(encoder, HashingEncoder)
    assert encoder.dimension == 64


def test_a_url_opens_a_server_with_the_model_after_the_hash_sign(store: ModelStore) -> None:
    model = open_model("http://127.0.0.1:9/v1#some-model", store=store)
    assert isinstance(model, ChatModel)
    assert "some-model" in model.name
    model.close()


def test_several_urls_are_one_model(store: ModelStore) -> None:
    model = open_model("http://127.0.0.1:9/v1, http://127.0.0.1:10/v1", store=store)
    assert len(model._addresses) == 2  # type: ignore[attr-defined]
    model.close()


def test_an_embeddings_url_says_where_texts_go(store: ModelStore) -> None:
    encoder = open_encoder("http://127.0.0.1:9/v1#embedder", store=store)
    assert encoder.remote == "127.0.0.1:9"


def test_a_key_in_the_environment_is_never_shown(store: ModelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELPE_API_KEY", "very-secret")
    model = open_model("http://127.0.0.1:9/v1", store=store)
    assert "very-secret" not in repr(model) + model.name + str(vars(model))
    model.close()


@pytest.mark.parametrize(
    ("spec", "message"),
    [("smolm2", "no model called"), ("llamacpp:nothing.gguf", "no such model file"), ("/none/x.gguf", "no such model")],
)
def test_an_unknown_model_is_a_clear_error(store: ModelStore, spec: str, message: str) -> None:
    with pytest.raises(ModelNotFoundError, match=message):
        open_model(spec, store=store)


def test_vllm_in_this_process_is_refused_with_the_way_to_a_server(store: ModelStore) -> None:
    with pytest.raises(ConfigError) as caught:
        open_model("vllm:org/name", store=store)
    assert "vllm serve org/name" in caught.value.hint
    assert "http://" in caught.value.hint


def test_an_encoder_is_not_taken_for_a_language_model(store: ModelStore) -> None:
    with pytest.raises(ConfigError, match="is an encoder"):
        open_model("minilm", store=store)


def test_an_unknown_encoder_is_a_clear_error(store: ModelStore) -> None:
    with pytest.raises(ConfigError, match="no encoder called 'bert'"):
        open_encoder("bert", store=store)


def test_sentence_transformers_is_named_when_it_is_missing(store: ModelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ModelError) as caught:
        open_encoder("st:all-MiniLM-L6-v2", store=store)
    assert "pip install sentence-transformers" in caught.value.hint


@pytest.mark.real_model
def test_llama_cpp_takes_over_where_the_embedded_engine_cannot_read_a_model(
    smollm2: Path, store: ModelStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("xllamacpp", reason="the llama.cpp engine is not installed")

    def cannot(*_: object, **__: object) -> None:
        raise ModelError("OpenVINO cannot convert this model")

    monkeypatch.setattr("selpe.models.engine.local.LocalModel", cannot)
    model = open_model(str(smollm2), store=store, parallel=2, threads=1, memory=1 << 20)
    assert model.name.startswith("llamacpp:")
    assert model.capabilities().parallel == 2
    assert "cannot run" in caplog.text
    model.close()


def test_models_that_libraries_load_by_name_come_from_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpinned, they would be whatever the hub holds on that day."""
    loaded: list[tuple[str, bool]] = []

    class Library:
        @staticmethod
        def from_pretrained(place: str, *, local_files_only: bool) -> str:
            loaded.append((place, local_files_only))
            return place

        class SentenceTransformer:
            def __init__(self, place: str, *, device: str | None, local_files_only: bool) -> None:
                loaded.append((place, local_files_only))

            def get_sentence_embedding_dimension(self) -> int:
                return 3

    def snapshot(self: ModelStore, name: str, *, owner: str) -> str:
        return f"folder of {owner}, {name}"

    monkeypatch.setattr(ModelStore, "snapshot", snapshot, raising=False)
    monkeypatch.setitem(sys.modules, "sentence_transformers", Library)
    open_encoder("st:all-MiniLM-L12-v2")
    RobertaView(SCHEMA)._pretrained(Library)
    assert loaded == [
        ("folder of sentence-transformers, all-MiniLM-L12-v2", True), ("folder of FacebookAI, roberta-base", True),
    ]  # fmt: skip
