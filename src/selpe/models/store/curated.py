"""The models that `llm: auto` chooses among, smallest first: what each is, where it lies, and what it asks for.

Larger is taken for better. Those of the registry are pinned by hash. The others come from the Hugging Face hub and are
trusted at first use: the commit and the hash that the hub tells then are recorded, and kept to afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

AUTO = "auto"
EMBEDDED, LLAMACPP = "embedded", "llama.cpp"  # names of engines (models/machine.py)

# Bytes of memory: the embedded engine keeps a byte per parameter and needs another one while it converts.
_PER_PARAMETER, _BESIDES = 2.0, 0.8e9
# Bytes per parameter of the embedded default: what speeds are measured by, whatever a file has.
_WEIGHT = 98_362_432 / 134_515_008


@dataclass(frozen=True, slots=True)
class CuratedModel:
    """A language model by a short name. `hub` is empty where the registry knows its files.

    `size` is the download in bytes, about. `engine` is the one that reads it best on a processor.
    """

    name: str
    title: str
    billions: float
    size: int
    licence: str
    hub: str = ""
    engine: str = EMBEDDED

    @property
    def memory(self) -> int:
        """Bytes of memory that it needs at its first start, about."""
        return round(_PER_PARAMETER * self.billions * 1e9 + _BESIDES)

    @property
    def weight(self) -> int:
        """Bytes of its parameters at four bits: how much arithmetic a token takes."""
        return round(_WEIGHT * self.billions * 1e9)

    @property
    def llm(self) -> str:
        """What `llm:` takes."""
        return self.name if self.engine == EMBEDDED else f"llamacpp:{self.name}"

    @property
    def description(self) -> str:
        """A line for a list."""
        trusted = "from the Hugging Face hub, hash recorded at first use" if self.hub else "pinned by hash"
        return f"{self.title}: {trusted}"


CURATED: tuple[CuratedModel, ...] = (
    CuratedModel("smollm2", "SmolLM2-135M-Instruct", 0.135, 98_362_432, "Apache-2.0"),
    CuratedModel(
        "smollm2-360m", "SmolLM2-360M-Instruct", 0.362, 386_000_000, "Apache-2.0",
        hub="hf:HuggingFaceTB/SmolLM2-360M-Instruct-GGUF:smollm2-360m-instruct-q8_0.gguf",
    ),
    CuratedModel(
        "qwen2.5-0.5b", "Qwen2.5-0.5B-Instruct", 0.494, 676_000_000, "Apache-2.0",
        hub="hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:qwen2.5-0.5b-instruct-q8_0.gguf",
    ),
    CuratedModel(
        "gemma-3-1b", "Gemma 3 1B it", 1.0, 806_000_000, "Gemma terms of use", engine=LLAMACPP,
        hub="hf:ggml-org/gemma-3-1b-it-GGUF:gemma-3-1b-it-Q4_K_M.gguf",
    ),
    CuratedModel(
        "llama-3.2-1b", "Llama 3.2 1B Instruct", 1.24, 808_000_000, "Llama 3.2 Community Licence",
        hub="hf:bartowski/Llama-3.2-1B-Instruct-GGUF:Llama-3.2-1B-Instruct-Q4_K_M.gguf",
    ),
    CuratedModel("qwen2.5-coder-1.5b", "Qwen2.5-Coder-1.5B-Instruct", 1.53, 1_117_320_768, "Apache-2.0"),
    CuratedModel(
        "qwen2.5-1.5b", "Qwen2.5-1.5B-Instruct", 1.54, 1_117_000_000, "Apache-2.0",
        hub="hf:Qwen/Qwen2.5-1.5B-Instruct-GGUF:qwen2.5-1.5b-instruct-q4_k_m.gguf",
    ),
    CuratedModel(
        "qwen2.5-3b", "Qwen2.5-3B-Instruct", 3.09, 2_105_000_000, "Qwen Research Licence (not commercial)",
        hub="hf:Qwen/Qwen2.5-3B-Instruct-GGUF:qwen2.5-3b-instruct-q4_k_m.gguf",
    ),
    CuratedModel(
        "llama-3.2-3b", "Llama 3.2 3B Instruct", 3.21, 2_019_000_000, "Llama 3.2 Community Licence",
        hub="hf:bartowski/Llama-3.2-3B-Instruct-GGUF:Llama-3.2-3B-Instruct-Q4_K_M.gguf",
    ),
    CuratedModel(
        "gemma-3-4b", "Gemma 3 4B it", 3.88, 2_490_000_000, "Gemma terms of use", engine=LLAMACPP,
        hub="hf:ggml-org/gemma-3-4b-it-GGUF:gemma-3-4b-it-Q4_K_M.gguf",
    ),
    CuratedModel(
        "qwen2.5-7b", "Qwen2.5-7B-Instruct", 7.62, 4_683_000_000, "Apache-2.0",
        hub="hf:bartowski/Qwen2.5-7B-Instruct-GGUF:Qwen2.5-7B-Instruct-Q4_K_M.gguf",
    ),
)  # fmt: skip

BY_NAME: dict[str, CuratedModel] = {model.name: model for model in CURATED}


def curated(llm: str) -> CuratedModel | None:
    """The model that a setting `llm` names, whatever engine it is to run in; None where the list has none."""
    return BY_NAME.get(llm.removeprefix("llamacpp:").removeprefix("transformers:"))


def hub_name(name: str) -> str:
    """The `hf:` name behind a short name; any other name as it is."""
    known = BY_NAME.get(name)
    return known.hub if known is not None and known.hub else name
