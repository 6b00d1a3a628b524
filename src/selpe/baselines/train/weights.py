"""Models to train: from the model store, a GGUF file, a folder or the hub, with LoRA adapters or as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from selpe.errors import ConfigError, ModelError
from selpe.models.hf import best_device, patient_threads, where
from selpe.models.store.download import Progress
from selpe.models.store.store import ModelStore

Tuning = Literal["lora", "full"]
_LARGE = 50_000_000  # parameters; below, half precision gains nothing
_INSTALL = 'Install them: pip install "selpe[train]"'


@dataclass(frozen=True, slots=True)
class Weights:
    """A model in memory with its tokenizer, on the device where it is trained."""

    name: str
    model: Any
    tokenizer: Any
    device: str

    def with_model(self, model: Any) -> Weights:
        """The same with another model in its place."""
        return Weights(self.name, model, self.tokenizer, self.device)


Load = Callable[[str], Weights]


def libraries() -> tuple[Any, Any, Any]:
    """torch, transformers and peft; raises an error that names the extra where one of them is missing."""
    patient_threads()
    try:
        import peft
        import torch
        import transformers
    except ImportError as problem:
        raise ModelError("training needs torch, transformers and peft", hint=_INSTALL) from problem
    return torch, transformers, peft


def load_weights(name: str, *, store: ModelStore | None = None, progress: Progress | None = None) -> Weights:
    """A language model in single precision, by its name in the store, `hf:org/name`, a folder or a GGUF file."""
    torch, transformers, _ = libraries()
    source = (store or ModelStore()).ensure(name, progress)
    place, options = where(source)
    try:
        with _quietly(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(place, padding_side="left", **options)
            model = _kind(transformers, source).from_pretrained(place, dtype="float32", **options)
    except (OSError, ValueError, ImportError, KeyError) as problem:
        raise ModelError(
            f"transformers cannot load this model for training ({type(problem).__name__})",
            where=name,
            hint="Name a model of the hub (hf:org/name), a folder, or a GGUF file of a Llama-like model.",
        ) from problem
    device = best_device(torch)
    return Weights(name, model.to(device).eval(), tokenizer, device)


def _kind(transformers: Any, source: Path) -> Any:
    """The class to load: a language model where the folder holds one or does not say, else whatever encoder it is."""
    if not source.is_dir():
        return transformers.AutoModelForCausalLM
    told = transformers.AutoConfig.from_pretrained(str(source), local_files_only=True).architectures or ()
    encodes = any("MaskedLM" in name or (name.endswith("Model") and "LMHead" not in name) for name in told)
    return transformers.AutoModel if encodes else transformers.AutoModelForCausalLM


def adapted(
    weights: Weights, *, tuning: Tuning, rank: int, alpha: int, layers: int | None, seed: int
) -> Weights:  # fmt: skip
    """The model made ready for training: all of it, or LoRA adapters in the attention of its last layers."""
    torch, _, peft = libraries()
    model = weights.model
    model.requires_grad_(tuning == "full")
    if tuning == "full":
        return weights
    config = peft.LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=0.0, bias="none", target_modules=_targets(peft, weights, layers)
    )  # fmt: skip
    if _halves_well(torch, weights):
        model.to(torch.bfloat16)  # what is not trained: peft keeps adapters, hence gradients, in single precision
    with seeded(torch, seed):
        return weights.with_model(peft.get_peft_model(model, config).eval())


def _halves_well(torch: Any, weights: Weights) -> bool:
    """Whether the processor multiplies half-precision numbers itself, and the model is large enough for it to matter.

    A gradient of SmolLM2 then takes two thirds of the time.
    """
    able = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    large = sum(parameter.numel() for parameter in weights.model.parameters()) >= _LARGE
    return weights.device == "cpu" and large and any(asked is not None and asked() for asked in able)


def _targets(peft: Any, weights: Weights, layers: int | None) -> list[str]:
    """The names of the matrices that get adapters: those that LoRA usually adapts in this kind of model."""
    model = weights.model
    known = peft.utils.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
    usual = set(known.get(getattr(model.config, "model_type", ""), ()))
    first = 0 if layers is None else int(getattr(model.config, "num_hidden_layers", 0)) - layers
    names = [name for name, _ in model.named_modules() if name.rpartition(".")[2] in usual and _layer(name) >= first]
    if not names:
        raise ConfigError(
            "LoRA does not know which parts of this model to adapt",
            where=weights.name,
            hint="Train all of it: tuning: full",
        )
    return names


def _layer(name: str) -> int:
    """The number of the layer that a module belongs to; modules outside of layers count as in the last."""
    numbers = [int(part) for part in name.split(".") if part.isdecimal()]
    return numbers[0] if numbers else 10**9


def merged(weights: Weights) -> Weights:
    """The tuned model as one plain model, which writes faster than with adapters."""
    model = weights.model
    if not hasattr(model, "merge_and_unload"):
        return weights
    return weights.with_model(model.float().merge_and_unload())  # in half precision, small changes would be rounded off


@contextmanager
def _quietly(transformers: Any) -> Iterator[None]:
    """Keeps transformers' own progress bars out of ours."""
    log, gguf = transformers.utils.logging, import_module("transformers.modeling_gguf_pytorch_utils")
    shown, bar = log.is_progress_bar_enabled(), getattr(gguf, "tqdm", None)
    log.disable_progress_bar()
    if bar is not None:
        gguf.tqdm = partial(bar, disable=True)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        if bar is not None:
            gguf.tqdm = bar  # type: ignore[attr-defined]
        if shown:
            log.enable_progress_bar()


@contextmanager
def seeded(torch: Any, seed: int) -> Iterator[None]:
    """Makes what is initialised inside repeatable, and leaves the generator outside as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
