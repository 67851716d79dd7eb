"""What a look at an object found: one cause, since when, and what to do. Pure."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True, rename="camel"):
    """*cause* in one clause that goes on from the object's name; *is_wrong*: a person is needed, or may be."""

    cause: str
    is_wrong: bool = True
    since_seconds: float | None = None
    do: str = ""
