"""Measured tables (ours): noisy counts of the private table over small public codebooks, written into new records.

Choosing among records that a model wrote blindly cannot bring in what the model does not know; a small table of counts
can. Codebooks are built from what the model wrote, rows are counted in them with noise (the only step that touches
private rows), and the counts are shrunk to the model's own shares (posterior.py). New records draw their facts
from these shares (facts.py).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selpe.config import Adjacency
from selpe.errors import ConfigError
from selpe.method.codebooks import BinnedCodes, Codebook, ListedCodes, Phrase, TextCodes, is_short
from selpe.method.facts import MeasuredField, MeasuredLook, MeasuredPair, MeasuredTables
from selpe.method.generation import Candidate
from selpe.method.phrases import PhraseWriter, of_pool
from selpe.method.posterior import Matrix, NoiseLaw, class_sizes, posterior, steadiness
from selpe.models.encoders.alone import encode_alone
from selpe.models.encoders.base import Encoder, PublicEncoder
from selpe.privacy.counts import Counts, CountTable
from selpe.privacy.measure_plan import MeasurePlan
from selpe.privacy.noise import CountingNoise, CountNoise, SeededCountingNoise
from selpe.privacy.table import PrivateTable, Selection
from selpe.privacy.votes import FieldVote
from selpe.schema import BooleanField, CategoryField, Record, Schema, TextField

SMOOTHING = 0.125  # pool records that every code is worth before one is seen, spread as in the whole pool
HEAVY = 0.85  # of all mass: the codes that have it together are refined in a second look
ALIKE = 400  # new phrases like those of heavy codes
RIDGE = 3.0  # of the regression that reads a text's class, beside vectors of length 1


@dataclass(frozen=True, slots=True)
class ClassCodes:
    """The class as a coder: one code for each label of the schema."""

    schema: Schema
    remote: None = None

    @property
    def name(self) -> str:
        """The label's name."""
        return self.schema.label or ""

    @property
    def size(self) -> int:
        """The number of classes."""
        return len(self.schema.labels)

    def code(self, row: Record) -> int:
        """The place of the row's class; −1 where it has none."""
        label = self.schema.label_of(row)
        return self.schema.labels.index(label) if label in self.schema.labels else -1


# -- which fields -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextReader:
    """Says from a text alone whether its class lies above the middle: +1, below it: −1, or on it: 0.

    It is a ridge regression of the classes, in their order, on the vectors of what the model wrote in a field.
    """

    field: str
    encoder: Encoder
    centre: NDArray[np.float64]
    weights: NDArray[np.float64]
    middle: float

    @classmethod
    def trained(cls, field: str, encoder: Encoder, vectors: Matrix, classes: NDArray[np.float64]) -> TextReader:
        """A reader of what the model wrote: one vector and the place of one class for each text."""
        centre = vectors.mean(axis=0)
        apart = vectors - centre
        squares = apart.T @ apart + RIDGE * np.eye(vectors.shape[1])
        weights = np.linalg.solve(squares, apart.T @ (classes - classes.mean()))
        return cls(field, encoder, centre, weights, float(np.median(apart @ weights)))

    def side(self, row: Record) -> float:
        """Of a row's text; a missing one lies on no side."""
        text = row.get(self.field)
        if text is None:
            return 0.0
        vector = encode_alone(self.encoder, [str(text)])[0].astype(np.float64)  # alone, as for codes
        return float(np.sign((vector - self.centre) @ self.weights - self.middle))


