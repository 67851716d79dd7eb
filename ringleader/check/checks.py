"""Every check, in the order in which they matter. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringleader.check import (
    guard,
    installation,
    leases,
    objects,
    proxies,
    rights,
    rings,
    server,
    sizes,
    unfit,
)
from ringleader.check.findings import Check, Finding

if TYPE_CHECKING:
    from ringleader.check.evidence import Evidence

CHECKS: tuple[Check, ...] = (
    *objects.CHECKS[:2],
    leases.MEMBERS,
    objects.CHECKS[2],
    objects.KINDS,
    *leases.CHECKS[:1],
    unfit.CHECK,
    *leases.CHECKS[1:],
    *rings.CHECKS,
    *rights.CHECKS,
    *installation.CHECKS,
    guard.CHECK,
    proxies.CHECK,
    *server.CHECKS,
    objects.WRITERS,
    *sizes.CHECKS,
)


def all_findings(evidence: Evidence) -> list[Finding]:
    """At least one finding of every check."""
    return [finding for check in CHECKS for finding in check.run(evidence)]
