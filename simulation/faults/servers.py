"""Faults of API servers and etcd: not reached, away, late, failing, restored."""

from __future__ import annotations

from functools import partial
from typing import Final

from simulation.faults.strike import Strike, fault
from simulation.store import Snapshot

_EDITED: Final = (
    "namespaceSelector",
    "paused",
    "drainPolicy",
    "drainTimeoutSeconds",
    "maxLeaseDurationSeconds",
    "resources",
    "members",
    "assignAtAdmission",
)
"""Fields that other faults edit for a while."""


@fault
def partition(strike: Strike) -> None:
    """A machine does not reach some API servers, or none."""
    machine, for_s = strike.machine(), strike.span_s()
    servers = strike.fleet.servers
    if strike.rng.random() < 0.4:
        servers = strike.rng.sample(servers, strike.rng.randint(1, len(servers)))
    pairs = {(machine.name, server.name) for server in servers}
    strike.note(
        f"partition {machine.name} from {', '.join(server.name for server in servers)} for {for_s:.1f} s"
    )
    strike.fleet.network.partitions.update(pairs)
    strike.heal_in(for_s, lambda: strike.fleet.network.partitions.difference_update(pairs))


@fault
def server_restarted(strike: Strike) -> None:
    """One API server, or all, are away and come back without history."""
    servers = strike.fleet.servers if strike.rng.random() < 0.5 else [strike.rng.choice(strike.fleet.servers)]
    for_s = strike.span_s()
    strike.note(f"server_restarted {', '.join(server.name for server in servers)}, away for {for_s:.1f} s")
    for server in servers:
        server.is_up = False
        for stream in [each for each in strike.fleet.network.streams if each.server is server]:
            stream.cut()
        strike.heal_in(for_s, server.come_back)


@fault
def server_lagging(strike: Strike) -> None:
    """The watch cache of a server follows late."""
    server, for_s = strike.rng.choice(strike.fleet.servers), strike.span_s() * 2
    server.lag_s = strike.rng.choice((0.2, 2.0, 20.0))
    strike.note(f"server_lagging {server.name} by {server.lag_s} s for {for_s:.1f} s")
    strike.heal_in(for_s, server.catch_up)


@fault
def resource_failing(strike: Strike) -> None:
    """Requests for one resource are answered 500 by one server."""
    server, for_s = strike.rng.choice(strike.fleet.servers), strike.span_s()
    server.failing = strike.rng.choice(("websites", "configmaps", "leases", "controllerrings"))
    strike.note(f"resource_failing {server.failing} on {server.name} for {for_s:.1f} s")
    strike.heal_in(for_s, server.mend)


@fault
def etcd_restored(strike: Strike) -> None:
    """etcd goes back to a backup. With raised revisions everything is started again at once, else a while later.

    Until then a replica may believe in a status that the backup has not. The ring is applied again as well.
    """
    store, for_s = strike.fleet.store, strike.span_s()
    snapshot, bump = store.snapshot(), strike.rng.choice((0, 100_000))
    strike.note(f"etcd_restored {'with raised' if bump else 'without raised'} revisions in {for_s:.1f} s")
    strike.heal_in(for_s, partial(_restore, strike, snapshot, bump))


def _restore(strike: Strike, snapshot: Snapshot, bump: int) -> None:
    fleet = strike.fleet
    fleet.world.note("FAULT etcd is restored now")
    newest = fleet.store.endpoints.versions.current
    fleet.store.restore(snapshot, bump=bump)
    fleet.judges.begin_history()
    fleet.judges.leases.watch_history(newest)
    strike.users.forget()
    for stream in list(fleet.network.streams):
        stream.cut()
    for server in fleet.servers:
        server.begin_history()
    strike.heal_in(strike.span_s(), partial(strike.reset_ring, *_EDITED))
    strike.heal_in(strike.span_s(), fleet.correct)
    if bump:
        _kill_all(strike)
    else:
        strike.heal_in(strike.span_s(), partial(_kill_all, strike))


def _kill_all(strike: Strike) -> None:
    for process in strike.processes():
        process.kill()
