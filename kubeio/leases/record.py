"""Fields of a Lease's spec: claimed, renewed, released, and the mark of its holder's heartbeat. Pure."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from kubeio.clock import micro_time
from kubeio.models import LeaseSpec


def claimed(
    spec: LeaseSpec | None, holder: str, *, wall: datetime, duration_s: int | None = None
) -> LeaseSpec:
    """*spec* held by *holder* from *wall* on, one transition later; None: a new Lease, without transitions.

    Without *duration_s* the Lease keeps its duration.
    """
    now = micro_time(wall)
    former = spec or LeaseSpec()
    return replace(
        former,
        holder_identity=holder,
        lease_duration_seconds=duration_s or former.lease_duration_seconds,
        acquire_time=now,
        renew_time=now,
        lease_transitions=0 if spec is None else (former.lease_transitions or 0) + 1,
    )


def renewed(spec: LeaseSpec, *, wall: datetime) -> LeaseSpec:
    """*spec* renewed at *wall*; its holder stays."""
    return replace(spec, renew_time=micro_time(wall))


def released(spec: LeaseSpec) -> LeaseSpec:
    """*spec* without a holder: the next one need not wait."""
    return replace(spec, holder_identity="")


def heartbeat_of(spec: LeaseSpec) -> tuple[object, ...]:
    """Mark that changes whenever the Lease is claimed, renewed or released."""
    return spec.renew_time, spec.holder_identity, spec.lease_transitions
