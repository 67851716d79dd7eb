"""What a controller may be sharded as: its classes, each with the evidence for it in words. Pure.

The letters are those of docs/unmodified.md. What no run can show stands in `UNSEEN`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from proxy.learn.findings import Finding, Verdict, some
from proxy.learn.known import known_program, known_shapes
from proxy.learn.references import references
from proxy.learn.requests import LEASES
from proxy.learn.seen import KindSeen, Seen
from proxy.learn.trees import Trees, companions, find_trees

_NOT_FOUND: Final = 404
UNSEEN: Final = (
    "D: effects outside of Kubernetes. If it deletes things there when an object is not found, leave out --leaves: "
    "then no object comes before its root, and none leaves while the controller runs.",
    "G: what one object's result is computed from. If that is all objects of a main resource, do not shard it.",
    "H: whether it reads one object for another, by a selector, say. If so, choose a key that keeps both together "
    "(Namespace or Label).",
)
"""What the requests of a controller do not show."""


def judge(seen: Seen, command: Sequence[str]) -> list[Finding]:
    """Every finding about what was *seen* of *command*, the worst first."""
    trees = find_trees(seen)
    if all_of := list(_computes_from_all(seen, command)):
        return all_of
    found = [
        *_waits(seen),
        *_has_roots(seen, trees),
        *_cleans_up_by_name(seen, trees),
        *_copies_labels(seen),
        *_is_refused(seen, trees),
        *_drops_labels(seen),
        *_side_jobs(seen, trees),
        *_acts_on_orphans(seen),
        *_adopts(seen),
        *_reads_others(seen, trees),
    ]
    return sorted(found, key=lambda each: list(Verdict).index(each.verdict))


def unknown_of(seen: Seen) -> list[str]:
    """What this run could not show."""
    found = list(UNSEEN)
    if any(kind.has_controllers for kind in seen.kinds.values()) and not any(
        kind.templates for kind in seen.kinds.values()
    ):
        found.append(
            "E: whether it copies labels onto pod templates. No template was made for an object whose own labels stand "
            "nowhere else in it. Label one such object (learn=1), let the controller make its children anew, and look."
        )
    if not any(kind.left[other] for kind in seen.kinds.values() for other in kind.beside):
        found.append(
            "C: what it deletes when an object is gone. It deleted nothing by the name of such an object; that counts "
            "only if objects were deleted while it ran."
        )
    if unwritten := _unwritten(seen):
        found.append(
            f"What it does with {some(unwritten)}: it reads them and wrote none. If it works them, they belong to "
            "the ring: create some of them, let it work, and look."
        )
    return found + [f"Learn mode could not read: {gap}." for gap in sorted(seen.gaps)]


def _unwritten(seen: Seen) -> list[str]:
    """Kinds in the API groups of the roots that it reads and never wrote."""
    trees = find_trees(seen)
    groups = {root.partition(".")[2] for root in trees.roots}
    return sorted(
        name
        for name, kind in seen.kinds.items()
        if kind.is_read
        and not kind.writes
        and name not in trees.kinds
        and name.partition(".")[2] in groups - {""}
    )


def _computes_from_all(seen: Seen, command: Sequence[str]) -> Iterator[Finding]:
    remedy = "run one replica of it, beside the ring if need be"
    if (known := known_program(command, seen.agents)) is not None:
        yield Finding("G", Verdict.NO, f"{known[0]} is known: it {known[1]}", remedy)
    for text in known_shapes(seen):
        yield Finding("G", Verdict.NO, text, remedy)


def _waits(seen: Seen) -> Iterator[Finding]:
    for lock in seen.awaited_locks():
        holder = seen.holders.get(lock, "")
        yield Finding(
            "",
            Verdict.UNCLEAR,
            f"it waited for the lock {lock.namespace}/{lock.name}, which {holder or 'another process'} holds",
            "scale its other replicas to zero while it is learned",
        )
    for lock, status in seen.refused_locks().items():
        yield Finding(
            "",
            Verdict.UNCLEAR,
            f"it could not create its lock {lock.namespace}/{lock.name} ({status}), so it did not lead",
            f"create the namespace {lock.namespace}"
            if status == _NOT_FOUND
            else "give it the right to create it",
        )
    if seen.exit_code is not None:
        yield Finding(
            "",
            Verdict.UNCLEAR,
            f"it ended by itself after {seen.seconds:.0f} s, with exit code {seen.exit_code}",
            "read its log; what follows is what was seen until then",
        )


def _has_roots(seen: Seen, trees: Trees) -> Iterator[Finding]:
    if not trees:
        read = sorted(name for name, kind in seen.kinds.items() if kind.reads_all)
        reads = (
            f" It reads all objects of {some(read)}: if it computes from all of them, it is class G"
            if read
            else ""
        )
        yield Finding(
            "",
            Verdict.UNCLEAR,
            f"it wrote to no kind that it lists or watches, so no main resource was seen.{reads}",
            "create, change and delete objects that it works while it is learned",
        )
        return
    for root in trees.roots:
        yield _works_each(seen, root, trees.below(root))
    yield from _compared(seen)


def _compared(seen: Seen) -> Iterator[Finding]:
    """Pod templates in which no label of an owner was found."""
    for name, kind in sorted(seen.kinds.items()):
        if kind.templates and not kind.copied:
            text = (
                f"of {kind.templates} {name}, no pod template has a label that only the owner's metadata says"
            )
            yield Finding("A", Verdict.YES, text)


def _works_each(seen: Seen, root: str, below: dict[str, list[str]]) -> Finding:
    beside = [name for name, others in companions(seen).items() if root in others]
    how = _reasons(seen.kind(root)) or (
        f"it writes {some(beside)} of their names" if beside else "it owns what follows"
    )
    parts = [f"it works {root} one by one: {how}"]
    for parent, children in below.items():
        for child in children:
            kind = seen.kind(child)
            made, earlier = kind.created[parent], kind.earlier_owners[parent]
            counts = [f"{made} in this run"] * bool(made) + [f"{earlier} before"] * bool(earlier)
            parts.append(f"it makes {child} that {parent} control ({', '.join(counts)})")
    return Finding("A", Verdict.YES, "; ".join(parts))


def _reasons(kind: KindSeen) -> str:
    counts = [f"{n} x {verb}" for verb, n in sorted(kind.writes.items())]
    counts += [f"{kind.finalizers} x finalizers"] * bool(kind.finalizers)
    counts += [f"{what} of {n} earlier objects" for what, n in sorted(kind.earlier_writes.items())]
    return ", ".join(counts)


def _cleans_up_by_name(seen: Seen, trees: Trees) -> Iterator[Finding]:
    for name, others in companions(seen).items():
        kind = seen.kinds[name]
        for other in others:
            text = f"{name} have the name of an object of {other}, and no controller"
            if kind.left[other]:
                text += f"; {kind.left[other]} were deleted by name when that object was gone"
            if other in trees.kinds:
                text += f". --companions {name}={other} keeps a replica from those of the others' {other}"
                yield Finding("C", Verdict.YES, text)
            else:
                remedy = f"give {name} an owner reference in the controller, or run one replica"
                yield Finding(
                    "C", Verdict.CARE, f"{text}. They do not move with {other}, and are not fenced", remedy
                )


def _copies_labels(seen: Seen) -> Iterator[Finding]:
    for name, kind in sorted(seen.kinds.items()):
        if kind.copied:
            yield Finding(
                "E",
                Verdict.YES,
                f"it copies labels of an owner onto the pod template of {name}: {some(kind.copied)} in the "
                "template, and nowhere else in the owner. The proxy shows it one name for all shards, so no move rolls "
                "the workload",
            )


def _is_refused(seen: Seen, trees: Trees) -> Iterator[Finding]:
    """What the proxy would not pass on."""
    ring = set(trees.kinds)
    for name, kind in sorted(seen.kinds.items()):
        verbs = {verb.rpartition(" ")[2] for verb in kind.writes if " " in verb}
        for subresource in sorted(verbs & ({"eviction", "binding"} | ({"scale"} if name in ring else set()))):
            yield Finding(
                "",
                Verdict.NO,
                f"it writes {name}/{subresource}, which the proxy refuses: such an object has no labels, so nothing "
                "could tell whose it is",
            )
        if name in ring and kind.has_old_watch:
            yield Finding(
                "", Verdict.NO, f"it watches {name} by the old path /watch/, which takes no selector"
            )
        for encoding in sorted(kind.formats) if name in ring else ():
            yield Finding(
                "",
                Verdict.CARE,
                f"it sent {name} as {encoding}, which takes no label: the proxy answers 415, and most clients then "
                "send JSON",
            )


def _drops_labels(seen: Seen) -> Iterator[Finding]:
    for name, kind in sorted(seen.kinds.items()):
        if kind.dropped:
            yield Finding(
                "F",
                Verdict.YES,
                f"its PUTs drop labels of {name} that others set ({some(kind.dropped)}): the proxy puts the shard's "
                "labels back",
            )


def _side_jobs(seen: Seen, trees: Trees) -> Iterator[Finding]:
    """Writes outside of the trees: every replica makes them, since every replica leads."""
    known = set(trees.kinds) | companions(seen).keys()
    for name, kind in sorted(seen.kinds.items()):
        if name in known or not kind.writes or name == LEASES:
            continue
        again = [f"{each} ({n} times)" for each, n in kind.names.items() if n > 1]
        text = (
            f"it writes {name} outside of its trees ({_reasons(kind)}): {some(again or list(kind.names))}. "
        )
        if seen.lock_names() and kind.before_lock == kind.writes.total():
            yield Finding(
                "I", Verdict.YES, f"{text}It does so before it leads: as each replica does without a proxy"
            )
            continue
        text += "Every replica leads and does so; these objects are not fenced"
        if again:
            text += ". What is written again and again may be computed from all objects (class G)"
        yield Finding(
            "I",
            Verdict.UNCLEAR if again else Verdict.CARE,
            text,
            "shard it if all replicas write the same there, and not if it is computed from all objects of a main "
            "resource",
        )
    for name in trees.controlled:
        if seen.kind(name).created[""]:
            yield Finding(
                "",
                Verdict.CARE,
                f"it made {seen.kind(name).created['']} {name} without a controller reference: no ring places those, "
                "and no replica sees them again",
            )


def _acts_on_orphans(seen: Seen) -> Iterator[Finding]:
    for name, kind in sorted(seen.kinds.items()):
        if kind.orphans:
            yield Finding(
                "B",
                Verdict.YES,
                f"it writes {name} whose owner is gone ({kind.orphans} in this run): the proxy refuses that where the "
                "owner is only not shown",
            )


def _adopts(seen: Seen) -> Iterator[Finding]:
    for name, kind in sorted(seen.kinds.items()):
        if kind.adopted:
            yield Finding(
                "J",
                Verdict.CARE,
                f"it adopts {name} without a controller ({kind.adopted} in this run): a shard does not see such "
                "objects, and adopts none",
            )


def _reads_others(seen: Seen, trees: Trees) -> Iterator[Finding]:
    for kind, named, example in references(seen, trees):
        together = (
            "spec.key: Namespace, as in the ring below, keeps both together if they are of one namespace"
        )
        apart = f"a ring with deep trees has no such key: leave {named} out of the ring, and run what works them once"
        yield Finding(
            "H",
            Verdict.UNCLEAR if trees.is_deep else Verdict.CARE,
            f"{kind} name {named} ({example}): a replica reads only those of its own shard",
            apart if trees.is_deep else together,
        )
    others = sorted(name for name, kind in seen.kinds.items() if kind.reads_all and name not in trees.kinds)
    if trees and others:
        yield Finding(
            "G",
            Verdict.CARE,
            f"it reads all objects of {some(others)}, which it does not control: so does each replica. That is right "
            f"if it reads them for each object of {some(trees.roots)} by itself",
        )
