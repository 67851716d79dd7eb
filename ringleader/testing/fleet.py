"""A fleet: sharders and replicas of one controller as real processes on a control plane, with both witnesses.

Owns the processes, their links and what was seen of them; breaks them on purpose. The control plane is given
and not owned. Used by the fleet tests, by the demo and by users' own tests through `ringleader.testing.plugin`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from devcluster.link import Link
from devcluster.plane import ControlPlane
from devcluster.real.real_plane import ADMINS
from kubeio.clock import Clock, SystemClock
from kubeio.resource import CONTROLLER_RINGS, LEASES, Resource
from ring import HashRing, object_key
from ringleader.testing.attendance import Span
from ringleader.testing.client import Doc, IndependentClient, RequestFailedError
from ringleader.testing.commands import FleetSpec, Mode, shard_command, sharder_command
from ringleader.testing.evidence import Evidence
from ringleader.testing.ground import prepare_kinds, prepare_namespaces, prepare_ring
from ringleader.testing.journal import Journal, Life, Record
from ringleader.testing.objects import Objects, Ref
from ringleader.testing.process import Process
from ringleader.testing.replica import Replica, ReplicaFailedError
from ringleader.testing.witness import Overlap

_POLL_S = 0.2
_IDLE = 5
"""How much longer than a look at everything the pause after it is: looking must not slow down what is looked at."""
_CRASHES = 3
_TWIN = "-twin"
_ADMINISTRATORS = (ADMINS,)


class NotConvergedError(AssertionError):
    """The fleet did not reach the state it was waited for."""


class Fleet:
    """Made by `open_fleet`. Members are called replica-1, replica-2, ...; sharders sharder-1, sharder-2, ..."""

    def __init__(
        self,
        plane: ControlPlane,
        directory: Path,
        *,
        spec: FleetSpec,
        client: IndependentClient,
        links: AsyncExitStack,
        tasks: asyncio.TaskGroup,
        clock: Clock,
    ) -> None:
        self.plane = plane
        self.directory = directory
        self.spec = spec
        self.client = client
        self.clock = clock
        self.objects = Objects(client, namespace=spec.namespace, clock=clock, resource=spec.resource)
        self.members: dict[str, Replica] = {}
        self.twins: dict[str, Replica] = {}
        self.sharders: dict[str, Replica] = {}
        self.mode = Mode.SHARDED
        self.sharded_since = clock.now()
        self.settled_since: float | None = None
        self._links = links
        self._tasks = tasks
        self._running: list[asyncio.Task[None]] = []
        self._journals: dict[str, list[Journal]] = {}

    # -- start and end --------------------------------------------------------------------------------------

    async def start(self, controller: str = "", *, replicas: int = 3, mode: Mode = Mode.SHARDED) -> None:
        """Start sharders and *replicas* of *controller* (`path/to/file.py:name`) and wait until all are up."""
        if controller:
            self.spec = _with_controller(self.spec, controller)
        self.mode = mode
        if mode is Mode.SHARDED:
            await self.create_ring()
        await self.start_sharders()
        for index in range(replicas):
            await self.add_member(f"replica-{index + 1}")
        await self.wait_up()

    async def create_ring(self) -> None:
        """Create the ring: from now on the witnesses look."""
        self.sharded_since = self.clock.now()
        await prepare_ring(self.client, spec=self.spec)

    async def start_sharders(self) -> None:
        """Start every sharder."""
        for index in range(self.spec.sharders):
            name = f"sharder-{index + 1}"
            if name not in self.sharders:
                self.sharders[name] = await self._place(name, self._sharder_command)
            self.sharders[name].want()

    async def add_member(self, name: str = "") -> str:
        """Start one more replica, at once; gives its member name."""
        name = name or next(n for n in _names("replica") if n not in self.members)
        if name not in self.members:
            self._journals[name] = []
            self.members[name] = await self._place(name, self._shard_command)
        self.members[name].want()
        return name

    async def join(self, name: str = "") -> str:
        """Start one more replica and wait until it has its share."""
        name = await self.add_member(name)
        await self.wait_converged()
        return name

    async def second_life(self, member: str) -> str:
        """Start another process under the name of *member* while the first one runs; gives the second's shard.

        It lasts until `end_second_life`, and is seen by both witnesses, but not by `lives`.
        """
        twin = f"{member}{_TWIN}"
        if twin not in self.twins:
            self._journals[twin] = []
            self.twins[twin] = await self._place(twin, self._shard_command, account=member)
        self.twins[twin].want()
        await self._wait(lambda: self._life(self.twins[twin]) is not None, f"{twin} to be up", within_s=30)
        return self._life(self.twins[twin]) or ""

    async def end_second_life(self, member: str) -> None:
        await self.twins[f"{member}{_TWIN}"].stop()

    async def leave(self, name: str) -> None:
        """End a replica for good, by SIGTERM."""
        await self.members[name].stop()

    async def stop_members(self) -> None:
        """End every replica by SIGTERM, all at once."""
        async with asyncio.TaskGroup() as tasks:
            for replica in self.members.values():
                tasks.create_task(replica.stop(), name=f"stop-{replica.name}")

    async def close(self) -> None:
        """End every process, without grace."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _place(
        self, name: str, command: Callable[[str, Path, int], list[str]], *, account: str = ""
    ) -> Replica:
        """A new place behind a link of its own, acting under an account of its own."""
        server = urlsplit(self.plane.url)
        link = await self._links.enter_async_context(Link(server.hostname or "", server.port or 443))
        kubeconfig = await self.plane.kubeconfig_for(account or name, groups=_ADMINISTRATORS, server=link.url)
        replica = Replica(
            name,
            command=lambda number: command(name, kubeconfig, number),
            directory=self.directory,
            link=link,
            environment=self.spec.environment,
            clock=self.clock,
        )
        self._running.append(self._tasks.create_task(replica.run(), name=f"place-{name}"))
        return replica

    def _shard_command(self, name: str, kubeconfig: Path, number: int) -> list[str]:
        journal = Journal(self.directory / f"{name}.{number}.journal")
        self._journals[name].append(journal)
        ports = self.directory / f"{name}.port"
        member = name.removesuffix(_TWIN)
        return shard_command(
            self.spec, member=member, kubeconfig=kubeconfig, mode=self.mode, journal=journal.path, ports=ports
        )

    def _sharder_command(self, name: str, kubeconfig: Path, number: int) -> list[str]:
        ports = self.directory / f"{name}.port"
        return sharder_command(self.spec, identity=name, kubeconfig=kubeconfig, ports=ports)

    # -- breaking things ------------------------------------------------------------------------------------

    async def kill(self, member: str, *, again: bool = False) -> Process:
        """SIGKILL a replica (or the owner that `owner` gave); *again* lets its place be filled anew."""
        replica = self.members[member]
        if not again:
            replica.abandon()
        process = replica.kill()
        await replica.wait_until(lambda: process.ended_at is not None, within_s=10)
        return process

    def freeze(self, member: str) -> Process:
        """SIGSTOP a replica."""
        return self.members[member].freeze()

    def wake(self, member: str) -> None:
        """SIGCONT a replica."""
        self.members[member].wake()

    async def restart(self, member: str) -> None:
        """End a replica by SIGTERM and wait until its next process is up."""
        replica = self.members.get(member) or self.sharders[member]
        await replica.restart()
        if member in self.members:
            await self._wait(lambda: self.life(member) is not None, f"{member} to be up again", within_s=30)

    async def roll(self) -> None:
        """Restart every replica, one after the other, as a StatefulSet does."""
        for name in [name for name, replica in self.members.items() if replica.current is not None]:
            await self.restart(name)

    async def leader(self) -> str:
        """The sharder that acts now: the holder of the election Lease. Raises: ReplicaFailedError."""
        for lease in await self.leases():
            holder = (lease.get("spec") or {}).get("holderIdentity") or ""
            if holder in self.sharders:
                return str(holder)
        raise ReplicaFailedError("no sharder leads")

    async def kill_leader(self) -> str:
        """SIGKILL the sharder that acts now; its place is filled anew. Gives its name."""
        name = await self.leader()
        process = self.sharders[name].kill()
        await self.sharders[name].wait_until(lambda: process.ended_at is not None, within_s=10)
        return name

    def hold(self, name: str) -> None:
        """Let the bytes between a process and the server wait, in both directions."""
        self._link(name).hold()

    def release(self, name: str) -> None:
        """Let them arrive."""
        self._link(name).release()

    def cut(self, name: str) -> None:
        """Break a process's connections and refuse new ones."""
        self._link(name).cut()

    def restore(self, name: str) -> None:
        """Accept connections again."""
        self._link(name).restore()

    def _link(self, name: str) -> Link:
        return (self.members.get(name) or self.sharders[name]).link

    # -- looking --------------------------------------------------------------------------------------------

    def records(self) -> list[Record]:
        """Every record of every journal so far."""
        return [record for name in self._journals for record in self.member_records(name)]

    def fresh_records(self, member: str) -> list[Record]:
        """What *member* has written since the last look."""
        return [record for journal in self._journals[member] for record in journal.read()]

    def member_records(self, name: str) -> list[Record]:
        """Every record of *name* so far."""
        self.fresh_records(name)
        return [record for journal in self._journals[name] for record in journal.records]

    def life(self, member: str) -> str | None:
        """The shard that the running process of *member* is; None before its first mark."""
        return self._life(self.members[member])

    def _life(self, place: Replica) -> str | None:
        if place.current is None or not self._journals[place.name]:
            return None
        journal = self._journals[place.name][-1]
        journal.read()
        marks = [r.shard for r in journal.records if isinstance(r, Life) and r.pid == place.current.pid]
        return marks[-1] if marks else None

    def lives(self) -> dict[str, str]:
        """Member of each shard that runs now and is not frozen."""
        found = {self.life(name): name for name, place in self.members.items() if not place.is_frozen}
        return {shard: name for shard, name in found.items() if shard is not None}

    async def owners(self, *, resource: Resource | None = None) -> dict[str, str]:
        """The shard that each object's label names, by the object's name; empty for an unowned one."""
        labels = await self.objects.labels(resource=resource)
        return {name: found.get(self.spec.keys.shard, "") for name, found in labels.items()}

    async def owner(self, ref: Ref) -> str:
        """The member that owns *ref* now; empty if none that runs does."""
        doc = await self.objects.get(ref)
        shard = (doc["metadata"].get("labels") or {}).get(self.spec.keys.shard, "")
        return self.lives().get(shard, "")

    async def ring(self) -> Doc:
        """The ControllerRing as the server has it."""
        return await self.client.get(CONTROLLER_RINGS, self.spec.ring)

    async def leases(self) -> list[Doc]:
        return await self.client.list_all(LEASES, namespace=self.spec.lease_namespace)

    def desired(self, members: Iterable[str], names: Iterable[str]) -> dict[str, str]:
        """The member that the ring of *members* gives each of the objects *names*."""
        ring = HashRing(sorted(members))
        group, namespace = self.spec.resource.group, self.spec.namespace
        return {name: ring.owner(object_key(group, namespace, name)) for name in names}

    def rss_bytes(self) -> dict[str, int]:
        """Resident memory of each place's process; 0 where none runs."""
        places = {**self.sharders, **self.members}
        return {
            name: place.current.rss_bytes() if place.current is not None else 0
            for name, place in places.items()
        }

    def logs(self, name: str) -> str:
        """What the processes of *name* printed."""
        return (self.members.get(name) or self.sharders[name]).log.read_text(errors="replace")

    # -- waiting --------------------------------------------------------------------------------------------

    async def wait_up(self, *, within_s: float = 60.0) -> None:
        """Wait until every replica that should run has made its first mark.

        Raises: ReplicaFailedError at once when one ends by itself again and again.
        """

        def all_up() -> bool:
            places = [*self.sharders.values(), *self.members.values()]
            if any(len(place.unasked_exits) >= _CRASHES for place in places):
                raise ReplicaFailedError(f"the fleet does not come up{self._crashes()}")
            return not self._not_up()

        await self._wait(all_up, "every replica to be up", within_s=within_s)

    def _not_up(self) -> list[str]:
        wanted = [name for name, place in self.members.items() if place.is_wanted and not place.is_frozen]
        missing = [name for name in wanted if self.life(name) is None]
        if self.mode is Mode.LEADER_ELECTED and len(missing) < len(wanted):
            return []  # those that wait for the lead make no mark
        return missing

    async def wait_converged(self, *, within_s: float = 60.0, fresh: bool = True) -> float:
        """Wait until every object bears the name of the life at its place on the ring; gives the seconds it took.

        With *fresh*, also until each has been reconciled at the generation that it has now, or later.
        Raises: NotConvergedError saying what is missing.
        """
        began = self.clock.now()
        wanted = await self.objects.generations() if fresh else {}

        async def missing() -> str:
            return await self._misplaced() or await self._behind(wanted)

        await self._wait_until_nothing(missing, within_s=within_s)
        now = self.clock.now()
        self.settled_since = self.settled_since or now
        return now - began

    async def wait_quiet(self, *, within_s: float = 60.0) -> None:
        """Wait until every object is in its place and shows its latest spec: for fleets without traffic."""

        async def missing() -> str:
            stale = await self.objects.stale()
            return await self._misplaced() or (
                f"{len(stale)} objects are stale, such as {stale[0]}" if stale else ""
            )

        await self._wait_until_nothing(missing, within_s=within_s)

    async def _wait_until_nothing(self, missing: Callable[[], Awaitable[str]], *, within_s: float) -> None:
        left = "nothing was read yet"
        try:
            async with asyncio.timeout(within_s):
                while left:
                    asked_at = self.clock.now()
                    left = await missing()
                    cost_s = self.clock.now() - asked_at
                    await asyncio.sleep(max(_POLL_S, _IDLE * cost_s) if left else 0)
        except TimeoutError:
            raise NotConvergedError(f"after {within_s:g} s: {left}{self._crashes()}") from None

    async def _misplaced(self) -> str:
        """What keeps the labels from being as the ring says; empty if nothing does."""
        if not_up := self._not_up():
            return f"not up: {', '.join(not_up)}"
        lives = {member: shard for shard, member in self.lives().items()}
        labels = await self.objects.labels()
        keys = self.spec.keys
        wrong = [
            name
            for name, member in self.desired(lives, labels).items()
            if labels[name].get(keys.shard) != lives[member] or keys.drain in labels[name]
        ]
        return f"{len(wrong)} of {len(labels)} objects misplaced, such as {wrong[0]}" if wrong else ""

    async def _behind(self, wanted: Mapping[str, int]) -> str:
        behind = await self.objects.behind(wanted) if wanted else []
        return f"{len(behind)} objects not reconciled, such as {behind[0]}" if behind else ""

    async def wait(self, ref: Ref, *, condition: str, within_s: float = 30.0) -> Doc:
        """Wait until *condition* is True at the object's latest generation; gives the object."""
        doc: Doc = {}

        async def holds() -> bool:
            doc.update(await self.objects.get(ref))
            return _condition(doc, condition)

        await self.wait_for(holds, f"{ref} to be {condition}", within_s=within_s)
        return doc

    async def wait_for(self, condition: Callable[[], Any], what: str, *, within_s: float = 30.0) -> None:
        """Wait until *condition*, a coroutine function or a plain one, gives something true.

        While the API server does not answer, the condition counts as false. Raises: NotConvergedError.
        """
        try:
            async with asyncio.timeout(within_s):
                # what is waited for happens in other processes: there is no event to wait for
                while not await _ask(condition):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise NotConvergedError(f"waited {within_s:g} s in vain for {what}{self._crashes()}") from None

    def _crashes(self) -> str:
        """Which processes ended by themselves, with their last words: for messages of failure."""
        places = [*self.sharders.values(), *self.members.values()]
        told = [
            f"{place.name} ended by itself (exit {place.unasked_exits[-1].code}): {_last_line(place.log)}"
            for place in places
            if place.unasked_exits
        ]
        return "".join(f"; {line}" for line in told)

    async def _wait(self, condition: Callable[[], bool], what: str, *, within_s: float) -> None:
        await self.wait_for(condition, what, within_s=within_s)

    # -- shorthands for tests -------------------------------------------------------------------------------

    async def create(self, name: str, body: Doc | None = None) -> Ref:
        return await self.objects.create(name, body)

    async def update(self, ref: Ref, body: Doc | None = None) -> Doc:
        return await self.objects.update(ref, body)

    # -- judging --------------------------------------------------------------------------------------------

    def evidence(self) -> Evidence:
        """Everything recorded so far."""
        places = [*self.members.values(), *self.twins.values()]
        spans: dict[int, list[Span]] = {p.pid: p.working() for place in places for p in place.processes}
        return Evidence(
            spec=self.spec,
            records=self.records(),
            writes=self.plane.writes(),
            processes=spans,
            replicas=frozenset(self.members),
            demands=list(self.objects.demands),
            since=self.sharded_since,
            settled_since=self.settled_since or self.clock.now(),
            until=self.clock.now(),
        )

    def overlaps(self) -> list[Overlap]:
        """Witness 1 so far: what must be empty."""
        return self.evidence().overlaps


