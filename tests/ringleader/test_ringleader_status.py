"""`status`: what is to do and how long it takes, on screens of every width, and through an outage of the cluster."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import random
import re
import struct
import termios
from datetime import UTC, datetime
from fcntl import ioctl

import pytest

from devcluster.faults import Fault
from kubeio.clock import ManualClock, SystemClock, micro_time
from kubeio.errors import Forbidden, Unreachable
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.rest.client import Client
from ring import HashRing, object_key
from ringleader.cluster.reader import ClusterReader
from ringleader.cluster.ring_status import MemberStatus, RingStatus
from ringleader.inspect.status.layout import Screen, convergence, duration, shortened, status_lines
from ringleader.inspect.status.ring_changes import RingChanges
from ringleader.inspect.status.statuses import count_statuses, read_statuses
from ringleader.inspect.status.watch import LatestStatus
from tests.sharder.io.environment import KEYS, RING, WEBSITES, SharderEnvironment, wait_until
from tests.warm_python import warm_python

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


def seen(**changes: object) -> RingStatus:
    members = [
        MemberStatus(f"web-{n}-{'x' * 30}", f"web-{n}-aaaaaaaa", "ready", 2.0, 50_000, 0.5, 0.5, 0)
        for n in (0, 1)
    ]
    fields: dict[str, object] = {
        "name": "websites",
        "ready": "True",
        "balanced": "False",
        "objects": 100_000,
        "unowned": 0,
        "in_flight": 0,
        "members": members,
    }
    return RingStatus(**{**fields, **changes})  # type: ignore[arg-type] # by name


# -- the words


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "converged: every object is at its place"),
        (
            {"converged_at": "2026-11-21T11:57:00Z", "converged_after_seconds": 3.25},
            "converged: every object is at its place; the last change took 3.2 s, 3m ago",
        ),
        (
            {"unowned": 200, "misplaced": 1000, "rate_per_second": 300.0, "seconds_left": 4.0},
            "to do: 1,200 objects (200 unowned, 1,000 misplaced); 300/s, about 4 s left",
        ),
        (
            {"misplaced": 7, "rate_per_second": 0.0},
            "to do: 7 objects (0 unowned, 7 misplaced); nothing moves",
        ),
        ({"misplaced": 7, "paused": True}, "to do: 7 objects (0 unowned, 7 misplaced)"),
        (
            {
                "releasing": True,
                "to_release": 700,
                "unowned": 300,
                "rate_per_second": 152.4,
                "seconds_left": 4.6,
            },
            "being given up: 700 of 100,000 objects still have an owner; 152/s, about 4.6 s left",
        ),
        (
            {"releasing": True, "unowned": 50_000},
            "being given up: no object has an owner any more; the ring goes when no replica holds a Lease",
        ),
        (
            {"members": [MemberStatus("web-1", "web-1-f0", "ready", 75.0, 1200, 1.0, 1.0, 0, silent=True)]},
            "every object is at its place, but 1,200 are not reconciled: no Lease renewed by web-1 (for 75s)",
        ),
    ],
)
def test_convergence_is_told_in_words(changes: dict[str, object], text: str) -> None:
    assert convergence(seen(**changes), now=NOW) == text


def test_a_paused_ring_says_so_even_when_all_is_at_its_place() -> None:
    shown = status_lines([seen(paused=True)], Screen(), is_wide=False, now=NOW)
    assert "paused: nothing moves between live replicas; ringleader resume websites ends that" in shown
    assert not any("paused" in line for line in status_lines([seen()], Screen(), is_wide=False, now=NOW))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0.4 s"), (3, "3 s"), (90, "90 s"), (600, "10 min"), (9000, "2 h")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# -- the layout


@pytest.mark.parametrize("columns", [None, 40])
def test_a_picture_that_came_late_says_how_old_it_is(columns: int | None) -> None:
    def told(age_seconds: float) -> str:
        shown = seen(misplaced=5, age_seconds=age_seconds)
        return " ".join(" ".join(status_lines([shown], Screen(columns), is_wide=False, now=NOW)).split())

    assert "the API server is busy: it was so 45s ago" in told(45.0)
    assert "busy" not in told(2.0)


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 200])
def test_no_line_is_wider_than_the_screen(columns: int) -> None:
    shown = seen(unowned=12_345, misplaced=55_555, rate_per_second=1234.5, seconds_left=55.0)
    lines = status_lines([shown, shown], Screen(columns), is_wide=False, now=NOW)
    assert max(map(len, lines)) <= columns
    text = " ".join(" ".join(lines).split())
    assert "12,345" in text
    if columns >= 40:
        assert "50,000" in text
        assert "55 s left" in text


def test_a_long_name_loses_its_middle() -> None:
    assert shortened("websites-controller-17", 12) == "websit…er-17"
    assert shortened("web", 12) == "web"


# -- on a cluster


def placed(name: str) -> str:
    return f"{HashRing(['a', 'b']).owner(object_key('example.com', 'default', name))}-00000001"


async def other(name: str) -> str:
    return "b-00000001" if placed(name) == "a-00000001" else "a-00000001"


async def two_members(env: SharderEnvironment, **ring: object) -> None:
    await env.ring(**ring)
    await env.shard("a", duration_s=15)
    await env.shard("b", duration_s=15)


async def test_what_is_to_do_is_the_unowned_and_the_misplaced_and_nothing_else(
    env: SharderEnvironment,
) -> None:
    await two_members(
        env, namespaceSelector={"matchExpressions": [{"key": "off", "operator": "DoesNotExist"}]}
    )
    await env.namespace("elsewhere", {"off": "true"})
    await env.site("one", labels={KEYS.shard: placed("one")})
    await env.site("two", labels={KEYS.shard: await other("two"), KEYS.drain: placed("two")})
    await env.site("three", labels={KEYS.shard: "dead-00000001"})
    await env.site("four")
    await env.site("not-selected", namespace="elsewhere")
    (found,) = await look(env.client)
    assert (found.objects, found.unowned, found.misplaced, found.in_flight, found.to_do) == (4, 2, 1, 1, 3)


async def test_that_no_sharder_leads_is_said_beside_what_it_would_have_to_do(env: SharderEnvironment) -> None:
    """The states beside the Leases are then as old as the last sharder."""
    await two_members(env)
    (found,) = await look(env.client)
    told = status_lines([found], Screen(), is_wide=False, now=NOW)
    assert "warning: no sharder leads: there is no Lease ringleader-sharder in any namespace" in told
    await env.leases.create(lease_of_a_sharder("2026-01-01T00:00:00.000000Z"))
    (found,) = await look(env.client)
    assert found.warning == "no sharder leads: sharder-1 does not renew Lease default/ringleader-sharder"
    lease = await env.leases.get("ringleader-sharder")
    lease.spec.renew_time = micro_time(SystemClock().wall())
    await env.leases.swap(lease)
    (found,) = await look(env.client)
    assert found.warning == ""


async def test_who_has_objects_and_does_not_renew_is_silent_whatever_the_sharder_last_wrote(
    env: SharderEnvironment,
) -> None:
    """A sharder that died cannot say so any more."""
    await two_members(env)
    name = next(name for name in map("site-{}".format, range(99)) if placed(name) == "a-00000001")
    await env.site(name, labels={KEYS.shard: placed(name)})
    (found,) = await look(env.client)
    assert [each.silent for each in found.members] == [False, False]
    await env.shards[0].fall_silent()
    lease = await env.shards[0].lease()
    lease.spec.renew_time = "2026-01-01T00:00:00.000000Z"
    await env.leases.swap(lease)
    (found,) = await look(env.client)
    assert [each.silent for each in found.members] == [True, False]


async def test_a_member_that_is_scaled_away_is_leaving_and_has_no_place(env: SharderEnvironment) -> None:
    await two_members(env)
    lease = await env.shards[0].lease()
    lease.metadata.annotations[KEYS.leaving] = "true"
    await env.leases.swap(lease)
    (found,) = await look(env.client)
    assert [(each.state, each.ideal) for each in found.members] == [("leaving", 0.0), ("held", 1.0)]


async def look(client: Client) -> list[RingStatus]:
    """As `status --count` does."""
    return await count_statuses(ClusterReader(client, timeout_s=10), None)


def lease_of_a_sharder(renewed: str) -> Lease:
    return Lease(Meta(name="ringleader-sharder"), LeaseSpec("sharder-1", 15, renewed, renewed, 0))


async def test_what_is_listed_has_the_pace_of_the_sharder(env: SharderEnvironment) -> None:
    await two_members(env)
    await env.sites(4)
    (found,) = await look(env.client)
    assert (found.to_do, found.rate_per_second, found.seconds_left) == (4, None, None)
    assert convergence(found, now=NOW) == "to do: 4 objects (4 unowned, 0 misplaced)"
    await env.report(progress={"objectsPerSecond": 1.5, "secondsLeft": 3})
    (found,) = await look(env.client)
    assert (found.to_do, found.rate_per_second, found.seconds_left) == (4, 1.5, 3)


async def test_a_list_takes_objects_of_unselected_namespaces_only_with_an_owner(
    env: SharderEnvironment,
) -> None:
    await two_members(env, namespaceSelector={"matchLabels": {"tier": "web"}})
    await env.namespace("shop", {"tier": "web"})
    await env.namespace("attic", {"tier": "old"})
    await env.site("one", namespace="shop")
    await env.site("two", namespace="attic")
    await env.site("three", namespace="attic", labels={KEYS.shard: "a-00000001"})
    (found,) = await look(env.client)
    assert (found.objects, found.unowned) == (2, 1)


async def test_a_ring_that_is_being_deleted_has_what_still_has_an_owner_to_do(
    env: SharderEnvironment,
) -> None:
    await two_members(env)
    await env.sites(2, labels={KEYS.shard: "a-00000001"})
    await env.sites(4, first=2)
    await env.patch(CONTROLLER_RINGS, RING, {"metadata": {"finalizers": ["example.com/held"]}}, namespace="")
    await env.client.delete(CONTROLLER_RINGS, RING)
    (found,) = await look(env.client)
    assert (found.releasing, found.to_release, found.to_do) == (True, 2, 2)
    assert convergence(found, now=NOW).startswith("being given up: 2 of 6 objects still have an owner")


async def test_status_reads_rings_and_leases_and_no_object(env: SharderEnvironment) -> None:
    await two_members(env)
    await env.report(objects=7, unassigned=2, misplaced=1)
    await env.plane.faults.add(Fault(what="error", code=403, verb="list", resource=WEBSITES.group_resource))
    (found,) = await read_statuses(ClusterReader(env.client, timeout_s=10), RING)
    assert (found.objects, found.unowned, found.misplaced, found.to_do) == (7, 2, 1, 3)
    with pytest.raises(Forbidden):
        await look(env.client)


# -- again and again


async def test_a_change_of_the_ring_ends_the_wait_also_after_a_cut(env: SharderEnvironment) -> None:
    await env.ring()
    cut = Fault(what="cut", verb="watch", resource=CONTROLLER_RINGS.group_resource)
    async with RingChanges(env.client, RING, clock=SystemClock()) as changes:
        await wait_until(lambda: is_watching(changes))
        for number in range(2):
            changes.clear()
            waiting = asyncio.create_task(changes.wait(at_most_s=60))
            await env.report(objects=number)
            await asyncio.wait_for(waiting, 5)
            await env.plane.faults.add(cut)
            await env.plane.faults.clear()
            await wait_until(lambda: hears(env, changes))


async def hears(env: SharderEnvironment, changes: RingChanges) -> bool:
    """Whether a change comes through the watch."""
    await env.report(objects=random.randrange(1000))
    return changes.is_watching


async def test_changes_of_other_rings_are_none_of_a_named_one(env: SharderEnvironment) -> None:
    await env.ring()
    async with RingChanges(env.client, "another", clock=SystemClock()) as changes:
        await wait_until(lambda: is_watching(changes))
        changes.clear()
        await env.report(objects=1)
        waiting = asyncio.create_task(changes.wait(at_most_s=60))
        done, _ = await asyncio.wait([waiting], timeout=0.5)
        waiting.cancel()
        assert not done


async def is_watching(changes: RingChanges) -> bool:
    return changes.is_watching


async def test_a_watch_that_is_refused_leaves_the_rings_to_be_read(env: SharderEnvironment) -> None:
    await two_members(env)
    await env.report(objects=1)
    resource = CONTROLLER_RINGS.group_resource
    await env.plane.faults.add(Fault(what="error", code=403, verb="watch", resource=resource))
    async with Terminal(str(env.plane.kubeconfig), "-w", "--interval", "1s", columns=40) as terminal:
        await wait_until(lambda: "objects 1" in terminal.text, within_s=30)
        await env.report(objects=2)
        await wait_until(lambda: "objects 2" in terminal.text, within_s=10)


def test_ages_of_leases_grow_between_two_reads() -> None:
    clock = ManualClock()
    latest = LatestStatus(clock)
    clock.advance(1.0)
    latest.succeeded([seen()])
    assert age_shown(latest) == "2s"
    clock.advance(10.0)
    assert age_shown(latest) == "12s"
    latest.failed(Unreachable("GET /", "connection refused", maybe_done=False), "https://server")
    first, _, *rest = latest.lines(Screen(), is_wide=True)
    assert first.startswith("no answer, this status is 10s old: ")
    assert any("websites" in line for line in rest)


def age_shown(latest: LatestStatus) -> str:
    return latest.lines(Screen(), is_wide=True)[-1].split()[3]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-w", "--count"), "--count does not go with -w; leave one of them out"),
        (("--handoffs", "-w"), "-w does not go with --handoffs; leave one of them out"),
    ],
)
async def test_flags_that_contradict_each_other_are_refused(
    env: SharderEnvironment, words: tuple[str, ...], message: str
) -> None:
    async with Terminal(str(env.plane.kubeconfig), *words, columns=200) as terminal:
        assert await asyncio.wait_for(terminal.process.wait(), 30) == 2
        await wait_until(lambda: message in terminal.text)


class Terminal:
    """The command on a terminal of some width, and all that it wrote there."""

    def __init__(self, kubeconfig: str, *words: str, columns: int, term: str = "xterm") -> None:
        self._words = (warm_python(), "-m", "ringleader", "status", *words)
        self._columns = columns
        self._environment = {
            **{name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")},
            "KUBECONFIG": kubeconfig,
            "TERM": term,
            "NO_COLOR": "1",
        }
        self.text = ""

    async def __aenter__(self) -> Terminal:
        ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, self._columns, 0, 0))
        self.process = await asyncio.create_subprocess_exec(
            *self._words, stdin=theirs, stdout=theirs, stderr=theirs, env=self._environment
        )
        os.close(theirs)
        self._ours = ours
        asyncio.get_running_loop().add_reader(ours, self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._ours)
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        os.close(self._ours)

    def _read(self) -> None:
        try:
            self.text += os.read(self._ours, 65536).decode(errors="replace")
        except OSError:
            asyncio.get_running_loop().remove_reader(self._ours)

    @property
    def lines(self) -> list[str]:
        """What stood on it, one picture after the other, without cursor movements."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.text).replace("\r", "\n").split("\n")


