"""Trees of the objects that carry the name of one shard: their roots, and which of them the controller may see. Pure.

Fed with metadata by informers of all kinds of the ring. Knows no requests and no Lease.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec

from kubeio.models import Meta, ObjectKey, OwnerReference
from kubeio.protocol import RingKeys


class TreeState(StrEnum):
    """State of the tree of one object, which is that of its root.

    UNKNOWN: no root of this shard is at its top, as far as the informers have seen.
    """

    VISIBLE = "visible"
    HIDDEN = "hidden"
    UNKNOWN = "unknown"


class Node(msgspec.Struct, frozen=True, gc=False):
    """One object of the shard in the newest version seen; *visible* and *drain*: values of these labels, *turn*
    of this annotation, None without.

    *owner*: the reference to its controller. *is_root*: no object of the ring can control it. *is_leaf*: its kind
    controls nothing. *created*: creationTimestamp of a root that was never given to a controller of the ring, as far
    as its labels say; else empty, which saves memory.
    """

    resource: str
    key: ObjectKey
    uid: str
    resource_version: str
    owner: OwnerReference | None
    created: str
    visible: str | None
    drain: str | None
    is_root: bool
    is_leaf: bool
    turn: str | None = None

    @property
    def controller(self) -> str:
        """Uid of its controller; empty if it has none."""
        return self.owner.uid if self.owner is not None else ""


def node_of(meta: Meta, resource: str, *, keys: RingKeys, is_root: bool, is_leaf: bool) -> Node:
    """What is kept of *meta*, an object of *resource* (`websites.example.com`)."""
    visible, drain = meta.labels.get(keys.visible), meta.labels.get(keys.drain)
    is_unseen = is_root and visible is None and drain is None
    return Node(
        resource,
        ObjectKey(sys.intern(meta.namespace), meta.name),
        meta.uid,
        meta.resource_version,
        meta.controller,
        (is_unseen and meta.creation_timestamp) or "",
        _shared(visible),
        _shared(drain),
        is_root,
        is_leaf,
        meta.annotations.get(keys.turn),
    )


def _shared(label: str | None) -> str | None:
    """*label*, of which the process keeps one copy: many objects have the same."""
    return None if label is None else sys.intern(label)


@dataclass(slots=True)
class Due:
    """What waits for the controller's next start: uids of what becomes visible, and of what is asked for."""

    arrived: dict[str, None] = field(default_factory=dict)
    asked: dict[str, None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.arrived or self.asked)


