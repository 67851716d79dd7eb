"""Coroutines that are begun by hand: one that never waits needs no timer and is not tracked.

`waits_for = call.send(None)` begins one; StopIteration has the answer of one that never waited, and `rest_of` awaits
the others to their end. `continued_by` lets a stack be followed through `rest_of`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from functools import partial
from types import GeneratorType, coroutine
from typing import Any, TypeVar

T = TypeVar("T")


@coroutine
def rest_of(call: Coroutine[Any, Any, T], waits_for: object) -> Generator[Any, Any, T]:
    """Await *call* to its end after it was begun by hand; *waits_for* is what it yielded then."""
    while True:
        try:
            sent = yield waits_for
        except BaseException as error:  # cancelled, or the awaited future failed: raised inside the call
            step = partial(call.throw, error)
        else:
            step = partial(call.send, sent)
        try:
            waits_for = step()
        except StopIteration as answer:
            result: T = answer.value
            return result


def continued_by(awaited: object) -> object:
    """The coroutine that *awaited* goes on with, if it is a `rest_of` that waits; else None."""
    if isinstance(awaited, GeneratorType) and awaited.gi_code is rest_of.__code__ and awaited.gi_frame:
        return awaited.gi_frame.f_locals["call"]
    return None
