"""Trees of kinds: which kinds a controller works, what it makes for their objects, and what controls nothing. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.learn.seen import KindSeen, Seen


@dataclass(frozen=True, slots=True)
class Tree:
    """A kind whose objects are roots, and the kinds that are controlled below it, by parent, nearest first."""

    root: str
    children: dict[str, list[str]]

    @property
    def kinds(self) -> list[str]:
        """All of them, the root first."""
        return list(dict.fromkeys([self.root, *(each for below in self.children.values() for each in below)]))

    @property
    def leaves(self) -> list[str]:
        """Controlled kinds that control nothing."""
        return sorted(kind for kind in self.kinds[1:] if kind not in self.children)

    @property
    def is_deep(self) -> bool:
        """Whether a controlled kind controls others."""
        return any(kind in self.children for kind in self.kinds[1:])


def find_trees(seen: Seen) -> list[Tree]:
    """The trees that the controller works, the one with most writes first. It reads every root."""
    below = {name: _children(seen, name) for name in seen.kinds}
    works = [name for name, kind in seen.kinds.items() if kind.is_read and is_worked(kind, below[name])]
    if not works:
        works = _weakly_worked(seen)
    inner = {child for name in works for child in _descendants(name, below)}
    # kinds that control each other have no root: the first one is taken
    roots = [name for name in works if name not in inner] or works[:1]
    trees = [Tree(root, _reachable(root, below)) for root in roots]
    return sorted(trees, key=lambda tree: (-_weight(seen, tree), tree.root))


def is_worked(kind: KindSeen, children: list[str]) -> bool:
    """Whether the controller reconciles the kind: it writes status or finalizers, or its objects own what it makes."""
    return bool(
        children
        or any(verb.endswith((" status", " finalize")) for verb in kind.writes)
        or kind.finalizers
        or kind.earlier_writes
    )


def companions(seen: Seen) -> dict[str, list[str]]:
    """Kinds whose objects have the names of those of other kinds, and no controller: `endpoints` of `services`."""
    return {
        name: sorted(kind.beside)
        for name, kind in sorted(seen.kinds.items())
        if kind.beside and not kind.controllers
    }


def _weakly_worked(seen: Seen) -> list[str]:
    """Kinds with companions; else kinds that it reads and writes itself."""
    named = sorted({other for others in companions(seen).values() for other in others})
    return named or sorted(
        name for name, kind in seen.kinds.items() if kind.is_read and kind.writes and not kind.controllers
    )


def _children(seen: Seen, parent: str) -> list[str]:
    return sorted(name for name, kind in seen.kinds.items() if name != parent and kind.controllers[parent])


def _descendants(parent: str, below: dict[str, list[str]]) -> set[str]:
    return {child for children in _reachable(parent, below).values() for child in children} - {parent}


def _reachable(root: str, below: dict[str, list[str]]) -> dict[str, list[str]]:
    """Children of each kind that is reached from *root*, breadth first; no kind twice."""
    found: dict[str, list[str]] = {}
    known, waiting = {root}, [root]
    for parent in waiting:  # grows meanwhile
        children = [child for child in below.get(parent, []) if child != root]
        if children:
            found[parent] = children
        waiting += [child for child in children if child not in known]
        known.update(children)
    return found


def _weight(seen: Seen, tree: Tree) -> int:
    kinds = [seen.kinds[name] for name in tree.kinds if name in seen.kinds]
    return sum(
        kind.writes.total() + kind.earlier_writes.total() + kind.earlier_owners.total() for kind in kinds
    )
