"""What a simulation or a plot starts from: a ring, its members, its objects; from the cluster, or as they are given.

Owns which of them is asked for where: with members and objects given, and no ring named, no cluster is needed. Reads
only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kubeio.errors import InputError
from ring import HashRing
from ringleader.cluster.reader import read_rings, read_shards
from ringleader.cluster.ring import Ring, named_main, named_ring
from ringleader.cluster.shards import Shard, by_weights, ring_weights
from ringleader.inspect.simulate.change import Weights, parse_members, ring_of
from ringleader.inspect.simulate.object_keys import (
    invented_keys,
    keys_of_file,
    parse_objects,
    read_keys,
    tell_on_stderr,
)
from ringleader.inspect.simulate.simulation import Batch, Rate
from ringleader.options import ConnectionOptions, connected
from ringleader.progress import progress
from sharder.ringspec.spec import RingSpec

if TYPE_CHECKING:
    from kubeio.rest.client import Client

T = TypeVar("T")
_DEFAULTS: Final = RingSpec(name="", lease_namespace="", resources=())
KeyBatches = AsyncGenerator[Batch, None]
NOT_ASKED: Final = "not asked for"
OF_OTHERS: Final = "other members work it: --resource chooses"
FEWEST_FOR_A_RATE: Final = 100
"""Objects that moved in a rebalance: of fewer, its time is that of waiting, not of moving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFlags:
    """The flags that name ring, members and objects, as they were written; None where they were not."""

    ring: str | None = None
    resource: str | None = None
    members: str | None = None
    objects: str | None = None
    virtual_nodes: int | None = None
    imbalance_percent: int | None = None
    connection: Callable[[], ConnectionOptions] = field(default=lambda: ConnectionOptions(None, None, 30.0))


@dataclass(frozen=True, slots=True)
class Members:
    """Members by weight, and who of them works what. *left_out*: further main resources of the ring, and why."""

    weights: Weights
    mains: Sequence[str] = ("",)
    kinds: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    """What each member works; one that is not here, or has None, works everything."""
    left_out: Mapping[str, str] = field(default_factory=dict)

    def of(self, main: str, weights: Weights) -> Weights:
        """Those of *weights* that work *main*."""
        return {name: weight for name, weight in weights.items() if self._works(name, main)}

    def _works(self, name: str, main: str) -> bool:
        kinds = self.kinds.get(name)
        return kinds is None or not main or main in kinds


@dataclass(frozen=True, slots=True)
class SimulationInput:
    """A ring at its beginning. *name* is empty if no cluster was asked."""

    name: str
    members: Members
    virtual_nodes: int
    eps: float
    measured: Rate | None
    keys: Callable[[], KeyBatches]
    """The objects in batches, read while they are asked for; close it."""

    def rings(self, weights: Weights) -> dict[str, HashRing]:
        """The ring of each main resource, these being the members. Raises: InputError."""
        each = {main: self.members.of(main, weights) for main in self.members.mains}
        return by_weights(each, lambda part: ring_of(part, virtual_nodes=self.virtual_nodes, eps=self.eps))

    @property
    def resource(self) -> str:
        """The main resources whose ring it is, if the ring has others."""
        return ", ".join(self.members.mains) if self.members.left_out else ""

    @property
    def left_out(self) -> list[str]:
        """The others, each with its reason."""
        return [f"{main} ({why})" for main, why in self.members.left_out.items()]


def with_input(
    flags: InputFlags,
    work: Callable[[SimulationInput], Coroutine[Any, Any, T]],
    *,
    needs_objects: bool,
    is_single: bool = False,
) -> T:
    """What the coroutine *work* makes of the input that *flags* name; *is_single*: one ring is to be shown.

    Raises: InputError, FailedAt.
    """
    weights = parse_members(flags.members) if flags.members is not None else None
    given = parse_objects(flags.objects) if flags.objects is not None else None
    keys = _given_keys(given) if given is not None else None
    if flags.ring is None and weights is not None and (keys is not None or not needs_objects):
        if flags.resource is not None:
            remedy = "name RING, or leave --resource out"
            raise InputError("--resource", flags.resource, "says nothing without a ring", remedy)
        return asyncio.run(work(_input("", Members(weights), _DEFAULTS, flags, None, keys or _nothing)))
    where = flags.connection()

    async def ask(client: Client, _: object) -> T:
        from kubeio.rest.discovery import Discovery

        ring = chosen_ring(await read_rings(client, timeout_s=where.timeout_s), flags.ring)
        main = named_main(ring, flags.resource) if flags.resource is not None else None
        if weights is not None:
            others = {each: NOT_ASKED for each in ring.mains if main not in (None, each)}
            members = Members(weights, [main] if main else ring.mains, left_out=others)
        else:
            shards = await read_shards(client, ring)
            members = worked_members(ring, shards, main=main, is_single=is_single or keys is not None)

        async def read() -> KeyBatches:
            discovery = Discovery(client)
            with progress(f"objects of ring {ring.name}", None) as done:
                async for batch in read_keys(
                    client, discovery, ring, mains=members.mains, timeout_s=where.timeout_s
                ):
                    yield batch
                    done(len(batch.keys))

        rate = measured_rate(ring)
        return await work(_input(ring.name, members, ring.spec, flags, rate, keys or read))

    return connected(where, ask)


