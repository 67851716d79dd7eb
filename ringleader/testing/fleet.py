"""A fleet: sharders and replicas of one controller as real processes on a control plane, with both checks.

Owns the processes and breaks them on purpose. Does not own the control plane.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from devcluster.faults import Fault
from devcluster.plane import ControlPlane
from kubeio.clock import Clock, SystemClock
from kubeio.resource import ApiResource
from ringleader.testing.client import Doc, IndependentClient
from ringleader.testing.commands import FleetSpec, Mode, shard_command, sharder_command
from ringleader.testing.declared import find_resource, spec_of
from ringleader.testing.journal import Journal
from ringleader.testing.objects import Ref
from ringleader.testing.observer import FleetObserver
from ringleader.testing.prerequisites import prepare_kinds, prepare_namespaces, prepare_ring
from ringleader.testing.process import Process
from ringleader.testing.replica import Replica
from shard_controller.api.controller import Controller
from shard_controller.declare.resource import Resource as Declared

_TWIN = "-twin"


class Fleet(FleetObserver):
    """Made by `open_fleet`. Members are called replica-1, replica-2, ...; sharders sharder-1, sharder-2, ..."""

    def __init__(
        self,
        plane: ControlPlane,
        directory: Path,
        *,
        spec: FleetSpec,
        client: IndependentClient,
        tasks: asyncio.TaskGroup,
        clock: Clock,
    ) -> None:
        super().__init__(plane, spec=spec, client=client, clock=clock)
        self.directory = directory
        self._tasks = tasks
        self._running: list[asyncio.Task[None]] = []
        self._found: dict[str, ApiResource] = {}
        self._holds: dict[str, str] = {}

    # -- start and end --------------------------------------------------------------------------------------

    async def start(
        self,
        controller: Controller[Any] | str = "",
        *,
        replicas: int = 3,
        lease_s: int | None = None,
        mode: Mode = Mode.SHARDED,
    ) -> None:
        """Start sharders and *replicas* of *controller*, and wait until all are up.

        A controller object brings its file, its resources and the CustomResourceDefinitions beside it; of a text,
        `path/to/file.py:name`, the fleet's spec has to know them. *lease_s*: duration of the Leases, in seconds.
        """
        if isinstance(controller, Controller):
            self.spec = await spec_of(controller, self.spec, self.client)
            await prepare_kinds(self.client, spec=self.spec)
            self.objects.resource = self.spec.resource
        elif controller:
            self.spec = replace(self.spec, controller=controller)
        if lease_s is not None:
            self.spec = replace(self.spec, lease_s=lease_s)
        self.mode = mode
        if mode is Mode.SHARDED:
            await self.create_ring()
        await self.start_sharders()
        for index in range(replicas):
            await self.add_member(f"replica-{index + 1}")
        await self.wait_up()

    async def create_ring(self) -> None:
        """Create the ring: the checks begin here."""
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
        """Start one more replica without waiting. Returns its member name."""
        name = name or next(n for n in _names("replica") if n not in self.members)
        if name not in self.members:
            self.journals[name] = []
            self.members[name] = await self._place(name, self._shard_command)
        self.members[name].want()
        return name

    async def join(self, name: str = "") -> str:
        """Start one more replica and wait until it has its share."""
        name = await self.add_member(name)
        await self.wait_converged()
        return name

    async def second_life(self, member: str) -> str:
        """Start another process under the name of *member* while the first one runs. Returns the second's shard.

        It lasts until `end_second_life`. Both checks include it; `lives` does not.
        """
        twin = f"{member}{_TWIN}"
        if twin not in self.twins:
            self.journals[twin] = []
            self.twins[twin] = await self._place(twin, self._shard_command, account=member)
        self.twins[twin].want()
        await self.wait_for(lambda: self.life_of(self.twins[twin]) is not None, f"{twin} to be up")
        return self.life_of(self.twins[twin]) or ""

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
        """A new place, acting under an account of its own."""
        kubeconfig = await self.plane.kubeconfig_for(account or name)
        replica = Replica(
            name,
            command=lambda number: command(name, kubeconfig, number),
            directory=self.directory,
            environment=self.spec.environment,
            clock=self.clock,
        )
        self._running.append(self._tasks.create_task(replica.run(), name=f"place-{name}"))
        return replica

    def _shard_command(self, name: str, kubeconfig: Path, number: int) -> list[str]:
        journal = Journal(self.directory / f"{name}.{number}.journal")
        self.journals[name].append(journal)
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
        """SIGKILL a replica (or the owner that `owner` gave); *again* starts another process in its place."""
        replica = self.members[member]
        if not again:
            replica.abandon()
        return await self._killed(replica)

    def freeze(self, member: str) -> Process:
        """SIGSTOP a replica."""
        return self.members[member].freeze()

    def wake(self, member: str) -> None:
        """SIGCONT a replica."""
        self.members[member].wake()

    async def restart(self, member: str) -> None:
        """End a replica by SIGTERM and wait until its next process is up."""
        replica = self.members.get(member) or self.sharders[member]
        await replica.restart(grace_s=max(20.0, self.spec.patience_s / 3))
        if member in self.members:
            await self.wait_for(lambda: self.life(member) is not None, f"{member} to be up again")

    async def roll(self) -> None:
        """Restart every replica, one after the other, as a StatefulSet does."""
        for name in [name for name, replica in self.members.items() if replica.current is not None]:
            await self.restart(name)

    async def kill_leader(self) -> str:
        """SIGKILL the sharder that acts now; another process fills its place. Returns its name."""
        name = await self.wait_leader()
        await self._killed(self.sharders[name])
        return name

    async def _killed(self, place: Replica) -> Process:
        process = place.kill()
        await place.wait_until(lambda: process.ended_at is not None, within_s=self.spec.patience_s)
        return process

    async def hold(self, name: str) -> None:
        """Delay requests of the account *name* and answers to them until `release`. Needs a plane with faults."""
        self._holds[name] = await self.plane.faults.add(Fault(what="hold", user=name))

    async def release(self, name: str) -> None:
        """Deliver what is held."""
        await self.plane.faults.clear(self._holds.pop(name))

    async def held_requests(self, name: str) -> int:
        """Requests of *name* that wait."""
        return await self.plane.faults.hits(self._holds[name])

    # -- shorthands for tests -------------------------------------------------------------------------------

    async def create(self, resource: Declared[Any] | ApiResource, name: str, body: Doc | None = None) -> Ref:
        """Create an object of *resource* in the fleet's namespace; *body* holds what stands beside its metadata."""
        return await self.objects.create(name, body, resource=await self._resource(resource))

    async def patch(self, ref: Ref, change: Doc) -> Doc:
        """Merge *change* into an object, as a person with kubectl does."""
        return await self.objects.update(ref, change)

    async def get(self, resource: Declared[Any] | ApiResource, name: str) -> Doc:
        """The object *name* of *resource*, from the fleet's namespace."""
        found = await self._resource(resource)
        namespace = self.spec.namespace if found.namespaced else ""
        return await self.client.get(found, name, namespace=namespace)

    async def _resource(self, resource: Declared[Any] | ApiResource) -> ApiResource:
        if isinstance(resource, ApiResource):
            return resource
        if resource.text not in self._found:
            self._found[resource.text] = await find_resource(self.client, resource.text)
        return self._found[resource.text]


def _names(prefix: str) -> Iterable[str]:
    return (f"{prefix}-{number}" for number in itertools.count(1))


@asynccontextmanager
async def open_fleet(
    plane: ControlPlane, directory: Path, *, spec: FleetSpec | None = None, clock: Clock | None = None
) -> AsyncIterator[Fleet]:
    """A fleet on *plane* with its files in *directory*; every process is gone when the block ends."""
    spec, clock = spec or FleetSpec(), clock or SystemClock()
    directory.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - once, before anything runs
    account = await plane.kubeconfig_for("observer")
    async with IndependentClient(account) as client:
        await prepare_kinds(client, spec=spec)
        await prepare_namespaces(client, spec=spec)
        async with unwrapped(), asyncio.TaskGroup() as tasks:
            fleet = Fleet(plane, directory, spec=spec, client=client, tasks=tasks, clock=clock)
            try:
                yield fleet
            finally:
                await fleet.close()


@asynccontextmanager
async def unwrapped() -> AsyncIterator[None]:
    """Raise a single error of a task group as itself, so that a failed assertion stays readable."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
