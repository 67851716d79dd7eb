"""Faults of the network between a process and the API servers."""

from __future__ import annotations

from devcluster.faults import Fault
from tests.fleet.chaos.faults.table import fault
from tests.fleet.chaos.strike import Strike


@fault(is_gentle=True)
async def request_late(strike: Strike) -> None:
    """Requests of one account wait and are delivered in order, also when their sender has given up."""
    user, resource = strike.account(), strike.resource()
    await strike.order(Fault(what="hold", user=user, resource=resource, for_s=strike.span_s()))


@fault(is_gentle=True)
async def request_lost(strike: Strike) -> None:
    """Writes of one account never arrive: their connections are reset."""
    user, resource = strike.account(), strike.resource()
    await strike.order(Fault(what="cut", user=user, verb="write", resource=resource, for_s=strike.span_s()))


@fault(is_gentle=True)
async def answer_lost(strike: Strike) -> None:
    """Writes of one account arrive, and their answers are lost."""
    user, resource, for_s = strike.account(), strike.resource(), strike.span_s(1)
    lost = Fault(what="lose_answer", user=user, verb="write", resource=resource, count=10, for_s=for_s)
    await strike.order(lost)


@fault(is_gentle=True)
async def request_repeated(strike: Strike) -> None:
    """Writes of one account arrive a second time, up to two Lease durations later."""
    user, resource = strike.account(), strike.resource()
    delay_s, for_s = strike.rng.uniform(0, 2 * strike.lease_s), strike.span_s()
    twice = Fault(what="repeat", user=user, verb="write", resource=resource, delay_s=delay_s, for_s=for_s)
    await strike.order(twice)


@fault(is_gentle=True)
async def watch_cut(strike: Strike) -> None:
    """Watches of one account are reset, and new ones too for a moment."""
    await strike.order(Fault(what="cut", user=strike.account(), verb="watch", for_s=strike.span_s(1)))


@fault(is_gentle=True)
async def watch_silent(strike: Strike) -> None:
    """Watches of one account stay open without events, until their client notices."""
    await strike.order(Fault(what="mute_watches", user=strike.account(), for_s=strike.span_s(1)))


@fault(is_gentle=True)
async def watch_expired(strike: Strike) -> None:
    """Watches of one account end, and new ones say 410 Expired for a moment."""
    await strike.order(Fault(what="expire_watches", user=strike.account(), for_s=strike.span_s(1)))


@fault(is_gentle=True)
async def bookmarks_withheld(strike: Strike) -> None:
    """Watches of one account get no bookmarks."""
    await strike.order(Fault(what="withhold_bookmarks", user=strike.account(), for_s=strike.span_s()))


@fault(is_gentle=True)
async def partition(strike: Strike) -> None:
    """One process and the API servers do not reach each other."""
    networks = [name for name in strike.site.running() if name in strike.site.networks]
    if networks and strike.rng.random() < 0.5:
        cut = strike.site.networks[strike.take(strike.rng.choice(networks))]
        strike.struck.append("network namespace")
        cut(True)
        try:
            await strike.pause()
        finally:
            cut(False)
    else:
        await strike.order(Fault(what="partition", user=strike.account(), for_s=strike.span_s()))


@fault(is_gentle=True)
async def server_errors(strike: Strike) -> None:
    """The API servers answer one account with 429, 500, 503 or 504."""
    user, resource = strike.account(), strike.resource()
    strike.struck.append(str(code := strike.rng.choice((429, 500, 503, 504))))
    retry_after_s = 1 if code in (429, 503) else None
    for_s = strike.span_s(2)
    await strike.order(
        Fault(what="error", user=user, resource=resource, code=code, retry_after_s=retry_after_s, for_s=for_s)
    )