async def _ask(condition: Callable[[], Any]) -> bool:
    try:
        answer = condition()
        return bool(await answer if asyncio.iscoroutine(answer) else answer)
    except (aiohttp.ClientError, RequestFailedError):
        return False


def _condition(doc: Doc, kind: str) -> bool:
    status, meta = doc.get("status") or {}, doc["metadata"]
    return status.get("observedGeneration") == meta.get("generation") and any(
        condition["type"] == kind and condition["status"] == "True"
        for condition in status.get("conditions") or []
    )


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return lines[-1] if lines else "it printed nothing"


def _names(prefix: str) -> Iterable[str]:
    return (f"{prefix}-{number}" for number in itertools.count(1))


def _with_controller(spec: FleetSpec, controller: str) -> FleetSpec:
    from dataclasses import replace

    return replace(spec, controller=controller)


@asynccontextmanager
async def open_fleet(
    plane: ControlPlane, directory: Path, *, spec: FleetSpec | None = None, clock: Clock | None = None
) -> AsyncIterator[Fleet]:
    """A fleet on *plane* with its files in *directory*; every process is gone when the block ends."""
    spec, clock = spec or FleetSpec(), clock or SystemClock()
    directory.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - once, before anything runs
    account = await plane.kubeconfig_for("observer", groups=_ADMINISTRATORS)
    async with IndependentClient(account) as client, AsyncExitStack() as links:
        await prepare_kinds(client, spec=spec)
        await prepare_namespaces(client, spec=spec)
        async with unwrapped(), asyncio.TaskGroup() as tasks:
            fleet = Fleet(plane, directory, spec=spec, client=client, links=links, tasks=tasks, clock=clock)
            try:
                yield fleet
            finally:
                await fleet.close()


@asynccontextmanager
async def unwrapped() -> AsyncIterator[None]:
    """Let a single error leave a task group as itself: a failed assertion is read by people."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
