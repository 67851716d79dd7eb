"""One run of wrk with the patches that the sharder would send: the limit that its rates are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from benchmarks.measuring.limit import PER_S_AT_MOST, Limit, reach_limit
from benchmarks.measuring.meter import Meter
from benchmarks.measuring.wrk import Request
from benchmarks.sharder.ground import Ground
from benchmarks.sharder.rows import Options
from sharder.planning.decisions import Assign
from sharder.planning.patches import patch_of
from sharder.writing.objects import FIELD_MANAGER

_PARTIAL: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


def limit_names(ground: Ground, options: Options) -> Sequence[str]:
    """The objects that a run of wrk may reach."""
    return ground.stock.names[: int(options.limit_s * PER_S_AT_MOST)]


async def measure_limit(
    ground: Ground, meter: Meter, options: Options, owners: Mapping[str, str], names: Sequence[str]
) -> Limit:
    """wrk writes for *names* what the sharder would write to give them their *owners*. Raises: WrkFailed, NotSeen."""
    seen = ground.sightings
    requests = [_request(ground, name, owners[name]) for name in names]
    seen.start_over()
    return await reach_limit(
        requests,
        plane=ground.plane,
        directory=ground.directory,
        headers=_headers(ground),
        connections=options.connections,
        at_most_s=options.limit_s,
        count=lambda: len(seen.log),
        instants=lambda: [change.at for change in seen.log],
        catch_up=ground.stock.catch_up,
        clock=ground.clock,
        meter=meter,
    )


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
