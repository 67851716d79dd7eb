"""Comparing resourceVersions. Pure.

The API promises since Kubernetes 1.35 that versions of one resource compare as integers; every server with
etcd behind it has always kept that. A version that is no number (an aggregated server's own) compares as
unknown: nothing is ever judged older by it.
"""

from __future__ import annotations

UNKNOWN = -1


def number(version: str) -> int:
    """*version* as an integer, or `UNKNOWN`."""
    return int(version) if version.isdecimal() else UNKNOWN


def order(version: str) -> int:
    """*version* as an integer to compare by; 0 if it is no number: then nothing is known to be newer."""
    try:
        return int(version or 0)
    except ValueError:
        return 0


def is_older(version: str, than: str) -> bool:
    """Whether *version* is certainly older than the version *than*."""
    return UNKNOWN != number(version) < number(than)


def newest(first: str, second: str) -> str:
    """The newer of two versions; *second* unless it is certainly older."""
    return first if is_older(second, first) else second
