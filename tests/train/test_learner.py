"""Gradients by record, clipped and summed; Adam on the noisy sum; states that are kept and taken up again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from selpe.baselines.train.causal import CausalTask
from selpe.baselines.train.classify import RecordClassifier
from selpe.baselines.train.learner import TorchLearner
from selpe.baselines.train.texts import example, tokens_of
from selpe.baselines.train.weights import Weights, adapted, load_weights
from selpe.errors import RunError
from selpe.privacy.learning import noisy_sum
from selpe.privacy.noise import GaussianNoise
from selpe.schema import Record
from small_world import SCHEMA, drawn
from tiny_model import tiny_llama, tiny_tokenizer

RECORDS = drawn(5)
EXACT = GaussianNoise(0.0, 1e-5)


def weights(tuning: Any = "lora", seed: int = 0, **more: Any) -> Weights:
    settings = {"tuning": tuning, "rank": 2, "alpha": 8, "layers": None, "seed": seed, **more}
    return adapted(Weights("tiny", tiny_llama(), tiny_tokenizer(), "cpu"), **settings)


def stirred(tuned: Weights) -> Weights:
    """The same with adapters that do something: LoRA's second matrix starts at 0, and half the gradient with it."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in tuned.model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn_like(parameter))
    return tuned


def task(tuned: Weights, *, conditional: bool = False) -> CausalTask:
    return CausalTask(tuned, lambda record: example(SCHEMA, record), 160, conditional)


def learner(tuned: Weights, folder: Path, *, conditional: bool = False, rate: float = 1e-2) -> TorchLearner:
    return TorchLearner(tuned.model, task(tuned, conditional=conditional), units=len(RECORDS), rate=rate, folder=folder)


def trained(tuned: Weights) -> list[Any]:
    return [parameter for parameter in tuned.model.parameters() if parameter.requires_grad]


# -- gradients -------------------------------------------------------------------------------------------------------


def rows_and_mask(tuned: Weights) -> tuple[Any, Any]:
    tokens = [tokens_of(tuned.tokenizer, example(SCHEMA, record), 160)[0] for record in RECORDS]
    widest = max(map(len, tokens))
    rows = torch.tensor([row + [0] * (widest - len(row)) for row in tokens])
    mask = torch.tensor([[1] * len(row) + [0] * (widest - len(row)) for row in tokens])
    return rows, mask


def losses(model: Any, rows: Any, mask: Any) -> Any:
    """The mean loss of each row of a padded batch."""
    logits = model(input_ids=rows, attention_mask=mask).logits[:, :-1]
    each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none")
    told = mask[:, 1:].float()
    return (each * told).sum(1) / told.sum(1)


def by_plain_loop(tuned: Weights) -> np.ndarray[Any, Any]:
    """Each record's gradient from the padded batch, one backward pass a record."""
    rows, mask = rows_and_mask(tuned)
    found = []
    for place in range(len(rows)):
        tuned.model.zero_grad(set_to_none=True)
        losses(tuned.model, rows, mask)[place].backward()
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained(tuned)]
        found.append(torch.cat([part.flatten() for part in parts]).numpy())
    tuned.model.zero_grad(set_to_none=True)
    return np.stack(found)


def by_opacus(tuned: Weights) -> np.ndarray[Any, Any]:
    from opacus import GradSampleModule

    model = GradSampleModule(tuned.model.train(), loss_reduction="sum")
    rows, mask = rows_and_mask(tuned)
    losses(model, rows, mask).sum().backward()
    parts = [p.grad_sample.reshape(len(rows), -1) for p in model.parameters() if p.requires_grad]
    found: np.ndarray[Any, Any] = torch.cat(parts, dim=1).detach().numpy()
    return found


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize("other", [by_plain_loop, by_opacus])
def test_gradients_by_record_are_those_of_a_plain_loop_and_of_opacus(other: Any, tmp_path: Path) -> None:
    ours = np.stack(list(learner(stirred(weights()), tmp_path).gradients(RECORDS)))
    theirs = other(stirred(weights()))
    assert ours.shape == theirs.shape
    assert np.abs(theirs).max() > 1e-4
    assert np.allclose(ours, theirs, rtol=1e-3, atol=1e-6)


def test_all_parameters_can_be_trained_and_tied_ones_count_once(tmp_path: Path) -> None:
    tuned = weights("full")
    ours = learner(tuned, tmp_path)
    assert ours.size == sum(p.numel() for p in tuned.model.parameters())
    assert np.allclose(np.stack(list(ours.gradients(RECORDS))), by_plain_loop(tuned), rtol=1e-3, atol=1e-5)


