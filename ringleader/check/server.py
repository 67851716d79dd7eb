"""Checks of the server: its version, and the features that cost or save much. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ringleader.check.evidence import Evidence
from ringleader.check.findings import Check, Finding, warning

OLDEST: Final = (1, 31)
WATCH_LIST: Final = "WatchList"
CONSISTENT: Final = "ConsistentListFromCache"
SHARDED: Final = "ShardedListAndWatch"
FEATURES: Final = (WATCH_LIST, CONSISTENT, SHARDED)


def judge_version(evidence: Evidence) -> Iterator[Finding]:
    """The server is one that the chart asks for, and reads from its cache."""
    if (parts := version_parts(evidence.version)) and parts < OLDEST:
        yield warning(
            f"the API server {evidence.server} is {evidence.version}: older than {OLDEST[0]}.{OLDEST[1]}, which is what"
            " is tested",
            about=evidence.server,
            remedy="upgrade the control plane",
        )
    if evidence.features.get(CONSISTENT) is False:
        yield warning(
            f"the API server {evidence.server} has {CONSISTENT} off: every consistent list is read from etcd",
            about=evidence.server,
            evidence=["sharders read the Leases consistently several times per lease duration"],
            remedy="switch the feature gate on (Kubernetes 1.31 and newer have it on)",
        )
    if evidence.features.get(WATCH_LIST) is False:
        yield warning(
            f"the API server {evidence.server} has {WATCH_LIST} off: replicas that start read their objects in pages, "
            "which takes the server more memory",
            about=evidence.server,
            remedy="switch the feature gate on (Kubernetes 1.32, 1.34 and newer have it on), or accept it: replicas "
            "find out by themselves",
        )


def version_parts(version: str) -> tuple[int, int] | None:
    """Major and minor of *version*; None if it says none."""
    numbers = version.removeprefix("v").split(".")
    try:
        return int(numbers[0]), int(numbers[1])
    except (ValueError, IndexError):
        return None


def _fine(evidence: Evidence) -> str:
    if not evidence.features:
        return f"{evidence.version}; feature gates unknown"
    states = [
        f"{name} {'on' if evidence.features[name] else 'off'}"
        for name in FEATURES
        if name in evidence.features
    ]
    text = f"{evidence.version}; {', '.join(states)}"
    if evidence.features.get(SHARDED):
        text += " (KEP-5866: it filters lists; Ringleader works without it)"
    return text


CHECKS = (
    Check(
        "server",
        "the server's version and features",
        judge_version,
        _fine,
        needs=("version", "metrics"),
    ),
)
