"""Faults of requests and watches: late, lost, repeated, refused, silent, cut."""

from __future__ import annotations

from typing import Any

from simulation.faults.strike import CHILDREN_PATH, LEASES_PATH, SITES_PATH, Strike, fault
from simulation.network import Rule


def _rule(strike: Strike, what: str, **fields: Any) -> None:
    process = strike.process()
    whose = process.name if process is not None and strike.rng.random() < 0.7 else ""
    rule = Rule(
        what,
        process=whose,
        verb=strike.rng.choice(("write", "read", "")),
        share=strike.rng.choice((0.05, 0.3, 1.0)),
        **fields,
    )
    for_s = strike.span_s()
    strike.note(
        f"{what} of {whose or 'all'}: {rule.share:.0%} of {rule.verb or 'all'} requests for {for_s:.1f} s"
    )
    strike.add_rule(rule, for_s)


@fault
def request_late(strike: Strike) -> None:
    """Requests arrive late, perhaps after the client's deadline, or when its connection is long broken."""
    is_cut = strike.rng.random() < 0.5
    _rule(strike, "request_late", delay_s=strike.rng.choice((0.5, 5.0, 60.0)), is_cut=is_cut)


@fault
def request_lost(strike: Strike) -> None:
    """Requests are lost before the server, the connection breaks."""
    _rule(strike, "request_lost")


@fault
def answer_lost(strike: Strike) -> None:
    """Requests are carried out, their answers are lost."""
    _rule(strike, "answer_lost")


@fault
def request_repeated(strike: Strike) -> None:
    """Something on the way sends requests twice."""
    _rule(strike, "request_repeated")


@fault
def server_errors(strike: Strike) -> None:
    """Requests are answered 429, 500, 503, or 504 although they are carried out."""
    _rule(strike, "server_errors", code=strike.rng.choice((429, 500, 503, 504)))


@fault
def write_refused(strike: Strike) -> None:
    """A policy refuses writes: of one object, of new Leases, of Events."""
    verb, path = strike.rng.choice(
        (("POST", LEASES_PATH), ("PATCH", strike.site() or SITES_PATH), ("POST", "events"))
    )
    strike.refuse(verb, path)


@fault
def permission_revoked(strike: Strike) -> None:
    """A Role loses a right for a while: of one process, or of all."""
    process = strike.process() if strike.rng.random() < 0.5 else None
    path = strike.rng.choice(
        (SITES_PATH, f"{SITES_PATH}/", CHILDREN_PATH, LEASES_PATH, "controllerrings", "statefulsets")
    )
    verb = strike.rng.choice(("read", "watch", "write"))
    strike.revoke(verb, path, process=process.name if process is not None else "", for_s=strike.span_s())


@fault
def watch_cut(strike: Strike) -> None:
    """Connections of watches break."""
    for stream in strike.streams():
        strike.note(f"watch_cut {stream.process}")
        stream.cut()


@fault
def watch_silent(strike: Strike) -> None:
    """Watches say nothing; what they had to say comes in the end."""
    for_s = strike.span_s() * strike.rng.choice((1, 5))
    for stream in strike.streams():
        strike.note(f"watch_silent {stream.process} for {for_s:.1f} s")
        stream.held_until = strike.fleet.world.now + for_s


@fault
def watch_expired(strike: Strike) -> None:
    """Watches end with 410, and the server has forgotten the past."""
    server = strike.rng.choice(strike.fleet.servers)
    strike.note(f"watch_expired {server.name}")
    server.forget_history()
    for stream in strike.streams():
        if stream.server is server:
            stream.watch.expire()


@fault
def bookmarks_withheld(strike: Strike) -> None:
    """Watches get no bookmarks any more."""
    for stream in strike.streams():
        stream.watch.withholds_bookmarks = True
    strike.note("bookmarks_withheld")
