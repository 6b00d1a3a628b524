"""A model of a few columns that agrees with noisy marginals, and lines of codes drawn from it: Private-PGM (`mbi`).

All of it is post-processing. The model is fitted to what the ledger has stored and to nothing else, so that a resumed
run has the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import mbi
import numpy as np
from numpy.typing import NDArray

from selpe.privacy.marginal_algorithms import NoisyMarginal

SURE = 0.5  # rows: noise smaller than this is none, and a fit that is asked for more precision does not end well
EXCLUDED = -1e3  # the logarithm of a chance that is none


@dataclass(frozen=True)
class GraphicalModel:
    """The distribution over codes that is nearest to some noisy marginals."""

    shape: tuple[int, ...]
    potentials: Any
    total: float = 1.0

    @classmethod
    def fitted(cls, shape: Sequence[int], tables: Sequence[NoisyMarginal]) -> GraphicalModel:
        """The model of these marginals; one in which everything is as likely where there are none."""
        names = _names(shape)
        domain = mbi.Domain(names, tuple(shape))
        measured = [
            mbi.LinearMeasurement(one.counts, tuple(names[axis] for axis in one.axes), stddev=max(SURE, one.deviation))
            for one in tables
        ]
        if not measured:
            return cls(tuple(shape), mbi.CliqueVector.zeros(domain, [(name,) for name in names]))
        made = mbi.estimation.mirror_descent(domain, measured)
        return cls(tuple(shape), made.potentials, float(made.total))

    def expected(self, axes: tuple[int, ...]) -> NDArray[np.float64]:
        """The counts of a marginal by the model, in one line."""
        wanted = tuple(_names(self.shape)[axis] for axis in axes)
        if not any({*wanted} <= node for node in self._nodes):
            table = mbi.marginal_oracles.variable_elimination(self.potentials, wanted, self.total)
        else:
            table = self._whole.project(wanted)
        found = np.asarray(table.values, dtype=np.float64).ravel()
        return np.asarray(found * (self.total / found.sum()))

    def megabytes_with(self, axes: tuple[int, ...]) -> float:
        """What the model would take in memory if it were fitted to this marginal, too."""
        cliques = [*self.potentials.cliques, tuple(_names(self.shape)[axis] for axis in axes)]
        return float(mbi.junction_tree.hypothetical_model_size(self.potentials.domain, cliques))

    def draw(self, count: int, chance: np.random.Generator, first: int | None = None) -> NDArray[np.int64]:
        """So many lines of codes, all with this code in the first column, if one is given."""
        names, marginals = _names(self.shape), self._marginals(first)
        lines = np.zeros((count, len(self.shape)), dtype=np.int64)
        known: list[str] = []
        for name in self._order:
            near = [one for one in known if any({one, name} <= node for node in self._nodes)]
            table = np.asarray(marginals.project((*near, name)).values, dtype=np.float64)
            chances = np.cumsum(table[tuple(lines[:, names.index(one)] for one in near)], axis=-1)
            chances = np.broadcast_to(chances, (count, chances.shape[-1]))
            picked = (chance.random((count, 1)) * chances[:, -1:] >= chances).sum(axis=1)
            lines[:, names.index(name)] = np.minimum(picked, chances.shape[1] - 1)
            known.append(name)
        return lines

    def _marginals(self, first: int | None) -> Any:
        """The marginals of all nodes, in a class if one is given."""
        potentials = self.potentials.expand(list(self._tree.nodes))
        if first is not None:
            clique = next(one for one in potentials.cliques if "0" in one)
            only = np.full(self.shape[0], EXCLUDED)
            only[first] = 0.0
            given = mbi.Factor(potentials.domain.project(("0",)), only)
            changed = {one: potentials[one] + given if one == clique else potentials[one] for one in potentials.cliques}
            potentials = mbi.CliqueVector(potentials.domain, potentials.cliques, changed)
        return mbi.marginal_oracles.message_passing_stable(potentials)

    @cached_property
    def _whole(self) -> Any:
        return self._marginals(None)

    @cached_property
    def _built(self) -> Any:
        cliques = [set(one) for one in self.potentials.cliques]
        return mbi.junction_tree.make_junction_tree(self.potentials.domain, cliques)

    @property
    def _tree(self) -> Any:
        return self._built[0]

    @property
    def _order(self) -> list[str]:
        """The columns so that the neighbours of each that come before it share a node of the tree."""
        return list(self._built[1])[::-1]

    @property
    def _nodes(self) -> list[set[str]]:
        return [set(node) for node in self._tree.nodes]


def _names(shape: Sequence[int]) -> tuple[str, ...]:
    return tuple(str(column) for column in range(len(shape)))
