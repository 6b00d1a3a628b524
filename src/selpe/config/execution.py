"""Where the work of a run is done: the settings of `execute: ray`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Execution = Literal["local", "ray"]


class RaySettings(BaseModel):
    """Workers on a Ray cluster. Prompts and synthetic texts go to them; private rows stay where the run was started."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, frozen=True, validate_default=True)

    address: str = Field(
        "local",
        pattern=r"^(local|auto|(ray://)?[A-Za-z0-9.\-\[\]:]+:[0-9]{1,5})$",
        description="`local` starts Ray here, `auto` joins the cluster of this machine; or host:port, ray://host:port.",
    )
    workers: int = Field(2, ge=1, le=10_000, description="Processes that write records, each with its own engine.")
    cpus: float = Field(1.0, ge=0.0, le=1024.0, description="Cores that a worker is given.")
    gpus: float = Field(0.0, ge=0.0, le=64.0, description="GPUs that a worker is given.")
    in_flight: int | None = Field(
        None, ge=1, le=100_000, description="Requests that a worker holds at most; default: by what its engine takes."
    )
    encode: bool = Field(True, description="Encode synthetic texts on the workers; private text never is.")
    restarts: int = Field(
        5, ge=0, le=1000, description="How often in a row a worker may be lost before it has done anything."
    )
    patience: float = Field(
        600.0,
        gt=0.0,
        le=86_400.0,
        description="Seconds without a sign of any worker, or of a busy one, to wait for it.",
    )