def test_the_clipped_sum_is_that_of_a_plain_loop(tmp_path: Path) -> None:
    tuned = stirred(weights())
    gradients = by_plain_loop(tuned)
    clip = float(np.median(np.linalg.norm(gradients, axis=1)))  # so that some are clipped and some are not
    expected = sum(gradient * min(1.0, clip / float(np.linalg.norm(gradient))) for gradient in gradients)
    found = noisy_sum(learner(tuned, tmp_path), RECORDS, clip, EXACT, "step")
    assert np.allclose(found, expected, rtol=1e-3, atol=1e-6 * clip)


@pytest.mark.parametrize("neighbour", ["removed", "replaced"])
def test_a_neighbouring_table_moves_the_clipped_sum_by_at_most_its_sensitivity(neighbour: str, tmp_path: Path) -> None:
    hostile: Record = {**RECORDS[0], "topic": "\u2028 null } ; -- \U0001f9ea" * 2, "urgency": "high"}
    ours = learner(stirred(weights()), tmp_path)
    changed: Sequence[Record] = RECORDS[1:] if neighbour == "removed" else [hostile, *RECORDS[1:]]
    for clip in (1e-3, 0.1, 1.0):
        gap = noisy_sum(ours, RECORDS, clip, EXACT, "") - noisy_sum(ours, changed, clip, EXACT, "")
        assert 0 < float(np.linalg.norm(gap)) <= clip * (1 if neighbour == "removed" else 2)


def test_a_gradient_depends_on_its_own_record_alone_bit_for_bit(tmp_path: Path) -> None:
    ours = learner(stirred(weights()), tmp_path)
    (alone,) = ours.gradients(RECORDS[2:3])
    among = list(ours.gradients([RECORDS[4], RECORDS[0], RECORDS[2], RECORDS[1]]))[2]
    assert (alone == among).all()


@pytest.mark.parametrize("workers", [1, 3])
def test_gradients_come_in_order_however_many_cores_compute_them(workers: int, tmp_path: Path) -> None:
    ours = learner(stirred(weights()), tmp_path)
    ours._workers = workers
    threads = torch.get_num_threads()
    among = list(ours.gradients(RECORDS * 3))
    alone = [next(ours.gradients([record])) for record in RECORDS] * 3
    assert all((one == other).all() for one, other in zip(among, alone, strict=True))
    assert torch.get_num_threads() == threads


def test_a_condition_can_be_left_out_of_the_loss(tmp_path: Path) -> None:
    tuned = stirred(weights())
    whole, rest = (next(learner(tuned, tmp_path, conditional=c).gradients(RECORDS)) for c in (False, True))
    assert not np.allclose(whole, rest)
    text = example(SCHEMA, RECORDS[0])
    tokens, given = tokens_of(tuned.tokenizer, text, 160)
    row = torch.tensor([tokens])
    loss = torch.nn.functional.cross_entropy(tuned.model(input_ids=row).logits[0, given - 1 : -1], row[0, given:])
    asked = task(tuned, conditional=True)
    mine = asked.loss(asked.read(RECORDS[0]))
    assert mine.item() == pytest.approx(loss.item())


def test_long_records_are_cut_to_the_public_length() -> None:
    long: Record = {**RECORDS[0], "topic": "x" * 60}
    tokens, given = tokens_of(tiny_tokenizer(), example(SCHEMA, long), 30)
    assert (len(tokens), given) == (30, len("urgency: low\n\n"))
    tokens, given = tokens_of(tiny_tokenizer(), example(SCHEMA, long), 3)
    assert len(tokens) == given + 1  # one token at least is left to learn


# -- LoRA ------------------------------------------------------------------------------------------------------------


def test_adapters_alone_are_trained_and_the_same_seed_gives_the_same() -> None:
    tuned = weights()
    names = [name for name, p in tuned.model.named_parameters() if p.requires_grad]
    assert names
    assert all("lora_" in name for name in names)
    for one, other in zip(trained(weights(seed=3)), trained(weights(seed=3)), strict=True):
        assert torch.equal(one, other)
    assert any(not torch.equal(a, b) for a, b in zip(trained(weights(seed=3)), trained(weights(seed=4)), strict=True))


def test_the_last_layers_alone_can_be_adapted() -> None:
    names = [name for name, p in weights(layers=1).model.named_parameters() if p.requires_grad]
    assert names
    assert all("layers.1." in name for name in names)


