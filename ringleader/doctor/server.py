"""Checks of the server: its version, and the features that cost or save much. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ringleader.doctor.checks import Check, Told, warning
from ringleader.doctor.seen import Seen

OLDEST: Final = (1, 31)
WATCH_LIST: Final = "WatchList"
CONSISTENT: Final = "ConsistentListFromCache"
SHARDED: Final = "ShardedListAndWatch"
FEATURES: Final = (WATCH_LIST, CONSISTENT, SHARDED)


def judge_version(seen: Seen) -> Iterator[Told]:
    """The server is one that the chart asks for, and reads from its cache."""
    if (parts := _parts(seen.version)) and parts < OLDEST:
        yield warning(
            f"the API server {seen.server} is {seen.version}: older than {OLDEST[0]}.{OLDEST[1]}, which is what is "
            "tested",
            about=seen.server,
            remedy="upgrade the control plane",
        )
    if seen.features.get(CONSISTENT) is False:
        yield warning(
            f"the API server {seen.server} has {CONSISTENT} off: every consistent list is read from etcd",
            about=seen.server,
            evidence=["sharders read the Leases consistently several times per lease duration"],
            remedy="switch the feature gate on (Kubernetes 1.31 and newer have it on)",
        )
    if seen.features.get(WATCH_LIST) is False:
        yield warning(
            f"the API server {seen.server} has {WATCH_LIST} off: replicas that start read their objects in pages, "
            "which takes the server more memory",
            about=seen.server,
            remedy="switch the feature gate on (Kubernetes 1.32, 1.34 and newer have it on), or accept it: replicas "
            "find out by themselves",
        )


def _parts(version: str) -> tuple[int, int] | None:
    numbers = version.removeprefix("v").split(".")
    try:
        return int(numbers[0]), int(numbers[1])
    except (ValueError, IndexError):
        return None


def _fine(seen: Seen) -> str:
    if not seen.features:
        return f"{seen.version}; feature gates unknown"
    states = [
        f"{name} {'on' if seen.features[name] else 'off'}" for name in FEATURES if name in seen.features
    ]
    told = f"{seen.version}; {', '.join(states)}"
    if seen.features.get(SHARDED):
        told += " (KEP-5866: it filters lists; Ringleader works without it)"
    return told


CHECKS = (
    Check(
        "server",
        "the server's version and features",
        judge_version,
        _fine,
        needs=("version", "metrics"),
    ),
)
