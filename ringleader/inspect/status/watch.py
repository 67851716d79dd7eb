"""`ringleader status -w`: the status again and again, in its place on a terminal, as blocks of lines elsewhere.

Rings are watched; a look reads rings and Leases when a ring changes, at most once an interval, and every few seconds at
rest. Owns this rhythm, and what is shown while the cluster does not answer: the last status stays, with its age.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.clock import Clock, SystemClock, micro_time
from kubeio.errors import InputError, KubeError
from kubeio.program.failures import failure
from ringleader.cluster.reader import ClusterReader
from ringleader.cluster.ring_status import MemberStatus, RingStatus
from ringleader.inspect.status.layout import Screen, status_lines, wrapped
from ringleader.inspect.status.ring_changes import RingChanges
from ringleader.inspect.status.statuses import read_statuses
from ringleader.options import ConnectionOptions, connected
from ringleader.output import Form, age, print_line

if TYPE_CHECKING:
    from rich.live import Live

    from kubeio.access.cluster import Cluster
    from kubeio.rest.client import Client

REST: Final = 2.0
"""A look is followed by a rest of so many times its length."""
QUIET_S: Final = 5.0
"""Rings and Leases are read so often while no ring changes: replicas renew every five seconds by default."""
TICK_S: Final = 1.0
"""Ages grow on the screen between two looks."""


@dataclass(slots=True)
class LatestStatus:
    """The last status, when it was read, and what went wrong since."""

    clock: Clock
    rings: Sequence[RingStatus] = ()
    at: float = 0.0
    problem: str = ""

    def succeeded(self, rings: Sequence[RingStatus]) -> None:
        self.at, self.problem, self.rings = self.clock.now(), "", rings

    def failed(self, error: KubeError, server: str) -> None:
        self.problem = failure(error, server=server).message

    def lines(self, screen: Screen, *, is_wide: bool) -> list[str]:
        """The lines to show: first, if the cluster does not answer, the age of the others."""
        if not self.at:
            return ["reading rings and Leases"]
        old_s = self.clock.now() - self.at
        outage: list[str] = []
        if self.problem:
            text = f"no answer, this status is {age(old_s)} old: {self.problem}"
            outage = [*(wrapped(text, screen.columns) if screen.columns else [text]), ""]
        rings = [_aged(each, old_s) for each in self.rings]
        return outage + status_lines(rings, screen, is_wide=is_wide, now=self.clock.wall())


def _aged(ring: RingStatus, by_s: float) -> RingStatus:
    """*ring*, the ages of its Leases being greater."""

    def aged(member: MemberStatus) -> MemberStatus:
        age_s = member.lease_age_seconds
        return msgspec.structs.replace(member, lease_age_seconds=None if age_s is None else age_s + by_s)

    return msgspec.structs.replace(ring, members=[aged(member) for member in ring.members])


def run_watch(where: ConnectionOptions, *, ring: str | None, form: Form | None, interval_s: float) -> int:
    """The command; Ctrl-C is its end. The first look must succeed: there is no status to keep before it."""
    if form not in (None, Form.WIDE, Form.JSON):
        raise InputError("-o", form.value, "is not for -w", "use json (a line for each status) or wide")

    async def watch(client: Client, cluster: Cluster) -> None:
        reader, latest = ClusterReader(client, timeout_s=where.timeout_s), LatestStatus(SystemClock())
        with _display(form) as live:
            show = _shower(live, latest, form)
            ticking = asyncio.create_task(_tick(show), name="redraw")
            try:
                async with RingChanges(client, ring, clock=latest.clock) as changes:
                    await follow(reader, changes, latest, show, ring=ring, interval_s=interval_s)
            finally:
                ticking.cancel()
                await asyncio.gather(ticking, return_exceptions=True)

    try:
        connected(where, watch)
    except KeyboardInterrupt:
        sys.stdout.flush()
    return 0


async def follow(
    reader: ClusterReader,
    changes: RingChanges,
    latest: LatestStatus,
    show: Callable[[], None],
    *,
    ring: str | None,
    interval_s: float,
) -> None:
    """Look and show until cancelled. Raises what the first look raises, and InputError when the ring is gone."""
    while True:
        began = latest.clock.now()
        changes.clear()
        try:
            latest.succeeded(await read_statuses(reader, ring))
        except InputError:
            raise
        except KubeError as error:
            if not latest.at:
                raise
            latest.failed(error, reader.client.cluster.server)
        show()
        await asyncio.sleep(max(interval_s, REST * (latest.clock.now() - began)))
        await changes.wait(at_most_s=max(0.0, QUIET_S - (latest.clock.now() - began)))


async def _tick(show: Callable[[], None]) -> None:
    """Let the ages grow, also while an answer is waited for."""
    while True:
        await asyncio.sleep(TICK_S)
        show()


def _display(form: Form | None) -> AbstractContextManager[Live | None]:
    """A place to redraw in, where there is one: not in a pipe, not on a terminal that cannot move its cursor."""
    if form is Form.JSON or not sys.stdout.isatty():
        return nullcontext(None)
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    if console.is_dumb_terminal:
        return nullcontext(None)
    return Live(console=console, auto_refresh=False, vertical_overflow="ellipsis")


def _shower(live: Live | None, latest: LatestStatus, form: Form | None) -> Callable[[], None]:
    if form is Form.JSON:
        return _once_for_each(latest, lambda: print_line(_json(latest)))
    if live is None:
        return _once_for_each(latest, lambda: _print_block(latest, is_wide=form is Form.WIDE))

    def redraw() -> None:
        from rich.text import Text

        columns = live.console.width
        lines = latest.lines(Screen(columns), is_wide=form is Form.WIDE)
        text = Text("\n".join(lines), no_wrap=True, overflow="crop")
        if latest.problem:
            text.stylize("bold red", 0, len(lines[0]))
        live.update(text, refresh=True)

    return redraw


def _once_for_each(latest: LatestStatus, show: Callable[[], None]) -> Callable[[], None]:
    """*show* for each new status, and when the cluster stops answering; not for ages that grow."""
    last: tuple[float, bool] | None = None

    def shown() -> None:
        nonlocal last
        now = (latest.at, bool(latest.problem))
        if now != last and latest.at:
            show()
            sys.stdout.flush()
        last = now

    return shown


def _print_block(latest: LatestStatus, *, is_wide: bool) -> None:
    print_line(f"-- {latest.clock.wall():%H:%M:%S}")
    for line in latest.lines(Screen.of_stdout(), is_wide=is_wide):
        print_line(line)


def _json(latest: LatestStatus) -> str:
    document = {
        "at": micro_time(latest.clock.wall()),
        "ageSeconds": round(latest.clock.now() - latest.at, 3),
        "problem": latest.problem,
        "rings": latest.rings,
    }
    return msgspec.json.encode(document).decode()
