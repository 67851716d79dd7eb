"""How a life gets its name: by CREATE, by taking over, and what it may do for lives before it (protocol, 1 and 4)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from itertools import pairwise
from typing import cast

import msgspec
import pytest

from kubeio.clock import ManualClock
from kubeio.errors import AlreadyExists, Conflict, InputError, NotFound, Unreachable
from kubeio.labels import is_label_value
from kubeio.leases.lease import Leases
from kubeio.models import Lease
from kubeio.protocol import RingKeys
from kubeio.shard.lease_acquisition import (
    AcquiredLease,
    LeaseTemplate,
    acquire,
    fresh_name,
    member_hash,
)
from kubeio.shard.process_proof import Identity
from tests.shard_controller.objects import Processes

KEYS = RingKeys("websites")
NAMESPACE = "ring-system"
ME = Identity("boot-1", "ns-1", 200, 5000)
DEAD = Identity("boot-1", "ns-1", 100, 4000)
SEED = 7


class LeaseServer:
    """Leases in memory: compare-and-swap, lost answers, and whatever `after_list` does between a list and a write."""

    def __init__(self) -> None:
        self.leases: dict[str, Lease] = {}
        self.after_list: Callable[[], object] = lambda: None
        self.after_lost: Callable[[], object] = lambda: None
        self.lost_answers = 0
        self.listed = 0
        """Leases that lists showed."""
        self._version = 0

    def store(self, lease: Lease) -> Lease:
        self._version += 1
        meta = msgspec.structs.replace(lease.metadata, resource_version=str(self._version))
        stored = msgspec.structs.replace(lease, metadata=meta)
        self.leases[meta.name] = stored
        return stored

    def edit(self, name: str, holder: str, *, duration_s: int = 15) -> None:
        lease = self.leases[name]
        spec = msgspec.structs.replace(lease.spec, holder_identity=holder, lease_duration_seconds=duration_s)
        self.store(msgspec.structs.replace(lease, spec=spec))

    def relabel(self, name: str, labels: dict[str, str]) -> None:
        lease = self.leases[name]
        meta = msgspec.structs.replace(lease.metadata, labels={**lease.metadata.labels, **labels})
        self.store(msgspec.structs.replace(lease, metadata=meta))

    def holder(self, name: str) -> str | None:
        return self.leases[name].spec.holder_identity

    async def list(self, label_selector: str) -> tuple[list[Lease], str]:
        wanted = [term.partition("=")[::2] for term in label_selector.split(",")]
        found = [
            lease
            for lease in self.leases.values()
            if all(lease.metadata.labels.get(key) == value for key, value in wanted)
        ]
        self.listed += len(found)
        self.after_list()
        return found, str(self._version)

    async def get(self, name: str) -> Lease:
        if name not in self.leases:
            raise NotFound("GET lease", status=404)
        return self.leases[name]

    async def create(self, lease: Lease) -> Lease:
        if lease.metadata.name in self.leases:
            raise AlreadyExists("POST lease", status=409)
        return self._answer(self.store(lease))

    async def swap(self, lease: Lease) -> Lease:
        known = self.leases.get(lease.metadata.name)
        if known is None or known.metadata.resource_version != lease.metadata.resource_version:
            raise Conflict("PUT lease", status=409)
        return self._answer(self.store(lease))

    def _answer(self, lease: Lease) -> Lease:
        if self.lost_answers:
            self.lost_answers -= 1
            self.after_lost()
            raise Unreachable("lease", "the connection broke", maybe_done=True)
        return lease


def template(*, member: str = "web-0", identity: Identity = ME, hold: bool = False) -> LeaseTemplate:
    return LeaseTemplate(keys=KEYS, member=member, duration_s=15, hold=hold, identity=identity)


@pytest.fixture
def server() -> LeaseServer:
    return LeaseServer()


OLDER = "web-0-0000000a"
FIRST_CHOICE = fresh_name("web-0", random.Random(SEED))


async def begin(server: LeaseServer, *, clock: ManualClock | None = None) -> AcquiredLease:
    return await acquire(
        cast(Leases, server),
        template(),
        namespace=NAMESPACE,
        clock=clock or ManualClock(),
        rng=random.Random(SEED),
        processes=Processes(),
    )


def older_life(server: LeaseServer, name: str, of: LeaseTemplate, *, holder: str | None = None) -> None:
    """The Lease of a life that was there before."""
    lease = of.lease(name, NAMESPACE, ManualClock())
    server.store(lease)
    if holder is not None:
        server.edit(name, holder)


async def test_a_taken_name_is_left_and_another_one_is_made(server: LeaseServer) -> None:
    older_life(server, FIRST_CHOICE, template(member="elsewhere", identity=Identity("boot-2", "ns-9", 1, 1)))
    before = server.leases[FIRST_CHOICE]
    life = await begin(server)
    assert life.name != FIRST_CHOICE
    assert server.leases[FIRST_CHOICE] == before
    assert server.holder(life.name) == life.name


async def test_a_create_whose_answer_was_lost_is_recognized_as_ours(server: LeaseServer) -> None:
    server.lost_answers = 1
    life = await begin(server)
    assert list(server.leases) == [life.name]
    assert life.lease.metadata.resource_version == "1"


async def test_a_lease_that_the_sharder_took_before_its_create_was_answered_is_not_adopted(
    server: LeaseServer,
) -> None:
    server.lost_answers = 1
    server.after_lost = lambda: server.edit(FIRST_CHOICE, "sharder:s-1")
    life = await begin(server)
    assert life.name != FIRST_CHOICE
    assert server.holder(FIRST_CHOICE) == "sharder:s-1"
    assert server.holder(life.name) == life.name


async def test_a_lease_whose_duration_was_edited_before_its_create_was_answered_is_not_adopted(
    server: LeaseServer,
) -> None:
    server.lost_answers = 1
    server.after_lost = lambda: server.edit(FIRST_CHOICE, FIRST_CHOICE, duration_s=300)
    life = await begin(server)
    assert life.name != FIRST_CHOICE
    assert life.lease.spec.lease_duration_seconds == template().duration_s


async def test_the_age_of_a_lease_counts_from_the_first_attempt_to_create_it(server: LeaseServer) -> None:
    clock = ManualClock()
    began_at = clock.now()
    server.lost_answers = 1
    server.after_lost = lambda: clock.advance(10)
    life = await begin(server, clock=clock)
    assert (life.sent_at, clock.now()) == (began_at, began_at + 10)


@pytest.mark.looptime(start=0)
async def test_a_birth_that_gets_no_answers_asks_more_and_more_rarely(server: LeaseServer) -> None:
    asked_at: list[float] = []
    loop = asyncio.get_running_loop()

    async def get_no_answer(lease: Lease) -> Lease:
        asked_at.append(loop.time())
        raise Unreachable("lease", "the connection broke", maybe_done=True)

    server.create = get_no_answer  # type: ignore[method-assign]
    with pytest.raises(InputError, match="ten attempts"):
        await begin(server)
    pauses = [later - earlier for earlier, later in pairwise(asked_at)]
    assert len(asked_at) == 10
    assert pauses[0] < 0.2
    assert 15 < sum(pauses) < 40
    assert max(pauses) < 7


async def test_a_released_lease_that_the_sharder_took_meanwhile_is_not_worn(server: LeaseServer) -> None:
    older_life(server, OLDER, template(identity=DEAD), holder="")
    server.after_list = lambda: server.edit(OLDER, "sharder:s-1")
    life = await begin(server)
    assert life.name != OLDER
    assert server.holder(OLDER) == "sharder:s-1"


async def test_a_released_lease_is_worn_again_and_says_nothing_of_its_former_life_s_caches(
    server: LeaseServer,
) -> None:
    older_life(server, OLDER, template(identity=DEAD), holder="")
    server.leases[OLDER].metadata.annotations[KEYS.synced] = "true"
    life = await begin(server)
    assert life.name == OLDER
    assert server.holder(life.name) == life.name
    annotations = server.leases[life.name].metadata.annotations
    assert annotations[KEYS.process] == ME.encode()
    assert KEYS.synced not in annotations


async def test_an_ended_life_is_released_for_its_successor_without_its_hold(server: LeaseServer) -> None:
    older_life(server, OLDER, template(identity=DEAD, hold=True))
    life = await begin(server)
    assert life.name != OLDER, "a Lease released for an ended life is not taken over"
    assert server.holder(OLDER) == ""
    assert KEYS.hold not in server.leases[OLDER].metadata.annotations


async def test_the_ended_life_of_another_member_is_not_ours_to_release(server: LeaseServer) -> None:
    """Not even one whose label has our member's hash: hashes collide, and labels can be edited."""
    older_life(server, "web-1-0000000a", template(member="web-1", identity=DEAD))
    server.relabel("web-1-0000000a", {KEYS.member_hash: member_hash("web-0")})
    await begin(server)
    assert server.holder("web-1-0000000a") == "web-1-0000000a"


@pytest.mark.parametrize("selected", [True, False])
async def test_only_leases_of_the_own_ring_are_looked_at(server: LeaseServer, selected: bool) -> None:
    older_life(server, OLDER, template(identity=DEAD), holder="")
    if not selected:
        server.relabel(OLDER, {KEYS.ring_label: "another"})
    assert ((await begin(server)).name == OLDER) is selected


async def test_a_birth_reads_the_leases_of_its_own_member_only(server: LeaseServer) -> None:
    for number in range(1000):
        older_life(server, f"web-{number}-0000000a", template(member=f"web-{number}"))
    older_life(server, "web-0-0000000b", template(identity=DEAD))
    await begin(server)
    assert server.listed == 2
    assert server.holder("web-0-0000000b") == "", "an older life's end was proven"


async def test_members_with_long_names_have_distinct_labels() -> None:
    long = "a-" + "b" * 250
    labels = [
        template(member=long + end).lease("x", NAMESPACE, ManualClock()).metadata.labels for end in "cd"
    ]
    assert labels[0][KEYS.member_hash] != labels[1][KEYS.member_hash]
    assert all(is_label_value(value) for value in labels[0].values())
