"""What reads of Leases show (protocol, 6.3): the one of all, and the one of a few."""

from __future__ import annotations

import random

import pytest

from devcluster.faults import Fault
from kubeio.clock import SystemClock
from kubeio.errors import KubeError
from kubeio.models import Lease, LeaseSpec, Meta
from sharder.membership.controller import MembershipController
from sharder.ringspec.scope import EVERYWHERE
from tests.sharder.io.environment import KEYS, RING, WEBSITES, SharderEnvironment
from tests.sharder.pure.lease_simulation import make_spec

LEASES = {
    "held": (RING, "held"),
    "released": (RING, ""),
    "taken": (RING, "somebody"),
    "another-ring-s": ("others", "another-ring-s"),
}


async def make_controller(env: SharderEnvironment) -> MembershipController:
    for name, (ring, holder) in LEASES.items():
        meta = Meta(name=name, labels={KEYS.ring_label: ring})
        await env.leases.create(Lease(meta, LeaseSpec(holder, 15)))
    return MembershipController(
        env.client,
        env.client,
        make_spec(name=RING, lease_namespace="default"),
        [WEBSITES],
        identity="sharder",
        scope=EVERYWHERE,
        clock=SystemClock(),
        rng=random.Random(1),
    )


async def test_a_read_of_a_few_leases_shows_what_the_read_of_all_shows(env: SharderEnvironment) -> None:
    membership = await make_controller(env)
    assert (await membership.reads.evidence()).held == {"held"}
    assert (await membership.reads.evidence_of([*LEASES, "missing"])).held == {"held"}
    assert (await membership.reads.evidence_of(["released"])).held == frozenset()


async def test_a_read_of_a_few_leases_of_which_one_fails_is_no_evidence(env: SharderEnvironment) -> None:
    membership = await make_controller(env)
    await env.plane.faults.add(
        Fault(what="error", resource="leases.coordination.k8s.io", verb="get", code=500)
    )
    with pytest.raises(KubeError):
        await membership.reads.evidence_of(["held", "taken"])
