"""The one place at which the report asks the doctor.

Owns the form in which a finding stands in the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from kubeio.rest.client import Client
    from ringleader.cluster.ring import Ring

_AGAIN_S: Final = 6.0
"""Between the two looks of `ringleader check`, as with the command itself."""


class Finding(msgspec.Struct, frozen=True):
    """One check: *verdict* is ok, warning, error or not checked."""

    check: str
    verdict: str
    evidence: str = ""
    remedy: str = ""


async def diagnose(client: Client, rings: Sequence[Ring], *, timeout_s: float) -> list[Finding]:
    """What the doctor found about *rings*: about one, or about all. Takes some seconds. Raises KubeError."""
    from ringleader.check.command import Wanted
    from ringleader.check.command import examine as ask

    ring = rings[0].name if len(rings) == 1 else None
    wanted = Wanted(
        ring=ring, accounts={}, managers=frozenset(), again_s=_AGAIN_S if rings else 0.0, timeout_s=timeout_s
    )
    return [
        Finding(found.check, str(found.level), "; ".join([found.summary, *found.evidence]), found.remedy)
        for found in (await ask(client, wanted)).findings
    ]
