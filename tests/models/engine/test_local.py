"""The embedded engine end to end, on a tiny random model that OpenVINO really converts and runs."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from gguf import GGMLQuantizationType

from selpe.errors import ModelError, PromptTooLongError
from selpe.models.base import Answer, ChatModel, Message, Request
from selpe.models.engine import paged
from selpe.models.engine.local import MEBIBYTE, LocalModel
from selpe.models.engine.prepare import prepare
from tiny_gguf import CONTEXT, write_tiny_gguf

SHARED = "every prompt begins with this long and rather boring sentence, for the sake of sharing it. "


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_tiny_gguf(path)
    return path


@pytest.fixture(scope="module")
def model(tiny: Path) -> LocalModel:
    return LocalModel(tiny, tiny.parent, memory=8 * MEBIBYTE, parallel=8)


def ask(i: int, *, temperature: float = 0.9, max_tokens: int = 40, text: str = SHARED) -> Request:
    return Request(prompt=f"{text}{i}", seed=i, temperature=temperature, max_tokens=max_tokens, key=str(i))


def texts(answers: list[Answer]) -> dict[str, str]:
    return {answer.request.key: answer.text for answer in answers}


def test_it_is_a_chat_model_that_knows_what_it_can_do(model: LocalModel) -> None:
    assert isinstance(model, ChatModel)
    can = model.capabilities()
    assert (can.grammar, can.json_schema, can.seed, can.prefix_cache) == (True, True, True, True)
    assert not can.chat_template
    assert (can.context_length, can.parallel) == (CONTEXT, 8)
    assert model.name == "local:tiny"
    assert model.count_tokens("the cat") == 6  # th, e, space, c, a, t


def test_the_same_requests_get_the_same_answers(model: LocalModel) -> None:
    requests = [ask(i) for i in range(12)]
    first = texts(list(model.generate(requests)))
    assert len(set(first.values())) > 6
    assert texts(list(model.generate(requests))) == first


def test_an_answer_depends_neither_on_neighbours_nor_on_order_nor_on_the_cache(tiny: Path, model: LocalModel) -> None:
    requests = [ask(i, temperature=0.0 if i % 2 else 0.9) for i in range(10)]
    together = texts(list(model.generate(requests)))
    backwards = texts(list(model.generate([*(ask(i, text="other ") for i in range(50, 55)), *reversed(requests)])))
    assert {key: backwards[key] for key in together} == together
    with LocalModel(tiny, tiny.parent, memory=4 * MEBIBYTE, parallel=1) as alone:
        assert texts(list(alone.generate(requests))) == together


def test_a_shared_prefix_is_reused_across_calls(model: LocalModel) -> None:
    list(model.generate([ask(100)]))
    (answer,) = model.generate([ask(101)])
    assert answer.prompt_tokens - answer.cached_tokens <= 7
    assert answer.cached_tokens > 64


def test_a_model_without_paged_attention_is_refused_with_the_reason(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise ModelError("this version of OpenVINO has no paged-attention transformation")

    monkeypatch.setattr(paged, "_paged_model", missing)
    with pytest.raises(ModelError, match="paged-attention"):
        LocalModel(tiny, tiny.parent)


def test_grammar_and_stop_strings_are_kept(tiny: Path) -> None:
    schema = {"type": "array", "items": {"enum": ["ab", "cd", "abc"]}, "minItems": 2, "maxItems": 4}
    with LocalModel(tiny, tiny.parent, memory=8 * MEBIBYTE, parallel=4) as model:
        requests = [Request(prompt="list: ", json_schema=schema, seed=i, max_tokens=80) for i in range(6)]
        for answer in model.generate(requests):
            assert answer.finish == "stop"
            assert set(answer.text[1:-1].split(", ")) <= {'"ab"', '"cd"', '"abc"'}
        letters = Request(prompt="x", grammar="start: /[a-f]{40}/", seed=1, stop=("e",))
        (answer,) = model.generate([letters])
        assert answer.finish == "stop"
        assert "e" not in answer.text


def test_cancelling_midway_frees_every_block(model: LocalModel) -> None:
    cancel = threading.Event()
    answers = []
    for answer in model.generate((ask(i, max_tokens=100) for i in range(10**6)), cancel=cancel):
        answers.append(answer)
        cancel.set()
    assert {answer.finish for answer in answers[1:]} >= {"cancelled"}
    assert model.blocks_held == 0
    stream = model.generate(ask(i, max_tokens=100) for i in range(100))
    next(stream)
    assert model.blocks_held > 0
    stream.close()  # type: ignore[attr-defined]
    assert model.blocks_held == 0


def test_memory_stays_flat_while_requests_queue(model: LocalModel) -> None:
    list(model.generate(ask(i, max_tokens=60) for i in range(40)))
    before = psutil.Process().memory_info().rss
    list(model.generate(ask(i, max_tokens=60) for i in range(40, 240)))
    assert psutil.Process().memory_info().rss - before < 20 * MEBIBYTE
    assert model.blocks_held == 0


def test_a_prompt_that_is_too_long_is_a_clear_error(model: LocalModel) -> None:
    answers = list(model.generate([Request(prompt="x" * 600), ask(1)]))
    assert isinstance(answers[0].error, PromptTooLongError)
    assert "600 tokens" in answers[0].error.message
    assert answers[1].finish in ("stop", "length")


def test_chat_without_a_template_is_a_clear_error(model: LocalModel) -> None:
    (answer,) = model.generate([Request(messages=(Message("user", "hello"),))])
    assert answer.error is not None
    assert "chat template" in answer.error.message


def test_text_is_cut_between_characters(model: LocalModel) -> None:
    grammar = 'start: "äöüäöüäöü"'
    for limit in range(1, 19):
        (answer,) = model.generate([Request(prompt="x", grammar=grammar, max_tokens=limit)])
        assert answer.text == "äöüäöüäöü"[: limit // 2]
        assert answer.finish == ("stop" if limit == 18 else "length")


def test_a_second_stream_in_the_same_thread_is_refused_and_in_another_waits(model: LocalModel) -> None:
    stream = model.generate(ask(i) for i in range(20))
    next(stream)
    with pytest.raises(ModelError, match="already generating"):
        list(model.generate([ask(1)]))
    waited: list[Answer] = []
    other = threading.Thread(target=lambda: waited.extend(model.generate([ask(2)])))
    other.start()
    assert len(list(stream)) == 19
    other.join(timeout=300)
    assert [answer.finish for answer in waited] in (["stop"], ["length"])


def test_a_closed_model_says_so(tiny: Path) -> None:
    model = LocalModel(tiny, tiny.parent, memory=MEBIBYTE)
    model.close()
    with pytest.raises(ModelError, match="closed"):
        list(model.generate([ask(1)]))


def test_several_processes_may_prepare_the_same_model_at_once(tiny: Path, tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from selpe.models.engine.prepare import prepare;"
        "print(prepare(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])).graph.stat().st_size)"
    )
    command = [sys.executable, "-c", code, str(tiny), str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    sizes = {process.communicate(timeout=300)[0] for process in running}
    assert len(sizes) == 1
    assert [process.returncode for process in running] == [0, 0, 0]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["openvino-1"]


def test_preparing_reports_progress_once_and_never_again(tiny: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, float]] = []
    LocalModel(tiny, tmp_path, memory=MEBIBYTE, progress=lambda what, share: seen.append((what, share))).close()
    assert seen[0] == ("rewriting the weights", 0.0)
    assert seen[-1] == ("converting the model", 1.0)
    seen.clear()
    LocalModel(tiny, tmp_path, memory=MEBIBYTE, progress=lambda what, share: seen.append((what, share))).close()
    assert not seen


def test_formats_that_are_read_exactly_are_not_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "q8.gguf"
    write_tiny_gguf(path, GGMLQuantizationType.Q8_0)
    seen: list[str] = []
    LocalModel(path, tmp_path, memory=MEBIBYTE, progress=lambda what, _: seen.append(what)).close()
    assert set(seen) == {"converting the model"}
    assert path.exists()


def test_a_file_that_is_no_model_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF but not really" * 100)
    with pytest.raises(ModelError, match="not a GGUF model"):
        LocalModel(path, tmp_path)
    assert [entry for entry in tmp_path.iterdir() if entry.is_dir()] == []


def test_openvino_is_imported_without_telemetry(tmp_path: Path) -> None:
    code = (
        "import sys, socket\n"
        "def refuse(*a): raise SystemExit('a connection was tried')\n"
        "socket.socket.connect = refuse; socket.getaddrinfo = refuse\n"
        "from selpe.models.engine.runtime import openvino, openvino_genai\n"
        "openvino(); openvino_genai()\n"
        "from openvino.tools.ovc import telemetry_utils\n"
        "assert telemetry_utils.tm.__name__.endswith('telemetry_stub'), telemetry_utils.tm\n"
        "assert not [name for name in sys.modules if name.startswith('openvino_telemetry')]\n"
    )
    home = tmp_path / "home"
    home.mkdir()
    subprocess.run([sys.executable, "-c", code], check=True, env={"HOME": str(home), "PATH": ""}, timeout=300)
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("name", ["openvino_model.bin", "openvino_model.xml", "about.json"])
def test_a_converted_model_that_has_changed_is_not_executed_but_made_again(
    tiny: Path, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = prepare(tiny, tmp_path).folder / name
    whole = path.read_bytes()
    changed = whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:]
    path.write_bytes(changed)
    prepare(tiny, tmp_path)
    assert path.read_bytes() != changed
    assert f"{name} has changed" in caplog.text
