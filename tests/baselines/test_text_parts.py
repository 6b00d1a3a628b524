"""The parts of the text baselines: vectors, prompts, variations, reading, elections and weights."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selpe.baselines.augpe import AugPE
from selpe.baselines.embedding import TextKernel, Texts
from selpe.baselines.reading import Sample, read
from selpe.baselines.variations import TONES, blanked, keywords_of
from selpe.baselines.wasp import WASP
from selpe.baselines.writing import TextTask, TextWriter, one_line
from selpe.config import RunConfig
from selpe.config.methods import METHODS
from selpe.errors import ConfigError, ModelError
from selpe.events import Answered, Event, PoolReady
from selpe.models.base import Answer, Capabilities, Request
from selpe.models.encoders.hashing import HashingEncoder
from selpe.models.fake import FakeModel
from selpe.privacy.gaussian_plan import GaussianPlan
from selpe.run.methods import Parts, recipe_of
from selpe.run.workspace import WorkFolder
from selpe.schema import Record
from small_world import SCHEMA, UNLABELLED, drawn

Settings = Callable[..., RunConfig]


def parts_of(config: RunConfig, *models: Any, **more: Any) -> Parts:
    plan = recipe_of(config.method).plan(config, SCHEMA, 40)
    return Parts(config, SCHEMA, plan, models or (FakeModel(),), HashingEncoder(64), WorkFolder(Path()), **more)


def augpe(config: RunConfig) -> AugPE:
    parts = parts_of(config)
    assert isinstance(parts.plan, GaussianPlan)
    return AugPE(parts, parts.plan)


def wasp(config: RunConfig, *models: Any) -> WASP:
    parts = parts_of(config, *models)
    assert isinstance(parts.plan, GaussianPlan)
    return WASP(parts, parts.plan)


# -- the registry ----------------------------------------------------------------------------------------------------


def test_settings_and_registry_know_the_same_methods() -> None:
    assert set(METHODS) == set(RunConfig.model_json_schema()["properties"]["method"]["enum"])
    with pytest.raises(ConfigError, match="no method 'gan'"):
        recipe_of("gan")


# -- vectors ---------------------------------------------------------------------------------------------------------


def test_a_text_is_nearest_to_itself_and_distances_are_those_of_the_vectors() -> None:
    kernel, records = TextKernel(SCHEMA, HashingEncoder(64)), drawn(12)
    texts = [SCHEMA.dumps(record) for record in records]
    pool = kernel.pool(kernel.embed(texts))
    found = pool.distances(kernel.represent(records))
    assert (np.argmin(found, axis=1) == np.arange(12)).all()
    vectors = HashingEncoder(64).encode(texts).astype(np.float64)
    true = np.square(vectors[:, None] - vectors[None, :]).sum(axis=2) / 4
    assert np.abs(found - true).max() < 1e-3
    assert found.min() >= 0.0
    assert found.max() <= 1.0


def test_a_rows_distances_do_not_depend_on_the_other_rows_of_the_call() -> None:
    class Padding(HashingEncoder):
        """An encoder whose last bits depend on the batch, as those of real ones do."""

        rowwise = False

        def encode(self, texts: Any) -> Any:
            return super().encode(texts) + np.float32(0.001 * len(texts))

    kernel, records = TextKernel(SCHEMA, Padding(64)), drawn(9)
    pool = kernel.pool(kernel.embed([SCHEMA.dumps(record) for record in drawn(30, offset=50)]))
    together = pool.distances(kernel.represent(records))
    for number, record in enumerate(records):
        assert (pool.distances(kernel.represent([record]))[0] == together[number]).all()


def test_means_of_vectors_can_stand_in_a_pool() -> None:
    kernel = TextKernel(SCHEMA, HashingEncoder(64))
    vectors = kernel.embed(["lost password", "line is dead", "lost password"])
    assert (vectors[0] == vectors[2]).all()
    pool = kernel.pool(np.stack([vectors.mean(axis=0), vectors[1]]))
    assert pool.among([0])[0].tolist() == pytest.approx([0.0, float(pool.among([1])[0][0])], abs=1e-6)
    assert len(pool.prototype(Texts(pool.texts.vectors))) == 2


# -- variations ------------------------------------------------------------------------------------------------------


def test_there_are_28_different_tones() -> None:
    assert len(set(TONES)) == len(TONES) == 28


def test_blanking_keeps_field_names_and_about_half_of_the_words() -> None:
    raw = SCHEMA.dumps({**drawn(1)[0], "topic": "one two three four five six seven eight nine ten eleven twelve"})
    chance = random.Random(1)
    some = [blanked(raw, 0.5, chance) for _ in range(60)]
    assert all(f'"{name}":' in text for text in some for name in SCHEMA.names)
    share = np.mean([text.split('"channel"')[0].count("_") / 12 for text in some])
    assert 0.4 < share < 0.6
    assert blanked(raw, 0.0, chance) == raw
    assert "password" not in blanked("lost password, sorry", 1.0, chance)


@given(st.text(max_size=80).filter(lambda text: not text.strip().startswith("{")))  # of an object the names stay
def test_any_text_can_be_blanked(text: str) -> None:
    assert blanked(text, 0.0, random.Random(0)) == text
    assert not any(letter.isalnum() for letter in blanked(text, 1.0, random.Random(0)))
    blanked("{" + text, 1.0, random.Random(0))  # the beginning of an object, and then anything


def test_keywords_come_from_the_public_schema_or_from_the_user() -> None:
    found = keywords_of(SCHEMA)
    assert "channel: by telephone" in found
    assert "password" in found
    assert not any("urgency" in word for word in found)
    assert keywords_of(SCHEMA, ["parcels"]) == ("parcels",)


# -- reading ---------------------------------------------------------------------------------------------------------

GOOD: Record = {
    "topic": "lost password", "channel": "phone", "minutes": 5, "waited": 2, "score": 8.5, "solved": True,
    "day": "2024-03-01", "urgency": "low",
}  # fmt: skip


@pytest.mark.parametrize(
    "raw",
    [
        SCHEMA.dumps(GOOD),
        "Sure! Here it is:\n```json\n" + json.dumps(GOOD, indent=2) + "\n```",
        "\n".join(f"{name}: {'yes' if value is True else value}" for name, value in GOOD.items()),
    ],
)
def test_a_record_is_read_from_what_models_write(raw: str) -> None:
    output = read(SCHEMA, Sample("low", raw))
    assert (output.released, output.record, output.raw) == (True, GOOD, raw)


def test_the_class_is_the_one_that_was_asked_for() -> None:
    output = read(SCHEMA, Sample("high", SCHEMA.dumps(GOOD)))
    assert (output.label, output.released) == ("high", True)
    assert output.record is not None
    assert output.record["urgency"] == "high"
    assert read(UNLABELLED, Sample("", SCHEMA.dumps(GOOD))).record == GOOD


def test_a_value_out_of_its_domain_is_missing_where_it_may_be_and_else_spoils_the_record() -> None:
    optional = read(SCHEMA, Sample("low", SCHEMA.dumps({**GOOD, "waited": 9999})))
    assert optional.released
    assert optional.record == {**GOOD, "waited": None}
    required = read(SCHEMA, Sample("low", SCHEMA.dumps({**GOOD, "minutes": 9999})))
    assert not required.released
    assert required.record == {**GOOD, "minutes": 9999}
    against_a_rule = read(SCHEMA, Sample("low", SCHEMA.dumps({**GOOD, "minutes": 1})))
    assert not against_a_rule.released


def test_prose_is_no_record() -> None:
    output = read(SCHEMA, Sample("low", "I cannot help with that."))
    assert not output.released
    assert output.record == {**dict.fromkeys(SCHEMA.names), "urgency": "low"}


# -- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["chat", "document"])
@pytest.mark.parametrize(
    ("template", "values", "said"),
    [
        ("baseline_new", {"keyword": "parcels"}, ["parcels", "urgency high (today)", '"topic"']),
        ("baseline_rephrase", {"raw": '{"topic":\n "x"}', "tone": TONES[0]}, [TONES[0], '{"topic": "x"}']),
        ("baseline_fill", {"blanked": '{"topic": _}', "length": 17}, ['{"topic": _}', "17 words"]),
        ("baseline_contrast", {"good": ["GOOD"], "bad": ["BAD"]}, ["GOOD", "BAD", "urgency high"]),
    ],
)
def test_prompts_say_what_they_should(
    settings: Settings, family: Any, template: str, values: dict[str, Any], said: list[str]
) -> None:
    writer = TextWriter(parts_of(settings("augpe")), temperature=1.0)
    prompt = writer.prompt(TextTask("high", 1, template, values), family)
    assert [word for word in said if word not in prompt] == []
    if template == "baseline_contrast":
        assert prompt.index("BAD") < prompt.index("GOOD")
    if family == "chat":
        assert "JSON object" in prompt


def test_a_text_shown_again_is_one_line_of_bounded_length() -> None:
    assert one_line("a\n\n b\t c") == "a b c"
    assert len(one_line("word " * 5000)) == 3000


@pytest.mark.parametrize("context", [8192, 700, 500])
def test_a_prompt_too_long_for_the_model_shows_fewer_examples(settings: Settings, context: int) -> None:
    raws = [SCHEMA.dumps(record) for record in drawn(8)]
    ask = TextTask("low", 1, "baseline_contrast", {"good": raws[:4], "bad": raws[4:]})
    model = FakeModel(context_length=context)
    writer = TextWriter(parts_of(settings("wasp"), model), temperature=1.0)
    (sample,) = writer.write("round", 1, [ask])
    assert sample.raw.startswith("{")
    whole, fits = writer.prompt(ask, "document"), writer._fitting(ask, "document", 200)
    assert (fits == whole) == (context == 8192)
    assert fits.count('"topic"') >= 2


class Scripted:
    """A model that answers by a rule of the test."""

    def __init__(self, rule: Callable[[Request], Answer], name: str = "scripted") -> None:
        self.rule, self.name = rule, name

    def capabilities(self) -> Capabilities:
        return Capabilities(chat_template=True)

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def close(self) -> None:
        return None

    def generate(self, requests: Any, *, follow: Any = None, cancel: Any = None) -> Any:
        queue = list(requests)
        random.Random(3).shuffle(queue)  # answers come in any order
        while queue:
            answer = self.rule(queue.pop())
            yield answer
            queue += list(follow(answer)) if follow else []


def test_texts_come_back_in_the_order_they_were_asked_for(settings: Settings) -> None:
    seen: list[Event] = []
    models = [Scripted(lambda r, n=n: Answer(r, f"{n}:{r.key}", "stop", seconds=1.0)) for n in "ab"]  # type: ignore[misc]
    writer = TextWriter(parts_of(settings("augpe"), *models, emit=seen.append), temperature=1.0)
    asks = [TextTask("low", i, "baseline_new", {"keyword": ""}, model=i % 2) for i in range(10)]
    written = writer.write("seeds", 0, asks)
    assert [sample.raw for sample in written] == [f"{'ab'[i % 2]}:II:{i}:0" for i in range(10)]
    assert [sample.model for sample in written] == [i % 2 for i in range(10)]
    assert sum(isinstance(event, Answered) for event in seen) == 10


@pytest.mark.parametrize(
    ("said", "whole"), [(' "a", "b": 1}', '{"NAME": "a", "b": 1}'), ('{"b": 2}', '{"b": 2}'), ("", "")]
)
def test_a_model_that_continues_documents_is_given_the_first_brace(settings: Settings, said: str, whole: str) -> None:
    opening = json.dumps({SCHEMA.fields[0].name: 0}).partition(" ")[0]
    prompts = []

    def continued(request: Request) -> Answer:
        prompts.append(request.prompt or "")
        return Answer(request, said, "stop", seconds=1.0)

    small = Scripted(continued)
    small.name = "SmolLM2-135M"
    writer = TextWriter(parts_of(settings("augpe"), small), temperature=1.0)
    (sample,) = writer.write("seeds", 0, [TextTask("low", 0, "baseline_new", {"keyword": ""})])
    assert prompts[0].endswith(f"\n{opening}")
    assert sample.raw == whole.replace("NAME", SCHEMA.fields[0].name)


def test_an_error_that_will_not_go_away_is_raised_and_one_that_may_is_tried_as_often_as_allowed(
    settings: Settings,
) -> None:
    def failing(retryable: bool) -> Scripted:
        return Scripted(lambda r: Answer(r, "", "error", error=ModelError("no", retryable=retryable)))

    asks = [TextTask("low", 0, "baseline_new", {"keyword": ""})]
    with pytest.raises(ModelError):
        TextWriter(parts_of(settings("augpe"), failing(False)), temperature=1.0).write("seeds", 0, asks)
    seen: list[Event] = []
    parts = parts_of(settings("augpe", attempts=4), failing(True), emit=seen.append)
    assert TextWriter(parts, temperature=1.0).write("seeds", 0, asks)[0].raw == ""
    (ready,) = [event for event in seen if isinstance(event, PoolReady)]
    assert (ready.found, ready.retries, ready.given_up) == (0, {"model error": 3}, {"empty": 1})


# -- Aug-PE ----------------------------------------------------------------------------------------------------------


def samples(count: int) -> list[Sample]:
    return [Sample("low", str(i)) for i in range(count)]


def test_rank_takes_the_highest_counts_and_leaves_equal_ones_to_chance(settings: Settings) -> None:
    method = augpe(settings("augpe", records=6))  # three a class
    counts = np.array([-5.0, 0.2, 9.0, -1.0, 4.0, 0.0, -2.0])
    assert [int(s.raw) for s in method._elect(samples(7), counts, 1)] == [2, 4, 1]
    taken = {method._elect(samples(7), np.full(7, -1.0), t)[0].raw for t in range(40)}
    assert len(taken) > 3


def test_the_threshold_is_taken_off_before_counts_are_cut(settings: Settings) -> None:
    method = augpe(settings("augpe", records=6, augpe={"threshold": 3.0, "selection": "prob"}))
    counts = np.array([2.9, 5.0, 3.0, -4.0])
    assert {s.raw for t in range(30) for s in method._elect(samples(4), counts, t)} == {"1"}


def test_prob_draws_in_proportion_to_the_counts(settings: Settings) -> None:
    method = augpe(settings("augpe", records=400, augpe={"selection": "prob"}))
    drawn_texts = Counter(
        s.raw for t in range(20) for s in method._elect(samples(4), np.array([1.0, 3.0, 0.0, -9.0]), t)
    )
    assert set(drawn_texts) == {"0", "1"}
    assert drawn_texts["1"] / drawn_texts["0"] == pytest.approx(3.0, rel=0.15)
    uniform = Counter(s.raw for t in range(20) for s in method._elect(samples(4), np.full(4, -1.0), t))
    assert len(uniform) == 4


@pytest.mark.parametrize(("expansion", "lookahead"), [(1, 0), (4, 0), (2, 2)])
def test_the_model_writes_as_many_texts_as_the_plan_says(
    settings: Settings, expansion: int, lookahead: int, tmp_path: Path
) -> None:
    from selpe.run.lifecycle import Run

    config = settings("augpe", records=8, augpe={"rounds": 2, "expansion": expansion, "lookahead": lookahead})
    plan = recipe_of("augpe").plan(config, SCHEMA, 40)
    assert isinstance(plan, GaussianPlan)
    assert plan.candidates == 8 + 2 * (8 * (expansion - 1) + 8 * expansion * lookahead)
    outcome = Run.create(config).execute(model=FakeModel(), encoder=HashingEncoder(64))
    assert outcome.manifest["counts"]["answers"] == plan.candidates


def test_variations_rephrase_and_fill_in_by_their_shares(settings: Settings) -> None:
    method = augpe(settings("augpe", augpe={"fill_in": 0.3}))
    kinds = Counter(method._variation(Sample("low", SCHEMA.dumps(GOOD)), seed).template for seed in range(500))
    assert kinds["baseline_fill"] == pytest.approx(150, abs=40)
    assert sum(kinds.values()) == kinds["baseline_fill"] + kinds["baseline_rephrase"]


def test_without_noise_evolution_comes_nearer_to_the_private_rows(settings: Settings, tmp_path: Path) -> None:
    from selpe.intake import write_table
    from selpe.run.lifecycle import Run

    rows: list[Record] = [{**GOOD, "topic": "kettle rent refund", "minutes": 7 + i % 3} for i in range(40)]
    write_table(rows, SCHEMA, tmp_path / "private.csv")
    kernel = TextKernel(SCHEMA, HashingEncoder(256))

    def distance(epsilon: float, seed: int) -> float:
        config = settings("augpe", epsilon=epsilon, seed=seed, dataset=f"e{epsilon:g}-{seed}", records=10,
                          quotas={"low": 1, "high": 0}, augpe={"rounds": 4, "expansion": 6})  # fmt: skip
        made = Run.create(config).execute(model=FakeModel(), encoder=HashingEncoder(256), insist=True)
        pool = kernel.pool(kernel.embed([SCHEMA.dumps(record) for record in made.records]))
        return float(pool.distances(kernel.represent(rows)).min(axis=1).mean())

    def mean(epsilon: float) -> float:
        return sum(distance(epsilon, seed) for seed in range(4)) / 4

    assert mean(float("inf")) < 0.85 * mean(0.0)


# -- WASP ------------------------------------------------------------------------------------------------------------


def test_waves_add_up_and_the_first_has_samples_of_every_class(settings: Settings) -> None:
    for records in (2, 7, 20, 103):
        method = wasp(settings("wasp", records=records))
        assert len(method._waves) == 4
        assert sum(sum(wave.values()) for wave in method._waves) == records
        assert all(method._waves[0].values())


def test_one_model_has_all_the_weight_and_better_models_get_more(settings: Settings) -> None:
    near = {"low": np.array([4.0, 4.0, 1.0, -7.0])}
    written = {"low": [Sample("low", str(i), model=i // 2) for i in range(4)]}
    assert wasp(settings("wasp"))._weights({"low": [replace(s, model=0) for s in written["low"]]}, near) == [1.0]
    two = wasp(settings("wasp"), FakeModel(), FakeModel())
    weights = two._weights(written, near)
    shares = np.array([4.0, 0.5]) / 2.25  # votes per sample of each, relative to those of all
    expected = np.exp(shares) / np.exp(shares).sum()
    assert weights == pytest.approx(expected.tolist())
    assert two._weights(written, {"low": np.full(4, -1.0)}) == [1.0, 1.0]


def test_the_best_and_the_worst_samples_are_shown_half_as_many_as_are_kept(settings: Settings) -> None:
    prompts: list[str] = []

    def rule(request: Request) -> Answer:
        prompts.append(request.messages[0].content)
        return Answer(request, "text", "stop", seconds=1.0)

    method = wasp(settings("wasp", records=40, wasp={"shown": 4}), Scripted(rule))
    written = {label: [Sample(label, f"{label}-{i}") for i in range(8)] for label in ("low", "high")}
    near, far = np.arange(8.0), -np.arange(8.0)
    method._contrasted(1, written, dict.fromkeys(written, np.stack([near, far])), [1.0])
    assert len(prompts) == 10
    for prompt in prompts:
        label = "low" if "low-" in prompt else "high"
        bad, good = prompt.split("closer to the real ones:")
        assert sum(f"{label}-{i}" in good for i in range(4, 8)) == 2
        assert sum(f"{label}-{i}" in bad for i in range(4)) == 2
        assert not any(f"{label}-{i}" in good for i in range(4))


def test_several_models_share_the_work_and_the_manifest_says_how(settings: Settings) -> None:
    from selpe.run.lifecycle import Run

    second = Scripted(lambda r: Answer(r, "prose", "stop", completion_tokens=1, seconds=1.0), name="prosaic")
    run = Run.create(settings("wasp", records=40))
    outcome = run.execute(model=FakeModel(), models=[second], encoder=HashingEncoder(64))
    weights = outcome.manifest["model_weights"]
    assert list(weights) == ["1: fake", "2: prosaic"]
    assert sum(weights.values()) == pytest.approx(1.0)
    assert 0 < outcome.manifest["unreadable"] < 40