async def test_a_terminal_of_forty_columns_is_redrawn_without_colours(env: SharderEnvironment) -> None:
    await two_members(env)
    await env.report(objects=1)
    async with Terminal(str(env.plane.kubeconfig), "-w", "--interval", "1s", columns=40) as terminal:
        await wait_until(lambda: terminal.text.count("RING websites") >= 2, within_s=30)
        assert "\x1b[1A" in terminal.text or "\x1b[H" in terminal.text
        assert not re.search(r"\x1b\[[0-9;]*m", terminal.text.replace("\x1b[0m", ""))
        assert max(map(len, terminal.lines)) <= 40
        await env.report(objects=2)
        await wait_until(lambda: "objects 2" in terminal.text, within_s=10)
        terminal.process.send_signal(2)
        assert await asyncio.wait_for(terminal.process.wait(), 10) == 0


async def test_a_terminal_that_cannot_move_its_cursor_gets_blocks_of_lines(env: SharderEnvironment) -> None:
    await two_members(env)
    words = ("-w", "--interval", "1s")
    async with Terminal(str(env.plane.kubeconfig), *words, columns=40, term="dumb") as terminal:
        await wait_until(lambda: terminal.text.count("RING websites") >= 2, within_s=30)
        assert "\x1b" not in terminal.text
        assert re.search(r"-- \d\d:\d\d:\d\d", terminal.text)


