"""HashRing: an immutable ring of weighted members, and the answers it gives.

Puts hashing, tokens and bounded arcs together. Knows nothing of shards, Leases or objects: it is asked for keys.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from ring.arcs import ArcTable, bound_arcs
from ring.errors import EmptyRingError, InvalidRing
from ring.hashing import HASH_SPACE, hash_key, hash_keys
from ring.tokens import (
    GONE,
    WEIGHT_UNIT,
    TokenTable,
    inserted,
    member_tokens,
    merge_tokens,
    renumbered,
    token_count,
)
from ring.values import (
    EPS_UNIT,
    Number,
    check_member,
    check_total_tokens,
    check_virtual_nodes,
    parse_eps,
    parse_weight,
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of a key's owner."""

    key: str
    hash: int
    token: int
    """The first token at or after the hash, wrapping round."""
    token_member: str
    """The owner on a ring without bounded arcs."""
    passed: tuple[str, ...]
    """Members whose tokens were passed, in clockwise order, because they were full."""
    owner: str


class HashRing:
    """A consistent-hash ring with bounded arcs; depends on the set of members and weights alone.

    Immutable. A weight of 0 is no place on the ring: the member is left out. Rings made of the same are equal.

    Shape:  12 bytes per token; 100 members x 1,000 virtual nodes take 1.2 MB.
    Cost:   O(tokens x log members) to build.
    Raises: InvalidRing for a value that cannot be used.
    Source: Karger et al. 1997; bounded arcs: docs/adr/0003-bounded-arcs.md; frozen as v1: docs/ring.md.
    """

    __slots__ = ("_arcs", "_capacities", "_eps_units", "_names", "_units", "_virtual_nodes")

    def __init__(
        self,
        members: Mapping[str, Number] | Iterable[str] = (),
        *,
        virtual_nodes: int = 1000,
        eps: Number = 0.05,
        like: HashRing | None = None,
    ) -> None:
        """*like*: a ring whose tokens are taken over, where members are the same: their hashes are spared."""
        weights = members.items() if isinstance(members, Mapping) else ((name, 1) for name in members)
        units = {check_member(name): parse_weight(name, weight) for name, weight in weights}
        placed = {name: units[name] for name in sorted(units, key=str.encode) if units[name]}
        self._units: Mapping[str, int] = MappingProxyType(placed)
        self._names = tuple(placed)
        self._virtual_nodes = check_virtual_nodes(virtual_nodes)
        self._eps_units = parse_eps(eps)
        counts = self._token_counts()
        check_total_tokens(sum(counts.values()), virtual_nodes)
        total = sum(placed.values())
        # Integers: (1 + eps) x weight / total of the hash space, rounded down.
        self._capacities = [
            HASH_SPACE * (EPS_UNIT + self._eps_units) * unit // (EPS_UNIT * total) for unit in placed.values()
        ]
        self._arcs: ArcTable | None = (
            bound_arcs(_token_table(counts, like), self._capacities) if placed else None
        )

    def with_member(self, member: str, weight: Number = 1) -> HashRing:
        """This ring after *member* joined.

        Raises: InvalidRing if it is already a member.
        """
        if member in self._units:
            raise InvalidRing("members", member, "is already on the ring", "name another member")
        weights: dict[str, Number] = {**self.weights, member: weight}
        return HashRing(weights, virtual_nodes=self._virtual_nodes, eps=self.eps, like=self)

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the members, in order of their UTF-8 bytes."""
        return self._names

    @property
    def weights(self) -> dict[str, Fraction]:
        return {name: Fraction(unit, WEIGHT_UNIT) for name, unit in self._units.items()}

    @property
    def virtual_nodes(self) -> int:
        """Tokens of a member of weight 1."""
        return self._virtual_nodes

    @property
    def eps(self) -> Fraction:
        return Fraction(self._eps_units, EPS_UNIT)

    def owner(self, key: str) -> str:
        """Member responsible for *key*: the first token at or after its hash, wrapping round, bounded arcs applied.

        Cost:   O(log tokens).
        Raises: EmptyRingError if the ring has no member.
        """
        arcs = self._arcs
        if arcs is None:
            raise EmptyRingError(f"owner of {key!r}")
        return self._names[arcs.owners[arcs.row(hash_key(key))]]

    def owner_of_hash(self, position: int) -> str:
        """Member responsible for a position of the hash space, 0 to HASH_SPACE - 1; raises like `owner`."""
        arcs = self._arc_table(f"owner of position {position}")
        return self._names[arcs.owners[arcs.row(position)]]

    def owners(self, keys: Iterable[str]) -> list[str]:
        """`owner` of each of *keys*, in their order; half the time of single calls.

        Raises: EmptyRingError if the ring has no member, even for no keys.
        """
        arcs, names = self._arc_table("owners of keys"), self._names
        ends, owners, pages, shift = arcs.ends, arcs.owners, arcs.pages, arcs.page_shift
        # arcs.row, written out: a call per key would cost as much as the search
        return [
            names[owners[bisect_left(ends, position, pages[page := position >> shift], pages[page + 1])]]
            for position in hash_keys(keys)
        ]

    def arcs(self) -> Iterator[tuple[int, str]]:
        """Every arc as (end, owner), from the start of the hash space to its end; nothing for an empty ring.

        An arc is every position after the end of the one before it, up to its own end.
        """
        if self._arcs is None:
            return iter(())
        return zip(self._arcs.ends, map(self._names.__getitem__, self._arcs.owners), strict=True)

    def sizes(self) -> dict[str, int]:
        """Positions of the hash space that each member owns; their sum is HASH_SPACE (0 for an empty ring)."""
        return dict(zip(self._names, self._arcs.sizes if self._arcs else (), strict=True))

    def shares(self) -> dict[str, Fraction]:
        """Exact fraction of the hash space that each member owns."""
        return {name: Fraction(size, HASH_SPACE) for name, size in self.sizes().items()}

    def fair_shares(self) -> dict[str, Fraction]:
        """Fraction of the hash space that each member's weight asks for; no share exceeds (1 + eps) times this."""
        total = sum(self._units.values())
        return {name: Fraction(unit, total) for name, unit in self._units.items()}

    def explain(self, key: str) -> Explanation:
        """Explain the owner of *key*.

        Raises: EmptyRingError if the ring has no member.
        """
        arcs = self._arc_table(f"owner of {key!r}")
        position = hash_key(key)
        row = arcs.row(position)
        owner = arcs.owners[row]
        passed: dict[int, None] = {}
        token_row = at = arcs.token_row(row)
        while arcs.owners[at] != owner:
            passed[arcs.owners[at]] = None
            at = arcs.token_row(at + 1)
        return Explanation(
            key=key,
            hash=position,
            token=arcs.ends[token_row],
            token_member=self._names[arcs.owners[token_row]],
            passed=tuple(self._names[index] for index in passed),
            owner=self._names[owner],
        )

    def __len__(self) -> int:
        """Number of members."""
        return len(self._names)

    def __contains__(self, member: object) -> bool:
        return member in self._units

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashRing) and self._recipe == other._recipe

    def __hash__(self) -> int:
        return hash(self._recipe)

    def __repr__(self) -> str:
        weights = ", ".join(f"{name!r}: {float(weight):g}" for name, weight in self.weights.items())
        return f"HashRing({{{weights}}}, virtual_nodes={self._virtual_nodes}, eps={float(self.eps):g})"

    def _token_counts(self) -> dict[str, int]:
        return {name: token_count(unit, self._virtual_nodes) for name, unit in self._units.items()}

    @property
    def _recipe(self) -> tuple[tuple[tuple[str, int], ...], int, int]:
        return tuple(self._units.items()), self._virtual_nodes, self._eps_units

    def _arc_table(self, attempted: str) -> ArcTable:
        if self._arcs is None:
            raise EmptyRingError(attempted)
        return self._arcs


def _token_table(counts: Mapping[str, int], like: HashRing | None) -> TokenTable:
    """The tokens of members that have so many each, those of *like* taken over."""
    indices = {name: index for index, name in enumerate(counts)}
    before = like._token_counts() if like is not None else {}
    stay = {name for name, count in before.items() if counts.get(name) == count}
    new = merge_tokens(
        {i: member_tokens(name, counts[name]) for name, i in indices.items() if name not in stay}
    )
    if like is None or like._arcs is None:
        return new
    kept = renumbered(like._arcs.tokens(), [indices[name] if name in stay else GONE for name in before])
    return inserted(kept, new)
