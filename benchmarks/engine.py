"""How fast the embedded engine is, as ratios measured within one run.

    python benchmarks/engine.py throughput --hf-python ~/torch-env/bin/python
    python benchmarks/engine.py two-stage | peers | grammar | validity | bounded

Engines take turns, several rounds each, and the best round counts: a busy machine slows all of them alike.
The optional interpreter of --hf-python must have torch, transformers, gguf and accelerate.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import psutil

from selpe.models.base import Answer, ChatModel, Request
from selpe.models.engine.grammar import GrammarGuide, Grammars
from selpe.models.engine.local import LocalModel
from selpe.models.engine.prepare import prepare
from selpe.models.engine.runtime import openvino_genai, settings
from selpe.models.store.store import ModelStore
from selpe.schema import Schema

SCHEMAS = Path(__file__).resolve().parent / "schemas"
MEBIBYTE = 2**20

# Batch generation as most published code does it: pad, generate, and compute the shared prefix for every row.
HF_SCRIPT = """
import json, sys, time, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
job = json.load(open(sys.argv[1]))
torch.set_num_threads(job["threads"])
tokenizer = AutoTokenizer.from_pretrained(job["folder"], gguf_file=job["file"], padding_side="left")
model = AutoModelForCausalLM.from_pretrained(job["folder"], gguf_file=job["file"]).eval()
tokenizer.pad_token = tokenizer.eos_token
best = 0.0
for _ in range(job["rounds"]):
    batch = tokenizer(job["prompts"], return_tensors="pt", padding=True)
    began = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(**batch, do_sample=True, temperature=1.0, min_p=0.05, min_new_tokens=job["tokens"],
                             max_new_tokens=job["tokens"], pad_token_id=tokenizer.eos_token_id)
    written = (out.shape[1] - batch["input_ids"].shape[1]) * out.shape[0]
    best = max(best, written / (time.perf_counter() - began))
