"""One run of wrk on a ring's objects: the limit that the sharder's rates are compared with.

Called by `throughput`, which alternates it with the sharder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from loadtest.sharder_bench.goals import round_off
from loadtest.sharder_bench.ground import Ground
from loadtest.sharder_bench.processes import Cores
from loadtest.sharder_bench.rows import Meter, Options, Series, series
from loadtest.sharder_bench.sightings import NotSeen, OwnerChange
from loadtest.sharder_bench.wrk import Request, Tally, WrkFailed, sending
from sharder.planning.decisions import Assign
from sharder.planning.patches import patch_of
from sharder.writing.objects import FIELD_MANAGER

_PER_S_AT_MOST: Final = 2_000
"""How many patches are made ready for wrk; a faster server is done sooner."""
_REFUSED_AT_MOST: Final = 0.02
_PARTIAL: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


@dataclass(frozen=True, slots=True)
class Limit:
    """What wrk reached: changes per second from the first one seen to the last."""

    per_s: float
    writes: int
    instants: list[float]
    tally: Tally
    server_cores: float
    server_ms_per_write: float

    def details(self) -> dict[str, object]:
        return {
            "per_s": round_off(self.per_s),
            "writes": self.writes,
            "p50_ms": self.tally.p50_us / 1000,
            "p99_ms": self.tally.p99_us / 1000,
            "refused": self.tally.bad_statuses,
            "server_cores": self.server_cores,
            "server_ms_per_write": self.server_ms_per_write,
        }

    def series(self, name: str) -> Series:
        return series(name, self.instants, since=self.instants[0])


def limit_names(ground: Ground, options: Options) -> Sequence[str]:
    """The objects that a run of wrk may reach."""
    return ground.stock.names[: int(options.limit_s * _PER_S_AT_MOST)]


async def measure_limit(
    ground: Ground, meter: Meter, options: Options, owners: Mapping[str, str], names: Sequence[str]
) -> Limit:
    """wrk writes for *names* what the sharder would write to give them their *owners*. Raises: WrkFailed, NotSeen."""
    seen = ground.sightings
    requests = [_request(ground, name, owners[name]) for name in names]
    seen.start_over()
    cores = Cores(ground.plane.pids, ground.clock)
    async with sending(
        requests,
        ground.directory,
        url=ground.plane.url,
        headers=_headers(ground),
        connections=options.connections,
        at_most_s=options.limit_s,
    ) as wrk:
        with meter.counting("wrk, with the same patches", None) as tick:
            shown = 0
            while wrk.is_running and len(seen.log) < len(names):
                await asyncio.sleep(0.05)
                tick(len(seen.log) - shown)
                shown = len(seen.log)
        used = cores.used(), cores.ms_per(len(seen.log))
        tally = await wrk.end()
    await ground.stock.catch_up()
    if tally.bad_statuses > _REFUSED_AT_MOST * max(1, len(seen.log)):
        raise WrkFailed(f"the server refused {tally.bad_statuses} of {tally.requests} requests of wrk")
    return _limit(seen.log, tally, used)


def _limit(changes: Sequence[OwnerChange], tally: Tally, used: tuple[float, float]) -> Limit:
    instants = [change.at for change in changes]
    if len(instants) < 2 or instants[-1] <= instants[0]:
        raise NotSeen("no writes of wrk were seen")
    per_s = (len(instants) - 1) / (instants[-1] - instants[0])
    return Limit(per_s, len(instants), instants, tally, *used)


def _request(ground: Ground, name: str, owner: str) -> Request:
    """The patch that the sharder sends to give *name* to *owner*."""
    namespace = ground.spec.namespace
    patch = patch_of(Assign(owner), ground.sightings.meta(name, namespace), keys=ground.keys)
    path = ground.resource.path(namespace=namespace, name=name)
    return Request(f"{path}?{urlencode({'fieldManager': FIELD_MANAGER})}", patch.encode())


def _headers(ground: Ground) -> dict[str, str]:
    meta = ground.sightings.meta(ground.stock.names[0], ground.spec.namespace)
    return {
        "Authorization": f"Bearer {ground.sharder.token}",
        "User-Agent": "ringleader-sharder",
        "Accept": _PARTIAL,
        "Content-Type": patch_of(Assign("any"), meta, keys=ground.keys).content_type,
    }
