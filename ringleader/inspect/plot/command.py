"""`ringleader plot ring|shares|moves|timeline`: gathers what a picture shows, draws it and says where it is.

Owns the order of things: input is checked, and matplotlib looked for, before anything is read from the cluster.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from kubeio.errors import InputError
from ring import HashRing
from ringleader.inspect.plot.canvas import drawing, save, target_of
from ringleader.inspect.simulate.premises import Ground, Premises, on_ground
from ringleader.output import print_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ringleader.inspect.plot.recording import Order
    from ringleader.options import ConnectionOptions


def plot_ring(premises: Premises, *, output: str | None) -> int:
    """The ring as a circle. Raises: InputError, FailedAt, NoMatplotlib."""
    from ringleader.inspect.plot.circle import draw_ring

    def draw() -> Figure:
        async def work(ground: Ground) -> tuple[Ground, HashRing]:
            return ground, _only_ring(ground)

        ground, ring = on_ground(premises, work, needs_objects=False, is_single=True)
        return draw_ring(ring, name=ground.name, of=ground.resource)

    return _drawn(draw, output, kind="ring", ring=premises.ring)


def plot_shares(premises: Premises, *, output: str | None) -> int:
    """Shares, and objects where they are known. Raises: InputError, FailedAt, NoMatplotlib."""
    from ringleader.inspect.plot.shares import draw_shares

    def draw() -> Figure:
        async def work(ground: Ground) -> tuple[Ground, HashRing, Counter[str]]:
            ring = _only_ring(ground)
            return ground, ring, await _objects(ground, ring)

        ground, ring, objects = on_ground(premises, work, needs_objects=False, is_single=True)
        return draw_shares(ring, objects, name=ground.name, of=ground.resource)

    return _drawn(draw, output, kind="shares", ring=premises.ring)


def _only_ring(ground: Ground) -> HashRing:
    """The ring that is shown; where there are others, it is told on stderr which."""
    if ground.resource:
        sys.stderr.write(
            f"note: the ring of {ground.resource} is shown; left out: {', '.join(ground.left_out)}\n"
        )
    return next(iter(ground.rings(ground.members.weights).values()))


async def _objects(ground: Ground, ring: HashRing) -> Counter[str]:
    """Objects by the member at whose place they belong; what they control counts with them."""
    found: Counter[str] = Counter()
    async with aclosing(ground.stock()) as batches:
        async for batch in batches:
            for index, owner in enumerate(ring.owners(batch.keys)):
                found[owner] += batch.roots[index] if batch.roots is not None else 1
                found[owner] += batch.controlled[index] if batch.controlled is not None else 0
    return found


def plot_moves(premises: Premises, *, change: Sequence[str], output: str | None) -> int:
    """What a change would move. Raises: InputError, FailedAt, NoMatplotlib."""
    from ringleader.inspect.plot.moves import draw_moves
    from ringleader.inspect.simulate.command import simulated

    def draw() -> Figure:
        found = simulated(premises, change=change)
        if not found.moved:
            problem = "moves none of the objects, so there is nothing to draw"
            raise InputError("--change", ",".join(change), problem, "change more, or give --objects")
        return draw_moves(found)

    return _drawn(draw, output, kind="moves", ring=premises.ring)


def plot_timeline(
    file: Path, *, order: Order | None, where: Callable[[], ConnectionOptions], output: str | None
) -> int:
    """What *file* recorded; with *order* it is recorded first. Raises: InputError, FailedAt, NoMatplotlib."""
    from ringleader.inspect.plot.record import read_record
    from ringleader.inspect.plot.timeline import draw_timeline
    from ringleader.inspect.simulate.stock import tell_on_stderr

    def draw() -> Figure:
        if order is not None:
            from ringleader.inspect.plot.recording import run_record

            print_line(f"{run_record(where(), order):,} moments in {file}")
        return draw_timeline(read_record(file, told=tell_on_stderr), name=(order and order.ring) or "")

    return _drawn(draw, output, kind="timeline", ring=order.ring if order else None)


def _drawn(draw: Callable[[], Figure], output: str | None, *, kind: str, ring: str | None) -> int:
    """Draw and write one picture; its path is printed."""
    path = target_of(output, default=f"{kind}-{ring}" if ring else kind)
    with drawing():
        save(draw(), path)
    print_line(str(path))
    return 0
