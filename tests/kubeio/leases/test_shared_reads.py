"""Evidence shared by many: a read answers only who asked before it began. On virtual time."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections import Counter

import pytest

from kubeio.errors import NotFound, Unreachable
from kubeio.leases.shared_reads import SharedLeaseReads
from kubeio.models import Lease, LeaseSpec, Meta

pytestmark = pytest.mark.looptime
READ_S = 1.0


class SlowLeases:
    """Leases that take a second to read; an answer shows what was there when the read began."""

    def __init__(self, *names: str) -> None:
        self.holders = {name: name for name in names}
        self.begun: Counter[str] = Counter()
        self.fails = False

    async def get(self, name: str) -> Lease:
        self.begun[name] += 1
        holder = self.holders.get(name)
        await asyncio.sleep(READ_S)
        if self.fails:
            raise Unreachable("GET lease", "connection refused", maybe_done=False)
        if holder is None:
            raise NotFound("GET lease", status=404)
        return Lease(Meta(name=name), LeaseSpec(holder))


async def holder(reads: SharedLeaseReads, name: str) -> str | None:
    return (await reads.get(name)).spec.holder_identity


async def test_those_who_ask_at_once_share_one_read() -> None:
    leases = SlowLeases("a")
    reads = SharedLeaseReads(leases)
    assert await asyncio.gather(*(holder(reads, "a") for _ in range(50))) == ["a"] * 50
    assert leases.begun["a"] == 1


async def test_one_who_asks_while_a_read_is_under_way_gets_a_later_one() -> None:
    leases = SlowLeases("a")
    async with asyncio.TaskGroup() as tasks:
        reads = SharedLeaseReads(leases)
        first = tasks.create_task(holder(reads, "a"))
        await asyncio.sleep(READ_S / 2)
        leases.holders["a"] = "sharder:x"  # taken after the first read had begun
        late = [tasks.create_task(holder(reads, "a")) for _ in range(50)]
        assert await first == "a"
        assert {await asked for asked in late} == {"sharder:x"}
    assert leases.begun["a"] == 2


async def test_leases_do_not_wait_for_each_other() -> None:
    leases = SlowLeases("a", "b", "c")
    reads = SharedLeaseReads(leases)
    began = asyncio.get_running_loop().time()
    assert await asyncio.gather(*(holder(reads, name) for name in "abc")) == ["a", "b", "c"]
    assert asyncio.get_running_loop().time() - began == READ_S


async def test_a_caller_that_gives_up_leaves_the_answer_to_others() -> None:
    leases = SlowLeases("a")
    async with asyncio.TaskGroup() as tasks:
        reads = SharedLeaseReads(leases)
        patient = tasks.create_task(holder(reads, "a"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(READ_S / 2):
                await holder(reads, "a")
        assert await patient == "a"


async def test_a_failure_is_everybodys_who_shares_the_read_and_the_next_one_asks_anew() -> None:
    leases = SlowLeases("a")
    reads = SharedLeaseReads(leases)
    with pytest.raises(NotFound):
        await reads.get("nobody")
    leases.fails = True
    failed = await asyncio.gather(*(reads.get("a") for _ in range(50)), return_exceptions=True)
    assert {type(each) for each in failed} == {Unreachable}
    assert leases.begun["a"] == 1
    leases.fails = False
    assert await holder(reads, "a") == "a"


async def test_reads_of_one_lease_are_kept_apart_and_a_single_question_does_not_wait() -> None:
    leases = SlowLeases("a")
    reads = SharedLeaseReads(leases, apart_s=10.0)
    asked = []
    for _ in range(100):
        asked.append(asyncio.create_task(holder(reads, "a")))
        await asyncio.sleep(0.5)
    assert await asyncio.gather(*asked) == ["a"] * 100
    assert leases.begun["a"] == 6, "in 50 s"
    await asyncio.sleep(10)
    began = asyncio.get_running_loop().time()
    await holder(reads, "a")
    assert asyncio.get_running_loop().time() - began == READ_S


async def test_reads_are_kept_apart_whatever_else_is_read_between_them() -> None:
    leases = SlowLeases("a", "b")
    reads = SharedLeaseReads(leases, apart_s=10.0)
    began = asyncio.get_running_loop().time()
    for name in "aba":
        await holder(reads, name)
    assert asyncio.get_running_loop().time() - began == 10.0 + READ_S


async def test_one_read_of_a_lease_is_under_way_whatever_else_is_read() -> None:
    leases = SlowLeases("a", "b")
    reads = SharedLeaseReads(leases)
    began = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as tasks:
        for name in "aba":
            tasks.create_task(holder(reads, name))
            await asyncio.sleep(READ_S / 4)
    assert asyncio.get_running_loop().time() - began == 2 * READ_S


@pytest.mark.parametrize("apart_s", [0.0, 10.0])
async def test_names_that_none_asks_for_any_more_take_no_memory(apart_s: float) -> None:
    """A replica that is rolled daily has another name each day."""
    names = [f"web-1-{life:08x}" for life in range(1000)]
    reads = SharedLeaseReads(SlowLeases(*names), apart_s=apart_s)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for name in names:
            await holder(reads, name)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 200_000, "and 700 KB if each name stays"


async def test_nothing_is_read_without_a_question() -> None:
    leases = SlowLeases("a")
    reads = SharedLeaseReads(leases)
    await holder(reads, "a")
    await asyncio.sleep(100)
    assert leases.begun["a"] == 1
