"""Time of the simulation: the order of events, the clocks of a machine, and loops that stand still alone."""

from __future__ import annotations

import asyncio

import pytest

from kubeio.errors import HistoryWentBack, Unreachable
from kubeio.shard.kernel_timer import EXIT_CODE
from kubeio.shard.lease_validity import LeaseValidity
from simulation.hosts import SimulatedTimer
from simulation.machine import Machine
from simulation.process import KILLED, Process
from simulation.world import Violation, World


@pytest.fixture
def world() -> World:
    return World(1)


@pytest.fixture
def machine(world: World) -> Machine:
    return Machine(world, "machine")


def process_of(world: World, machine: Machine) -> Process:
    return Process(world, machine, "process", pid=1, on_end=lambda process: None)


async def ticks(seen: list[float], clock: Machine, *, every_s: float = 1.0) -> int:
    while True:
        await asyncio.sleep(every_s)
        seen.append(clock.now())


def test_events_come_by_time_and_then_in_the_order_of_their_registration(world: World) -> None:
    seen: list[str] = []
    world.at(2, lambda: seen.append("late"))
    world.at(1, lambda: seen.append("first"))
    world.at(1, lambda: seen.append("second"))
    world.run(3)
    assert (seen, world.now) == (["first", "second", "late"], 3)


def test_what_a_judge_finds_ends_the_run_after_the_event(world: World) -> None:
    world.at(1, lambda: world.violate("rule", "what"))
    world.at(2, lambda: pytest.fail("the run went on"))
    with pytest.raises(Violation, match="rule: what"):
        world.run(3)


@pytest.mark.parametrize("objects", [20, 2_000])
def test_something_that_never_waits_ends_the_run(world: World, objects: int) -> None:
    world.expect_objects(objects)

    def again() -> None:
        world.after(1e-6, again)

    again()
    with pytest.raises(Violation, match="rest"):
        world.run(10)


def test_a_large_world_may_have_more_events_in_a_second(world: World) -> None:
    world.expect_objects(2_000)
    for number in range(200_000):
        world.after(number / 400_000, lambda: None)
    world.run(1)
    assert world.events == 200_000


def test_a_thread_that_never_waits_ends_the_run(world: World, machine: Machine) -> None:
    process = process_of(world, machine)
    process.start(ticks([], machine, every_s=0))
    with pytest.raises(Violation, match="rest: process/1, loop main: never waits"):
        world.run(10)
    assert world.events < 10_000