class Association:
    """A FieldJudge (privacy/votes.py): how a row's value goes with its class, field by field.

    Codes and classes stand in an order: numbers and dates by size, other codes by the classes for which the model
    writes them; classes as in the schema. A row speaks for a field where its code and its class lie on the same side of
    the middle; a text's side is what its reader says, where there is one. Fields that are no texts also have an option
    for the other direction ('one falls as the other rises'). Without a label a row speaks for the fields whose value
    the model would have written least.
    """

    def __init__(
        self,
        schema: Schema,
        codebooks: Sequence[Codebook],
        prior: Mapping[str, Matrix],
        readers: Mapping[str, TextReader] | None = None,
    ) -> None:
        self._classes = ClassCodes(schema)
        self._codebooks = codebooks
        self._readers = readers or {}
        self._options: list[tuple[int, Matrix]] = []  # the codebook, and what each class and code says
        for number, book in enumerate(codebooks):
            if not schema.labels:
                self._options.append((number, _unlikely(prior[book.name][0])[np.newaxis]))
                continue
            agree = _agreement(book, prior[book.name])
            self._options += (
                [(number, agree)] if isinstance(book, TextCodes) else [(number, agree), (number, 1 - agree)]
            )

    @property
    def options(self) -> int:
        """Every field, some twice: once for each direction."""
        return len(self._options)

    @property
    def remote(self) -> str | None:
        """Where texts are encoded."""
        return next((one.remote for one in self._codebooks if one.remote is not None), None)

    def field(self, option: int) -> str:
        """The name of the field that an option stands for."""
        return self._codebooks[self._options[option][0]].name

    def votes(self, row: Record) -> NDArray[np.float64]:
        """Each from 0 to 1."""
        label = self._classes.code(row) if self._classes.size else 0
        if label < 0:
            return np.full(self.options, np.nan)
        codes = [-1 if book.name in self._readers else book.code(row) for book in self._codebooks]
        said = [table[label, codes[number]] if codes[number] >= 0 else np.nan for number, table in self._options]
        for option, (number, _) in enumerate(self._options):
            if (reader := self._readers.get(self._codebooks[number].name)) is not None:
                said[option] = 0.5 + 0.5 * reader.side(row) * np.sign(label - (self._classes.size - 1) / 2)
        return np.array(said)


def _agreement(codebook: Codebook, prior: Matrix) -> Matrix:
    """For each class and code: 1 where both lie on the same side of the middle, 0 where not, ½ where one lies on it.

    A value that nearly all records have says little and a rare one much, so that a field is in the balance where its
    values are as the model says: else it would seem to go with the class wherever one class has most of the rows.
    """
    if isinstance(codebook, BinnedCodes):
        order = np.arange(codebook.size, dtype=np.float64)
    else:
        order = (prior * np.arange(len(prior))[:, None]).sum(axis=0) / prior.sum(axis=0)
    shares = prior.mean(axis=0)
    if isinstance(codebook, BinnedCodes) and codebook.field.optional:
        shares = np.append(shares[:-1], 0.0)
    below = np.array([shares[order < one].sum() + shares[order == one].sum() / 2 for one in order]) / shares.sum()
    side = np.sign(np.round(below - 0.5, 9))
    lean = float(side @ shares / shares.sum())
    side = (side - lean) / (1 + abs(lean))
    if isinstance(codebook, BinnedCodes) and codebook.field.optional:
        side[-1] = 0.0  # a missing number is neither high nor low
    classes = np.sign(np.arange(len(prior)) - (len(prior) - 1) / 2)
    return np.asarray(0.5 + 0.5 * np.outer(classes, side))