class Trees:
    """Every object that carries the name *shard*. *since*: objects created before then may have been worked by others.

    Memory: about 500 bytes per object. Cost of a question: the depth of a tree.
    """

    def __init__(self, shard: str, *, since: str) -> None:
        self._shard: Final = shard
        self._since: Final = since
        self._nodes: Final[dict[str, Node]] = {}
        self._named: Final[dict[str, dict[ObjectKey, Node]]] = {}
        """By resource."""
        self._children: Final[dict[str, dict[str, None]]] = {}
        self._closed: Final[set[str]] = set()
        self.due: Final = Due()

    def __len__(self) -> int:
        return len(self._nodes)

    def counts(self) -> dict[str, int]:
        """Objects by resource. Other threads may ask."""
        return {resource: len(named) for resource, named in self._named.copy().items()}

    def keys(self, resource: str) -> Iterator[ObjectKey]:
        """Of every object of *resource*; nothing may change meanwhile."""
        return iter(self._named.get(resource, ()))

    def put(self, node: Node) -> None:
        """A newer version of an object, which carries the shard's name."""
        old = self._nodes.get(node.uid)
        if old is not None and old.controller != node.controller:
            self._unlink(old)
        named = self._named.setdefault(node.resource, {})
        known = named.pop(node.key, None)
        if known is not None and known.uid != node.uid:
            self.drop(known.uid)  # another object of the same name
        self._nodes[node.uid] = named[node.key] = node
        if node.controller:
            self._children.setdefault(node.controller, {})[node.uid] = None
        _set(self.due.arrived, node.uid, is_in=not self.is_visible(node))
        _set(self.due.asked, node.uid, is_in=node.drain is not None)

    def drop(self, uid: str) -> None:
        """An object left the shard, or is gone."""
        node = self._nodes.pop(uid, None)
        if node is None:
            return
        named = self._named[node.resource]
        if named.get(node.key) is node:
            del named[node.key]
        self._unlink(node)
        self.due.arrived.pop(uid, None)
        self.due.asked.pop(uid, None)

    def find(self, resource: str, key: ObjectKey) -> Node | None:
        """The object of that name; None if none carries the shard's name."""
        return self._named.get(resource, {}).get(key)

    def get(self, uid: str) -> Node | None:
        return self._nodes.get(uid)

    def is_visible(self, node: Node) -> bool:
        """Whether the controller's selector shows *node*."""
        return node.is_leaf or node.visible == self._shard

    def is_new(self, node: Node) -> bool:
        """Whether *node* is a root that no controller of the ring was ever shown: it controls nothing.

        Times are the API server's own, in whole seconds: an object of the very second may be old.
        """
        return node.created > self._since

    def top_of(self, uid: str) -> str:
        """The highest object that is known above *uid*; itself if none is."""
        above = self.above(uid)
        return above[-1] if above else uid

    def above(self, uid: str) -> list[str]:
        """What is known above *uid*, the nearest first."""
        found: list[str] = []
        node = self._nodes.get(uid)
        while node is not None and not node.is_root and len(found) < _DEEPEST:
            node = self._nodes.get(node.controller)
            found += [] if node is None else [node.uid]
        return found

    def root_of(self, uid: str) -> Node | None:
        """The root above *uid*; None if an object on the way is not known."""
        node = self._nodes.get(uid)
        for _ in range(_DEEPEST):
            if node is None or node.is_root:
                return node
            node = self._nodes.get(node.controller)
        return None

    def state(self, uid: str) -> TreeState:
        """Whether writes to the tree of *uid* may pass: a controller that does not see a root misjudges its tree."""
        root = self.root_of(uid)
        if root is None:
            return TreeState.UNKNOWN
        return TreeState.VISIBLE if self._is_open(root) else TreeState.HIDDEN

    def close(self, uid: str) -> None:
        """Let no write pass to the tree below the root *uid*, which the controller sees: a part of it is missing."""
        self._closed.add(uid)

    def _is_open(self, root: Node) -> bool:
        return self.is_visible(root) and root.uid not in self._closed

    def may_go(self, node: Node) -> bool:
        """Whether *node* can be given up: its root is asked for as well, or is not seen by the controller.

        A controller that goes on seeing the root would make again what it misses below. What stays after all may.
        """
        root = self.root_of(node.uid)
        if root is None or root.uid == node.uid or node.drain == self._shard:
            return True
        return root.drain not in (None, self._shard) or not self._is_open(root)

    def tree(self, uid: str) -> list[Node]:
        """*uid* and all that it controls, children before their parents."""
        found: dict[str, None] = {}
        above = [uid]
        while above:  # parents before their children
            each = above.pop()
            if each not in found:
                found[each] = None
                above.extend(self._children.get(each, ()))
        return [self._nodes[each] for each in reversed(found) if each in self._nodes]

    def _unlink(self, node: Node) -> None:
        siblings = self._children.get(node.controller)
        if siblings is not None:
            siblings.pop(node.uid, None)
            if not siblings:
                del self._children[node.controller]


_DEEPEST: Final = 10
"""Controllers above each other; owner references that go round end here."""


def _set(uids: dict[str, None], uid: str, *, is_in: bool) -> None:
    if is_in:
        uids[uid] = None
    else:
        uids.pop(uid, None)
