"""Manifests of unmodified controllers: the proxy put before a Deployment or StatefulSet, for tools without Helm."""

from __future__ import annotations

from collections.abc import Sequence

RENDER = "--render"


def is_render(words: Sequence[str]) -> bool:
    """Whether *words* of `ringleader proxy` ask for a manifest, not for a proxy."""
    own = words[: list(words).index("--")] if "--" in words else words
    return any(word.partition("=")[0] == RENDER for word in own)
