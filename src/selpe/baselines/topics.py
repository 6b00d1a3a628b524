"""A topic model from public records alone: k-means on their vectors, and words that tell one topic from the others."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from selpe.baselines.embedding import TextKernel, TextPool
from selpe.method.quotas import apportion
from selpe.owner_only import write_whole
from selpe.schema import Record, Schema

_WORD = re.compile(r"[^\W\d_]{3,}")
# Words that say nothing about a topic. Ready-made lists go too far: scikit-learn's has 'fire', 'bill' and 'system'.
_FILLER = frozenset(
    """about after again all also and any are because been before being but can could did does down during each few for
    from had has have her here him his how into its just may more most not now off once only other our out over own per
    she should since some such than that the their them then there these they this those through too under until upon
    very was were what when where which while who will with would you your""".split()
)


@dataclass(frozen=True, slots=True)
class TopicModel:
    """Topics by their centres, each with its keywords, the most telling first."""

    centres: NDArray[np.float32]
    keywords: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.keywords)

    def save(self, path: Path) -> None:
        """Writes the topics: found again after a kill, they must be the same to the last digit."""
        content = {"keywords": self.keywords, "centres": self.centres.tolist()}
        write_whole(path, json.dumps(content))

    @classmethod
    def load(cls, path: Path) -> TopicModel:
        """The topics that were written."""
        content = json.loads(path.read_text(encoding="utf-8"))
        return cls(np.array(content["centres"], dtype=np.float32), tuple(map(tuple, content["keywords"])))


class TopicOf:
    """Which topic a record belongs to: that of the nearest centre."""

    def __init__(self, topics: TopicModel, kernel: TextKernel) -> None:
        self._topics, self.kernel = topics, kernel

    @cached_property
    def pool(self) -> TextPool:
        """The centres, as samples that records can vote for."""
        return self.kernel.pool(self._topics.centres)

    def __call__(self, record: Record) -> tuple[str, ...]:
        """The keywords of a record's topic. A function of that record alone, as private rows need it."""
        return self._topics.keywords[int(np.argmin(self.pool.distances(self.kernel.represent([record]))[0]))]


def find_topics(
    schema: Schema, kernel: TextKernel, records: Sequence[Record], *, topics: int, keywords: int, seed: int
) -> TopicModel:
    """The topics of public records; fewer than asked for where fewer records differ."""
    from sklearn.cluster import KMeans

    vectors = kernel.embed([schema.dumps(record) for record in records])
    count = min(topics, len(np.unique(vectors, axis=0)))
    found = KMeans(count, n_init=5, random_state=seed).fit(vectors.astype(np.float64))
    groups = [
        [record for record, mine in zip(records, found.labels_, strict=True) if mine == topic] for topic in range(count)
    ]
    words = [words_of(schema, group) for group in groups]
    return TopicModel(found.cluster_centers_.astype(np.float32), telling_words(words, keywords))


def words_of(schema: Schema, records: Sequence[Record]) -> Counter[str]:
    """The words in texts and categories of some records but their class, with counts."""
    told = [field.name for field in schema.fields if field.kind in ("text", "category") and field.name != schema.label]
    values = (str(record[name]) for record in records for name in told if record.get(name) is not None)
    words = (word.lower() for value in values for word in _WORD.findall(value))
    return Counter(word for word in words if word not in _FILLER)


def telling_words(topics: Sequence[Mapping[str, int]], count: int) -> tuple[tuple[str, ...], ...]:
    """The words of each topic with the highest c-TF-IDF: tf · ln(1 + A / f), A the mean number of words of a topic."""
    everywhere: Counter[str] = Counter()
    for words in topics:
        everywhere.update(words)
    mean = sum(everywhere.values()) / max(1, len(topics))
    found = []
    for words in topics:
        total = sum(words.values())
        weight = {word: number / total * np.log1p(mean / everywhere[word]) for word, number in words.items()}
        found.append(tuple(sorted(weight, key=lambda word: (-weight[word], word))[:count]))
    return tuple(found)


def shares_of(counts: NDArray[np.float64], quota: int) -> list[int]:
    """How many of a class's records each topic gets: in proportion to its noisy count, rounded and cut at 0."""
    weights = np.maximum(np.rint(counts), 0.0)
    return apportion(quota, weights.tolist() if weights.any() else [1.0] * len(weights))


def digest_of(schema: Schema, records: Sequence[Record]) -> str:
    """A hash of public records."""
    return hashlib.sha256("\n".join(schema.dumps(record) for record in records).encode()).hexdigest()
