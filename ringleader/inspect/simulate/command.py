"""`ringleader simulate --change ...`: what would move if members came, went or changed their weight. Writes nothing.

Owns how the outcome is printed; what moves is `simulation`'s, where they come from is `simulation_input`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing

from kubeio.errors import InputError
from ring import HashRing
from ringleader.inspect.simulate.change import MembershipChange, apply_change
from ringleader.inspect.simulate.simulation import MOST_FLOWS, Part, Rate, Simulation, Tally, conclude
from ringleader.inspect.simulate.simulation_input import InputFlags, SimulationInput, with_input
from ringleader.output import Form, Table, print_document, print_line, print_table

_MOST_CHANGES_TOLD = 6


def run_simulate(flags: InputFlags, *, change: Sequence[str], rate: str | None, form: Form | None) -> int:
    """The command. Raises: InputError, FailedAt."""
    if form is Form.NAME:
        simulated(flags, change=change, rate=rate, moving=_print_all)
        return 0
    found = simulated(flags, change=change, rate=rate)
    if form in (Form.JSON, Form.YAML):
        print_document(found, form=form)
    else:
        _print(found, form)
    return 0


def simulated(
    flags: InputFlags,
    *,
    change: Sequence[str],
    rate: str | None = None,
    moving: Callable[[Sequence[str]], None] = lambda keys: None,
) -> Simulation:
    """What *change* would move; *moving* is told the keys that move, in batches. Raises: InputError, FailedAt."""
    if not change:
        raise InputError("--change", "", "is missing", "say what changes: --change +2, --change -web-0")
    given = parse_rate(rate) if rate is not None else None

    async def work(start: SimulationInput) -> Simulation:
        changed = apply_change(start.members.weights, change)
        tally = Tally(start.rings(changed.before), _rings_after(start, changed))
        async with aclosing(start.keys()) as batches:
            async for batch in batches:
                moving(tally.add(batch))
        rate = given or start.measured
        return conclude(start.name, changed, tally, rate=rate, left_out=start.left_out)

    return with_input(flags, work, needs_objects=True)


def _rings_after(start: SimulationInput, changed: MembershipChange) -> dict[str, HashRing]:
    """The rings after a change. Raises: InputError if nobody works one of the main resources then."""
    rings = start.rings(changed.after)
    for main, ring in rings.items():
        if not len(ring):
            remedy = "leave at least one; --resource simulates another main resource"
            raise InputError(
                "--change", ", ".join(changed.told), f"leaves no member that works {main}", remedy
            )
    return rings


def parse_rate(text: str) -> Rate:
    """Objects per second in `400`. Raises: InputError."""
    try:
        number = float(text.removesuffix("/s"))
    except ValueError:
        raise InputError("--rate", text, "is not a rate", "write objects per second, such as 400") from None
    if not 0 < number < float("inf"):
        raise InputError("--rate", text, "moves nothing", "write objects per second, such as 400")
    return Rate(number, "given")


def _print_all(keys: Sequence[str]) -> None:
    for key in keys:
        print_line(key)


def _print(found: Simulation, form: Form | None) -> None:
    for line in summary(found):
        print_line(line)
    print_line()
    print_table(member_table(found), form=form)
    if not found.flows:
        return
    print_line()
    is_wide = form is Form.WIDE
    print_table(flow_table(found, most=None if is_wide else MOST_FLOWS), form=form)
    if (more := len(found.flows) - MOST_FLOWS) > 0 and not is_wide:
        print_line(f"and {more:,} more, smaller ones (-o wide shows them)")


def summary(found: Simulation) -> list[str]:
    """The outcome in a few lines."""
    told = found.change[:_MOST_CHANGES_TOLD]
    more = len(found.change) - len(told)
    if more:
        told.append(f"and {more} more")
    rows = [("ring", found.ring)] if found.ring else []
    if found.left_out:
        rows.append(("resource", ", ".join(main for part in found.parts for main in part.resources)))
        rows.append(("left out", ", ".join(found.left_out)))
    rows += [
        ("change", ", ".join(told)),
        ("members", f"{found.members_before:,} before, {found.members_after:,} after"),
        ("moves", _moves(found)),
    ]
    if len(found.parts) > 1:
        rows += [("", _part(part)) for part in found.parts]
    rows += [("writes", f"{found.writes:,}{_writes(found)}"), ("time", _time(found))]
    return [f"{name:<9}{text}" for name, text in rows]


def _part(part: Part) -> str:
    """What moves on one of several rings."""
    members = f"{part.members_before:,} members before, {part.members_after:,} after"
    return f"{part.moved:,} of {part.objects:,} of {', '.join(part.resources)} ({members})"


def _moves(found: Simulation) -> str:
    if not found.objects:
        return (
            f"nothing: there are no objects; {found.moved_fraction:.1%} of the hash space changes its owner"
        )
    followers = f"; {found.moved_controlled:,} of them are controlled" if found.moved_controlled else ""
    part = f"{found.moved / found.objects:.1%}; even shares alone ask for {found.least_fraction:.1%}"
    return f"{found.moved:,} of {found.objects:,} objects ({part}){followers}"


def _writes(found: Simulation) -> str:
    """How the number of writes comes about."""
    roots = found.moved - found.moved_controlled
    if not found.moved:
        return ""
    if found.writes == 2 * roots + found.moved_controlled:
        return ": 2 for each object that is handed over" + (
            ", 1 for each it controls" if found.moved_controlled else ""
        )
    if found.writes == found.moved:
        return ": 1 for each object, since its owner is gone"
    return ": 2 for each object that is handed over, 1 for each whose owner is gone or that is controlled"


def _time(found: Simulation) -> str:
    if found.seconds is None or found.rate is None:
        return "unknown: no rate was measured yet; give one in objects per second (--rate 400)"
    return f"{duration(found.seconds)} at {found.rate.objects_per_second:,.0f} objects per second ({found.rate.source})"


def duration(seconds: float) -> str:
    """*seconds* for people: 0.4 s, 12 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def member_table(found: Simulation) -> Table:
    """Every member before and after."""
    return Table(
        ("MEMBER", "SHARE", "SHARE AFTER", "OBJECTS", "OBJECTS AFTER", "GIVES", "GETS"),
        [
            [
                member.member,
                _share(member.share_before),
                _share(member.share_after),
                f"{member.objects_before:,}",
                f"{member.objects_after:,}",
                f"{member.gives:,}",
                f"{member.gets:,}",
            ]
            for member in found.members
        ],
    )


def _share(share: float) -> str:
    return f"{share:.1%}" if share else "-"


def flow_table(found: Simulation, *, most: int | None) -> Table:
    """What goes from where to where, the most first."""
    return Table(
        ("FROM", "TO", "OBJECTS", "CONTROLLED", "WRITES"),
        [
            [
                flow.from_member,
                flow.to_member,
                f"{flow.objects:,}",
                f"{flow.controlled:,}",
                f"{flow.writes:,}",
            ]
            for flow in found.flows[:most]
        ],
        wide=("CONTROLLED",),
    )
