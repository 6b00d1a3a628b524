"""From a GGUF file to a model that OpenVINO loads in seconds. Done once; the result lies in the cache.

OpenVINO's reader rounds the offsets of 4-bit formats that have one: read as it is, a Q4_1 file agrees with llama.cpp
on the next token in 77 % of places; by way of Q8_0, which has no offsets, in 95 %. So such tensors are rewritten
first, as are those in formats that the reader does not know.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selpe.errors import ModelError
from selpe.lasting import put_for_good
from selpe.models.engine.runtime import openvino_genai
from selpe.models.store import derived

log = logging.getLogger(__name__)

Progress = Callable[[str, float], None]
"""Called with what is being done and the share of it that is done, from 0 to 1."""

# Counts the ways in which we have prepared models: a change of method must not meet the results of the last one.
RECIPE = 1
_READ_EXACTLY = frozenset({"F32", "F16", "Q8_0", "Q4_0", "Q6_K"})
_ABOUT = "about.json"
# Chat models end a turn by other tokens than the one that ends a text.
_TURN_ENDS = frozenset({"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|end|>", "</s>"})
_CONTROL_TOKEN = 3


@dataclass(frozen=True, slots=True)
class Prepared:
    """A converted model and what must be known about it besides its weights."""

    folder: Path
    name: str
    context_length: int
    vocabulary_size: int
    special: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def graph(self) -> Path:
        """The model's graph, beside its weights."""
        return self.folder / "openvino_model.xml"


def prepare(gguf: Path, folder: Path, progress: Progress | None = None) -> Prepared:
    """The converted model in `folder`, made first when it is not there, or not as it was made.

    Safe when several processes ask at once.
    """
    target = folder / f"openvino-{RECIPE}"
    if (found := _read(target)) is not None:
        return found
    from filelock import FileLock

    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "prepare.lock"):
        if (found := _read(target)) is not None:
            return found
        work = Path(tempfile.mkdtemp(prefix="preparing-", dir=folder))
        try:
            _convert(gguf, work, progress or _silent)
            shutil.rmtree(target, ignore_errors=True)
            put_for_good(work, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    made = _read(target)
    if made is None:
        raise ModelError("the prepared model cannot be read back", where=str(target))
    return made


def _silent(_what: str, _share: float) -> None:
    """Progress that nobody watches."""


def _read(folder: Path) -> Prepared | None:
    if other := derived.changed(folder):
        if derived.is_recorded(folder):
            log.warning("%s has changed since it was made from the model: it is made again", folder / other)
        return None
    try:
        about: dict[str, Any] = json.loads((folder / _ABOUT).read_text("utf-8"))
        about["special"], about["ends"] = tuple(about["special"]), tuple(about["ends"])
        return Prepared(folder=folder, **about)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _convert(gguf: Path, work: Path, progress: Progress) -> None:
    from gguf import GGUFReader

    try:
        reader = GGUFReader(gguf)
        about = _about(reader, gguf)
    except Exception as error:  # a reader of foreign bytes may stumble over anything in them
        raise ModelError(
            "the file is not a GGUF model that can be read", where=str(gguf), hint="Fetch it again: selpe models pull."
        ) from error
    # OpenVINO GenAI writes the converted model beside the file it reads, so the file must lie in our folder.
    source = work / "model.gguf"
    lossy = [tensor for tensor in reader.tensors if tensor.tensor_type.name not in _READ_EXACTLY]
    if lossy:
        _requantise(reader, source, progress)
    else:
        _link(gguf, source)
    del reader, lossy
    progress("converting the model", 0.0)
    try:
        openvino_genai().LLMPipeline(str(source), "CPU", enable_save_ov_model=True)
    except RuntimeError as error:
        raise ModelError(
            f"OpenVINO cannot convert this model: {str(error).splitlines()[-1]}",
            where=str(gguf),
            hint="Use it through llama.cpp instead.",
        ) from error
    source.unlink()
    progress("converting the model", 1.0)
    (work / _ABOUT).write_text(json.dumps(about, indent=1), "utf-8")
    derived.record(work)


def _about(reader: Any, gguf: Path) -> dict[str, Any]:
    def value(key: str, default: Any = None) -> Any:
        return reader.fields[key].contents() if key in reader.fields else default

    tokens: list[str] = value("tokenizer.ggml.tokens")
    kinds: list[int] = value("tokenizer.ggml.token_type") or [0] * len(tokens)
    special = [i for i, kind in enumerate(kinds) if kind == _CONTROL_TOKEN]
    end = value("tokenizer.ggml.eos_token_id")
    ends = [end, *(i for i in special if tokens[i] in _TURN_ENDS and i != end)]
    return {
        "name": value("general.name", gguf.stem),
        "context_length": value(f"{value('general.architecture')}.context_length", 2048),
        "vocabulary_size": len(tokens),
        "special": special,
        "ends": ends,
    }


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def _requantise(reader: Any, target: Path, progress: Progress) -> None:
    """Writes the same model with every tensor in a format that OpenVINO reads exactly."""
    from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, LlamaFileType, quants

    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
        value = int(LlamaFileType.MOSTLY_Q8_0) if key == "general.file_type" else field.contents()
        writer.add_key_value(key, value, kind, sub_type=inner)
    q8 = GGMLQuantizationType.Q8_0
    for done, tensor in enumerate(reader.tensors):
        progress("rewriting the weights", done / len(reader.tensors))
        if tensor.tensor_type.name in _READ_EXACTLY:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        else:
            data = quants.quantize(quants.dequantize(tensor.data, tensor.tensor_type), q8)
            writer.add_tensor(tensor.name, data, raw_dtype=q8)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    progress("rewriting the weights", 1.0)