def test_a_callback_that_fails_ends_the_run(world: World, machine: Machine) -> None:
    process = process_of(world, machine)
    process.main_loop.call_later(1, lambda: 1 // 0)
    with pytest.raises(Violation, match="callbacks succeed: process/1, loop main: ZeroDivisionError"):
        world.run(10)


@pytest.mark.parametrize(
    ("error", "is_foreseen"),
    [
        (Unreachable("list", "refused", maybe_done=False), True),
        (HistoryWentBack("list", version="1", seen="2"), True),
        (
            ExceptionGroup("tasks", [Unreachable("list", "refused", maybe_done=False), KeyError("ring")]),
            False,
        ),
    ],
)
def test_an_exception_that_the_program_does_not_foresee_ends_the_run(
    world: World, machine: Machine, error: Exception, is_foreseen: bool
) -> None:
    async def main() -> int:
        raise error

    process = process_of(world, machine)
    process.start(main())
    if is_foreseen:
        world.run(10)
    else:
        with pytest.raises(Violation, match="exceptions are foreseen: process/1 ends by KeyError"):
            world.run(10)
    assert process.exit_code == 1


def test_a_timer_that_was_cancelled_does_not_wake_its_loop(world: World, machine: Machine) -> None:
    seen: list[str] = []
    loop = process_of(world, machine).main_loop
    first, _ = loop.call_later(1, seen.append, "first"), loop.call_later(2, seen.append, "second")
    first.cancel()
    world.run(10)
    assert (seen, world.events) == (["second"], 2)


def test_randomness_of_one_purpose_does_not_depend_on_another(world: World) -> None:
    first = World(1)
    first.rng("a").random()
    assert first.rng("b").random() == world.rng("b").random() != World(2).rng("b").random()


def test_the_digest_covers_every_line_and_its_detail(world: World) -> None:
    other = World(1)
    world.note("line", b"one")
    other.note("line", b"two")
    assert world.digest != other.digest


def passed(machine: Machine, world: World, for_s: float) -> tuple[float, float]:
    """Boot time and monotonic time that pass while the world passes *for_s*."""
    boot, monotonic = machine.now(), machine.monotonic()
    world.run(world.now + for_s)
    return round(machine.now() - boot, 6), round(machine.monotonic() - monotonic, 6)


def test_suspension_a_hypervisor_and_drift_are_three_faults(world: World, machine: Machine) -> None:
    assert passed(machine, world, 10) == (10, 10)
    machine.suspend()
    assert passed(machine, world, 10) == (10, 0)
    machine.resume()
    machine.stop()
    assert passed(machine, world, 10) == (0, 0)
    machine.resume()
    machine.drift(1.5)
    assert passed(machine, world, 10) == (15, 15)


def test_a_jump_moves_the_wall_clock_alone(world: World, machine: Machine) -> None:
    wall, boot = machine.wall(), machine.now()
    machine.jump(-3600)
    assert (machine.wall() - wall).total_seconds() == -3600
    assert machine.now() == boot


def test_a_loop_runs_on_its_machine_s_clock(world: World, machine: Machine) -> None:
    seen: list[float] = []
    process = process_of(world, machine)
    process.start(ticks(seen, machine))
    world.run(3.5)
    assert len(seen) == 3
    machine.drift(2)
    world.run(5.5)
    assert len(seen) == 7


def test_a_frozen_process_stands_still_and_goes_on_where_it_was(world: World, machine: Machine) -> None:
    seen: list[float] = []
    process = process_of(world, machine)
    process.start(ticks(seen, machine))
    world.run(1.5)
    process.freeze()
    world.run(10)
    assert len(seen) == 1
    process.thaw()
    world.run(10.5)
    assert len(seen) == 2, "the timer that ran out meanwhile fires at once"


def test_one_thread_can_stand_still_alone(world: World, machine: Machine) -> None:
    main: list[float] = []
    beside: list[float] = []
    process = process_of(world, machine)
    process.start(ticks(main, machine))
    other = process.new_loop("other")
    other.create_task(ticks(beside, machine))
    process.freeze(process.main_loop)
    world.run(3.5)
    assert (len(main), len(beside)) == (0, 3)


def test_nothing_of_a_killed_process_runs_again(world: World, machine: Machine) -> None:
    seen: list[str] = []

    async def main() -> int:
        try:
            await asyncio.sleep(5)
        finally:
            seen.append("cleaned up")
        return 0

    process = process_of(world, machine)
    process.start(main())
    world.run(1)
    process.kill()
    world.run(10)
    assert (process.exit_code, seen) == (KILLED, [])


def test_sigterm_cancels_the_main_coroutine(world: World, machine: Machine) -> None:
    process = process_of(world, machine)
    process.start(ticks([], machine))
    world.run(1)
    process.terminate()
    world.run(2)
    assert process.exit_code == 0


@pytest.mark.parametrize(("signals", "exit_code", "took_s"), [(1, 0, 31), (2, 143, 2)])
def test_a_second_sigterm_ends_a_process_that_is_still_ending(
    world: World, machine: Machine, signals: int, exit_code: int, took_s: float
) -> None:
    ended_at: list[float] = []

    async def main() -> int:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(30)
        return 1

    process = Process(world, machine, "process", pid=1, on_end=lambda process: ended_at.append(world.now))
    process.start(main())
    for second in range(1, signals + 1):
        world.at(second, process.terminate)
    world.run(100)
    assert process.exit_code == exit_code
    assert ended_at == [pytest.approx(took_s, abs=0.01)]


def test_a_slow_process_takes_its_time(world: World, machine: Machine) -> None:
    seen: list[float] = []
    process = process_of(world, machine)
    process.slow_s = 1.0
    process.start(ticks(seen, machine, every_s=0.01))
    world.run(20)
    assert 5 < len(seen) < 40


def test_the_kernel_s_timer_ends_a_process_at_the_time_that_was_set_last(
    world: World, machine: Machine
) -> None:
    process = process_of(world, machine)
    validity = LeaseValidity(duration_s=10, sent_at=machine.now())
    timer = SimulatedTimer(process, validity, clock=machine)
    timer.rearm()  # it is to end at 19
    world.run(18)
    timer.rearm()  # nothing runs under an old Lease: at 37
    world.run(20)
    validity.renewed(sent_at=machine.now() - 3)
    timer.rearm()  # 19 s after the renewal was sent: at 36
    world.run(35.9)
    assert not process.has_ended
    world.run(36.1)
    assert process.exit_code == EXIT_CODE


def test_a_kernel_s_timer_that_was_closed_can_be_set_again(world: World, machine: Machine) -> None:
    process = process_of(world, machine)
    validity = LeaseValidity(duration_s=10, sent_at=machine.now())
    timer = SimulatedTimer(process, validity, clock=machine)
    timer.rearm()
    timer.close()
    world.run(40)
    assert not process.has_ended
    timer.rearm()
    world.run(60)
    assert process.exit_code == EXIT_CODE