print(json.dumps({"rate": best}))
"""


def prefix(schema: Schema, tokens: int, count: Callable[[str], int]) -> str:
    """A public beginning of about so many tokens: the task, then made-up records."""
    text = f"{schema.description}\n"
    i = 0
    while count(text) < tokens:
        text += schema.dumps(schema.examples[i % len(schema.examples)]) + "\n"
        i += 1
    return text


def best_rate(rounds: int, *runs: Callable[[], int], clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """Tokens (or whatever a run counts) per second of the best round of each, the rounds taken in turns."""
    rates = [0.0] * len(runs)
    for _ in range(rounds):
        for i, run in enumerate(runs):
            began = clock()
            done = run()
            rates[i] = max(rates[i], done / (clock() - began))
    return rates


def written(model: ChatModel, requests: Iterable[Request], **settings: Any) -> int:
    """How many tokens were written; every answer must be one."""
    total = 0
    for answer in model.generate(requests, **settings):
        if answer.finish == "error":
            raise SystemExit(f"{model.name}: {answer.error}")
        total += answer.completion_tokens
    return total


def free_requests(text: str, count: int, tokens: int) -> list[Request]:
    """Plain continuations. Some end early; what is counted is the tokens that were written."""
    return [
        Request(prompt=f"{text}Record {i}: ", seed=i, temperature=1.0, min_p=0.05, max_tokens=tokens)
        for i in range(count)
    ]


def throughput(options: argparse.Namespace, local: LocalModel, gguf: Path) -> dict[str, Any]:
    from selpe.models.llamacpp import LlamaCppModel

    text = prefix(Schema.load(SCHEMAS / "five.yaml"), 520, local.count_tokens)
    requests = free_requests(text, options.sequences, options.tokens)
    server = LlamaCppModel(gguf, parallel=options.sequences, context=1024, threads=options.threads)
    written(local, requests)
    written(server, requests)
    ours, theirs = best_rate(options.rounds, lambda: written(local, requests), lambda: written(server, requests))
    server.close()
    result = {
        "sequences": options.sequences,
        "prompt_tokens": local.count_tokens(requests[0].prompt),
        "ours": ours,
        "llama.cpp server": theirs,
        "ours / llama.cpp server": ours / theirs,
    }
    if options.hf_python:
        job = {
            "threads": options.threads or psutil.cpu_count(logical=False),
            "folder": str(gguf.parent),
            "file": gguf.name,
            "prompts": [request.prompt for request in requests],
            "tokens": options.tokens,
            "rounds": options.rounds,
        }
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(job, file)
            file.flush()
            command = [options.hf_python, "-c", HF_SCRIPT, file.name]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        hf = json.loads(out.strip().splitlines()[-1])["rate"]
        again = best_rate(options.rounds, lambda: written(local, requests))[0]
        result |= {"transformers generate": hf, "ours beside it": again, "ours / transformers": again / hf}
    return result


def second_stage(schema: Schema) -> Callable[[Answer], list[Request]]:
    """What follows a free context: a request for the record that realises it, under the schema."""
    grammar = schema.to_json_schema()

    def follow(answer: Answer) -> list[Request]:
        if answer.request.json_schema is not None:
            return []
        prompt = f"{answer.request.prompt}{answer.text}\nThe record: "
        return [
            Request(
                prompt=prompt, json_schema=grammar, seed=answer.request.seed, min_p=0.05, max_tokens=200,
                own=answer.text,
            )
        ]  # fmt: skip

    return follow


def two_stage(options: argparse.Namespace, local: LocalModel, _: Path) -> dict[str, Any]:
    """Stage I writes a free context, stage II a record under the schema, overlapping; against bare decoding."""
    schema = Schema.load(SCHEMAS / "five.yaml")
    text = prefix(schema, 520, local.count_tokens)
    bare = free_requests(text, options.records, options.tokens)
    follow = second_stage(schema)
    written(local, bare[: options.sequences])
    both, alone = best_rate(options.rounds, lambda: written(local, bare, follow=follow), lambda: written(local, bare))
    return {"two stages": both, "bare decoding": alone, "two stages / bare": both / alone}


def records(model: ChatModel, requests: Iterable[Request], follow: Callable[[Answer], list[Request]]) -> int:
    """How many complete records two stages gave."""
    answers = model.generate(requests, follow=follow)
    return sum(answer.finish == "stop" and answer.request.json_schema is not None for answer in answers)


class GenAI:
    """OpenVINO GenAI's continuous batching on the same graph, with the same settings and its own structured output."""

    def __init__(self, folder: Path, places: int, threads: int | None) -> None:
        self._genai = openvino_genai()
        limits = self._genai.SchedulerConfig()
        limits.cache_size, limits.max_num_seqs, limits.enable_prefix_caching = 1, places, True
        self._pipeline = self._genai.ContinuousBatchingPipeline(str(folder), limits, "CPU", settings(threads, "fast"))

    def records(self, requests: Iterable[Request], follow: Callable[[Answer], list[Request]]) -> int:
        """How many complete records two stages gave. It takes a batch at a time, so the stages do not overlap."""
        first = list(requests)
        texts = self._texts(first)
        second = [
            then for asked, text in zip(first, texts, strict=True) for then in follow(Answer(asked, text or "", "stop"))
        ]
        return sum(text is not None for text in self._texts(second))

    def _texts(self, requests: list[Request]) -> list[str | None]:
        """The answers; None for a record that was cut short."""
        results = self._pipeline.generate(
            [request.prompt for request in requests], [self._config(request) for request in requests]
        )
        return [
            None if request.json_schema is not None and not _is_json(result.m_generation_ids[0])
            else result.m_generation_ids[0]
            for request, result in zip(requests, results, strict=True)
        ]  # fmt: skip

    def _config(self, request: Request) -> Any:
        config = self._genai.GenerationConfig()
        config.do_sample, config.temperature, config.min_p = True, request.temperature, request.min_p
        config.max_new_tokens, config.rng_seed, config.apply_chat_template = request.max_tokens, request.seed, False
        if request.json_schema is not None:
            structure = self._genai.StructuredOutputConfig()
            structure.json_schema = json.dumps(request.json_schema)
            config.structured_output_config = structure
        return config


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def peers(options: argparse.Namespace, local: LocalModel, gguf: Path) -> dict[str, Any]:
    """Two-stage records per second of processor time: three engines, the same prompts, in turns, in this process.

    Threads that wait in a loop count as busy, so compare with `--threads 1` on a machine that others use.
    """
    from selpe.models.llamacpp import LlamaCppModel

    schema = Schema.load(SCHEMAS / "five.yaml")
    requests = free_requests(prefix(schema, 520, local.count_tokens), options.records, options.tokens)
    follow = second_stage(schema)
    genai = GenAI(prepare(gguf, ModelStore().prepared_dir("smollm2")).folder, 64, options.threads)
    server = LlamaCppModel(gguf, parallel=options.sequences, context=1024, threads=options.threads)
    runs = {
        "ours": lambda: records(local, requests, follow),
        "llama.cpp server": lambda: records(server, requests, follow),
        "OpenVINO GenAI": lambda: genai.records(requests, follow),
    }
    rates = dict(zip(runs, best_rate(options.rounds, *runs.values(), clock=time.process_time), strict=True))
    server.close()
    over = {f"ours / {name}": rates["ours"] / rate for name, rate in rates.items() if name != "ours"}
    return {"records per second of processor time": rates, **over}


class TimedGrammars(Grammars):
    """Grammars that count the seconds spent in them, hidden behind the model or not."""

    seconds = 0.0

    def guide(self, request: Request) -> GrammarGuide | None:
        began = time.perf_counter()
        guide = super().guide(request)
        self.seconds += time.perf_counter() - began
        return None if guide is None else TimedGuide(guide, self)


