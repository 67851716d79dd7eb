"""Policies of the fence of one ring, as YAML: the chart's text with its gaps filled in. Pure but for that file.

The chart fills the same gaps in templates/fence.yaml; tests/chart/test_chart_fence.py compares both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from kubeio.protocol import RingEntry, RingKeys
from ringleader.assets import asset

POD_NAME: Final = "authentication.kubernetes.io/pod-name"
"""Extra of a token that a kubelet mounted: the pod's name."""


class Identity(StrEnum):
    """By what a request names its life."""

    LIFE = "life"
    POD = "pod"


def fence_documents(
    keys: RingKeys, entries: Iterable[RingEntry], *, identity: Identity, accounts: Sequence[str] = ()
) -> str:
    """Two policies with their bindings. *accounts*: usernames whose pods are shards, with `Identity.POD`."""
    lives, shards = names_of(keys, identity, accounts)
    gaps = {
        "RING": keys.ring,
        "DOMAIN": keys.domain,
        "LABELS": _json({"ringleader.dev/ring": keys.ring}),
        "RULES": _json(resource_rules(entries)),
        "LIVES": lives,
        "SHARDS": shards,
    }
    text = asset("manifests", "chart", "files", "fence.yaml").read_text()
    for name, value in gaps.items():
        text = text.replace(f"$({name})", value)
    return text


def names_of(keys: RingKeys, identity: Identity, accounts: Sequence[str]) -> tuple[str, str]:
    """CEL lists of the lives and of the shards that a request names.

    A pod's token cannot say which of the two a request is meant as. It counts as a shard's, which may pass on what is
    its own.
    """
    if identity is Identity.LIFE:
        return _extra(keys.life_extra), _extra(keys.shard_extra)
    listed = ", ".join(f"'{account}'" for account in accounts)
    return "[]", f"request.userInfo.username in [{listed}] ? {_extra(POD_NAME)} : []"


def resource_rules(entries: Iterable[RingEntry]) -> list[dict[str, object]]:
    """Rules that match every write of the ring's kinds, main and controlled ones, and of their subresources."""
    groups: dict[str, set[str]] = {}
    for entry in entries:
        for kind in (entry.main, *entry.controlled_resources):
            groups.setdefault(kind.group, set()).add(kind.resource)
    return [
        {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": [name for plural in sorted(groups[group]) for name in (plural, f"{plural}/*")],
        }
        for group in sorted(groups)
    ]


def _extra(key: str) -> str:
    return f"request.userInfo.?extra[?'{key}'].orValue([])"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
