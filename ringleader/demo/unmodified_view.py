"""A fleet of unmodified controllers as the screen shows it: who owns how much, and pods made and wanted."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ringleader.demo.screen import View
from ringleader.testing.unmodified.fleet import ProxyFleet
from ringleader.testing.unmodified.replica_sets import ReplicaSetCount

_BAR = 24
_ROWS = 8
"""ReplicaSets that are shown."""
_COLOURS = ("cyan", "green", "magenta", "yellow", "blue")


def unmodified_view(fleet: ProxyFleet) -> View:
    """The state of *fleet* now."""
    workloads, owners = fleet.workloads, fleet.owners()
    counts = [count for count in workloads.deployments.replica_sets.values() if not count.is_gone]
    wanted = sum(count.raised for count in workloads.deployments.replica_sets.values())
    shares = ", ".join(f"{name} {owners[name]}" for name in fleet.places)
    line = f"{shares}; unassigned {owners['']}; pods made {workloads.pods_made}, wanted {wanted}"
    totals = f"{owners.total()} Deployments   {len(counts)} ReplicaSets   {workloads.pods_made} pods made"
    surplus = sum(max(0, count.made - count.raised) for count in counts)
    body: tuple[RenderableType, ...] = (
        _members(fleet, total=max(owners.total(), 1)),
        Text(f"{totals}, {wanted} wanted   {surplus} too many", style="bold"),
        _replica_sets(counts),
    )
    return View(line, body)


def _members(fleet: ProxyFleet, *, total: int) -> Table:
    table = Table(box=None, pad_edge=False, expand=True, header_style="dim")
    for column in ("kube-controller-manager", "state"):
        table.add_column(column, no_wrap=True)
    table.add_column("share", no_wrap=True, min_width=_BAR)
    table.add_column("Deployments", justify="right", no_wrap=True)
    owners = fleet.owners()
    for index, name in enumerate(fleet.places):
        colour = _COLOURS[index % len(_COLOURS)]
        state, style = _state(fleet, name)
        bar = Text("█" * round(owners[name] / total * _BAR * 2), style=colour)
        table.add_row(Text(name, style=colour), Text(state, style=style), bar, str(owners[name]))
    return table


def _state(fleet: ProxyFleet, name: str) -> tuple[str, str]:
    if fleet.places[name].current is None:
        return "dead", "bold red"
    return ("works", "green") if fleet.controller(name) is not None else ("hands over", "yellow")


def _replica_sets(counts: list[ReplicaSetCount]) -> Table:
    """Those that roll come first, those without pods last."""
    table = Table(box=None, pad_edge=False, expand=True, header_style="dim")
    table.add_column("ReplicaSet", no_wrap=True)
    for column in ("pods now", "made", "wanted"):
        table.add_column(column, justify="right", no_wrap=True)
    for count in sorted(counts, key=lambda count: (count.live == count.wanted, not count.wanted))[:_ROWS]:
        style = "bold red" if count.made > count.raised else ""
        table.add_row(
            count.name,
            str(count.live),
            Text(str(count.made), style=style),
            Text(str(count.raised), style=style),
        )
    return table
