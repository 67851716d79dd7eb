"""What a simulation or a plot starts from: a ring, its members, its objects; from the cluster, or as they are given.

Owns which of them is asked for where: with members and objects given, and no ring named, no cluster is needed. Reads
only. Called by `simulate` and by plots.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kubeio.errors import InputError
from ring import HashRing
from ringleader.inspect.cluster.reading import named_ring, read_lives, read_rings
from ringleader.inspect.cluster.rings import Ring, RingFields, ring_weights
from ringleader.inspect.simulate.change import Weights, parse_members, ring_of
from ringleader.inspect.simulate.simulation import Batch, Rate
from ringleader.inspect.simulate.stock import invented, listed, parse_objects, read_stock, tell_on_stderr
from ringleader.options import Connection, connected
from ringleader.progress import progress

if TYPE_CHECKING:
    from kubeio.rest.client import Client

T = TypeVar("T")
Stock = AsyncGenerator[Batch, None]
FEWEST_FOR_A_RATE: Final = 100
"""Objects that moved in a rebalance: of fewer, its time is that of waiting, not of moving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Premises:
    """The flags that name ring, members and objects, as they were written; None where they were not."""

    ring: str | None = None
    members: str | None = None
    objects: str | None = None
    virtual_nodes: int | None = None
    eps: float | None = None
    connection: Callable[[], Connection] = field(default=lambda: Connection(None, None, 30.0))


@dataclass(frozen=True, slots=True)
class Ground:
    """A ring at its beginning. *name* is empty if no cluster was asked."""

    name: str
    weights: Weights
    virtual_nodes: int
    eps: float
    measured: Rate | None
    stock: Callable[[], Stock]
    """The objects in batches, read while they are asked for; close it."""

    def ring(self, weights: Weights) -> HashRing:
        """The ring of these members. Raises: InputError."""
        return ring_of(weights, virtual_nodes=self.virtual_nodes, eps=self.eps)


def on_ground(
    premises: Premises, work: Callable[[Ground], Coroutine[Any, Any, T]], *, needs_objects: bool
) -> T:
    """What the coroutine *work* makes of the ground that *premises* name. Raises: InputError, FailedAt."""
    members = parse_members(premises.members) if premises.members is not None else None
    given = parse_objects(premises.objects) if premises.objects is not None else None
    stock = _given_stock(given) if given is not None else None
    if premises.ring is None and members is not None and (stock is not None or not needs_objects):
        fields = RingFields()
        ground = _ground("", members, fields, premises, None, stock or _nothing)
        return asyncio.run(work(ground))
    where = premises.connection()

    async def ask(client: Client, _: object) -> T:
        from kubeio.rest.discovery import Discovery

        ring = chosen_ring(await read_rings(client, timeout_s=where.timeout_s), premises.ring)
        weights = members if members is not None else await _weights(client, ring)

        async def read() -> Stock:
            discovery = Discovery(client)
            with progress(f"objects of ring {ring.name}", None) as done:
                async for batch in read_stock(client, discovery, ring, timeout_s=where.timeout_s):
                    yield batch
                    done(len(batch.keys))

        rate = measured_rate(ring)
        return await work(_ground(ring.name, weights, ring.spec, premises, rate, stock or read))

    return connected(where, ask)


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


def _ground(  # noqa: PLR0917 - what a Ground is made of
    name: str,
    weights: Weights,
    fields: RingFields,
    premises: Premises,
    rate: Rate | None,
    stock: Callable[[], Stock],
) -> Ground:
    nodes = fields.virtual_nodes if premises.virtual_nodes is None else premises.virtual_nodes
    return Ground(name, weights, nodes, fields.eps if premises.eps is None else premises.eps, rate, stock)


async def _weights(client: Client, ring: Ring) -> Weights:
    found = await read_lives(client, ring)
    weights = ring_weights(ring, found)
    if any(ring_weights(ring, found, each.kind.name) != weights for each in ring.spec.resources):
        raise InputError(
            "RING",
            ring.name,
            "has main resources that different members work, so its parts move on rings of their own",
            "simulate one of them: give its members with --members",
        )
    if not weights:
        remedy = "start a replica (ringleader status shows their state), or give --members"
        raise InputError("RING", ring.name, "has no member with a place on the ring", remedy)
    return weights


def _given_stock(given: int | Path) -> Callable[[], Stock]:
    async def read() -> Stock:
        with progress("objects", given if isinstance(given, int) else None) as done:
            for batch in invented(given) if isinstance(given, int) else listed(given, told=tell_on_stderr):
                yield batch
                done(len(batch.keys))

    return read


async def _nothing() -> Stock:
    yield Batch([])
