"""Output of the demo: a live view on a terminal, plain lines in a pipe, nothing when it is headless.

Owns the layout. Receives messages and samples, reads nothing.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ringleader.demo.sampler import FleetSample, MemberSample

_MIB = 1 << 20
_BAR = 24
_LINES = 12
_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_red", "bright_green", "bright_cyan")
_STATES = {
    "working": "green",
    "leading": "green",
    "frozen": "bold bright_blue",
    "down": "bold red",
    "starting": "yellow",
    "gone": "dim",
    "idle": "dim",
    "standby": "dim",
}


class Screen(Protocol):
    """Output of the acts."""

    def act(self, title: str, explanation: str) -> None:
        """Begin an act."""

    def say(self, text: str, *, weight: str = "") -> None:
        """Show a message; *weight* is good, bad or empty."""

    def show(self, sample: FleetSample) -> None:
        """Show the fleet's newest *sample*."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class SilentScreen:
    """For `--headless`."""

    def act(self, title: str, explanation: str) -> None: ...
    def say(self, text: str, *, weight: str = "") -> None: ...
    def show(self, sample: FleetSample) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LineScreen(SilentScreen):
    """One line per message and one every few seconds: for pipes and logs."""

    def __init__(self, stream: TextIO | None = None, *, every_s: float = 5.0) -> None:
        self._stream = stream or sys.stdout
        self._began = time.monotonic()
        self._every_s = every_s
        self._shown_at = 0.0

    def act(self, title: str, explanation: str) -> None:
        self._print(f"== {title}: {explanation}")

    def say(self, text: str, *, weight: str = "") -> None:
        self._print(text)

    def show(self, sample: FleetSample) -> None:
        if time.monotonic() - self._shown_at < self._every_s:
            return
        self._shown_at = time.monotonic()
        shares = ", ".join(f"{member.name} {member.objects}" for member in sample.members)
        self._print(
            f"   {shares}; unassigned {sample.unassigned}, in flight {sample.in_flight}, "
            f"{sample.rate:.0f} reconciles/s, {_rss(max((m.rss_bytes for m in sample.members), default=0))} each"
        )

    def _print(self, line: str) -> None:
        self._stream.write(f"{time.monotonic() - self._began:6.1f} s  {line}\n")
        self._stream.flush()


@dataclass(slots=True)
class LiveScreen:
    """A table of the fleet, drawn four times a second, above the last messages."""

    console: Console
    subtitle: str = ""
    title: str = "Starting"
    explanation: str = ""
    sample: FleetSample = field(default_factory=FleetSample)
    _lines: deque[Text] = field(default_factory=lambda: deque(maxlen=_LINES))
    _began: float = field(default_factory=time.monotonic)
    _live: Live | None = None

    def __enter__(self) -> Self:
        self._live = Live(get_renderable=self._draw, console=self.console, refresh_per_second=4)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def act(self, title: str, explanation: str) -> None:
        self.title, self.explanation = title, explanation
        self._log(Text(title, style="bold"))

    def say(self, text: str, *, weight: str = "") -> None:
        self._log(Text(text, style={"good": "green", "bad": "bold red"}.get(weight, "")))

    def show(self, sample: FleetSample) -> None:
        self.sample = sample

    def _log(self, line: Text) -> None:
        stamp = Text(f"{time.monotonic() - self._began:5.1f} s  ", style="dim")
        self._lines.append(stamp + line)

    def _draw(self) -> RenderableType:
        return Panel(
            Group(
                Text(self.title, style="bold"),
                Text(self.explanation, style="dim"),
                Text(),
                _members(self.sample),
                _totals(self.sample),
                Rule(style="dim"),
                *self._lines,
                *[Text()] * (_LINES - len(self._lines)),
            ),
            title="[bold]Ringleader[/bold]",
            subtitle=Text(self.subtitle, style="dim"),
            box=box.ROUNDED,
            padding=(0, 1),
        )


def _members(sample: FleetSample) -> Table:
    table = Table(box=None, pad_edge=False, expand=True, header_style="dim")
    table.add_column("member", no_wrap=True)
    table.add_column("shard", no_wrap=True, style="dim")
    table.add_column("state", no_wrap=True)
    table.add_column("share", no_wrap=True, min_width=_BAR)
    for column in ("objects", "in flight", "rec/s", "RSS"):
        table.add_column(column, justify="right", no_wrap=True)
    for index, member in enumerate(sample.members):
        table.add_row(*_member_cells(member, colour=_COLOURS[index % len(_COLOURS)]))
    for name, state, rss in sample.sharders:
        table.add_row(
            Text(name, style="dim"), "", Text(state, style=_STATES.get(state, "")), "", "", "", "", _rss(rss)
        )
    return table


def _member_cells(member: MemberSample, *, colour: str) -> list[RenderableType]:
    return [
        Text(member.name, style=colour),
        member.shard.removeprefix(member.name + "-"),
        Text(member.state, style=_STATES.get(member.state, "")),
        Text("█" * round(member.share * _BAR * 2), style=colour) + Text(f" {member.share:.0%}", style="dim"),
        f"{member.objects:,}",
        f"{member.in_flight:,}" if member.in_flight else "",
        f"{member.rate:.0f}",
        _rss(member.rss_bytes),
    ]


def _totals(sample: FleetSample) -> Text:
    parts = [
        f"{sample.objects:,} objects",
        f"{sample.unassigned:,} unassigned",
        f"{sample.in_flight:,} in flight",
        f"{sample.rate:.0f} reconciles/s",
        f"{sample.updates:,} updates so far",
        f"API server {_rss(sample.plane_rss_bytes)}",
    ]
    return Text("   ".join(parts), style="bold")


def _rss(number: int) -> str:
    return f"{number / _MIB:.0f} MB" if number else "-"


def choose_screen(*, is_headless: bool, subtitle: str = "") -> Screen:
    """The screen that fits stdout."""
    if is_headless:
        return SilentScreen()
    console = Console()
    is_live = console.is_terminal and not console.is_dumb_terminal
    return LiveScreen(console, subtitle) if is_live else LineScreen()
