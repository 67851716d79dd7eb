"""`make bench-ring`: our ring beside a plain ring and the best-kept ring on PyPI, on the same members and keys.

Measures time, memory, balance and movement; decides nothing. A plain ring here is ours without bounded arcs: a
sorted list and a bisect. Shares and movement are exact, from the points of each ring, not from sampled keys.
"""

from __future__ import annotations

import platform
import statistics
import time
import tracemalloc
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from importlib import metadata, util
from pathlib import Path
from typing import Annotated, Final, Protocol

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from ring import HASH_SPACE, HashRing, hash_key, object_key
from ring.hashing import hash_virtual_nodes

EPS: Final = 0.05
Arcs = list[tuple[int, str]]


class Contender(Protocol):
    """A ring under measurement."""

    def owner(self, key: str) -> str: ...
    def owners(self, keys: Iterable[str]) -> list[str]: ...
    def joined(self, member: str) -> Contender:
        """The ring with one more member, made in the cheapest way that it offers."""

    def bounds(self) -> tuple[Arcs, int]:
        """Every arc as (end, owner), from the start of the hash space to its end; and the size of the space."""


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
        from uhashring import HashRing as Peer

        self._members = members
        self._virtual_nodes = virtual_nodes
        self._ring = Peer(nodes=list(members), vnodes=virtual_nodes)

    def owner(self, key: str) -> str:
        return str(self._ring.get_node(key))

    def owners(self, keys: Iterable[str]) -> list[str]:
        return [self.owner(key) for key in keys]

    def joined(self, member: str) -> PeerRing:
        joined = object.__new__(PeerRing)
        joined.__dict__.update(self.__dict__)
        joined._ring.add_node(member)  # in place: it knows no other way
        return joined

    def bounds(self) -> tuple[Arcs, int]:
        space = 2**128
        points: Arcs = self._ring.get_points()
        return [*points, (space - 1, points[0][1])], space


class Result(msgspec.Struct):
    """Figures of one contender; times are the best of several runs."""

    name: str
    absent: str = ""
    build_ms: float = 0
    join_ms: float = 0
    lookup_us: float = 0
    bulk_ms: float = 0
    bulk_us_per_key: float = 0
    memory_mib: float = 0
    largest_share: float = 0
    smallest_share: float = 0
    moved_of_ideal: float = 0
    moved_of_newcomer: float = 0


class Report(msgspec.Struct):
    members: int
    virtual_nodes: int
    keys: int
    eps: float
    movement_seeds: int
    python: str
    machine: str
    results: list[Result]


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


Factory = Callable[[Sequence[str]], Contender]


def contenders(virtual_nodes: int) -> dict[str, Factory | None]:
    """By title; None where the package is not installed."""
    has_peer = util.find_spec("uhashring") is not None
    peer = f"uhashring {metadata.version('uhashring')}" if has_peer else "uhashring"
    return {
        "ringleader": lambda members: OurRing(HashRing(members, virtual_nodes=virtual_nodes, eps=EPS)),
        "plain ring": lambda members: PlainRing(members, virtual_nodes),
        peer: (lambda members: PeerRing(members, virtual_nodes)) if has_peer else None,
    }


def member_names(count: int, seed: int = 0) -> list[str]:
    return [f"controller-{seed:x}-{index}" for index in range(count)]


def best_s(action: Callable[[], object], runs: int) -> float:
    """Shortest of *runs*: what the code costs when the machine does nothing else."""
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return min(times)


def join_s(factory: Factory, names: Sequence[str]) -> float:
    """One join to a fresh ring, since a join may change the ring itself."""
    ring = factory(names)
    return best_s(lambda: ring.joined("one-more"), 1)


def memory_bytes(build: Callable[[], Contender]) -> int:
    """What a ring keeps, without what its building took for a while."""
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


def movement_on_join(factory: Factory, members: int, seeds: int) -> tuple[float, float]:
    """Moved as one more joins, mean over *seeds* sets of names: over the ideal of 1/(members + 1), and over
    what the newcomer got, which no ring with these shares can undercut."""
    of_ideal, of_newcomer = [], []
    for seed in range(seeds):
        *old, new = member_names(members + 1, seed)
        ring = factory(old)
        before, space = ring.bounds()
        after, _ = ring.joined(new).bounds()
        size = moved(before, after, space)
        of_ideal.append(size * (members + 1))
        of_newcomer.append(size / shares(after, space)[new])
    return statistics.mean(of_ideal), statistics.mean(of_newcomer)


