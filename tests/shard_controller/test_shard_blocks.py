"""A blocked event loop is told once, with its stack; SIGUSR1 tells everything and stops nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from shard_controller.observe.watchdog import BlockBegun, BlockDetector, BlockEnded
from tests.shard_controller.bench import Bench

PERIOD_S = 0.05


class Watched:
    """A loop and a process by their numbers: `turn` lets the loop turn, `block` computes, `suspend` does nothing."""

    def __init__(self) -> None:
        self.now = self.cpu_s = 100.0
        self.beats = 0
        self.blocks = BlockDetector(
            blocked_s=0.25, longest_gap_s=3 * PERIOD_S, now=self.now, cpu_s=self.cpu_s
        )
        self.reported: list[BlockBegun | BlockEnded] = []

    def turn(self, for_s: float) -> None:
        self._pass(for_s, beats=True, computes=False)

    def block(self, for_s: float, *, computes: bool = True) -> None:
        self._pass(for_s, beats=False, computes=computes)

    def jump(self, for_s: float, *, computes: bool) -> None:
        """The watcher does not run for *for_s*, nor does the loop."""
        self.now += for_s
        self.cpu_s += for_s if computes else 0.0
        self._look()

    def _pass(self, for_s: float, *, beats: bool, computes: bool) -> None:
        for _ in range(round(for_s / PERIOD_S)):
            self.now += PERIOD_S
            self.cpu_s += PERIOD_S if computes else 0.0
            self.beats += beats
            self._look()

    def _look(self) -> None:
        reported = self.blocks.check(beats=self.beats, now=self.now, cpu_s=self.cpu_s)
        if reported is not None:
            self.reported.append(reported)


def assert_ended(reported: BlockBegun | BlockEnded, *, took_s: float, was_seen: bool) -> None:
    assert isinstance(reported, BlockEnded)
    assert reported.took_s == pytest.approx(took_s, abs=3 * PERIOD_S)
    assert reported.was_seen is was_seen


@pytest.mark.parametrize("computes", [True, False], ids=["computing", "waiting"])
def test_a_block_is_reported_once_while_it_lasts_and_once_when_it_is_over(computes: bool) -> None:
    watched = Watched()
    watched.turn(5)
    watched.block(10, computes=computes)
    watched.turn(5)
    begun, ended = watched.reported
    assert isinstance(begun, BlockBegun)
    assert begun.for_s == pytest.approx(0.25, abs=PERIOD_S)
    assert_ended(ended, took_s=10, was_seen=True)


def test_two_blocks_are_reported_separately() -> None:
    watched = Watched()
    for _ in range(2):
        watched.turn(1)
        watched.block(1)
    watched.turn(1)
    assert [type(reported) for reported in watched.reported] == [
        BlockBegun,
        BlockEnded,
        BlockBegun,
        BlockEnded,
    ]


def test_a_loop_that_runs_now_and_then_is_not_blocked() -> None:
    watched = Watched()
    for _ in range(20):
        watched.block(0.2)
        watched.turn(0.05)
    assert watched.reported == []


def test_a_suspended_process_was_not_blocked() -> None:
    watched = Watched()
    watched.turn(1)
    watched.jump(3600, computes=False)
    watched.turn(1)
    assert watched.reported == []


def test_suspension_does_not_count_for_a_block_that_it_meets() -> None:
    watched = Watched()
    watched.turn(1)
    watched.block(0.5)
    watched.jump(3600, computes=False)
    watched.block(0.5)
    watched.turn(1)
    _, ended = watched.reported
    assert_ended(ended, took_s=1, was_seen=True)


def test_an_unseen_block_is_reported_afterwards() -> None:
    """Code that keeps the interpreter's lock stops the watcher as well as the loop."""
    watched = Watched()
    watched.turn(1)
    watched.jump(5, computes=True)
    watched.turn(1)
    (ended,) = watched.reported
    assert_ended(ended, took_s=5, was_seen=False)


# -- in a process


async def test_a_blocked_loop_is_reported_once_with_what_blocks_it(bench: Bench) -> None:
    shard = await bench.start("web-0")
    await bench.site("blog", "block 1.5\nready", owner=shard)
    await bench.until(lambda: shard.logged("event loop runs again"))
    begun = [
        reported for reported in shard.logged("event loop is blocked") if "time.sleep" in reported["stack"]
    ]
    assert len(begun) == 1, shard.logged("event loop is blocked")
    assert "acting.py" in begun[0]["stack"].splitlines()[-2]
    assert 0.25 <= begun[0]["for_s"] < 1.5
    ended = max(reported["took_s"] for reported in shard.logged("event loop runs again"))
    assert 1.4 <= ended < 5
    metrics = await shard.metrics()
    assert metrics['ringleader_shard_loop_blocks_total{controller="sites"}'] >= 1
    assert metrics['ringleader_shard_loop_blocked_seconds_total{controller="sites"}'] >= 1.4


async def test_a_longer_limit_reports_less(bench: Bench) -> None:
    shard = await bench.start("web-0", flags=("--blocked-loop", "5"))
    await bench.site("blog", "block 1\nready", owner=shard)
    await bench.until(lambda: shard.records("end"))
    assert shard.logged("event loop is blocked") == []


@pytest.mark.parametrize("mode", ["sharded", "single"])
async def test_sigusr1_logs_stacks_and_queue_and_stops_nothing(
    bench: Bench, tmp_path: Path, mode: str
) -> None:
    gate = tmp_path / "gate"
    shard = await bench.start("web-0", mode=mode)
    await bench.site("blog", f"await {gate}\npublish hello", owner=shard)
    await bench.until(lambda: shard.reconciles("blog"))
    for count in (1, 2):
        shard.signal(signal.SIGUSR1)
        await bench.until(
            lambda count=count: len(shard.logged("queue, asked for by SIGUSR1")) == count  # type: ignore[misc]
        )
    threads = shard.logged("stacks of threads, asked for by SIGUSR1")[0]["stack"]
    assert "thread MainThread" in threads
    assert "thread loop watch" in threads
    tasks = shard.logged("stacks of tasks, asked for by SIGUSR1")[0]["stack"]
    assert "task sites worker 0" in tasks
    assert "in opened" in tasks, "the place where the reconcile waits"
    queue = shard.logged("queue, asked for by SIGUSR1")[0]["queue"]
    assert [entry["object"] for entry in queue["longestRunning"]] == ["websites.example.com default/blog"]
    gate.touch()
    await bench.until(lambda: bench.page("blog"))
    assert await shard.terminate() == 0


async def test_sigusr1_logs_what_blocks_the_loop_at_this_moment(bench: Bench) -> None:
    shard = await bench.start("web-0", flags=("--blocked-loop", "0"))
    await bench.site("blog", "block 60", owner=shard)

    async def runs() -> bool:
        return bool(shard.reconciles("blog"))

    await bench.until(runs)
    shard.signal(signal.SIGUSR1)

    async def is_told() -> bool:
        return bool(shard.logged("stacks of threads, asked for by SIGUSR1"))

    await bench.until(is_told, within_s=3)
    assert not shard.records("end"), "the loop is still blocked"
    assert "time.sleep" in shard.logged("stacks of threads, asked for by SIGUSR1")[0]["stack"]
    assert shard.logged("event loop is blocked") == [], "0 reports nothing by itself"