def test_untrained_adapters_change_nothing() -> None:
    row = torch.tensor([[5, 6, 7]])
    assert torch.equal(weights().model(input_ids=row).logits, tiny_llama()(input_ids=row).logits)


# -- steps and states ------------------------------------------------------------------------------------------------


def test_a_step_follows_the_mean_gradient_and_lowers_the_loss(tmp_path: Path) -> None:
    tuned = weights()
    ours = learner(tuned, tmp_path)
    asked = task(tuned)

    def mean() -> float:
        with torch.no_grad():
            return float(sum(asked.loss(asked.read(record)) for record in RECORDS)) / len(RECORDS)

    before = mean()
    for _ in range(8):
        ours.step(noisy_sum(ours, RECORDS, 1.0, EXACT, ""))
    assert mean() < before - 0.01


def test_the_state_is_taken_up_again_with_the_optimisers_memory(tmp_path: Path) -> None:
    first = learner(weights(), tmp_path / "a")
    sums = [noisy_sum(first, RECORDS, 1.0, EXACT, "")]
    first.step(sums[0])
    state = first.keep()
    again = learner(weights(seed=9), tmp_path / "a")
    again.load(state)
    for ours in (first, again):
        for _ in range(2):
            ours.step(noisy_sum(ours, RECORDS, 1.0, EXACT, ""))
    assert first.keep() == again.keep()


def test_a_missing_or_damaged_state_is_refused(tmp_path: Path) -> None:
    ours = learner(weights(), tmp_path)
    state = ours.keep()
    (path,) = tmp_path.glob("*.pt")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(RunError, match="damaged"):
        ours.load(state)
    path.unlink()
    with pytest.raises(RunError, match="missing"):
        ours.load(state)


def test_earlier_states_can_be_forgotten(tmp_path: Path) -> None:
    ours = learner(weights(), tmp_path)
    first = ours.keep()
    ours.step(noisy_sum(ours, RECORDS, 1.0, EXACT, ""))
    second = ours.keep()
    assert first != second
    ours.forget_all_but(second)
    assert len(list(tmp_path.glob("*.pt"))) == 1
    ours.load(second)


# -- other models ----------------------------------------------------------------------------------------------------


def test_a_folder_is_loaded_for_training(tiny: Path) -> None:
    loaded = load_weights(str(tiny))
    row = torch.tensor([[5, 6, 7]])
    assert torch.allclose(loaded.model(input_ids=row).logits, tiny_llama()(input_ids=row).logits)


@pytest.mark.parametrize("kind", ["RobertaForMaskedLM", "RobertaModel"])
def test_an_encoder_without_a_language_head_can_be_a_classifier_too(tmp_path: Path, kind: str) -> None:
    import transformers
    from transformers import RobertaConfig

    config = RobertaConfig(
        vocab_size=257, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=514, pad_token_id=0,
    )  # fmt: skip
    getattr(transformers, kind)(config).save_pretrained(tmp_path / "encoder")
    tiny_tokenizer().save_pretrained(tmp_path / "encoder")
    loaded = load_weights(str(tmp_path / "encoder"))
    assert type(loaded.model).__name__ == "RobertaModel"
    classifier = RecordClassifier(loaded, SCHEMA, rank=2, layers=1)
    ours = TorchLearner(classifier.module, classifier, units=5, rate=1e-3, folder=tmp_path)
    gradients = list(ours.gradients(RECORDS))
    assert all(np.abs(gradient).max() > 0 for gradient in gradients)
    names = [name for name, p in classifier.module.named_parameters() if p.requires_grad]
    assert all("head" in name or ("lora_" in name and "layer.1." in name) for name in names)
    assert classifier.scores(RECORDS).shape == (5, 2)


def test_a_classifier_learns_from_gradients_by_record(tmp_path: Path) -> None:
    base = Weights("tiny", tiny_llama(), tiny_tokenizer(), "cpu")
    classifier = RecordClassifier(base, SCHEMA, rank=2, alpha=8)
    records: list[Record] = [
        {**record, "topic": "aaaa" if place % 2 else "zzzz zzzz", "urgency": "low" if place % 2 else "high"}
        for place, record in enumerate(drawn(8))
    ]
    ours = TorchLearner(classifier.module, classifier, units=8, rate=3e-2, folder=tmp_path)
    assert classifier.scores(records).shape == (8, 2)
    assert np.allclose(classifier.scores(records).sum(axis=1), 1.0)
    for _ in range(25):
        ours.step(noisy_sum(ours, records, 10.0, EXACT, ""))
    assert classifier.predict(records) == [record["urgency"] for record in records]
    assert classifier.scores([]).shape == (0, 2)