def measure(
    name: str, factory: Factory | None, *, members: int, keys: Sequence[str], seeds: int, runs: int
) -> Result:
    if factory is None:
        return Result(name, absent="not installed (pip install 'ringleader[dev]')")
    names = member_names(members)
    ring = factory(names)
    few = keys[: max(1, len(keys) // 10)]
    bulk_s = best_s(lambda: ring.owners(keys), runs)
    by_member = shares(*ring.bounds())
    of_ideal, of_newcomer = movement_on_join(factory, members, seeds)
    return Result(
        name,
        build_ms=best_s(lambda: factory(names), runs) * 1e3,
        lookup_us=best_s(lambda: [ring.owner(key) for key in few], runs) / len(few) * 1e6,
        bulk_ms=bulk_s * 1e3,
        bulk_us_per_key=bulk_s / len(keys) * 1e6,
        memory_mib=memory_bytes(lambda: factory(names)) / 2**20,
        largest_share=max(by_member.values()) * members,
        smallest_share=min(by_member.get(member, 0.0) for member in names) * members,
        moved_of_ideal=of_ideal,
        moved_of_newcomer=of_newcomer,
        join_ms=min(join_s(factory, names) for _ in range(runs)) * 1e3,
    )


def measure_all(
    *, members: int, virtual_nodes: int, keys: int, seeds: int, runs: int, console: Console
) -> Report:
    texts = [object_key("example.com", f"team-{index % 97}", f"site-{index}") for index in range(keys)]
    results = []
    for name, factory in contenders(virtual_nodes).items():
        with console.status(f"measuring {name}"):
            results.append(measure(name, factory, members=members, keys=texts, seeds=seeds, runs=runs))
    return Report(
        members=members,
        virtual_nodes=virtual_nodes,
        keys=keys,
        eps=EPS,
        movement_seeds=seeds,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        machine=f"{platform.system()} {platform.machine()}",
        results=results,
    )


def table(report: Report) -> Table:
    title = (
        f"{report.members} members x {report.virtual_nodes} virtual nodes, {report.python}, {report.machine}"
    )
    shown = Table(title=title)
    shown.add_column("")
    rows: list[tuple[str, Callable[[Result], str]]] = [
        ("build", lambda r: f"{r.build_ms:.1f} ms"),
        ("one more joins", lambda r: f"{r.join_ms:.1f} ms"),
        ("one look-up, hash included", lambda r: f"{r.lookup_us:.2f} us"),
        (f"{report.keys} keys in bulk", lambda r: f"{r.bulk_ms:.0f} ms ({r.bulk_us_per_key:.2f} us each)"),
        ("memory kept", lambda r: f"{r.memory_mib:.1f} MiB"),
        ("largest share, of the mean", lambda r: f"{r.largest_share:.3f}"),
        ("smallest share, of the mean", lambda r: f"{r.smallest_share:.3f}"),
        (f"moved on join, of the ideal ({report.movement_seeds} seeds)", lambda r: f"{r.moved_of_ideal:.3f}"),
        ("moved on join, of the newcomer's share", lambda r: f"{r.moved_of_newcomer:.3f}"),
    ]
    for result in report.results:
        shown.add_column(result.name, justify="right")
    for what, cell in rows:
        shown.add_row(
            what, *(cell(result) if not result.absent else result.absent for result in report.results)
        )
    return shown


def main(
    *,
    members: Annotated[int, typer.Option(min=1, help="Members on the ring.")] = 100,
    virtual_nodes: Annotated[int, typer.Option(min=1, max=100_000, help="Tokens per member.")] = 1000,
    keys: Annotated[int, typer.Option(min=1, help="Keys looked up in bulk.")] = 100_000,
    seeds: Annotated[int, typer.Option(min=1, help="Sets of names over which movement is averaged.")] = 30,
    runs: Annotated[int, typer.Option(min=1, help="Runs of which the best time counts.")] = 5,
    output: Annotated[Format, typer.Option("-o", "--output", help="What to print.")] = Format.TABLE,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the figures to FILE.")
    ] = None,
) -> None:
    """Measure our ring beside a plain ring and uhashring."""
    if json_file is not None and not json_file.absolute().parent.is_dir():
        raise typer.BadParameter(
            f"{json_file}: its folder does not exist; name a file in a folder that does", param_hint="--json"
        )
    report = measure_all(
        members=members,
        virtual_nodes=virtual_nodes,
        keys=keys,
        seeds=seeds,
        runs=runs,
        console=Console(stderr=True),
    )
    document = msgspec.json.format(msgspec.json.encode(report)).decode()
    if json_file is not None:
        json_file.write_text(document + "\n", encoding="utf-8")
    if output is Format.JSON:
        print(document)
    else:
        Console().print(table(report))


app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, add_completion=False)
app.command()(main)

if __name__ == "__main__":
    app()
