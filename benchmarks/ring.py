"""`make bench-ring`: our ring beside a plain ring and the best-kept ring on PyPI, on the same members and keys.

pyperf measures the times. Memory, shares and movement are exact, from the points of each ring, not from sampled keys.
A plain ring here is ours without bounded arcs: a sorted list and a bisect.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import metadata
from typing import Final, Protocol

from uhashring import HashRing as Peer

from benchmarks.micro import make_runner, mean, print_table, timed_s
from ring import HASH_SPACE, HashRing, hash_key, object_key
from ring.hashing import hash_virtual_nodes

EPS: Final = 0.05
PEER_SPACE: Final = 2**128
Arcs = list[tuple[int, str]]
"""Each arc as (end, owner), from the start of the hash space to its end."""


class Contender(Protocol):
    """A ring under measurement."""

    def owner(self, key: str) -> str: ...
    def owners(self, keys: Iterable[str]) -> list[str]: ...
    def joined(self, member: str) -> Contender:
        """The ring with one more member, made in the cheapest way that it offers."""

    def bounds(self) -> tuple[Arcs, int]:
        """Every arc, and the size of the hash space."""


class OurRing:
    def __init__(self, ring: HashRing) -> None:
        self._ring = ring
        self.owner = ring.owner
        self.owners = ring.owners

    def joined(self, member: str) -> OurRing:
        return OurRing(self._ring.with_member(member))

    def bounds(self) -> tuple[Arcs, int]:
        return list(self._ring.arcs()), HASH_SPACE


class PlainRing:
    """Karger's ring as it is usually written: sorted tokens in a list, a dict from token to member."""

    def __init__(self, members: Sequence[str], virtual_nodes: int) -> None:
        self._members = members
        self._virtual_nodes = virtual_nodes
        self._member_of = {
            token: member for member in members for token in hash_virtual_nodes(member, virtual_nodes)
        }
        self._tokens = sorted(self._member_of)

    def owner(self, key: str) -> str:
        at = bisect_left(self._tokens, hash_key(key))
        return self._member_of[self._tokens[at % len(self._tokens)]]

    def owners(self, keys: Iterable[str]) -> list[str]:
        return [self.owner(key) for key in keys]

    def joined(self, member: str) -> PlainRing:
        return PlainRing([*self._members, member], self._virtual_nodes)

    def bounds(self) -> tuple[Arcs, int]:
        wrapped = HASH_SPACE - 1, self._member_of[self._tokens[0]]
        return [*((token, self._member_of[token]) for token in self._tokens), wrapped], HASH_SPACE


class PeerRing:
    """uhashring as it comes, with as many points per node as we have tokens per member."""

    def __init__(self, members: Sequence[str], virtual_nodes: int) -> None:
        self._ring = Peer(nodes=list(members), vnodes=virtual_nodes)

    def owner(self, key: str) -> str:
        return str(self._ring.get_node(key))

    def owners(self, keys: Iterable[str]) -> list[str]:
        return [self.owner(key) for key in keys]

    def joined(self, member: str) -> PeerRing:
        self._ring.add_node(member)  # in place: it knows no other way
        return self

    def bounds(self) -> tuple[Arcs, int]:
        points: Arcs = self._ring.get_points()
        return [*points, (PEER_SPACE - 1, points[0][1])], PEER_SPACE


Factory = Callable[[Sequence[str]], Contender]


def contenders(virtual_nodes: int) -> dict[str, Factory]:
    """By title."""
    return {
        "ringleader": lambda members: OurRing(HashRing(members, virtual_nodes=virtual_nodes, eps=EPS)),
        "plain ring": lambda members: PlainRing(members, virtual_nodes),
        f"uhashring {metadata.version('uhashring')}": lambda members: PeerRing(members, virtual_nodes),
    }


def member_names(count: int, seed: int = 0) -> list[str]:
    return [f"controller-{seed:x}-{index}" for index in range(count)]


# -- times, in workers of pyperf ----------------------------------------------------------------------------


def join_s(loops: int, factory: Factory, names: Sequence[str]) -> float:
    """Each join to a fresh ring, since a join may change the ring itself."""
    rings = (factory(names) for _ in range(loops))
    return sum(timed_s(time.perf_counter, partial(ring.joined, "one-more")) for ring in rings)


