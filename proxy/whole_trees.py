"""Whether trees have arrived whole: the sharder places each object by itself, a part may be elsewhere for a while."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from kubeio.errors import KubeError
from proxy.informers import TreeInformers
from proxy.trees import Node, Trees

log = structlog.get_logger("proxy")


async def find_absent(
    trees: Trees, nodes: Sequence[Node], informers: TreeInformers
) -> dict[str, frozenset[str]]:
    """What is missing of the trees of *nodes*, by the uid of each node of a tree that is not whole.

    Nothing by name if it could not be read.
    """
    if not nodes:
        return {}
    members = {top: trees.tree(top) for top in {trees.top_of(node.uid) for node in nodes}}
    try:
        above = [each for tree in members.values() for each in tree]
        elsewhere = await informers.elsewhere(
            {each.uid for each in above}, namespaces={each.key.namespace for each in above}
        )
    except KubeError as error:
        log.warning("not read what arrived trees control", error=str(error))
        return {node.uid: frozenset() for node in nodes}
    absent: dict[str, frozenset[str]] = {}
    for tree in members.values():
        missing = frozenset(uid for each in tree for uid in elsewhere.get(each.uid, ()))
        if missing:
            absent |= dict.fromkeys((each.uid for each in tree), missing)
    if absent:
        log.info("trees wait for what they control", objects=sum(node.uid in absent for node in nodes))
    return absent
