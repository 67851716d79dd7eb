"""`ringleader status -w`: the same picture again and again, in its place on a terminal, as blocks of lines elsewhere.

Owns the rhythm and what is said while the cluster does not answer: the last picture stays, with its age, until there is
a newer one. A look costs a few small reads: objects are what the replicas report, or are listed once and watched.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from kubeio.clock import Clock, SystemClock, micro_time
from kubeio.errors import InputError, KubeError
from kubeio.program.failures import failure
from ringleader.cluster.following import Following
from ringleader.cluster.picture import RingPicture
from ringleader.cluster.reported import NotReported, Reports
from ringleader.inspect.status.layout import Screen, status_lines, wrapped
from ringleader.inspect.status.pace import Paces
from ringleader.options import ConnectionOptions, connected
from ringleader.output import Form, age, print_line

if TYPE_CHECKING:
    from rich.live import Live

    from kubeio.access.cluster import Cluster
    from kubeio.rest.client import Client

REST: Final = 2.0
"""A look is followed by a rest of so many times its length."""
TICK_S: Final = 1.0
"""Ages grow on the screen between two looks."""


@dataclass(slots=True)
class Seen:
    """What is on the screen: the last picture, when it was taken, and what went wrong since."""

    clock: Clock
    read: Callable[[], int] = int
    """How many objects were read so far, while there is no picture."""
    looks: Sequence[RingPicture] = ()
    at: float = 0.0
    problem: str = ""
    _paces: Paces = field(default_factory=Paces)

    def succeeded(self, looks: Sequence[RingPicture]) -> None:
        self.at, self.problem = self.clock.now(), ""
        self.looks = [
            self._paces.paced(shown, self.at) if shown.reported_seconds_ago is None else shown
            for shown in looks
        ]

    def failed(self, error: KubeError, server: str) -> None:
        self.problem = failure(error, server=server).message

    def lines(self, screen: Screen, *, is_wide: bool) -> list[str]:
        """What to show: first, if the cluster does not answer, how old the rest is."""
        told: list[str] = []
        if not self.at:
            return [f"reading the objects: {self.read():,} so far"]
        if self.problem:
            old = age(self.clock.now() - self.at)
            text = f"no answer, this picture is {old} old: {self.problem}"
            told = [*(wrapped(text, screen.columns) if screen.columns else [text]), ""]
        return told + status_lines(self.looks, screen, is_wide=is_wide, now=self.clock.wall())


class Source(Protocol):
    """Where pictures come from: `Reports` or `Following`."""

    @property
    def objects_read(self) -> int: ...

    async def look(self) -> Sequence[RingPicture]: ...


def run_watch(
    where: ConnectionOptions, *, ring: str | None, form: Form | None, is_counting: bool, interval_s: float
) -> int:
    """The command; Ctrl-C is its end. The first look must succeed: there is nothing to keep before it."""
    if form not in (None, Form.WIDE, Form.JSON):
        raise InputError("-o", form.value, "is not for -w", "use json (a line for each picture) or wide")

    async def watch(client: Client, cluster: Cluster) -> None:
        from kubeio.rest.discovery import Discovery

        reports = Reports(client, ring, timeout_s=where.timeout_s)
        following = Following(client, Discovery(client), ring, timeout_s=where.timeout_s)
        with _display(form) as live:
            if not is_counting:
                with suppress(NotReported):
                    await follow(reports, cluster.server, live, form, interval_s=interval_s)
            async with following:
                await follow(following, cluster.server, live, form, interval_s=interval_s)

    try:
        connected(where, watch)
    except KeyboardInterrupt:
        sys.stdout.flush()
    return 0


async def follow(
    source: Source, server: str, live: Live | None, form: Form | None, *, interval_s: float
) -> None:
    """Look and show until cancelled.

    Raises what the first look raises, InputError when the ring is gone, NotReported.
    """
    seen = Seen(SystemClock(), lambda: source.objects_read)
    show = _shower(live, seen, form)
    ticking = asyncio.create_task(_tick(seen, show), name="redraw")
    try:
        while True:
            began = seen.clock.now()
            try:
                seen.succeeded(await source.look())
            except InputError:
                raise
            except KubeError as error:
                if not seen.at:
                    raise
                seen.failed(error, server)
            show()
            await asyncio.sleep(max(interval_s, REST * (seen.clock.now() - began)))
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)


async def _tick(seen: Seen, show: Callable[[], None]) -> None:
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


def _shower(live: Live | None, seen: Seen, form: Form | None) -> Callable[[], None]:
    if form is Form.JSON:
        return _once_for_each(seen, lambda: print_line(_json(seen)))
    if live is None:
        return _once_for_each(seen, lambda: _print_block(seen, is_wide=form is Form.WIDE))

    def redraw() -> None:
        from rich.text import Text

        columns = live.console.width
        shown = seen.lines(Screen(columns), is_wide=form is Form.WIDE)
        told = Text("\n".join(shown), no_wrap=True, overflow="crop")
        if seen.problem:
            told.stylize("bold red", 0, len(shown[0]))
        live.update(told, refresh=True)

    return redraw


def _once_for_each(seen: Seen, show: Callable[[], None]) -> Callable[[], None]:
    """*show* for each new picture, and when the cluster stops answering; not for ages that grow."""
    last: tuple[float, bool] | None = None

    def shown() -> None:
        nonlocal last
        now = (seen.at, bool(seen.problem))
        if now != last and seen.at:
            show()
            sys.stdout.flush()
        last = now

    return shown


def _print_block(seen: Seen, *, is_wide: bool) -> None:
    print_line(f"-- {seen.clock.wall():%H:%M:%S}")
    for line in seen.lines(Screen.of_stdout(), is_wide=is_wide):
        print_line(line)


def _json(seen: Seen) -> str:
    import msgspec

    document = {
        "at": micro_time(seen.clock.wall()),
        "ageSeconds": round(seen.clock.now() - seen.at, 3),
        "problem": seen.problem,
        "rings": seen.looks,
    }
    return msgspec.json.encode(document).decode()