def look_up_s(loops: int, factory: Factory, names: Sequence[str], keys: Sequence[str]) -> float:
    owner = factory(names).owner
    return timed_s(time.perf_counter, lambda: [owner(key) for _ in range(loops) for key in keys])


def bulk_s(loops: int, factory: Factory, names: Sequence[str], keys: Sequence[str]) -> float:
    ring = factory(names)
    return timed_s(time.perf_counter, lambda: [ring.owners(keys) for _ in range(loops)])


# -- exact figures ------------------------------------------------------------------------------------------


def memory_bytes(build: Callable[[], Contender]) -> int:
    """Bytes that a ring keeps, without those that its construction needed for a while."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        ring = build()
        after, _ = tracemalloc.get_traced_memory()
        del ring
        return after - before
    finally:
        tracemalloc.stop()


def shares(arcs: Arcs, space: int) -> dict[str, float]:
    """Fraction of the space by member; those without any are missing."""
    sizes: Counter[str] = Counter()
    before = -1
    for end, owner in arcs:
        sizes[owner] += end - before
        before = end
    return {owner: size / space for owner, size in sizes.items()}


def moved(old: Arcs, new: Arcs, space: int) -> float:
    """Fraction of the space that has another owner in *new*."""
    size = at_old = at_new = 0
    done = -1
    while done < space - 1:
        (old_end, old_owner), (new_end, new_owner) = old[at_old], new[at_new]
        end = min(old_end, new_end)
        size += (end - done) * (old_owner != new_owner)
        done = end
        at_old += old_end == end
        at_new += new_end == end
    return size / space


def movement_on_join(factory: Factory, members: int, seeds: int) -> float:
    """Moved as one more joins, over the ideal of 1/(members + 1): the mean of *seeds* sets of names."""
    found = []
    for seed in range(seeds):
        *old, new = member_names(members + 1, seed)
        ring = factory(old)
        before, space = ring.bounds()
        after, _ = ring.joined(new).bounds()
        found.append(moved(before, after, space) * (members + 1))
    return statistics.mean(found)


def exact(factory: Factory, members: int, seeds: int) -> list[str]:
    """Cells of a column: memory, shares, movement."""
    names = member_names(members)
    by_member = shares(*factory(names).bounds())
    return [
        f"{memory_bytes(lambda: factory(names)) / 2**20:.1f} MiB",
        f"{max(by_member.values()) * members:.3f}",
        f"{movement_on_join(factory, members, seeds):.3f}",
    ]


def main() -> None:
    runner = make_runner(
        "benchmarks.ring",
        {
            "members": (100, "members on the ring"),
            "virtual-nodes": (1000, "tokens per member"),
            "keys": (100_000, "keys looked up in bulk"),
            "seeds": (30, "sets of names over which movement is averaged"),
        },
    )
    options = runner.parse_args()
    names = member_names(options.members)
    keys = [object_key("example.com", f"team-{index % 97}", f"site-{index}") for index in range(options.keys)]
    few = keys[: max(1, len(keys) // 100)]
    columns: dict[str, list[str]] = {}
    for name, factory in contenders(options.virtual_nodes).items():
        build = runner.bench_func(f"{name}: build", factory, names)
        join = runner.bench_time_func(f"{name}: one more joins", join_s, factory, names)
        look_up = runner.bench_time_func(
            f"{name}: one look-up", look_up_s, factory, names, few, inner_loops=len(few)
        )
        bulk = runner.bench_time_func(f"{name}: keys in bulk", bulk_s, factory, names, keys)
        if not options.worker:
            times = [f"{mean(build) * 1e3:.1f} ms", f"{mean(join) * 1e3:.1f} ms"]
            times += [f"{mean(look_up) * 1e6:.2f} us", f"{mean(bulk) * 1e3:.0f} ms"]
            columns[name] = times + exact(factory, options.members, options.seeds)
    if not options.worker:
        rows = ["build", "one more joins", "one look-up, hash included", f"{options.keys:,} keys in bulk"]
        rows += ["memory kept", "largest share, of the mean"]
        rows += [f"moved on a join, of the ideal ({options.seeds} sets of names)"]
        cells = dict(zip(rows, zip(*columns.values(), strict=True), strict=True))
        print_table(
            f"{options.members} members x {options.virtual_nodes} virtual nodes", list(columns), cells
        )


if __name__ == "__main__":
    main()
