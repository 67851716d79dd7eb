"""The row `guard`: first assignment without and under the chart's admission policies, in turns on one server.

The rate is counted from the first write to the last.
"""

from __future__ import annotations

import statistics
from typing import Final

from benchmarks.measuring.goals import round_off
from benchmarks.measuring.guard import install_guard, order_of_turns, switch_guard
from benchmarks.measuring.meter import Meter
from benchmarks.measuring.rows import Row
from benchmarks.sharder.fleet import owners_on, sharding
from benchmarks.sharder.goals import GOALS, figure
from benchmarks.sharder.ground import LEASES_IN, MEMBERS, RING, Ground
from benchmarks.sharder.rows import Options, Peaks
from benchmarks.sharder.throughput import Stretch, assign_all, set_owners

_OBJECTS: Final = 5_000
"""Objects without owner in each turn: short turns, and many of them, because the machine's speed drifts."""


async def measure_guard(ground: Ground, meter: Meter, options: Options, peaks: Peaks) -> Row:
    """Turns without and with the policies bound; the figure is the median of the pairs' ratios."""
    row = Row(key="guard")
    if not ground.is_real:
        row.figures = [GOALS["guard"].skipped("guard", "the embedded plane has no admission policies")]
        return row
    ring = {"name": RING, "spec": {"resources": [{"group": ground.resource.group, "resource": "websites"}]}}
    bindings = await install_guard(ground.client, ring, namespace=LEASES_IN)
    await ground.stand_ins.join(MEMBERS)
    owned = owners_on(ground, ground.stand_ins.shards)
    for name in ground.stock.names[:_OBJECTS]:
        del owned[name]
    runs: dict[bool, list[Stretch]] = {False: [], True: []}
    for number in range(options.guard_rounds):
        for is_on in order_of_turns(number):
            await switch_guard(ground.client, bindings, is_on=is_on, namespace=LEASES_IN)
            await set_owners(ground, meter, owned)
            async with sharding(ground, peaks, row="guard") as sharder:
                runs[is_on].append(await assign_all(ground, meter, sharder))
    await switch_guard(ground.client, bindings, is_on=False, namespace=LEASES_IN)
    rates = {is_on: [run.per_s_while_writing for run in turns] for is_on, turns in runs.items()}
    lost = 100 * (1 - statistics.median(on / off for off, on in zip(rates[False], rates[True], strict=True)))
    cpu = {is_on: statistics.median(run.cpu_ms["server"] for run in turns) for is_on, turns in runs.items()}
    row.details = {
        "without": [run.details() for run in runs[False]],
        "guarded": [run.details() for run in runs[True]],
        "server_ms_per_write": {"without": round_off(cpu[False]), "guarded": round_off(cpu[True])},
    }
    middle = {is_on: statistics.median(found) for is_on, found in rates.items()}
    how = (
        f"{middle[True]:,.0f}/s of {middle[False]:,.0f}/s, medians of {options.guard_rounds} turns each; "
        f"CPU of the server for a write {cpu[True]:.2f} ms, {cpu[False]:.2f} without"
    )
    row.figures = [figure("guard", lost, how)]
    return row
