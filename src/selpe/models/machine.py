"""What this machine has for running models: cores, instruction sets, memory, and which engines are installed."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import which

# What speeds models up, most telling first.
INSTRUCTION_SETS = ("amx_int8", "avx512_vnni", "avx_vnni", "avx512f", "avx2", "asimd", "i8mm", "sve")


@dataclass(frozen=True, slots=True)
class Engine:
    """A way to run models, and whether this installation has it."""

    name: str
    purpose: str
    packages: tuple[str, ...]
    install: str

    @property
    def versions(self) -> dict[str, str]:
        """The installed packages that it needs, with their versions."""
        return {package: found for package in self.packages if (found := _version(package))}

    @property
    def available(self) -> bool:
        """True when all of its packages are installed."""
        return len(self.versions) == len(self.packages)

    @property
    def remedy(self) -> str:
        """What to do on this machine where it is not installed."""
        if "openvino" in self.packages and platform.system() == "Darwin" and platform.machine() == "x86_64":
            return "OpenVINO has no build for Macs with Intel processors; use llama.cpp or a server"
        return f'pip install "{self.install}" gives {self.purpose}'


ENGINES = (
    Engine("embedded", "the default: GGUF on this processor", ("openvino", "openvino-genai", "llguidance"), "selpe"),
    Engine("llama.cpp", "any GGUF; GPUs by other builds", ("xllamacpp", "llguidance"), "selpe[llamacpp]"),
    Engine("transformers", "any Hugging Face model; GPUs", ("torch", "transformers", "llguidance"), "selpe[hf]"),
    Engine("servers", "vLLM, SGLang, llama.cpp, Ollama, OpenAI over HTTP", ("httpx",), "selpe"),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """The hardware as this process may use it. Zero bytes of memory means that the platform does not tell."""

    system: str
    processor: str
    cores: int
    usable_cores: float
    instruction_sets: tuple[str, ...]
    memory: int
    free_memory: int
    load: float
    gpu: str = ""  # what it calls itself, or its maker; empty where there is none that servers would use

    @property
    def busy(self) -> bool:
        """True when other work keeps the cores busy, so that a measurement tells too little."""
        return self.load > self.usable_cores * 0.75


def this_machine() -> Machine:
    """The machine that this process runs on."""
    processor, flags = _processor()
    memory, free = _memory()
    return Machine(
        system=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        processor=processor,
        cores=os.cpu_count() or 1,
        usable_cores=usable_cores(),
        instruction_sets=tuple(name for name in INSTRUCTION_SETS if name in flags),
        memory=memory,
        free_memory=free,
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
        gpu=_gpu(),
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _processor() -> tuple[str, frozenset[str]]:
    """The processor's name and its flags, in Linux's spelling."""
    if platform.system() == "Darwin":
        return _sysctl("machdep.cpu.brand_string"), _mac_flags()
    facts: dict[str, str] = {}
    for line in _read("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    flags = facts.get("flags") or facts.get("Features") or ""
    return facts.get("model name") or platform.processor() or platform.machine(), frozenset(flags.split())


def _mac_flags() -> frozenset[str]:
    if platform.machine() == "arm64":
        return frozenset({"asimd", "i8mm"}) if _sysctl("hw.optional.arm.FEAT_I8MM") == "1" else frozenset({"asimd"})
    told = f"{_sysctl('machdep.cpu.features')} {_sysctl('machdep.cpu.leaf7_features')}".lower()
    return frozenset(told.replace("avx512vnni", "avx512_vnni").split())


def _sysctl(name: str) -> str:
    try:
        done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def usable_cores() -> float:
    """Cores after the scheduler's mask and a container's quota."""
    mask = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _read("/sys/fs/cgroup/cpu.max").strip().partition(" ")
    if quota.isdigit() and period.isdigit():
        return min(float(mask), int(quota) / int(period))
    return float(mask)


def _memory() -> tuple[int, int]:
    """Bytes of memory, and bytes of it that are free; a container's limit counts as all there is."""
    facts = {line.split(":")[0]: line.split() for line in _read("/proc/meminfo").splitlines() if ":" in line}
    if "MemTotal" in facts:
        total = int(facts["MemTotal"][1]) * 1024
        free = int(facts.get("MemAvailable", facts["MemTotal"])[1]) * 1024
        limit = _read("/sys/fs/cgroup/memory.max").strip()
        return (min(total, int(limit)), min(free, int(limit))) if limit.isdigit() else (total, free)
    if platform.system() == "Darwin" and (told := _sysctl("hw.memsize")).isdigit():
        return int(told), 0
    return 0, 0


def _gpu() -> str:
    """The graphics processor that model servers would run on; nothing is started to find out."""
    if platform.system() == "Darwin":
        return "Apple GPU" if platform.machine() == "arm64" else ""
    for about in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in _read(str(about)).splitlines():
            if line.startswith("Model:"):
                return line.partition(":")[2].strip()
    if Path("/dev/nvidia0").exists() or (platform.system() == "Windows" and which("nvidia-smi")):
        return "NVIDIA GPU"
    return "AMD GPU" if Path("/dev/kfd").exists() else ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
