"""The table of faults: the name of each, what it does, and what it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from devcluster.real import BinariesMissing
from devcluster.real.binaries import find_binaries
from devcluster.real.recipes import etcdutl_recipe
from tests.fleet.chaos.strike import Site, Strike

Coroutine = Callable[[Strike], Awaitable[None]]
Need = Callable[[Site], str]
"""Why a fault cannot be made at a site; empty if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosFault:
    """One row of the table."""

    name: str
    does: str
    strike: Coroutine
    needs: tuple[Need, ...]
    is_alone: bool
    """Nothing else strikes meanwhile, and all objects are at their places before: its promise holds only then."""
    is_gentle: bool
    """It ends no process by a signal: a soak strikes with these."""

    def missing(self, site: Site) -> str:
        """Why it cannot be made at *site*; empty if it can."""
        return next((reason for need in self.needs if (reason := need(site))), "")


FAULTS: dict[str, ChaosFault] = {}


def fault(*needs: Need, is_alone: bool = False, is_gentle: bool = False) -> Callable[[Coroutine], Coroutine]:
    """Put a coroutine into the table under its own name."""

    def put(strike: Coroutine) -> Coroutine:
        name = getattr(strike, "__name__", "")
        does = (strike.__doc__ or "").partition("\n")[0]
        FAULTS[name] = ChaosFault(
            name=name, does=does, strike=strike, needs=needs, is_alone=is_alone, is_gentle=is_gentle
        )
        return strike

    return put


def real_servers(site: Site) -> str:
    return "" if site.real else "needs a real control plane"


def several_servers(site: Site) -> str:
    return "" if site.real and len(site.real.direct_kubeconfigs) > 1 else "needs two API servers"


def etcdutl(site: Site) -> str:
    try:
        find_binaries(["etcdutl"], etcdutl_recipe())
    except BinariesMissing as missing:
        return missing.reason
    return ""
