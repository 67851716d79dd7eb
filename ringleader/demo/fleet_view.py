"""A sample of a fleet as the screen shows it. Pure."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ringleader.demo.sampler import FleetSample, MemberSample
from ringleader.demo.screen import View

_MIB = 1 << 20
_BAR = 24
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


def fleet_view(sample: FleetSample) -> View:
    """The shares, rates and totals of *sample*."""
    shares = ", ".join(f"{member.name} {member.objects}" for member in sample.members)
    line = (
        f"{shares}; unassigned {sample.unassigned}, in flight {sample.in_flight}, "
        f"{sample.rate:.0f} reconciles/s, {_rss(max((m.rss_bytes for m in sample.members), default=0))} each"
    )
    return View(line, (_members(sample), _totals(sample)))


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
