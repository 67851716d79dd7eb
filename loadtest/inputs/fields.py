"""Fields of a YAML mapping, read with one clear error for each kind of mistake. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from kubeio.errors import InputError
from kubeio.suggestions import nearest

_DURATION: Final = re.compile(r"\A(\d+(?:\.\d+)?)(ms|s|m|h)\Z")
_SHARE: Final = re.compile(r"\A(\d+(?:\.\d+)?)\s*%\Z")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def check_names(where: str, document: Mapping[str, object], known: Iterable[str]) -> None:
    """Raises InputError for the first field of *document* that is not *known*, with the nearest name."""
    allowed = list(known)
    for name in document:
        if name not in allowed:
            raise InputError(where, name, "is not a field here", nearest(str(name), allowed))


def mapping(where: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise InputError(where, value, "is not a mapping", "write it as `name: value` lines")
    return value


def sequence(where: str, value: object) -> list[object]:
    if not isinstance(value, list):
        raise InputError(where, value, "is not a list", "write one line with `- ` for each entry")
    return value


def number(where: str, value: object, *, at_least: float = 0.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= at_least:
        raise InputError(where, value, "is not a number that fits", f"write a number from {at_least:g} on")
    return float(value)


def share(text: object) -> float | None:
    """0.3 for `30%`; None if *text* is no percentage."""
    found = _SHARE.match(text) if isinstance(text, str) else None
    return float(found[1]) / 100 if found else None


def seconds(where: str, value: object) -> float:
    """Seconds of `250ms`, `20s`, `5m` or `1h`, or of a bare number."""
    found = _DURATION.match(value) if isinstance(value, str) else None
    if found:
        return float(found[1]) * _SECONDS[found[2]]
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InputError(where, value, "is not a duration", "write it as 250ms, 20s, 5m or 1h")
    return float(value)
