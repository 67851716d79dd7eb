"""A fleet of our own: an embedded or a real control plane, sharders and replicas as processes, both checks."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, assert_never

from devcluster.embedded import embedded_plane
from devcluster.plane import ControlPlane
from devcluster.real import ensure_binaries, kubernetes_recipe, real_plane
from devcluster.real.audit_log import DEFAULT_GROUPS
from devcluster.real.binaries import SERVERS, BinariesMissing
from devcluster.real.build_progress import ConsoleProgress
from kubeio.errors import InputError, KubeError
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from loadtest.inputs.scenario import Action
from loadtest.inputs.template import Template
from loadtest.machine import cpu_s
from loadtest.targets.target import ActionFailed, Testimony, Usage, Way
from ringleader.cluster.debug_endpoint import at_url
from ringleader.testing.commands import SHARD_MODULE, WEBSITES, FleetSpec, Mode
from ringleader.testing.declared import spec_of
from ringleader.testing.fleet import Fleet, open_fleet
from ringleader.testing.observer import NotConvergedError
from ringleader.testing.prerequisites import prepare_kinds
from ringleader.testing.replica import Replica, ReplicaFailedError
from shard_controller.process.target import load_controller

_EMBEDDED_LEASE_S: Final = 5
_REAL_LEASE_S: Final = 10
"""A busy machine must not lose Leases by itself."""
_HOLD_S: Final = 10
"""How long a member's place is kept for its next process: a restart moves nothing, a loss soon does."""
_SCRAPE_S: Final = 5.0
_READY_WITHIN_S: Final = 600.0
"""A long first list is no failure."""
_ACCOUNT: Final = "load"
_KOPF: Final = "loadtest.capacity.with_kopf"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnOptions:
    """What the own fleet is made of. *controller*: FILE.py:NAME, the example's if empty; *group*: of the objects."""

    real: bool
    replicas: int
    workers: int
    namespace: str
    ring: str
    controller: str = ""
    group: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Of every replica."""
    imbalance_percent: int | None = None
    """Of the ring; None: its default."""

    def refuse(self, actions: list[Action]) -> None:
        """Raises InputError for the first action that names a replica which the fleet has not."""
        members = [f"replica-{number + 1}" for number in range(self.replicas)]
        for action in actions:
            if action.replica and action.replica not in members:
                raise InputError(
                    f"scenario: {action.do}: replica",
                    action.replica,
                    "is not a replica of the fleet",
                    f"name one of {members[0]} to {members[-1]}",
                )

    def refuse_template(self, template: Template) -> None:
        """Raises InputError if no controller for *template* was given."""
        if not self.controller and not template.fits(WEBSITES):
            raise _other_kind(template, WEBSITES)


class OwnFleet:
    """Keeps the promises of `Target`. Made by `open_own`."""

    def __init__(self, plane: ControlPlane, fleet: Fleet, *, options: OwnOptions, kubeconfig: Path) -> None:
        kind = "real kube-apiserver and etcd" if options.real else "embedded control plane"
        self.description = f"{options.replicas} replicas and {fleet.spec.sharders} sharders on an own {kind}"
        self.kubeconfig = str(kubeconfig)
        self.context = ""
        self.namespace = fleet.spec.namespace
        self.ring = fleet.spec.ring
        self.shares = True
        self.plane = plane
        self.fleet = fleet
        self._options = options
        self._turns = itertools.count()
        self._way = Way.SHARDED

    async def resolve(self, client: Client, template: Template) -> ApiResource:
        if self._options.controller:
            controller = load_controller(self._options.controller)
            self.fleet.spec = await spec_of(controller, self.fleet.spec, self.fleet.client)
            await prepare_kinds(self.fleet.client, spec=self.fleet.spec)
            self.fleet.objects.resource = self.fleet.spec.resource
            self.ring = self.fleet.spec.ring
        resource = self.fleet.spec.resource
        if not template.fits(resource):
            raise _other_kind(template, resource)
        return resource

    async def start(self) -> None:
        await self.fleet.start(replicas=self._options.replicas)

    async def change_to(self, way: Way) -> None:
        await self.fleet.stop_members()
        await asyncio.gather(*(sharder.stop() for sharder in self.fleet.sharders.values()))
        self.shares, self.fleet.mode, self._way = False, Mode.LEADER_ELECTED, way
        self.fleet.spec = replace(self.fleet.spec, shard_module=_KOPF if way is Way.KOPF else SHARD_MODULE)

    async def size(self) -> int:
        return len(self._running())

    async def scale(self, replicas: int) -> None:
        running = self._running()
        wanted = [f"replica-{number + 1}" for number in range(replicas)]
        for name in [name for name in running if name not in wanted]:
            await self.fleet.leave(name)
        for name in [name for name in wanted if name not in running]:
            await self.fleet.add_member(name)
        try:
            await self.fleet.wait_up()
            await self.fleet.wait_for(self._are_ready, "the replicas to be ready", within_s=_READY_WITHIN_S)
        except (NotConvergedError, ReplicaFailedError) as error:
            raise ActionFailed(str(error)) from error

    async def _are_ready(self) -> bool:
        """Whether every replica that works has listed its objects."""
        ready = [await self._is_ready(name) for name in self._running()]
        match self._way:
            case Way.SHARDED:
                return all(ready)
            case Way.LEADER_ELECTED:
                return any(ready)
            case Way.KOPF:
                return True  # it has no such page
        assert_never(self._way)

    # -- actions --------------------------------------------------------------------------------------------

    async def act(self, action: Action) -> str:
        try:
            return await self._act(action)
        except (NotConvergedError, ReplicaFailedError, TimeoutError) as error:
            raise ActionFailed(f"{action.do}: {str(error) or 'it took too long'}") from error

    async def _act(self, action: Action) -> str:
        fleet = self.fleet
        match action.do:
            case "join":
                return f"{await fleet.add_member()} joined"
            case "leave":
                name = self._choose(action)
                await fleet.leave(name)
                return f"{name} left"
            case "roll":
                return await self._roll()
            case "kill":
                name = self._choose(action)
                await fleet.kill(name, again=True)
                return f"{name} was killed"
            case "freeze":
                return await self._freeze(self._choose(action), action.for_s)
            case "failover":
                return f"{await fleet.kill_leader()}, which led, was killed"
            case "node-loss":
                return await self._lose_node(action.for_s)
            case "restart-api":
                await self.plane.restart(away_s=action.for_s)
                return f"the API server was away for {action.for_s:g} s"
            case other:
                raise ActionFailed(f"{other} is no action of an own fleet")

    async def _roll(self) -> str:
        """Restart each replica in turn, as a StatefulSet does: when the one before is ready.

        One that leaves meanwhile is left out."""
        rolled = []
        for name in self._running():
            try:
                await self.fleet.restart(name)
                await self.fleet.wait_for(
                    partial(self._is_ready, name), f"{name} to be ready", within_s=_READY_WITHIN_S
                )
            except (NotConvergedError, TimeoutError):
                if self.fleet.members[name].is_wanted:
                    raise
            else:
                rolled.append(name)
        return f"{', '.join(rolled)} were restarted in turn"

    async def _is_ready(self, name: str) -> bool:
        return bool(await self._page(name, "/readyz"))

    async def _freeze(self, name: str, for_s: float) -> str:
        process = self.fleet.freeze(name)
        await asyncio.sleep(for_s)
        if process.ended_at is None:
            process.wake()
        return f"{name} stood still for {for_s:g} s"

    async def _lose_node(self, for_s: float) -> str:
        running = self._running()
        lost = running[: max(1, len(running) // 2)]
        for name in lost:
            await self.fleet.kill(name)
        await asyncio.sleep(for_s)
        for name in lost:
            await self.fleet.add_member(name)
        return f"{', '.join(lost)} died at once and came back after {for_s:g} s"

    def _choose(self, action: Action) -> str:
        """The replica that *action* names, or each in turn."""
        running = self._running()
        if action.replica in running:
            return action.replica
        if action.replica or not running:
            raise ActionFailed(f"{action.do}: {action.replica or 'every replica'} does not run now")
        return running[next(self._turns) % len(running)]

    def _running(self) -> list[str]:
        places = self.fleet.members
        return [name for name, place in places.items() if place.current is not None and not place.is_frozen]

    # -- measuring ------------------------------------------------------------------------------------------

    async def metrics(self) -> dict[str, str]:
        names = self._running()
        pages = await asyncio.gather(*(self._page(name, "/metrics") for name in names))
        return {name: page for name, page in zip(names, pages, strict=True) if page}

    async def _page(self, name: str, path: str) -> str:
        """A page of a replica; empty while it has none."""
        try:
            port = (self.fleet.directory / f"{name}.port").read_text().strip()
            async with at_url(f"http://127.0.0.1:{port}", timeout_s=_SCRAPE_S) as endpoint:
                return (await endpoint.read(path)).decode()
        except (OSError, KubeError):
            return ""  # it starts or ends

    def usage(self) -> Mapping[str, Usage]:
        return {name: Usage(rss, cpu_s(pids)) for name, rss, pids in self._processes()}

    def _processes(self) -> Iterator[tuple[str, int, list[int]]]:
        places: dict[str, Replica] = {**self.fleet.sharders, **self.fleet.members}
        for name, place in places.items():
            if place.current is not None:
                yield name, place.current.rss_bytes(), [place.current.pid]
        yield "control plane", self.plane.rss_bytes(), list(self.plane.pids)

    async def testimony(self) -> Testimony:
        if self._options.real:
            await asyncio.sleep(1.0)  # the audit log is written a moment after the answers
        evidence = await asyncio.to_thread(self.fleet.evidence)
        if not evidence.reconciles:
            return Testimony(reason="the journals hold no reconcile")
        overlaps, foreign = evidence.overlaps, evidence.foreign_writes
        return Testimony(
            overlaps=len(overlaps),
            foreign_writes=len(foreign),
            reconciles=evidence.reconciles,
            named=[str(found) for found in [*foreign, *overlaps]],
        )


@asynccontextmanager
async def open_own(options: OwnOptions) -> AsyncIterator[OwnFleet]:
    """The control plane with its kinds installed; everything is gone when the block ends.

    Raises: BinariesMissing, PlaneFailed.
    """
    spec = FleetSpec(
        ring=options.ring,
        namespace=options.namespace,
        lease_s=_REAL_LEASE_S if options.real else _EMBEDDED_LEASE_S,
        workers=options.workers,
        shard_flags=("--hold",),  # replicas with lasting names, as of a StatefulSet
        ring_spec={"holdSeconds": _HOLD_S}
        | ({} if options.imbalance_percent is None else {"imbalancePercent": options.imbalance_percent}),
        environment=options.environment,
    )
    with tempfile.TemporaryDirectory(prefix="ringleader-load-") as name:
        directory = Path(name)
        async with (
            _plane(directory / "plane", options) as plane,
            open_fleet(plane, directory / "fleet", spec=spec) as fleet,
        ):
            kubeconfig = await plane.kubeconfig_for(_ACCOUNT)
            yield OwnFleet(plane, fleet, options=options, kubeconfig=kubeconfig)


def _other_kind(template: Template, resource: ApiResource) -> InputError:
    return InputError(
        "--template",
        f"{template.api_version} {template.kind}",
        f"is not what the controller reconciles ({resource.api_version} {resource.kind})",
        "give the template of such an object, or --controller FILE.py:NAME of the one that reconciles it",
    )


def _plane(directory: Path, options: OwnOptions) -> AbstractAsyncContextManager[ControlPlane]:
    if not options.real:
        return embedded_plane(directory)
    try:
        ensure_binaries(SERVERS, kubernetes_recipe(), progress=ConsoleProgress())
    except BinariesMissing as missing:
        raise InputError("--plane", "real", missing.reason, missing.remedy) from missing
    # the write check judges this log
    return real_plane(directory, audit=True, audited_groups=tuple({*DEFAULT_GROUPS, options.group} - {""}))
