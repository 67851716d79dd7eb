"""The one place at which the report asks the doctor.

Owns the form in which a finding stands in the report. Connect `diagnose` to `ringleader.doctor` where that exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from kubeio.rest.client import Client
    from ringleader.inspect.rings import Ring


class Finding(msgspec.Struct, frozen=True):
    """One check: *verdict* is OK, warning or error."""

    check: str
    verdict: str
    evidence: str = ""
    remedy: str = ""


async def diagnose(client: Client, rings: Sequence[Ring], *, timeout_s: float) -> list[Finding] | None:
    """What the doctor found; None where there is no doctor in this installation."""
    return None
