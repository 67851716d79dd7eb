"""Every check, in the order in which they matter, and all of them run over one picture. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringleader.doctor import (
    guard,
    installation,
    kinds,
    leading,
    leases,
    objects,
    rights,
    server,
    sizes,
    unfit,
)
from ringleader.doctor.checks import Check, Finding

if TYPE_CHECKING:
    from ringleader.doctor.seen import Seen

CHECKS: tuple[Check, ...] = (
    *objects.CHECKS[:2],
    leases.MEMBERS,
    objects.CHECKS[2],
    kinds.CHECK,
    *leases.CHECKS[:1],
    unfit.CHECK,
    *leases.CHECKS[1:],
    *leading.CHECKS,
    *rights.CHECKS,
    *installation.CHECKS,
    guard.CHECK,
    *server.CHECKS,
    objects.WRITERS,
    *sizes.CHECKS,
)


def examine(seen: Seen) -> list[Finding]:
    """At least one finding of every check."""
    return [finding for check in CHECKS for finding in check.run(seen)]
