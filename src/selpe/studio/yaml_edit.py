"""Changes to a YAML text that leave its comments where they are.

The parser hands every comment to the thing that stands before it. What is replaced or removed gives the comments
behind it on to its neighbour, so that nothing a person wrote between two things is lost with one of them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import CommentMark
from ruamel.yaml.tokens import CommentToken

from selpe.errors import SelPEError
from selpe.yaml import parse_yaml

_EOL = {CommentedMap: 2, CommentedSeq: 0}  # where the parser keeps the comment behind an entry


def edited(text: str, change: Callable[[CommentedMap], None], *, where: str, error: type[SelPEError]) -> str:
    """The text after a change of what it says."""
    parse_yaml(text, where=where, error=error)  # with our limits and our words
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    content = yaml.load(text)
    if not isinstance(content, CommentedMap):
        raise error("the file must be a mapping", where=where)
    change(content)
    stream = io.StringIO()
    yaml.dump(content, stream)
    return stream.getvalue()


def assign(content: CommentedMap, key: str, value: Any, *, before: str = "") -> None:
    """Sets one entry; a new one comes before another, or last. Nothing happens where it says so already."""
    if key in content:
        if _same(content[key], value):
            return
        tail = _take_tail(content, key)
        content[key] = _noted(value)
        _give_tail(content, key, tail)
    elif before in content:
        content.insert(list(content).index(before), key, _noted(value))
    else:
        content[key] = _noted(value)


def remove(content: CommentedMap | CommentedSeq, key: Any) -> None:
    """Removes one entry; comments behind it go to the entry before it, else to the one that follows."""
    keys = list(content) if isinstance(content, CommentedMap) else list(range(len(content)))
    place = keys.index(key)
    tail = _take_tail(content, key)
    if place:
        _give_tail(content, keys[place - 1], tail)
    elif len(keys) > 1:
        _give_tail(content, keys[1], tail)
    del content[key]


def _same(old: Any, new: Any) -> bool:
    return type(old) is type(new) and bool(old == new) if isinstance(new, bool) else _plain(old) == _plain(new)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return [(str(key), _plain(entry)) for key, entry in value.items()]
    return [_plain(entry) for entry in value] if isinstance(value, list) else value


def _noted(value: Any) -> Any:
    """Plain data as the parser's own kinds, which can carry comments."""
    if isinstance(value, Mapping):
        return CommentedMap((key, _noted(entry)) for key, entry in value.items())
    return CommentedSeq(_noted(entry) for entry in value) if isinstance(value, list) else value


def _last_leaf(content: Any, key: Any) -> tuple[Any, Any]:
    """The container and the key of the last thing that stands within an entry: comments behind the entry are there."""
    inner = content[key]
    while isinstance(inner, CommentedMap | CommentedSeq) and len(inner):
        content, key = inner, list(inner)[-1] if isinstance(inner, CommentedMap) else len(inner) - 1
        inner = content[key]
    return content, key


def _take_tail(content: Any, key: Any) -> str:
    """Takes away, and returns, the lines of comment behind an entry; what stands on its own line stays."""
    holder, last = _last_leaf(content, key)
    notes = holder.ca.items.get(last)
    place = _EOL[type(holder)]
    token = notes[place] if notes and len(notes) > place else None
    if not isinstance(token, CommentToken):
        return ""
    own, _, rest = token.value.partition("\n")
    if not rest:
        return ""
    if own.strip():
        token.value = own + "\n"
    else:
        notes[place] = None
    return str(rest)


def _give_tail(content: Any, key: Any, tail: str) -> None:
    """Puts lines of comment behind an entry."""
    if not tail:
        return
    holder, last = _last_leaf(content, key)
    place = _EOL[type(holder)]
    notes = holder.ca.items.setdefault(last, [None] * 4)
    notes += [None] * (place + 1 - len(notes))
    token = notes[place]
    if isinstance(token, CommentToken):
        token.value = token.value + tail if token.value.endswith("\n") else f"{token.value}\n{tail}"
    else:
        notes[place] = CommentToken(f"\n{tail}", start_mark=CommentMark(0))
