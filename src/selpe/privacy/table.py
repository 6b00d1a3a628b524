"""The private table: the only object that holds private rows, and the private steps it offers.

It can say how many units it protects, run a selection, answer a histogram query, fill tables of counts or measure
marginals with noise, and train a model on noisy sums of clipped gradients. It has no way to hand out a row, a distance,
a vote or a gradient.
Python cannot stop somebody who is determined to look inside a process they control; the boundary keeps honest code
honest, and a test walks the source to see that it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn, Protocol, TypedDict, final, get_args
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from selpe.errors import ConfigError, DataError, PrivacyError
from selpe.privacy.accounting import BoundedRange, Event
from selpe.privacy.admission import ABSTAINS, admit
from selpe.privacy.batches import assign, one_row_each
from selpe.privacy.counts import Counts, CountTable, apart, check_tables, tally
from selpe.privacy.histograms import Histogram, HistogramQuery, sizes_of
from selpe.privacy.learning import Learned, Learner, Training, Watch, check_grid, to_the_end, train
from selpe.privacy.ledger.charges import Charge, Receipt
from selpe.privacy.ledger.fingerprint import Fingerprint, fingerprint
from selpe.privacy.ledger.key import Key, make_key
from selpe.privacy.marginal_algorithms import Fit
from selpe.privacy.marginals import MarginalNoise, MarginalQuery, Marginals, marginal_charge, measure
from selpe.privacy.mechanisms import Influence, Mechanism, Selector
from selpe.privacy.noise import (
    CountNoise,
    Noise,
    count_noise_of,
    counting_charge,
    gaussian_charge,
    guarantee_of,
    priced,
)
from selpe.privacy.selections import ChoiceAsked, Selection, Tallies, digest_of, draw
from selpe.privacy.votes import Approval, Coverage, Kernel, PoolKernel, RecordVote, Representation, SetVote
from selpe.privacy.withholding import sealed
from selpe.schema import Record, Schema, Value

__all__ = ["Account", "Histogram", "Mechanism", "PrivateTable", "RecordVote", "Selection", "SetVote"]

_DECIMALS = 6  # of a noisy count: rounding it, far below the noise, keeps ledger lines short


class Account(Protocol):
    """What a table pays from: the ledger of its data set, as one run sees it."""

    @property
    def run(self) -> str:
        """The name of the run."""

    def charge(self, charge: Charge) -> Receipt:
        """Records the charge durably, or raises BudgetError."""

    def stored(self, selection: str) -> dict[str, Any] | None:
        """The result that an earlier selection of this id has stored."""

    def store(self, receipt: Receipt, result: dict[str, Any]) -> None:
        """Records the result of a paid selection durably."""


class _Payer(TypedDict):
    """Who pays, for what and for whom: what every charge says."""

    run: str
    selection: str
    unit: str


@final
class PrivateTable:
    """Private rows under a confirmed schema. `len()` is the number of units, public under replace-one.

    A row of None abstains: it did not fit, adds nothing to any choice, and counts like the others, so that no other
    row's part in a choice depends on it. `whose` are the rows' cells of the unit column, if the records lack them.
    """

    __slots__ = (
        "__account",
        "__allowed",
        "__labels",
        "__represented",
        "__rows",
        "__schema",
        "__unit",
        "__units",
    )
    __units: tuple[tuple[int, ...], ...]

    def __init__(
        self,
        rows: Iterable[Mapping[str, Value] | None],
        schema: Schema,
        *,
        account: Account,
        unit: str | None = None,
        whose: Iterable[object] | None = None,
        allow_private_text_to: str | Collection[str] = (),
    ) -> None:
        schema.require_confirmed()
        self.__schema, self.__unit, self.__units = schema, unit, ()
        # From here on no frame of ours leads to the rows, so that an error's traceback does not either.
        arriving = [([row if row is None else dict(row) for row in rows], whose if whose is None else list(whose))]
        del rows, whose
        admitted = sealed(lambda: admit(*arriving.pop(), schema, unit), "the schema's check")
        if isinstance(admitted, DataError):
            raise admitted
        self.__rows, self.__units = admitted
        self.__labels = tuple(schema.label_of(row) for row in self.__rows)
        self.__account = account
        hosts = [allow_private_text_to] if isinstance(allow_private_text_to, str) else allow_private_text_to
        self.__allowed = frozenset(_host(host) for host in hosts)
        self.__represented: tuple[Kernel, Representation] | None = None

    def __len__(self) -> int:
        """The number of units: rows, or people where a unit column is named.

        Public under replace-one, where neighbours have the same number. Under add-remove it is not covered by
        the guarantee: whoever plans with it treats it as public.
        """
        return len(self.__units)

    def __repr__(self) -> str:
        what = "records" if self.__unit is None else f"units of '{self.__unit}'"
        return f"<PrivateTable: {len(self)} {what}, fields {', '.join(self.__schema.names)}>"

    @property
    def unit(self) -> str:
        """What one unit of privacy is: 'record', or the name of the column that says whose record it is."""
        return "record" if self.__unit is None else self.__unit

    def fingerprint(self, key: Key | None = None) -> Fingerprint:
        """A keyed fingerprint, by which the owner's ledger knows the table again. For the owner, not for release."""
        known = key or make_key()  # outside the seal: what is wrong with the key's folder is nobody's secret
        return sealed(lambda: fingerprint(self.__rows, key=known), "the fingerprint")

    # -- the private step ----------------------------------------------------------------------------------------

    def select(
        self,
        pools: Mapping[str, PoolKernel],
        *,
        kernel: Kernel,
        mechanism: Mechanism,
        selection: str,
        vote: RecordVote | None = None,
        batches: int = 1,
        context: str = "",
    ) -> Selection:
        """One candidate per class and batch, chosen by the votes of the class's rows: one charge for the whole round.

        `selection` names the round within the run; a result stored under it is returned again without a draw.
        `context` may carry a hash of the pools, so that a stored result is never taken for other pools.
        """
        vote = Approval() if vote is None else vote
        if type(vote) not in get_args(RecordVote):
            raise PrivacyError("a vote on records must be one of approval, closeness and prototype")
        self.__check_pools(pools, batches)
        sizes = {label: (batches, len(pool)) for label, pool in pools.items()}
        influence = Influence(vote.step, vote.monotone, len(pools))

        def scores(selector: Selector) -> dict[str, NDArray[np.int64]]:
            return self.__record_scores(pools, kernel, vote, batches, selector)

        asked = ChoiceAsked(selection, repr(vote), context, influence, sizes, kernel.remote)
        return self.__settle(asked, mechanism, scores)

    def choose(self, vote: SetVote, *, mechanism: Mechanism, selection: str, context: str = "") -> Selection:
        """One of several sets (guides, candidate releases), chosen by the votes of all rows at once."""
        if type(vote) not in get_args(SetVote):
            raise PrivacyError("a vote on sets must be one of predictive, coverage and a vote for fields")
        if vote.options < 1 or vote.step < 1:
            raise ConfigError("a choice needs at least one option, and a judge at least one view")

        def scores(selector: Selector) -> dict[str, NDArray[np.int64]]:
            return {"": self.__set_scores(vote, selector)[np.newaxis]}

        sizes = {"": (1, vote.options)}
        asked = ChoiceAsked(selection, repr(vote), context, Influence(vote.step), sizes, vote.remote)
        return self.__settle(asked, mechanism, scores)

    def histogram(self, query: HistogramQuery, *, noise: Noise, selection: str, context: str = "") -> Histogram:
        """How the rows of each class spread their votes over its samples, with noise on every count: one charge.

        `selection` and `context` are as in `select`: a name within the run, and a hash of the samples.
        """
        if type(query) not in get_args(HistogramQuery):
            raise PrivacyError("a histogram query must be one of nearest votes and near-far votes")
        if type(noise) not in get_args(Noise):
            raise PrivacyError("noise must be GaussianNoise, or SeededNoise in tests")
        self.__check_pools(query.pools, 1)
        sizes, cost = sizes_of(query), guarantee_of(noise.sigma, query.sensitivity, noise.delta)
        charge = gaussian_charge(noise, query.sensitivity, **self.__payer(selection))

        def look() -> dict[str, Any]:
            counts = self.__noisy_counts(query, noise, selection)
            return {"counts": {label: part.tolist() for label, part in counts.items()}}

        result, replayed = self.__once(
            charge,
            digest_of(repr(query), context, repr(noise), repr(sorted(sizes.items()))),
            look,
            remote=[query.kernel.remote] if noise.reads_rows else [],
            who="a kernel or encoder",
        )
        counts = {label: np.array(result["counts"][label], dtype=np.float64).reshape(sizes[label]) for label in sizes}
        return Histogram(counts, cost, noise.name, noise.private, replayed)

    def count(
        self, tables: Sequence[CountTable], *, noise: CountNoise, selection: str, context: str = ""
    ) -> Counts:  # fmt: skip
        """How many rows fall into each cell of each table, with noise on every count: one charge for all tables.

        `selection` and `context` are as in `select`: a name within the run, and a hash of the tables' codes.
        """
        if type(noise) not in get_args(CountNoise):
            raise PrivacyError("noise on counts must be CountingNoise, or SeededCountingNoise in tests")
        check_tables(tables)
        fit, name = count_noise_of(noise, len(tables)), noise.name(len(tables))
        charge = counting_charge(noise, len(tables), **self.__payer(selection))

        def look() -> dict[str, Any]:
            # All tables are one vector, and get their noise as one.
            counts = tally(tables, self.__batch(noise.below) if noise.reads_rows else ())
            return {"counts": noise.add(counts, len(tables), selection).tolist()}

        result, replayed = self.__once(
            charge,
            digest_of(repr([(table.name, table.shape) for table in tables]), context, repr(noise)),
            look,
            remote=[axis.remote for table in tables for axis in table.axes] if noise.reads_rows else [],
            who="a coder",
        )
        counts = apart(np.array(result["counts"], dtype=np.int64), tables)
        return Counts(counts, fit.scale, fit.law, fit.guarantee, name, noise.private, replayed)

    def marginals(
        self, query: MarginalQuery, fit: Fit, *, noise: MarginalNoise, selection: str, context: str = ""
    ) -> Marginals:  # fmt: skip
        """Noisy counts of the marginals that AIM or MST chooses among those of some columns: one charge for all of it.

        `fit` makes a model of noisy counts, and sees nothing else. `selection` and `context` are as in `select`: a name
        within the run, and a hash of the columns' codes.
        """
        if type(noise) not in get_args(MarginalNoise):
            raise PrivacyError("noise on marginals must be PricedMarginalNoise, or SeededMarginalNoise in tests")

        def look() -> dict[str, Any]:
            rows = self.__batch(noise.below) if noise.reads_rows else []
            return {"marginals": [one.to_dict() for one in measure(query, rows, noise, fit, key=selection)]}

        result, replayed = self.__once(
            marginal_charge(query.algorithm, noise, **self.__payer(selection)),
            digest_of(
                repr((query.algorithm, query.names, query.shape, query.degree, query.target)), context, repr(noise)
            ),
            look,
            remote=[axis.remote for axis in query.axes] if noise.reads_rows else [],
            who="a coder, or a fit to noisy counts,",
        )
        return Marginals.released(result["marginals"], query.algorithm, noise, replayed)

    def learn(
        self,
        begin: Callable[[], Learner],
        asked: Training,
        *,
        noise: Noise,
        selection: str,
        context: str = "",
        watch: Watch = to_the_end,
    ) -> Learned:
        """Trains a model on noisy sums of clipped gradients, one row of every unit at each step: one charge for all.

        `begin` gives the learner in the state that it is to go on from; it is not asked for where the result is stored.
        `selection` and `context` are as in `select`. `watch` is told the number of each step done, and ends the
        stretch where it says True: what was paid for the rest is given up.
        """
        if type(noise) not in get_args(Noise):
            raise PrivacyError("noise must be GaussianNoise, or SeededNoise in tests")
        check_grid(len(self), noise, asked.clip)
        cost = guarantee_of(noise.sigma, asked.sensitivity, noise.delta, asked.steps)
        request = digest_of(repr(asked), context, repr(noise))
        stored = self.__account.stored(selection)
        if stored is not None:
            _require_same(stored, request, selection)
            return Learned(stored["state"], stored["steps"], cost, noise.name, noise.private, replayed=True)
        learner = begin() if noise.reads_rows else None
        if learner is not None:
            self.__check_remote(learner.remote)
        receipt = self.__account.charge(
            gaussian_charge(noise, asked.sensitivity, **self.__payer(selection), count=asked.steps)
        )
        state, done = "", 0
        if learner is not None:
            done = train(lambda: self.__batch(noise.below), learner, asked, noise=noise, key=selection, watch=watch)
            state = learner.keep()
        self.__account.store(receipt, {"request": request, "state": state, "steps": done})
        return Learned(state, done, cost, noise.name, noise.private)

    def __settle(self, asked: ChoiceAsked, mechanism: Mechanism, scores: Tallies) -> Selection:
        """The winners of a round, stored or drawn."""
        if type(mechanism) not in get_args(Mechanism):
            raise PrivacyError("a mechanism must be NoisyMax, or SeededMechanism in tests")
        selector = mechanism.calibrate(asked.influence, key=asked.selection)

        def look() -> dict[str, Any]:
            winners = draw(selector, asked.sizes, scores)
            return {"winners": {label: list(won) for label, won in winners.items()}}

        result, replayed = self.__once(
            self.__price(asked.selection, selector),
            asked.digest(mechanism),
            look,
            remote=[asked.remote] if selector.reads_rows else [],
            who="a kernel, encoder or judge",
        )
        winners = {label: tuple(int(i) for i in won) for label, won in result["winners"].items()}
        return Selection(winners, selector.guarantee, selector.name, selector.private, replayed)

    def __once(
        self,
        charge: Charge,
        request: str,
        look: Callable[[], dict[str, Any]],
        *,
        remote: Iterable[str | None],
        who: str,
    ) -> tuple[dict[str, Any], bool]:
        """Stored? Then that, and True. Else: pay, and only then look, draw, store, return."""
        stored = self.__account.stored(charge.selection)
        if stored is not None:
            _require_same(stored, request, charge.selection)
            return stored, True
        for host in remote:
            self.__check_remote(host)
        receipt = self.__account.charge(charge)
        result = {"request": request, **sealed(look, who)}
        self.__account.store(receipt, result)
        return result, False

    def __price(self, selection: str, selector: Selector) -> Charge:
        cost = selector.guarantee
        # The exponential mechanism is also ε²/8-zCDP, which composes better; permute-and-flip is not.
        events: tuple[Event | None, Event | None] = (None, None)
        if selector.name == "exponential":
            events = (BoundedRange(cost.add_remove), BoundedRange(cost.replace_one))
        return priced(selector.name, cost, private=selector.private, **self.__payer(selection), events=events)

    def __payer(self, selection: str) -> _Payer:
        return {"run": self.__account.run, "selection": selection, "unit": self.unit}

    # -- what sees rows; called under a seal ---------------------------------------------------------------------

    def __record_scores(
        self, pools: Mapping[str, PoolKernel], kernel: Kernel, vote: RecordVote, batches: int, selector: Selector
    ) -> dict[str, NDArray[np.int64]]:
        rows = one_row_each(self.__units, selector.below)
        batch = assign(len(rows), batches, selector.below)
        # After all draws: whoever abstains has had theirs, and nobody else's move.
        rows, batch = rows[rows != ABSTAINS], batch[rows != ABSTAINS]
        represented = self.__represent(kernel)
        scores = {}
        for label, pool in pools.items():
            mine = self.__members(rows, label)  # a row votes in one pool at most
            scores[label] = vote.tally(pool, represented[rows[mine]], batch[mine], batches)
        return scores

    def __set_scores(self, vote: SetVote, selector: Selector) -> NDArray[np.int64]:
        if isinstance(vote, Coverage):
            rows = self.__taking_part(selector.below)
            return vote.tally(self.__represent(vote.kernel)[rows])
        return vote.tally(self.__batch(selector.below))

    def __noisy_counts(self, query: HistogramQuery, noise: Noise, selection: str) -> dict[str, NDArray[np.float64]]:
        sizes = sizes_of(query)
        counts = {label: np.zeros(shape, dtype=np.int64) for label, shape in sizes.items()}
        if noise.reads_rows:
            rows = self.__taking_part(noise.below)
            represented = self.__represent(query.kernel)
            for label, pool in query.pools.items():
                counts[label] = query.tally(pool, represented[rows[self.__members(rows, label)]])
        # All counts of a look are one vector, and get their noise as one.
        flat = np.concatenate([counts[label].ravel() for label in sizes]) / query.parts
        noisy = noise.add(flat, selection)
        noisy = np.round(noisy, _DECIMALS) if noise.sigma else noisy  # after the noise, hence free
        ends = np.cumsum([math.prod(shape) for shape in sizes.values()])[:-1]
        return {label: part.reshape(sizes[label]) for label, part in zip(sizes, np.split(noisy, ends), strict=True)}

    def __batch(self, below: Callable[[int], int]) -> list[Record]:
        """One row of every unit, drawn anew each time."""
        return [dict(self.__rows[row]) for row in self.__taking_part(below)]

    def __taking_part(self, below: Callable[[int], int]) -> NDArray[np.intp]:
        """One row of every unit, without those that abstain."""
        rows = one_row_each(self.__units, below)
        return np.asarray(rows[rows != ABSTAINS])

    def __members(self, rows: NDArray[np.intp], label: str) -> NDArray[np.bool_]:
        """Which of these rows vote in the pool of a class: those of the class, or all where there are no classes."""
        classes = self.__schema.labels
        return np.array([not classes or self.__labels[row] == label for row in rows], dtype=np.bool_)

    def __represent(self, kernel: Kernel) -> Representation:
        """The rows as the kernel sees them: encoded once, kept in memory, for the kernel used last."""
        if self.__represented is None or self.__represented[0] is not kernel:
            self.__represented = (kernel, kernel.represent([dict(row) for row in self.__rows]))
        return self.__represented[1]

    # -- public checks -------------------------------------------------------------------------------------------

    def __check_pools(self, pools: Mapping[str, PoolKernel], batches: int) -> None:
        known = set(self.__schema.labels) or {""}
        if not pools or not known.issuperset(pools):
            raise ConfigError(
                "pools must be given per class of the schema (under '' where it has no label)",
                hint=f"the classes are {', '.join(sorted(known))}" if self.__schema.labels else "",
            )
        if batches < 1 or any(len(pool) < 1 for pool in pools.values()):
            raise ConfigError("a selection needs at least one batch and one candidate in every pool")

    def __check_remote(self, remote: str | None) -> None:
        if remote is not None and _host(remote) not in self.__allowed:
            raise PrivacyError(
                f"the encoder would send private text to {_host(remote)}",
                hint=f"use an encoder in this process, or set 'allow_private_text_to: {_host(remote)}'",
            )

    # -- no copies -----------------------------------------------------------------------------------------------

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise PrivacyError("a private table cannot be pickled or copied")

    def __copy__(self) -> NoReturn:
        raise PrivacyError("a private table cannot be copied")

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise PrivacyError("a private table cannot be copied")

    def __getstate__(self) -> NoReturn:
        raise PrivacyError("a private table has no state to show")

    def __init_subclass__(cls) -> None:
        raise PrivacyError("a private table cannot be extended")


def _require_same(stored: Mapping[str, Any], request: str, selection: str) -> None:
    if stored.get("request") != request:
        raise PrivacyError(
            f"selection '{selection}' was drawn earlier for other pools or with other settings",
            hint="go on with what it was drawn for, or give the new selection a new name: it is charged anew",
        )


def _host(address: str) -> str:
    parts = urlsplit(address if "://" in address else f"//{address}")
    return (parts.hostname or "") + (f":{parts.port}" if parts.port else "")
