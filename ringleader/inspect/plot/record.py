"""The file that a timeline is drawn from: one JSON object per line, one line per moment. Pure but for the file.

    {"time": "2026-11-21T12:00:01.5Z", "moved": 120, "inFlight": 8, "unowned": 0, "members": {"a": 512, "b": 488}}

Owns this form, also what is said about broken lines. `recording` writes it; any other program may.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from kubeio.errors import InputError

MOST_TOLD: Final = 10
FEWEST: Final = 2
"""Moments that make a timeline."""


class Moment(msgspec.Struct, frozen=True, rename="camel"):
    """One ring at one time.

    *moved*: objects that changed their owner since the recording began; *members*: objects that each member has.
    """

    time: datetime
    moved: int
    in_flight: int = 0
    unowned: int = 0
    members: dict[str, int] = {}


def encode(moment: Moment) -> bytes:
    """The line of *moment*."""
    return msgspec.json.encode(moment) + b"\n"


def read_record(path: Path, *, told: Callable[[str], None]) -> list[Moment]:
    """The moments that *path* holds, in order of time; broken lines are *told* and left out.

    Raises: InputError if it cannot be read, or if fewer than two moments are in it.
    """
    try:
        with path.open("rb") as stream:
            moments = _moments(stream, path.name, told)
    except OSError as error:
        remedy = "name a file that plot timeline --record wrote"
        raise InputError("FILE", str(path), f"cannot be read ({error.strerror})", remedy) from error
    if len(moments) < FEWEST:
        problem = "holds nothing to draw" if not moments else "holds one moment only, and that is no timeline"
        raise InputError("FILE", str(path), problem, "record a rebalance with plot timeline FILE --record")
    return sorted(moments, key=lambda moment: moment.time)


def _moments(stream: BinaryIO, name: str, told: Callable[[str], None]) -> list[Moment]:
    decoder = msgspec.json.Decoder(Moment)
    moments = []
    broken = 0
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            moments.append(_in_utc(decoder.decode(line)))
        except msgspec.DecodeError as error:
            broken += 1
            if broken <= MOST_TOLD:
                told(f"{name}, line {number}: {error}; left out")
    if broken > MOST_TOLD:
        told(f"{name}: {broken - MOST_TOLD} more lines are broken and left out")
    return moments


def _in_utc(moment: Moment) -> Moment:
    """*moment* with a time that can be compared: one without a zone is UTC. Raises: msgspec.ValidationError."""
    numbers = (moment.moved, moment.in_flight, moment.unowned, *moment.members.values())
    if min(numbers) < 0:
        raise msgspec.ValidationError("a number of objects is below 0")
    time = moment.time if moment.time.tzinfo else moment.time.replace(tzinfo=UTC)
    return msgspec.structs.replace(moment, time=time.astimezone(UTC))
