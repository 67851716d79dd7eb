"""Trees of kinds: which kinds a controller works, what it makes for their objects, and what controls nothing. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.learn.seen import Seen


@dataclass(frozen=True, slots=True)
class Trees:
    """Kinds whose objects are *roots*, and what objects of a kind control, by that kind: *children*, nearest first."""

    roots: list[str]
    children: dict[str, list[str]]

    def __bool__(self) -> bool:
        return bool(self.roots)

    @property
    def controlled(self) -> list[str]:
        """Every kind below a root."""
        found = dict.fromkeys(each for below in self.children.values() for each in below)
        return [kind for kind in found if kind not in self.roots]

    @property
    def kinds(self) -> list[str]:
        """All of them, the roots first."""
        return [*self.roots, *self.controlled]

    @property
    def leaves(self) -> list[str]:
        """Controlled kinds that control nothing."""
        return sorted(kind for kind in self.controlled if kind not in self.children)

    @property
    def is_deep(self) -> bool:
        """Whether a controlled kind controls others."""
        return any(kind in self.children for kind in self.controlled)

    def below(self, root: str) -> dict[str, list[str]]:
        """*children* in the trees of *root*."""
        return _reachable(root, self.children)


def find_trees(seen: Seen) -> Trees:
    """The trees that the controller works; the root with most writes in its trees first. It reads every root."""
    below = {name: _children(seen, name) for name in seen.kinds}
    works = _worked(seen) or _with_companions(seen) or _worked_earlier(seen, below) or _written(seen)
    inner = {child for name in works for child in _descendants(name, below)}
    # kinds that control each other have no root: the first one is taken
    roots = [name for name in works if name not in inner] or works[:1]
    roots.sort(key=lambda root: (-_weight(seen, {root, *_descendants(root, below)}), root))
    children: dict[str, list[str]] = {}
    for root in roots:
        children |= _reachable(root, below)
    return Trees(roots, children)


def companions(seen: Seen) -> dict[str, list[str]]:
    """Kinds whose objects have the names of those of other kinds, and no controller: `endpoints` of `services`."""
    worked = _worked(seen)
    found = {
        name: sorted(other for other in kind.beside if not seen.kind(other).has_controllers)
        for name, kind in sorted(seen.kinds.items())
        if not kind.has_controllers and name not in worked
    }
    return {name: others for name, others in found.items() if others}


def _worked(seen: Seen) -> list[str]:
    """Kinds that the controller was seen to reconcile: it wrote status or finalizers, or made what they control."""
    owners = {owner for kind in seen.kinds.values() for owner in kind.created if owner}
    return [
        name
        for name, kind in seen.kinds.items()
        if kind.is_read
        and (
            name in owners
            or kind.finalizers
            or any(verb.endswith((" status", " finalize")) for verb in kind.writes)
        )
    ]


def _worked_earlier(seen: Seen, below: dict[str, list[str]]) -> list[str]:
    """Kinds that its field manager reconciled before. Several controllers of one program share a field manager."""
    return [
        name for name, kind in seen.kinds.items() if kind.is_read and (below[name] or kind.earlier_writes)
    ]


def _with_companions(seen: Seen) -> list[str]:
    """Kinds that have companions, which it wrote in this run."""
    return sorted({other for others in companions(seen).values() for other in others})


def _written(seen: Seen) -> list[str]:
    """Kinds that it reads and writes itself."""
    return sorted(
        name for name, kind in seen.kinds.items() if kind.is_read and kind.writes and not kind.has_controllers
    )


def _children(seen: Seen, parent: str) -> list[str]:
    return sorted(name for name, kind in seen.kinds.items() if name != parent and kind.made_for(parent))


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


def _weight(seen: Seen, names: set[str]) -> int:
    kinds = [seen.kinds[name] for name in names if name in seen.kinds]
    return sum(
        kind.writes.total() + kind.earlier_writes.total() + kind.earlier_owners.total() for kind in kinds
    )
