"""Alias of a shard's name in what its controller sees: the same for every life and every member of a ring. Pure.

A controller that copies labels onto pod templates would roll its workloads at each handoff if it saw the name. The
alias has the name's length, so answers are searched and not decoded. The drain label comes and goes with each handoff:
it is hidden. The turn, an annotation, is another after each move: its value is empty.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Final

from kubeio.labels import MAX_NAME
from kubeio.protocol import RingKeys
from proxy.protobuf import varint

NAME_LENGTH: Final = MAX_NAME
"""Length of an alias, and so of the name of each life of a proxy."""
_LABELS, _SKIPPED = b"\x5a", b"\x7a"
"""Keys in protobuf of `ObjectMeta.labels` (field 11), and of field 15, which readers skip."""
_VALUE: Final = b"\x12"
"""Key in protobuf of the value of a map's entry (field 2)."""
_MAX_TURN: Final = 20
"""Digits of the largest resourceVersion."""

_WHOLE: Final = (b"}}\n", b"\0")
"""Ends of an event in JSON and in protobuf: nothing that is replaced can begin before them and go on after them."""


class Alias:
    """Stands for the name *shard* in a ring's objects. Raises: ValueError if the name has another length."""

    def __init__(self, shard: str, keys: RingKeys) -> None:
        if len(shard) != NAME_LENGTH:
            raise ValueError(f"{shard!r} has {len(shard)} characters, not {NAME_LENGTH}")
        digest = hashlib.sha256(keys.shard.encode()).hexdigest()
        self.name: Final = f"{keys.ring[:40].rstrip('-.')}-{digest}"[:NAME_LENGTH]
        """What the controller sees."""
        self._shard: Final = shard.encode()
        self._alias: Final = self.name.encode()
        self._hidden: Final = keys.drain.encode()
        key = re.escape(self._hidden)
        self._json_key: Final = b'"%b"' % self._hidden
        self._json_entry: Final = re.compile(rb'"%b": ?"[^"]*",' % key)
        self._json_begun: Final = re.compile(rb'"%b"(?:: ?(?:"[^"]*"?)?)?' % key)
        self._map_key: Final = b"\x0a" + varint(len(self._hidden)) + self._hidden + b"\x12"
        self._map_entry: Final = re.compile(
            rb"\x5a(?=(?:[\x00-\x7f]|[\x80-\xff][\x00-\x7f])%b)" % re.escape(self._map_key)
        )
        self._turn: Final = keys.turn.encode()
        turn = re.escape(self._turn)
        self._turn_json_key: Final = b'"%b"' % self._turn
        self._turn_json: Final = re.compile(rb'("%b": ?")([^"]*)"' % turn)
        self._turn_json_begun: Final = re.compile(rb'"%b"(?:: ?(?:"[^"]*)?)?' % turn)
        self._turn_map_key: Final = b"\x0a" + varint(len(self._turn)) + self._turn
        self._reach: Final = max(
            NAME_LENGTH, len(self._hidden) + MAX_NAME + 8, len(self._turn) + _MAX_TURN + 8
        )

    def selector(self, selector: str) -> str:
        """What asks the server for what *selector* asks for."""
        return selector.replace(self.name, self._shard.decode())

    def put_into(self, answer: bytes) -> bytes:
        """*answer* as the controller sees it, in as many bytes."""
        answer = answer.replace(self._shard, self._alias)
        if self._hidden in answer:
            # the shard's label follows: keys are sorted
            answer = self._json_entry.sub(lambda found: b" " * len(found[0]), answer)
            answer = self._map_entry.sub(_SKIPPED, answer)
        if self._turn in answer:
            answer = self._turn_json.sub(_emptied, answer)
            answer = answer.replace(self._turn_map_key + _VALUE, self._turn_map_key + _SKIPPED)
        return answer

    def settled(self, answer: bytes) -> int:
        """How many bytes of *answer* are final whatever follows: the others may be the beginning of something."""
        if answer.endswith(_WHOLE):
            return len(answer)
        begin = max(0, len(answer) - self._reach)
        return min(
            _first(answer, begin, self._shard[:2], self._shard.startswith),
            _first(answer, begin, self._json_key[:2], self._begins_json_entry),
            _first(answer, begin, _LABELS, self._begins_map_entry),
            _first(answer, begin, self._turn_json_key[:2], self._begins_turn_in_json),
            _first(answer, begin, self._turn_map_key[:2], self._turn_map_key.startswith),
        )

    def _begins_json_entry(self, tail: bytes) -> bool:
        if len(tail) <= len(self._json_key):
            return self._json_key.startswith(tail)
        return tail.startswith(self._json_key) and self._json_begun.fullmatch(tail) is not None

    def _begins_turn_in_json(self, tail: bytes) -> bool:
        if len(tail) <= len(self._turn_json_key):
            return self._turn_json_key.startswith(tail)
        return tail.startswith(self._turn_json_key) and self._turn_json_begun.fullmatch(tail) is not None

    def _begins_map_entry(self, tail: bytes) -> bool:
        size = 2 if tail[1:2] >= b"\x80" else 1
        return self._map_key.startswith(tail[1 + size :])


def _emptied(entry: re.Match[bytes]) -> bytes:
    """The entry with an empty value, in as many bytes."""
    return entry[1] + b'"' + b" " * len(entry[2])


def _first(answer: bytes, begin: int, opening: bytes, is_open: Callable[[bytes], bool]) -> int:
    """Where, from *begin* on, the first *opening* stands that begins an open end; the length if there is none."""
    at = answer.find(opening, begin)
    while at >= 0:
        if is_open(answer[at:]):
            return at
        at = answer.find(opening, at + 1)
    return len(answer) - answer.endswith(opening[:1])


class AliasedStream:
    """An answer in pieces, as they come from the server."""

    def __init__(self, alias: Alias) -> None:
        self._alias: Final = alias
        self._open = b""

    def feed(self, piece: bytes) -> bytes:
        """What can be passed on. An event or an object is never kept back: no name can begin at its last byte."""
        answer = self._alias.put_into(self._open + piece)
        end = self._alias.settled(answer)
        self._open = answer[end:]
        return answer[:end]

    def rest(self) -> bytes:
        """What was kept back; nothing follows."""
        rest, self._open = self._open, b""
        return rest
