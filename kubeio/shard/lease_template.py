"""Template of a shard's Leases, from its flags and its ring. Pure, but for what the host says of its pod."""

from __future__ import annotations

from collections.abc import Iterable

from kubeio.errors import InputError
from kubeio.shard.host import ShardHost
from kubeio.shard.lease_acquisition import LeaseTemplate, check_lease_member
from kubeio.shard.ring import RingView

GRACE_FLAG = "--termination-grace-period"


def ring_lease_template(
    view: RingView,
    host: ShardHost,
    *,
    member: str,
    duration_s: int,
    hold: bool,
    grace_s: float | None,
    resources: Iterable[str],
    field_manager: str,
    name_length: int = 0,
) -> LeaseTemplate:
    """The template for *member*. *grace_s*: the pod's grace period; None outside of pods. *name_length*: 0 for any.

    Raises: InputError if ring and flags do not fit.
    """
    longest_s = view.spec.max_lease_duration_seconds
    if duration_s > longest_s:
        raise InputError(
            "--lease-duration",
            f"{duration_s}s",
            f"is longer than the ring's maxLeaseDurationSeconds {longest_s}",
            f"use {longest_s}s or less",
        )
    pod = host.pod(member)
    if grace_s is not None and not pod:
        raise InputError(
            GRACE_FLAG,
            f"{grace_s:g}s",
            "is for pods, and POD_NAMESPACE is not set",
            "set POD_NAME and POD_NAMESPACE by the downward API, or leave the flag out",
        )
    return LeaseTemplate(
        keys=view.keys,
        member=check_lease_member(member),
        duration_s=duration_s,
        hold=hold,
        identity=host.identity(),
        field_manager=field_manager,
        resources=tuple(resources),
        pod=pod,
        name_length=name_length,
        max_duration_s=longest_s,
    )
