"""How a life gets its name: by CREATE, by taking over, and what it may do for lives before it (protocol, 1 and 4)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import cast

import msgspec
import pytest

from kubeio.clock import ManualClock
from kubeio.errors import AlreadyExists, Conflict, NotFound, Unreachable
from kubeio.labels import is_label_value
from kubeio.leases.lease import Leases
from kubeio.models import Lease, Meta
from kubeio.protocol import RingKeys
from shard_controller.shard.process_proof import Identity
from shard_controller.shard.shard_lease import LeaseTemplate, ShardLease, acquire, fresh_name, member_hash

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

    def edit(self, name: str, holder: str) -> None:
        lease = self.leases[name]
        self.store(
            msgspec.structs.replace(lease, spec=msgspec.structs.replace(lease.spec, holder_identity=holder))
        )

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


class NoProcesses:
    """A machine on which nothing but us runs."""

    def is_running(self, pid: int, started: int) -> bool:
        return False

    def has_children_of(self, shard: str) -> bool:
        return False

    def hides_some(self) -> bool:
        return False


def template(*, member: str = "web-0", identity: Identity = ME, hold: bool = False) -> LeaseTemplate:
    return LeaseTemplate(keys=KEYS, member=member, duration_s=15, hold=hold, identity=identity)


async def begin(server: LeaseServer, *, clock: ManualClock | None = None) -> ShardLease:
    return await acquire(
        cast(Leases, server),
        template(),
        namespace=NAMESPACE,
        clock=clock or ManualClock(),
        rng=random.Random(SEED),
        processes=NoProcesses(),
    )


def older_life(server: LeaseServer, name: str, of: LeaseTemplate, *, holder: str | None = None) -> None:
    """The Lease of a life that was there before."""
    lease = of.lease(name, NAMESPACE, ManualClock())
    server.store(lease)
    if holder is not None:
        server.edit(name, holder)


async def test_a_name_that_somebody_has_is_left_to_it_and_another_one_is_made() -> None:
    server = LeaseServer()
    first_choice = fresh_name("web-0", random.Random(SEED))
    somebody = template(member="elsewhere", identity=Identity("boot-2", "ns-9", 1, 1))
    older_life(server, first_choice, somebody)
    before = server.leases[first_choice]
    life = await begin(server)
    assert life.name != first_choice
    assert server.leases[first_choice] == before
    assert server.leases[life.name].spec.holder_identity == life.name


async def test_a_create_whose_answer_was_lost_is_recognized_as_ours() -> None:
    server = LeaseServer()
    server.lost_answers = 1
    life = await begin(server)
    assert list(server.leases) == [life.name]
    assert life.lease.metadata.resource_version == "1"


async def test_a_lease_that_the_sharder_took_before_its_birth_was_heard_of_is_not_adopted() -> None:
    server = LeaseServer()
    first_choice = fresh_name("web-0", random.Random(SEED))
    server.lost_answers = 1
    server.after_lost = lambda: server.edit(first_choice, "sharder:s-1")
    life = await begin(server)
    assert life.name != first_choice
    assert server.leases[first_choice].spec.holder_identity == "sharder:s-1"
    assert server.leases[life.name].spec.holder_identity == life.name


async def test_the_age_of_a_lease_counts_from_the_first_attempt_to_create_it() -> None:
    server = LeaseServer()
    clock = ManualClock()
    began_at = clock.now()
    server.lost_answers = 1
    server.after_lost = lambda: clock.advance(10)
    life = await begin(server, clock=clock)
    assert (life.sent_at, clock.now()) == (began_at, began_at + 10)


async def test_a_released_lease_that_the_sharder_took_meanwhile_is_not_worn() -> None:
    server = LeaseServer()
    older_life(server, "web-0-0000000a", template(identity=DEAD), holder="")
    server.after_list = lambda: server.edit("web-0-0000000a", "sharder:s-1")
    life = await begin(server)
    assert life.name != "web-0-0000000a"
    assert server.leases["web-0-0000000a"].spec.holder_identity == "sharder:s-1"


async def test_a_released_lease_is_worn_again() -> None:
    server = LeaseServer()
    older_life(server, "web-0-0000000a", template(identity=DEAD), holder="")
    life = await begin(server)
    assert life.name == "web-0-0000000a"
    assert server.leases[life.name].spec.holder_identity == life.name
    assert server.leases[life.name].metadata.annotations[KEYS.process] == ME.encode()


async def test_a_lease_that_is_worn_again_says_nothing_of_its_former_life_s_caches() -> None:
    server = LeaseServer()
    older_life(server, "web-0-0000000a", template(identity=DEAD), holder="")
    server.leases["web-0-0000000a"].metadata.annotations[KEYS.synced] = "true"
    life = await begin(server)
    assert life.name == "web-0-0000000a"
    assert KEYS.synced not in server.leases[life.name].metadata.annotations


async def test_an_ended_life_is_released_for_its_successor_without_its_hold() -> None:
    server = LeaseServer()
    older_life(server, "web-0-0000000a", template(identity=DEAD, hold=True))
    life = await begin(server)
    released = server.leases["web-0-0000000a"]
    assert life.name != "web-0-0000000a", "a Lease released for an ended life is not taken over"
    assert released.spec.holder_identity == ""
    assert KEYS.hold not in released.metadata.annotations


async def test_the_ended_life_of_another_member_is_not_ours_to_release() -> None:
    """Not even one whose label has our member's hash: hashes collide, and labels can be edited."""
    server = LeaseServer()
    older_life(server, "web-1-0000000a", template(member="web-1", identity=DEAD))
    lease = server.leases["web-1-0000000a"]
    labels = {**lease.metadata.labels, KEYS.member_hash: member_hash("web-0")}
    meta: Meta = msgspec.structs.replace(lease.metadata, labels=labels)
    server.store(msgspec.structs.replace(lease, metadata=meta))
    await begin(server)
    assert server.leases["web-1-0000000a"].spec.holder_identity == "web-1-0000000a"


@pytest.mark.parametrize("selected", [True, False])
async def test_only_leases_of_the_own_ring_are_looked_at(selected: bool) -> None:
    server = LeaseServer()
    older_life(server, "web-0-0000000a", template(identity=DEAD), holder="")
    if not selected:
        lease = server.leases["web-0-0000000a"]
        meta: Meta = msgspec.structs.replace(lease.metadata, labels={KEYS.ring_label: "another"})
        server.store(msgspec.structs.replace(lease, metadata=meta))
    assert ((await begin(server)).name == "web-0-0000000a") is selected


async def test_a_birth_reads_the_leases_of_its_own_member_only() -> None:
    server = LeaseServer()
    for number in range(1000):
        older_life(server, f"web-{number}-0000000a", template(member=f"web-{number}"))
    older_life(server, "web-0-0000000b", template(identity=DEAD))
    await begin(server)
    assert server.listed == 2
    assert server.leases["web-0-0000000b"].spec.holder_identity == "", "an older life's end was proven"


async def test_members_with_long_names_are_told_apart_in_a_label() -> None:
    long = "a-" + "b" * 250
    labels = [
        template(member=long + end).lease("x", NAMESPACE, ManualClock()).metadata.labels for end in "cd"
    ]
    assert labels[0][KEYS.member_hash] != labels[1][KEYS.member_hash]
    assert all(is_label_value(value) for value in labels[0].values())
