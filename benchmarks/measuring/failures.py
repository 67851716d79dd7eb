"""Which failures of a row are what is measured going wrong, and which are faults of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.measuring.processes import Ended
from benchmarks.measuring.sightings import NotSeen
from benchmarks.measuring.wrk import WrkFailed
from kubeio.errors import KubeError

_FAILURES: Final = (NotSeen, Ended, WrkFailed, KubeError, TimeoutError)


def told(error: BaseException) -> str | None:
    """Why the row was not measured; None if *error* is a fault of ours, which goes on."""
    leaves = list(_leaves(error))
    if not all(isinstance(leaf, _FAILURES) for leaf in leaves):
        return None
    return str(leaves[0]) or type(leaves[0]).__name__


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
