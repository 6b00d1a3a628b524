"""The view `roberta` on a tiny RoBERTa with random weights and a tokenizer made here."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learnable_world import SHOP, WORDS, learnable
from selpe.errors import ModelError
from selpe.evaluation.utility import utility
from selpe.evaluation.views import open_view
from selpe.evaluation.views.embedding import Embeddings
from selpe.evaluation.views.roberta import FineTuning, RobertaView
from selpe.models.encoders.hashing import HashingEncoder
from selpe.schema import Record

QUICK = FineTuning(epochs=1, least_steps=60, batch=16, rate=3e-3, length=48, device="cpu")


def test_without_torch_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".", maxsplit=1)[0] in ("torch", "transformers"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModelError) as caught:
        utility(SHOP, learnable(6, seed=1), learnable(9, seed=2), encoder=HashingEncoder(), views=["roberta"])
    assert 'pip install "selpe[hf]"' in caught.value.hint


def test_the_learning_rate_rises_and_falls_to_nothing() -> None:
    tuning = FineTuning(warmup=0.1)
    paces = [tuning.pace(step, 100) for step in range(100)]
    assert max(paces) == paces[9] == paces[10] == 1.0
    assert paces[0] == pytest.approx(0.1)
    assert paces[-1] == pytest.approx(1 / 90)
    assert paces[:10] == sorted(paces[:10])
    assert paces[10:] == sorted(paces[10:], reverse=True)


def test_small_sets_are_gone_through_more_often() -> None:
    assert FineTuning(epochs=3, least_steps=400, batch=16).steps(100) == 400
    assert FineTuning(epochs=3, least_steps=400, batch=16).steps(4000) == 750


@pytest.fixture(scope="module")
def tokenizer() -> Iterator[Any]:
    torch = pytest.importorskip("torch", reason="the extra [hf] (torch, transformers) is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra [hf] (torch, transformers) is not installed")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    made = Tokenizer(models.WordLevel(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    texts = [SHOP.linearise(record) for record in learnable(300, seed=1)]
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    made.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=special, vocab_size=400))
    made.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a model this small is slower on several
    yield transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def config(tokenizer: Any) -> Any:
    from transformers import RobertaConfig

    return RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=66,
        pad_token_id=tokenizer.pad_token_id,
    )


def asked(view: RobertaView, train: list[Record], test: list[Record], seeds: list[int]) -> list[Any]:
    labels = [str(SHOP.label_of(record)) for record in train]
    return list(view.chances(train, labels, test, seeds=seeds, tick=lambda part: None))


def test_fine_tuning_learns_and_repeats_by_seed(config: Any, tokenizer: Any) -> None:
    import torch

    view = RobertaView(SHOP, tuning=QUICK, config=config, tokenizer=tokenizer)
    train, test = learnable(150, seed=1, clear=0.8), learnable(90, seed=2, clear=0.8)
    before = torch.random.get_rng_state()
    first, again, other = asked(view, train, test, [3, 3, 4])
    assert torch.equal(before, torch.random.get_rng_state())
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()
    assert first.shape == (90, 3)
    assert np.allclose(first.sum(axis=1), 1)
    truth = np.array([sorted(WORDS).index(str(record["fault"])) for record in test])
    assert float(np.mean(first.argmax(axis=1) == truth)) > 0.65


def test_the_label_is_not_read(config: Any, tokenizer: Any) -> None:
    view = RobertaView(SHOP, tuning=QUICK, config=config, tokenizer=tokenizer)
    train, test = learnable(30, seed=1), learnable(6, seed=2)
    changed: list[Record] = [{**record, "fault": "sound"} for record in test]
    assert asked(view, train, test, [0])[0].tolist() == asked(view, train, changed, [0])[0].tolist()


def test_long_records_are_cut_to_what_the_model_can_read(config: Any, tokenizer: Any) -> None:
    view = RobertaView(SHOP, tuning=FineTuning(least_steps=2, length=500), config=config, tokenizer=tokenizer)
    long: list[Record] = [{**record, "complaint": "empty " * 300} for record in learnable(6, seed=1)]
    assert asked(view, long, long, [0])[0].shape == (6, 3)


def test_a_folder_is_loaded_by_name_and_scored(
    config: Any, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import RobertaForMaskedLM

    RobertaForMaskedLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    monkeypatch.setattr("selpe.evaluation.views.roberta.FineTuning", lambda: QUICK)
    name = f"roberta:{tmp_path}"
    told: list[float] = []
    found = utility(
        SHOP,
        learnable(150, seed=1, clear=0.8),
        learnable(90, seed=2, clear=0.8),
        encoder=HashingEncoder(),
        views=[name],
        seeds=2,
        bootstrap=50,
        progress=lambda stage, share: told.append(share),
    )
    score = found.of(name, "synthetic")
    assert score is not None
    assert (score.kind, score.seeds) == ("text", 2)
    assert score.auc > 85
    assert len(told) > 60  # every step of training is told
    assert told == sorted(told)
    assert found.notes == (f"view '{name}' is {tmp_path}, fine-tuned",)


def test_weights_that_are_not_to_be_had_are_named_with_what_to_do(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    view = open_view(f"roberta:{tmp_path}", SHOP, Embeddings(HashingEncoder()))
    with pytest.raises(ModelError) as caught:
        view.require()
    assert caught.value.where == str(tmp_path)
    assert "roberta:<folder>" in caught.value.hint