class TimedGuide:
    def __init__(self, guide: GrammarGuide, account: TimedGrammars) -> None:
        self._guide, self._account = guide, account

    def _timed(self, call: Callable[..., Any], *values: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(*values)
        finally:
            self._account.seconds += time.perf_counter() - began

    @property
    def stopped(self) -> bool:
        return self._guide.stopped

    def forced(self) -> list[int]:
        tokens: list[int] = self._timed(self._guide.forced)
        return tokens

    def accept(self, token: int) -> None:
        self._timed(self._guide.accept, token)

    def write_mask(self, into: Any) -> None:
        self._timed(self._guide.write_mask, into)


def grammar_cost(options: argparse.Namespace, local: LocalModel, _: Path) -> dict[str, Any]:
    schema = Schema.load(SCHEMAS / "five.yaml")
    text = prefix(schema, 520, local.count_tokens)
    scheduler = local._open()
    timed = scheduler.grammars = TimedGrammars(scheduler.vocabulary)
    requests = [
        Request(prompt=text, json_schema=schema.to_json_schema(), seed=i, min_p=0.05, max_tokens=200)
        for i in range(options.records)
    ]
    written(local, requests[: options.sequences])
    shares, rates = [], []
    for _round in range(options.rounds):
        timed.seconds = 0.0
        began = time.perf_counter()
        written(local, requests)
        wall = time.perf_counter() - began
        shares.append(timed.seconds / (wall - timed.seconds))
        rates.append(len(requests) / wall)
    return {"records per second": max(rates), "time in the grammar / other time": min(shares)}


def validity(options: argparse.Namespace, local: LocalModel, _: Path) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, count in (("five", options.valid[0]), ("thirteen", options.valid[1])):
        schema = Schema.load(SCHEMAS / f"{name}.yaml")
        grammar = schema.to_json_schema()
        validator = jsonschema.Draft202012Validator(json.loads(json.dumps(grammar), parse_float=Decimal))
        text = prefix(schema, 300, local.count_tokens)
        valid = 0
        began = time.perf_counter()
        for answer in local.generate(
            Request(prompt=text, json_schema=grammar, seed=i, temperature=1.2, min_p=0.05, max_tokens=700)
            for i in range(count)
        ):
            if answer.finish == "stop" and validator.is_valid(json.loads(answer.text, parse_float=Decimal)):
                valid += 1
        result[f"{name} fields: valid of {count}"] = valid
        result[f"{name} fields: records per second"] = count / (time.perf_counter() - began)
    return result


def bounded(options: argparse.Namespace, local: LocalModel, _: Path) -> dict[str, Any]:
    """Memory over 500 queued requests of up to 300 tokens: how much the peak grows in the second half."""
    text = prefix(Schema.load(SCHEMAS / "five.yaml"), 200, local.count_tokens)
    requests = free_requests(text, options.queued, 300)
    pool = local._open().pool
    sizes, used = [], []
    for _answer in local.generate(requests):
        sizes.append(psutil.Process().memory_info().rss / MEBIBYTE)
        used.append(pool.held + pool.kept)
    half = len(sizes) // 2
    return {
        "requests": len(sizes),
        "MiB at most, first half": max(sizes[:half]),
        "MiB at most, second half": max(sizes[half:]),
        "growth MiB": max(sizes[half:]) - max(sizes[:half]),
        "MiB by tenths": [round(max(sizes[: (i + 1) * len(sizes) // 10])) for i in range(10)],
        "blocks in use at most, by tenths": [max(used[: (i + 1) * len(used) // 10]) for i in range(10)],
        "blocks held and kept at the end": [pool.held, pool.kept],
    }


def main() -> None:
    parts = {
        "throughput": throughput,
        "two-stage": two_stage,
        "peers": peers,
        "grammar": grammar_cost,
        "validity": validity,
        "bounded": bounded,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*parts, "all"], nargs="?", default="all")
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--parallel", type=int, help="places in our batch; as many as sequences unless given")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--records", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--queued", type=int, default=500)
    parser.add_argument("--valid", type=int, nargs=2, default=(1000, 300))
    parser.add_argument("--hf-python", help="an interpreter that has torch and transformers")
    options = parser.parse_args()
    store = ModelStore()
    gguf = store.ensure("smollm2")
    for name in parts if options.part == "all" else [options.part]:
        places = options.parallel or (options.sequences if name == "throughput" else 64)
        with LocalModel(gguf, store.prepared_dir("smollm2"), parallel=places, threads=options.threads) as local:
            print(json.dumps({name: parts[name](options, local, gguf)}, indent=1), flush=True)


if __name__ == "__main__":
    main()
