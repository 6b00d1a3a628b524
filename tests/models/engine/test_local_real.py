"""The embedded engine on its real default model: the same text as OpenVINO GenAI, and records that are all valid."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from selpe.method.guides import Form
from selpe.method.record_forms import parse
from selpe.method.record_steps import limits
from selpe.models.base import Answer, Message, Request
from selpe.models.engine.local import LocalModel
from selpe.models.engine.prepare import prepare
from selpe.models.engine.runtime import openvino_genai, settings
from selpe.models.store.store import ModelStore
from selpe.schema import Schema
from selpe.schema.narrowing import Narrowing

pytestmark = pytest.mark.real_model

SCHEMAS = Path(__file__).resolve().parents[3] / "benchmarks" / "schemas"

BEGINNINGS = """The capital of France is|Once upon a time, a small|To bake bread you need|Water boils at
The patient complains of chest pain and|List of European countries:|def add(a, b):|Dear Sir or Madam,
The loan was requested to|In 1969, humans|My favourite colour is|The results of the study show|A triage nurse must
Symptoms of influenza include|The stock market fell because|Question: What is 2+2? Answer:|She opened the door and saw
An SQL query that selects|Public transport in large cities|He bought a bottle of water and""".replace("\n", "|").split(
    "|"
)


VITALS = """name: vitals
fields:
  sbp: {kind: integer, min: 40, max: 60}
  dbp: {kind: integer, min: 20, max: 180}
rules: [dbp < sbp, dbp > sbp - 5]
"""


@pytest.fixture(scope="module")
def folder() -> Path:
    return ModelStore().prepared_dir("smollm2")


@pytest.fixture(scope="module")
def model(smollm2: Path, folder: Path) -> Iterator[LocalModel]:
    with LocalModel(smollm2, folder, memory=2**29) as model:
        yield model


def greedy(model: LocalModel, tokens: int) -> list[str]:
    requests = [Request(prompt=text, temperature=0.0, max_tokens=tokens, key=text) for text in BEGINNINGS]
    answers = {answer.request.key: answer.text for answer in model.generate(requests)}
    return [answers[text] for text in BEGINNINGS]


def greedy_settings(tokens: int) -> Any:
    config = openvino_genai().GenerationConfig()
    config.max_new_tokens = tokens
    config.do_sample = False
    config.apply_chat_template = False
    return config


def test_greedy_text_is_that_of_genais_continuous_batching(model: LocalModel, smollm2: Path, folder: Path) -> None:
    """With equal settings the kernels are the same, so the texts must be the same, to the byte.

    GenAI must not stop at the end token, as we do: once it had one sequence left, that one would go through kernels
    for a single row.
    """
    genai = openvino_genai()
    limits = genai.SchedulerConfig()
    limits.cache_size = 1
    limits.max_num_seqs = 64
    pipeline = genai.ContinuousBatchingPipeline(
        str(prepare(smollm2, folder).folder), limits, "CPU", settings(None, "fast")
    )
    config = greedy_settings(16)
    config.ignore_eos = True
    theirs = [result.m_generation_ids[0] for result in pipeline.generate(BEGINNINGS, [config] * len(BEGINNINGS))]
    assert len(theirs) == 20
    for ours, text in zip(greedy(model, 16), theirs, strict=True):
        assert text.startswith(ours)
    assert sum(text == ours for ours, text in zip(greedy(model, 16), theirs, strict=True)) >= 16


def test_exact_greedy_text_is_that_of_genais_stateful_model(smollm2: Path, folder: Path) -> None:
    """Other kernels, but nothing is rounded to 8 bits on the way: the texts must be the same."""
    with LocalModel(smollm2, folder, memory=2**29, precision="exact") as model:
        ours = greedy(model, 8)
    pipeline = openvino_genai().LLMPipeline(
        str(prepare(smollm2, folder).folder), "CPU", ATTENTION_BACKEND="SDPA", **settings(None, "exact")
    )
    assert [str(pipeline.generate(text, greedy_settings(8))) for text in BEGINNINGS] == ours


@pytest.mark.parametrize(("name", "count"), [("five", 60), ("thirteen", 20)])
def test_every_record_is_valid_by_an_independent_validator(model: LocalModel, name: str, count: int) -> None:
    schema = Schema.load(SCHEMAS / f"{name}.yaml")
    grammar = schema.to_json_schema()
    prompt = f"{schema.description}\n{schema.dumps(schema.examples[0])}\n"
    # In decimal arithmetic: 4.18 is no float multiple of 0.01.
    validator = jsonschema.Draft202012Validator(json.loads(json.dumps(grammar), parse_float=Decimal))
    requests = (
        Request(prompt=prompt, json_schema=grammar, seed=i, temperature=1.2, min_p=0.05, max_tokens=700)
        for i in range(count)
    )
    found = []
    for answer in model.generate(requests):
        assert answer.finish == "stop"
        validator.validate(json.loads(answer.text, parse_float=Decimal))
        found.append(answer.text)
    assert len(found) == count
    assert len(set(found)) > count * 0.9


@pytest.mark.parametrize("form", ["lines", "json"])
def test_rules_bind_and_an_answer_goes_on_from_what_has_begun(model: LocalModel, form: Form) -> None:
    schema = Schema.from_yaml(VITALS)
    bounds = limits(Narrowing(schema), {}, form, model.capabilities())
    head = {"lines": "sbp: 44\ndbp:", "json": '{"sbp": 44, "dbp":'}[form]
    requests = [
        Request(prompt="Vital signs.\n", begun=begun, seed=seed, max_tokens=40, **bounds)
        for begun in ("", head)
        for seed in range(6)
    ]
    for answer in model.generate(requests):
        record = parse(schema, answer.request.begun + answer.text, form)
        assert record is not None
        assert schema.check(record) == []


def test_a_text_is_gone_on_from_in_memory_and_from_its_prompt_alike(model: LocalModel) -> None:
    """Other kernels compute prompts than what is written; which of them did must not hang on what is in memory.

    Few and short ones: without AVX-512, turns of more than about 64 rows go through kernels that round differently.
    """

    def second(answer: Answer) -> list[Request]:
        if answer.request.own or not answer.text.strip():
            return []
        prompt, own = f"{answer.request.prompt}{answer.text}\nRecord:\n", answer.text.strip()
        return [Request(prompt=prompt, own=own, seed=answer.request.seed, max_tokens=12)]

    first = [Request(prompt="Visitors.\nNotes:", seed=seed, max_tokens=24, stop=("\n",)) for seed in range(4)]
    together = [answer for answer in model.generate(first, follow=second) if answer.request.own]
    assert len(together) > 1
    assert sum(answer.prompt_tokens - answer.cached_tokens for answer in together) < 12 * len(together)
    for again in together:
        model._open().pool.clear()
        (alone,) = model.generate([again.request])
        assert alone.cached_tokens == 0
        assert alone.text == again.text


def test_chat_goes_through_the_models_own_template(model: LocalModel) -> None:
    assert model.capabilities().chat_template
    turns = (Message("system", "You are brief."), Message("user", "What is the capital of France?"))
    rendered = (
        "<|im_start|>system\nYou are brief.<|im_end|>\n"
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    )
    (chat,) = model.generate([Request(messages=turns, temperature=0.0, max_tokens=12)])
    (plain,) = model.generate([Request(prompt=rendered, temperature=0.0, max_tokens=12)])
    assert chat.text == plain.text
    assert chat.text
    assert "<|im_" not in chat.text
