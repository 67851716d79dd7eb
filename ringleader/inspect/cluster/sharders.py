"""Whether a sharder leads, as its election Lease shows it.

Sharders elect their leader by a Lease that is always called the same; in which namespace it is, is theirs to choose.
So it is sought everywhere; to who may not list Leases everywhere it is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kubeio.errors import Forbidden
from kubeio.resource import LEASES

if TYPE_CHECKING:
    from kubeio.models import Lease
    from kubeio.rest.client import Client

ELECTION_LEASE: Final = "ringleader-sharder"


def is_leading(holder: str, *, age_s: float, duration_s: float) -> bool:
    """Whether *holder* still renews its Lease; twice the duration leaves room for clocks that differ."""
    return bool(holder) and age_s < 2 * duration_s


@dataclass(frozen=True, slots=True)
class Sharder:
    """The sharder that leads, or led last: *age_s* is the time since its last renewal, by our wall clock."""

    lease: str
    holder: str
    age_s: float
    duration_s: float

    @property
    def leads(self) -> bool:
        return is_leading(self.holder, age_s=self.age_s, duration_s=self.duration_s)


@dataclass(frozen=True, slots=True)
class Sharders:
    """What was found: the freshest election, None if there is none; *is_known* is false if we may not look."""

    newest: Sharder | None
    is_known: bool = True

    @property
    def lead(self) -> bool | None:
        """Whether one leads; None if that is not known."""
        if not self.is_known:
            return None
        return self.newest is not None and self.newest.leads

    @property
    def warning(self) -> str:
        """Why no sharder leads; empty if one does, or if that is not known."""
        if self.lead is not False:
            return ""
        newest = self.newest
        if newest is None:
            return f"no sharder leads: there is no Lease {ELECTION_LEASE} in any namespace"
        if newest.holder:
            return f"no sharder leads: {newest.holder} does not renew Lease {newest.lease}"
        return f"no sharder leads: Lease {newest.lease} is free"


async def read_sharders(client: Client, *, now: datetime, timeout_s: float) -> Sharders:
    """The freshest election Lease of the cluster. Raises KubeError, but not Forbidden."""
    from kubeio.leases.lease import decode_lease

    found: list[Sharder] = []
    try:
        pages = client.pages(LEASES, field_selector=f"metadata.name={ELECTION_LEASE}", timeout_s=timeout_s)
        async for page in pages:
            found += [_sharder(decode_lease(obj.raw), now) for obj in page.objects]
    except Forbidden:
        return Sharders(None, is_known=False)
    return Sharders(min(found, key=lambda each: (not each.holder, each.age_s), default=None))


def _sharder(lease: Lease, now: datetime) -> Sharder:
    renewed = lease.spec.renew_time or lease.metadata.creation_timestamp
    since = datetime.fromisoformat(renewed).astimezone(UTC) if renewed else now
    return Sharder(
        f"{lease.metadata.namespace}/{lease.metadata.name}",
        lease.spec.holder_identity or "",
        (now - since).total_seconds(),
        float(lease.spec.lease_duration_seconds or 15),
    )