async def test_an_outage_is_told_with_the_age_of_the_last_picture_and_recovered_from(
    env: SharderEnvironment,
) -> None:
    await two_members(env)
    await env.report(objects=1)
    async with Terminal(str(env.plane.kubeconfig), "-w", "--interval", "1s", columns=120) as terminal:
        await wait_until(lambda: "converged" in terminal.text, within_s=30)
        away = asyncio.create_task(env.plane.restart(away_s=5))
        await wait_until(lambda: "no answer, this status is" in terminal.text, within_s=20)
        outage = terminal.text.rpartition("no answer")[2]
        assert "connection refused" in outage or "no answer" in outage
        assert (
            "converged: every object is at its place"
            in terminal.text.rpartition("no answer, this status is")[2]
        )
        ages = set(re.findall(r"this status is (\d+)s old", terminal.text))
        await away
        before = len(terminal.text)
        await env.report(objects=2)
        await wait_until(lambda: re.search(r"websites +2 ", terminal.text[before:]), within_s=20)
        assert "no answer" not in terminal.text[before:].rpartition("websites   2")[2]
        assert ages


async def test_watching_into_a_pipe_is_a_line_of_json_for_each_picture(env: SharderEnvironment) -> None:
    await two_members(env)
    process = await asyncio.create_subprocess_exec(
        *(warm_python(), "-m", "ringleader", "status", "-w", "--interval", "0.2s", "-o", "json"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": str(env.plane.kubeconfig)},
    )
    assert process.stdout is not None
    lines = [json.loads(await asyncio.wait_for(process.stdout.readline(), 30)) for _ in range(2)]
    process.send_signal(2)
    assert await process.wait() == 0
    assert [line["rings"][0]["name"] for line in lines] == ["websites", "websites"]
    assert lines[0]["problem"] == ""


async def test_top_without_an_active_replica_says_why(env: SharderEnvironment) -> None:
    await env.ring()
    process = await asyncio.create_subprocess_exec(
        *(warm_python(), "-m", "ringleader", "top", RING),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": str(env.plane.kubeconfig)},
    )
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    assert out.decode().splitlines() == [
        "no replica is active",
        "no sharder leads: there is no Lease ringleader-sharder in any namespace",
    ]