def _unlikely(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each code the share of what is likelier, and half of what is as likely."""
    return np.array([shares[shares > one].sum() + shares[shares == one].sum() / 2 for one in shares])


# -- measuring --------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Codebooks:
    """Builds codebooks from what the model writes, and says what its own shares of their codes are. All is public."""

    schema: Schema
    plan: MeasurePlan
    encoder: Encoder
    phrases: PhraseWriter
    seed: int = 0
    public_encoder: PublicEncoder | None = None

    def codebook(self, name: str, pool: Mapping[str, Sequence[Record]], *, phrases: bool) -> Codebook:
        """The codebook of a field, from what the model has written for it; `phrases` has it write more."""
        one, records = self.schema.field(name), [record for found in pool.values() for record in found]
        if isinstance(one, TextField):
            known = of_pool(one, ((record, label or None) for label, found in pool.items() for record in found))
            if phrases and is_short(one, self.schema):
                known = list(dict.fromkeys([*self.phrases.write(one, self.plan.phrases), *known]))
            if not known and phrases and is_short(one, self.schema):
                raise ConfigError(f"the model has written nothing for '{name}'", where="measure")
            known = known or [Phrase(one.title)]  # always missing in the pool: there or not is all there is to count
            clusters = self.plan.clusters if phrases else min(32, self.plan.clusters)
            return TextCodes(
                one, known, self._vectors(known), encoder=self.encoder, clusters=clusters, seed=self.seed
            )  # fmt: skip
        if isinstance(one, CategoryField | BooleanField):
            return ListedCodes(one)
        values = [record[name] for record in (*records, *self.schema.examples) if record.get(name) is not None]
        return BinnedCodes(one, values, self.plan.bins)  # type: ignore[arg-type]

    def prior(self, codebook: Codebook, pool: Mapping[str, Sequence[Record]]) -> Matrix:
        """The model's own shares of the codes, one row a class."""
        seen = self._seen(codebook, pool)
        whole = seen.sum(axis=0) + 0.5
        seen += SMOOTHING * codebook.size * whole / whole.sum()
        return np.asarray(seen / seen.sum(axis=1, keepdims=True))

    def _seen(self, codebook: Codebook, pool: Mapping[str, Sequence[Record]]) -> Matrix:
        """How often each class of the pool has each code."""
        seen = np.zeros((len(pool), codebook.size))
        for row, records in zip(seen, pool.values(), strict=True):
            codes = self._codes(codebook, records)
            np.add.at(row, codes[codes >= 0], 1.0)
        return seen

    def _codes(self, codebook: Codebook, records: Sequence[Record]) -> NDArray[np.intp]:
        """The codes of public records; texts by vectors that are kept."""
        if not isinstance(codebook, TextCodes):
            return codebook.codes(records)
        texts = [record.get(codebook.name) for record in records]
        codes = np.full(len(texts), codebook.size - 1 if codebook.field.optional else -1, dtype=np.intp)
        there = [i for i, text in enumerate(texts) if text is not None]
        if there:
            codes[there] = codebook.coded(self._vectors([Phrase(str(texts[i])) for i in there]))
        return codes

    def _vectors(self, phrases: Sequence[Phrase]) -> Matrix:
        encode = self.encoder.encode if self.public_encoder is None else self.public_encoder.encode_public
        distinct = list(dict.fromkeys(phrase.text for phrase in phrases))
        place = {text: number for number, text in enumerate(distinct)}
        return encode(distinct).astype(np.float64)[[place[phrase.text] for phrase in phrases]]


@dataclass(slots=True, kw_only=True)
class Measuring(Codebooks):
    """Has rows counted in codebooks, and reads the counts. `choose` makes a private choice and tells of it."""

    private: PrivateTable
    units: int
    adjacency: Adjacency
    choose: Callable[[str, float, FieldVote, str], Selection]
    tell: Callable[[str, Counts], None]
    test_seed: int | None = None

    def measure(self, pools: Mapping[str, Sequence[Candidate]]) -> MeasuredTables:
        """The measured tables, in the light of what the model has written by itself."""
        pool = {label: tuple(candidate.record for candidate in found) for label, found in pools.items()}
        names = self._names(pool)
        books = {name: self.codebook(name, pool, phrases=True) for name in self._ordered(names)}
        priors = {name: self.prior(book, pool) for name, book in books.items()}
        beliefs, looks = priors, list[MeasuredLook]()
        for number, epsilon in enumerate(self.plan.looks, 1):
            counts = self._count(f"measure-{number}", epsilon, books)
            law = NoiseLaw(counts.law, counts.scale)
            tables = {name: np.atleast_2d(counts.tables[self._table([books[name]]).name]) for name in books}
            sizes = class_sizes([table.astype(np.float64) for table in tables.values()], law, self.units)
            found = {name: posterior(tables[name].astype(np.float64), beliefs[name], sizes, law) for name in books}
            own = found  # what the model says of classes is judged by its own shares, also after an earlier look
            if number > 1:
                own = {name: posterior(tables[name].astype(np.float64), priors[name], sizes, law) for name in books}
            fields = {
                name: MeasuredField(
                    book,
                    priors[name],
                    found[name].shares,
                    tables[name],
                    found[name].prior_kept,
                    own[name].believed,
                    steadiness(self._seen(book, pool)),
                )
                for name, book in books.items()
            }
            looks.append(MeasuredLook(f"measure-{number}", counts, fields))
            if number < len(self.plan.looks) and math.isfinite(law.scale):  # where nothing was counted, codes stay
                books, beliefs = self._refined(books, {name: one.shares for name, one in found.items()})
                priors = {name: self.prior(book, pool) for name, book in books.items()}
        return MeasuredTables(
            self.schema, fields, self._pairs(fields, counts, law, sizes, pool), law, tuple(looks), pool
        )

    def _names(self, pool: Mapping[str, Sequence[Record]]) -> tuple[str, ...]:
        """The fields to measure: as planned, and others by the votes of private rows, one after the other."""
        names = list(self.plan.fields)
        if not self.plan.choices:
            return self.plan.fields
        left = [self.codebook(name, pool, phrases=False) for name in self.plan.candidates if name not in names]
        prior = {book.name: self.prior(book, pool) for book in left}
        readers = self._readers([book.name for book in left if isinstance(book, TextCodes)], pool)
        for number, epsilon in enumerate(self.plan.choices, 1):
            judge = Association(self.schema, left, prior, readers)
            made = self.choose(f"field-{number}", epsilon, FieldVote(judge), _digest(left))
            names.append(judge.field(made.winner))
            left = [book for book in left if book.name != names[-1]]
        return tuple(names)

    def _readers(self, names: Sequence[str], pool: Mapping[str, Sequence[Record]]) -> dict[str, TextReader]:
        """A reader for each text field of which the model has written something in two classes or more."""
        found = {}
        for name in names if self.schema.labels else ():
            told = [
                (Phrase(str(record[name])), place)
                for place, records in enumerate(pool.values())
                for record in records
                if record.get(name) is not None
            ]
            places = np.array([place for _, place in told], dtype=np.float64)
            if len(np.unique(places)) > 1:
                vectors = self._vectors([phrase for phrase, _ in told])
                found[name] = TextReader.trained(name, self.encoder, vectors, places)
        return found

    def _ordered(self, names: Iterable[str]) -> list[str]:
        wanted = {*names, *(name for pair in self.plan.pairs for name in pair)}
        return [name for name in self.schema.names if name in wanted]

    def _table(self, books: Sequence[Codebook]) -> CountTable:
        alone = not self.schema.labels or len(books) > 1
        return CountTable(tuple(books) if alone else (ClassCodes(self.schema), *books))

    def _count(self, name: str, epsilon: float, books: Mapping[str, Codebook]) -> Counts:
        tables = [self._table([book]) for book in books.values()]
        tables += [self._table([books[one], books[other]]) for one, other in self.plan.pairs]
        delta = self.plan.delta
        noise: CountNoise = CountingNoise(epsilon, self.adjacency, delta)
        if self.test_seed is not None:
            noise = SeededCountingNoise(epsilon, self.test_seed, self.adjacency, delta, test_only=True)
        made = self.private.count(tables, noise=noise, selection=name, context=_digest(list(books.values())))
        self.tell(name, made)
        return made

    def _pairs(
        self,
        fields: Mapping[str, MeasuredField],
        counts: Counts,
        law: NoiseLaw,
        sizes: NDArray[np.float64],
        pool: Mapping[str, Sequence[Record]],
    ) -> tuple[MeasuredPair, ...]:
        """How pairs of fields go together beyond what the classes say of each alone, by the counts and by the pool."""
        weights, found = sizes / sizes.sum(), list[MeasuredPair]()
        for names in self.plan.pairs:
            one, other = (fields[name] for name in names)
            seen = counts.tables[self._table([one.codebook, other.codebook]).name]
            alone = _apart(weights, one.prior, other.prior)
            model = (self._together(one.codebook, other.codebook, weights, pool) + alone) / 2  # pools are small
            flat = posterior(
                seen.reshape(1, -1).astype(np.float64), model.reshape(1, -1), sizes.sum(keepdims=True), law
            )
            tilt = flat.shares.reshape(seen.shape) / _apart(weights, one.shares, other.shares)
            found.append(MeasuredPair(names, np.asarray(tilt), seen, np.asarray(model / alone)))
        return tuple(found)

    def _together(
        self, one: Codebook, other: Codebook, weights: NDArray[np.float64], pool: Mapping[str, Sequence[Record]]
    ) -> Matrix:
        """The shares of pairs of codes in the pool, its classes by these weights."""
        shares = np.zeros((one.size, other.size))
        for weight, records in zip(weights, pool.values(), strict=True):
            np.add.at(shares, (self._codes(one, records), self._codes(other, records)), weight / len(records))
        return shares

    # -- a second look: finer where rows are ----------------------------------------------------------------------

    def _refined(
        self, books: Mapping[str, Codebook], shares: Mapping[str, Matrix]
    ) -> tuple[dict[str, Codebook], dict[str, Matrix]]:
        """Codebooks with more and finer codes where the first look found rows, and what it says of them."""
        finer, beliefs = dict(books), dict(shares)
        for name, book in books.items():
            one = book.field
            if isinstance(book, TextCodes) and isinstance(one, TextField) and is_short(one, self.schema):
                finer[name], beliefs[name] = self._finer(one, book, shares[name])
        return finer, beliefs

    def _finer(self, one: TextField, book: TextCodes, shares: Matrix) -> tuple[TextCodes, Matrix]:
        mass = shares.mean(axis=0)[: len(book.members)]
        order = np.argsort(-mass, kind="stable")
        heavy = order[: int(np.searchsorted(np.cumsum(mass[order]) / mass.sum(), HEAVY)) + 1]
        groups = [
            ([phrase.text for phrase in book.members[k]], round(ALIKE * mass[k] / mass[heavy].sum())) for k in heavy
        ]
        known = [phrase for members in book.members for phrase in members]
        known = list(dict.fromkeys([*known, *self.phrases.alike(one, groups)]))
        vectors = self._vectors(known)
        parents = book.coded(vectors)
        inside = np.isin(parents, heavy)
        fine = TextCodes(
            one, [p for p, there in zip(known, inside, strict=True) if there], vectors[inside],
            encoder=self.encoder, clusters=self.plan.fine_clusters, seed=self.seed,
        )  # fmt: skip
        light = np.setdiff1d(np.arange(len(book.members)), heavy)
        centres = np.vstack([fine.centres, book.centres[light]])
        finer = TextCodes(one, known, vectors, encoder=self.encoder, clusters=0, seed=0, centres=centres)
        return finer, self._inherited(finer, book, shares)

    def _inherited(self, finer: TextCodes, book: TextCodes, shares: Matrix) -> Matrix:
        """What is believed of finer codes: each has its part of what was found of the coarse code it belongs to."""
        parents = book.coded(finer.centres)
        labels = self.schema.labels or ("",)
        sizes = np.array(
            [[0.5 + sum(p.label in (label, None) for p in members) for members in finer.members] for label in labels]
        )
        believed = np.empty((len(labels), finer.size))
        for code, parent in enumerate(parents):
            family = parents == parent
            believed[:, code] = shares[:, parent] * sizes[:, code] / sizes[:, family].sum(axis=1)
        if finer.field.optional:
            believed[:, -1] = shares[:, -1]
        return np.asarray(believed / believed.sum(axis=1, keepdims=True))


def _apart(weights: NDArray[np.float64], one: Matrix, other: Matrix) -> Matrix:
    """The shares of pairs of codes where two fields have nothing in common but the class."""
    return np.asarray(np.einsum("c,ca,cb->ab", weights, one, other))


def _digest(books: Sequence[Codebook]) -> str:
    """A hash of codebooks, so that stored counts are never taken for those of other codes."""
    found = hashlib.sha256()
    for book in books:
        found.update(repr(book.to_dict()).encode())
        if isinstance(book, TextCodes):
            found.update(np.round(book.centres, 6).tobytes())
    return found.hexdigest()
