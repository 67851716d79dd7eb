"""Template of a process's Leases, from its settings and its ring. Pure, but for what the host says of its pod."""

from __future__ import annotations

from kubeio.errors import InputError
from kubeio.shard.lease_acquisition import LeaseTemplate, check_lease_member
from kubeio.shard.ring import RingView
from shard_controller.objects.caches import Caches
from shard_controller.process.host import ReplicaHost
from shard_controller.process.settings import Settings


def lease_template(
    view: RingView, settings: Settings, caches: Caches, *, host: ReplicaHost, name: str
) -> LeaseTemplate:
    """The template for a replica of the controller *name*. Raises: InputError if ring and settings do not fit."""
    longest_s = view.spec.max_lease_duration_seconds
    if settings.lease_duration_s > longest_s:
        raise InputError(
            "--lease-duration",
            f"{settings.lease_duration_s}s",
            f"is longer than the ring's maxLeaseDurationSeconds {longest_s}",
            f"use {longest_s}s or less",
        )
    pod = host.pod(settings.member_name)
    if settings.termination_grace_s is not None and not pod:
        raise InputError(
            "--termination-grace-period",
            f"{settings.termination_grace_s:g}s",
            "is for pods, and POD_NAMESPACE is not set",
            "set POD_NAME and POD_NAMESPACE by the downward API, or leave the flag out",
        )
    return LeaseTemplate(
        keys=view.keys,
        member=check_lease_member(settings.member_name),
        duration_s=settings.lease_duration_s,
        hold=settings.hold,
        identity=host.identity(),
        field_manager=name,
        resources=tuple(kind.resource.group_resource for kind in caches),
        pod=pod,
    )