def worked_members(ring: Ring, shards: Sequence[Shard], *, main: str | None, is_single: bool) -> Members:
    """The members of *ring* as its Leases show them; of the main resource *main* only, if one is given.

    *is_single*: of the first one that members work, unless the same members work all. Raises: InputError.
    """
    by_main = {each: ring_weights(ring, shards, each) for each in ring.mains}
    worked = [each for each, weights in by_main.items() if weights]
    if not worked:
        remedy = "start a replica (ringleader status shows their state), or give --members"
        raise InputError("RING", ring.name, "has no member with a place on the ring", remedy)
    if main is not None and main not in worked:
        remedy = f"start a replica of its controller, or name another: {', '.join(worked)}"
        raise InputError("--resource", main, f"is worked by no member of ring {ring.name}", remedy)
    left_out = {each: "no member works it" for each in ring.mains if each not in worked}
    if main is not None:
        left_out |= {each: NOT_ASKED for each in worked if each != main}
        worked = [main]
    elif is_single and any(by_main[each] != by_main[worked[0]] for each in worked):
        left_out |= dict.fromkeys(worked[1:], OF_OTHERS)
        worked = worked[:1]
    weights = {name: weight for each in worked for name, weight in by_main[each].items()}
    kinds = {shard.member: shard.resources for shard in shards if shard.is_active}
    return Members(weights, worked, kinds, left_out)


def chosen_ring(rings: list[Ring], name: str | None) -> Ring:
    """The ring *name*, or the only one there is. Raises: InputError naming what there is."""
    if name is not None:
        return named_ring(rings, name)
    if len(rings) == 1:
        return rings[0]
    if not rings:
        raise InputError("RING", "", "is missing, and this cluster has none", "give --members and --objects")
    known = ", ".join(ring.name for ring in rings)
    raise InputError("RING", "", "is missing, and this cluster has several", f"name one of {known}")


def measured_rate(ring: Ring) -> Rate | None:
    """Objects per second that changed their owner when *ring* was last disturbed; None if its status does not tell."""
    last = ring.status.get("lastRebalance") or {}
    moved, took_s = last.get("moved"), last.get("durationSeconds")
    if not isinstance(moved, int) or not isinstance(took_s, int | float):
        return None
    if moved < FEWEST_FOR_A_RATE or took_s <= 0:
        return None
    return Rate(moved / took_s, f"measured {last.get('time', '')}")


def _input(  # noqa: PLR0917 - what a SimulationInput is made of
    name: str,
    members: Members,
    fields: RingSpec,
    flags: InputFlags,
    rate: Rate | None,
    keys: Callable[[], KeyBatches],
) -> SimulationInput:
    nodes = fields.virtual_nodes if flags.virtual_nodes is None else flags.virtual_nodes
    eps = fields.eps if flags.imbalance_percent is None else flags.imbalance_percent / 100
    if not 0 < eps <= 1:
        raise InputError(
            "--imbalance-percent",
            flags.imbalance_percent,
            "is no percentage",
            "write a whole number from 1 to 100",
        )
    return SimulationInput(name, members, nodes, eps, rate, keys)


def _given_keys(given: int | Path) -> Callable[[], KeyBatches]:
    async def read() -> KeyBatches:
        with progress("objects", given if isinstance(given, int) else None) as done:
            for batch in (
                invented_keys(given) if isinstance(given, int) else keys_of_file(given, report=tell_on_stderr)
            ):
                yield batch
                done(len(batch.keys))

    return read


async def _nothing() -> KeyBatches:
    yield Batch([])
