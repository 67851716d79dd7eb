"""Whether trees have arrived whole: the sharder places each object by itself, a part may be elsewhere for a while."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import structlog

from kubeio.errors import KubeError
from proxy.informers import TreeInformers
from proxy.trees import Node, Trees

log = structlog.get_logger("proxy")


async def find_absent(
    trees: Trees, nodes: Sequence[Node], informers: TreeInformers, *, arriving: Collection[str]
) -> dict[str, frozenset[str]]:
    """What is missing of the trees of *nodes*, by the uid of each object of a tree that is not whole.

    A tree is whole if the controller sees all of it once it sees *arriving*, uids; an object whose controller exists
    belongs to the controller's tree. Only what *trees* does not know is listed: nothing if it could not be read.
    """
    if not nodes:
        return {}
    members = {top: trees.tree(top) for top in {trees.top_of(node.uid) for node in nodes}}
    tops = [node for top in members if (node := trees.get(top)) is not None]
    owners = [node.owner for node in tops if not node.is_root and node.owner is not None]
    uids = {each.uid for tree in members.values() for each in tree} | {owner.uid for owner in owners}
    namespaces = {each.key.namespace for tree in members.values() for each in tree}
    try:
        hidden = await informers.hidden(
            uids, namespaces=namespaces, kinds={owner.group_kind for owner in owners}
        )
    except KubeError as error:
        log.warning("not read what arrived trees control", error=str(error))
        return {each.uid: frozenset() for tree in members.values() for each in tree}
    absent: dict[str, frozenset[str]] = {}
    for top in tops:
        tree = members[top.uid]
        missing = {uid for each in tree for uid in hidden.get(each.uid, ())}
        if not top.is_root and top.controller in hidden.get(top.controller, ()):
            missing.add(top.controller)
        if missing := missing.difference(arriving):
            unknown = frozenset(uid for uid in missing if trees.get(uid) is None)
            absent |= dict.fromkeys((each.uid for each in tree), unknown)
    if absent:
        log.info("trees wait for what they control", objects=sum(node.uid in absent for node in nodes))
    return absent
