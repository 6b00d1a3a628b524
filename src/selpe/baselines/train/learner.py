"""A torch model in training: the gradient of each record by itself, and Adam on what the private table lets out.

A record's gradient is computed alone, by torch's own backward pass over that record. In a batch, its last digits would
depend on the other records, and the guarantee rests on each gradient being a function of its own record (PROOF.md, A1).
Records are spread over the cores instead (alone.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from selpe.baselines.train.alone import each_alone, workers_for
from selpe.baselines.train.weights import libraries
from selpe.errors import RunError
from selpe.lasting import put_for_good
from selpe.owner_only import make_folder, open_bytes
from selpe.schema import Record


class Task(Protocol):
    """What a model learns to do with a record."""

    def read(self, record: Record) -> Any:
        """What the model sees of a record. Asked for one record after the other."""

    def loss(self, seen: Any) -> Any:
        """How badly the model does on it, as a tensor of one number. Asked for by several threads at once."""


class TorchLearner:
    """Meets `Learner` (privacy/learning.py). It keeps parameters and the optimiser's state, and nothing of a record."""

    def __init__(
        self, model: Any, task: Task, *, units: int, rate: float, folder: Path, remote: str | None = None
    ) -> None:
        self._torch = libraries()[0]
        self._task = task
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._rate, self._units = rate, max(1, units)
        self.restart()
        self._folder = folder
        self.remote = remote
        self._workers = workers_for(model)

    @property
    def size(self) -> int:
        """The number of trained parameters."""
        return sum(int(parameter.numel()) for parameter in self._parameters)

    def gradients(self, records: Sequence[Record]) -> Iterator[NDArray[np.float32]]:
        """The gradient of each record's loss at the present parameters; a few records at a time, each by itself."""
        seen = (self._task.read(record) for record in records)
        yield from each_alone(self._torch, self._gradient, seen, self._workers)

    def _gradient(self, seen: Any) -> NDArray[np.float32]:
        torch = self._torch
        with torch.enable_grad():
            parts = torch.autograd.grad(self._task.loss(seen), self._parameters, allow_unused=True)
        flat = [
            torch.zeros_like(parameter).flatten() if part is None else part.flatten()
            for part, parameter in zip(parts, self._parameters, strict=True)
        ]
        found: NDArray[np.float32] = torch.cat(flat).float().cpu().numpy()
        return found

    def step(self, total: NDArray[np.float64]) -> None:
        """One step of Adam along the noisy mean."""
        mean = self._torch.from_numpy(total / self._units)
        place = 0
        for parameter in self._parameters:
            part = mean[place : place + parameter.numel()].view_as(parameter)
            parameter.grad = part.to(parameter.device, parameter.dtype)
            place += parameter.numel()
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)

    def practise(self, records: Sequence[Record]) -> None:
        """A step on public records: their mean gradient, without clipping or noise."""
        total = np.zeros(self.size, dtype=np.float64)
        for gradient in self.gradients(records):
            total += gradient
        self.step(total * (self._units / max(1, len(records))))

    def restart(self, rate: float | None = None) -> None:
        """Makes the optimiser forget, and go on at another rate or its own.

        After public steps, its idea of a gradient's size would not fit noisy ones.
        """
        self._optimiser = self._torch.optim.Adam(self._parameters, lr=rate or self._rate)

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def keep(self) -> str:
        """The hash of the state, once it is on the disk under that name."""
        make_folder(self._folder)
        part = self._folder / "state.part"
        state = {"parameters": [p.detach().cpu() for p in self._parameters], "optimiser": self._optimiser.state_dict()}
        with open_bytes(part) as file:
            self._torch.save(state, file)
        digest = _sha256(part)
        put_for_good(part, self._path(digest))
        return digest

    def load(self, digest: str) -> None:
        """Takes up a kept state; raises RunError where its file is gone or is not what it was."""
        path = self._path(digest)
        if not path.exists() or _sha256(path) != digest:
            raise RunError(
                "the checkpoint of this training is missing or damaged, and what was drawn cannot be drawn again",
                where=str(path),
                hint="put the file back, or start a new run",
            )
        state = self._torch.load(path, map_location="cpu", weights_only=True)
        with self._torch.no_grad():
            for parameter, value in zip(self._parameters, state["parameters"], strict=True):
                parameter.copy_(value)
        self._optimiser.load_state_dict(state["optimiser"])

    def forget_all_but(self, digest: str) -> None:
        """Deletes the files of earlier states."""
        for path in self._folder.glob("*.pt"):
            if path != self._path(digest):
                path.unlink()

    def _path(self, digest: str) -> Path:
        return self._folder / f"{digest[:32]}.pt"


def _sha256(path: Path) -> str:
    content = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            content.update(block)
    return content.hexdigest()
