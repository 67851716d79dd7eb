"""For which numbers of replicas a capacity is measured, and how exactly."""

from __future__ import annotations

from typing import Final

from kubeio.errors import InputError
from loadtest.inputs.fields import share
from loadtest.targets.target import Way

_MOST: Final = 64
_FINEST: Final = 0.01


def parse_replicas(text: str) -> tuple[int, ...]:
    """Numbers of replicas in `1,2,3`, in this order. Raises: InputError."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdigit() and 1 <= int(part) <= _MOST for part in parts):
        remedy = f"write numbers from 1 to {_MOST} with commas between them, such as 1,2,3"
        raise InputError("--replicas", text, "are not numbers of replicas", remedy)
    return tuple(int(part) for part in parts)


def parse_precision(text: str) -> float:
    """A part of one in `3%`. Raises: InputError."""
    part = share(text)
    if part is None or not _FINEST <= part <= 1:
        raise InputError("--precision", text, "is no precision", "write a share from 1% to 100%, such as 3%")
    return part


def parse_imbalance(percent: int | None) -> int | None:
    """*percent* as `spec.imbalancePercent` takes it. Raises: InputError."""
    if percent is not None and not 1 <= percent <= 100:
        raise InputError(
            "--imbalance-percent", percent, "is no percentage", "write a whole number from 1 to 100"
        )
    return percent


def parse_baselines(text: str) -> list[Way]:
    """`leader-elected,kopf` as ways, each once. Raises InputError."""
    known = [way.value for way in Way if way is not Way.SHARDED]
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in known:
            raise InputError("--baseline", word, "is no baseline", f"name {' or '.join(known)}")
    return [Way(word) for word in dict.fromkeys(words)]
