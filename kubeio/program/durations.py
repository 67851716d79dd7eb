"""Durations as people write them on command lines: 15s, 1m30s, 250ms."""

from __future__ import annotations

import re
from typing import Final

from kubeio.errors import InputError

_FORM: Final = re.compile(r"\A(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?\Z")
_BARE: Final = re.compile(r"\A\d+(?:\.\d+)?\Z")
_UNITS_S: Final = (3600.0, 60.0, 1.0, 0.001)


def parse_duration(field: str, text: str, *, may_be_zero: bool = False) -> float:
    """Seconds in `90`, `90s`, `1m30s`, `1h` or `250ms`. Raises: InputError naming *field*."""
    written = text.strip()
    match = _FORM.match(f"{written}s" if _BARE.match(written) else written)
    if not written or match is None:
        raise InputError(field, text, "is not a duration", "write it as 30s, 1m30s or 1h")
    total = sum(float(part or 0) * unit_s for part, unit_s in zip(match.groups(), _UNITS_S, strict=True))
    if total <= 0 and not may_be_zero:
        raise InputError(field, text, "is no time at all", "write a duration above zero, such as 30s")
    return total


def parse_whole_seconds(field: str, text: str) -> int:
    """The same, for a Lease's duration, which the API keeps in whole seconds. Raises: InputError."""
    duration_s = parse_duration(field, text)
    if not duration_s.is_integer():
        raise InputError(field, text, "is not in whole seconds", "use 1s or more")
    return int(duration_s)
