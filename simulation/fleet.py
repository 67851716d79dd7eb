"""The fleet of one run: machines, API servers, sharders and replicas, each started again when it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final

import shard_controller as sc
from devcluster.embedded.stateful_sets import STATEFUL_SETS_DEFINITION
from devcluster.embedded.status import Refusal
from kubeio.program.http_server import Handler
from kubeio.program.yaml_file import read_document
from ringleader.assets import ring_crd, website_crd
from shard_controller.process.app import serve
from shard_controller.process.settings import Settings
from sharder import app as sharder_app
from sharder.admission.settings import BIND_FLAG, Lifetimes, ServiceTarget, WebhookSettings
from sharder.settings import Settings as SharderSettings
from simulation.admission import CONFIGURATIONS_DEFINITION, Admission
from simulation.api_server import ApiServer
from simulation.controllers import controller_of
from simulation.hosts import SimulatedHost, SimulatedReplicaHost
from simulation.judges import Judges
from simulation.machine import Machine
from simulation.network import Network
from simulation.process import Process
from simulation.scale import (
    FORMER,
    GROUP,
    KEYS,
    LEASE_NAMESPACE,
    RING,
    SELECTED,
    SITES,
    STRANGER,
    THEME,
    Scale,
)
from simulation.store import Store
from simulation.world import World

GRACE_S: Final = 40.0
"""The pods' terminationGracePeriodSeconds."""
_WEBHOOK: Final = WebhookSettings(
    host="",
    port=0,
    target=ServiceTarget("default", "sharder"),
    namespace="default",
    lifetimes=Lifetimes(authority_s=600, serving_s=200, spread_s=20),
)
"""Its certificates are renewed within a run."""
_FIRST_PID: Final = 100


class Replica:
    """One process of a replica."""

    def __init__(self, process: Process, host: SimulatedReplicaHost, *, lease_s: float) -> None:
        self.process: Final = process
        self.host: Final = host
        self.lease_s: Final = lease_s
        self.is_copied = False

    @property
    def shard(self) -> str:
        """Its shard's name; empty before it has a Lease."""
        return self.host.shard

    @property
    def lease_age_s(self) -> float | None:
        """Seconds since its last successful renewal was sent, on its own clock."""
        validity = self.host.validity
        return None if validity is None else validity.age_s(self.process.machine.now())

    @property
    def may_work(self) -> bool:
        """Whether its Lease is valid by its own clock."""
        age_s = self.lease_age_s
        return not self.process.has_ended and age_s is not None and age_s < self.lease_s

    @property
    def is_responsible(self) -> bool:
        """Whether what it runs counts: it may work, or it had the time to notice that it may not."""
        return self.may_work or self.process.runs_well

    @property
    def is_beyond_promises(self) -> bool:
        """A copy, or on a machine that its hypervisor stopped within the age of its Lease."""
        validity, machine = self.host.validity, self.process.machine
        was_stopped = validity is not None and machine.was_stopped_at >= validity.sent_at
        return self.is_copied or was_stopped


class Fleet:
    """Starts processes and starts them again."""

    def __init__(self, world: World, scale: Scale) -> None:
        self.world: Final = world
        self.scale: Final = scale
        self.store: Final = Store(world)
        self.servers: Final = [
            ApiServer(world, self.store, f"server-{number}") for number in range(scale.servers)
        ]
        self.network: Final = Network(world, self.servers)
        self.machines: Final = [self._machine(f"machine-{number}") for number in range(scale.machines)]
        self.wanted: Final[dict[str, Machine]] = {}
        """Processes that are to run, by name, and where."""
        self.processes: Final[dict[str, Process]] = {}
        """The present process of each name; it may have ended."""
        self.replicas: Final[dict[str, Replica]] = {}
        self.corrections: Final[list[Callable[[], object]]] = []
        """What users corrected, or will: to be done again after a restore of etcd."""
        self.exits: Final[Counter[str]] = Counter()
        self.is_settling = False
        """Whether the faults are over: reconciles do not repeat themselves any more."""
        self.changed_at = 0.0
        """When a late write last changed what the sharder has to correct."""
        self._lives: Final[list[Replica]] = []
        self._sharders: Final[dict[str, tuple[Process, SimulatedHost]]] = {}
        self._pids: Final[dict[int, Process]] = {}
        self._rng: Final = world.rng("fleet")
        self.ring: Final = self._ring()
        """The ring, as it is created."""
        self.definition: Final[dict[str, Any]] = read_document("definition", website_crd())
        """Of the objects' resource."""
        self._ring_definition: Final[dict[str, Any]] = read_document("definition", ring_crd())
        self._prepare()
        self.judges: Final = Judges(world, self.store, self, keys=KEYS)
        self.admission: Final = Admission(
            world, self.network, self.store, self._webhooks, on_label=self.judges.admitted
        )

    @property
    def resources(self) -> frozenset[str]:
        return frozenset({"websites.example.com", "pages.example.com", "configmaps"})

    @property
    def controlled(self) -> frozenset[str]:
        return frozenset({"configmaps"})

    @property
    def accounts(self) -> frozenset[str]:
        """Accounts of replicas, former ones too."""
        return frozenset(
            process.name for process in self._pids.values() if process.name.startswith("replica")
        )

    def of_shard(self, name: str) -> Replica | None:
        """The replica whose shard is called *name*: of several lives that wore a released Lease, the last."""
        return next((each for each in reversed(self._lives) if each.shard == name), None)

    # -- processes

    def start(self) -> None:
        """Start all of the first processes within some seconds."""
        for number in range(self.scale.sharders):
            self.add(f"sharder-{number}")
        for number in range(self.scale.replicas):
            self.add(f"replica-{number}")

    def add(self, name: str) -> None:
        """Have *name* run, from a moment in the next seconds on."""
        self.wanted[name] = self._rng.choice(self.machines)
        self._declare_replicas()
        self.world.after(self._rng.uniform(0, 3), lambda: self.launch(name))

    def remove(self, name: str) -> None:
        """Have *name* end in good order, for good."""
        self.wanted.pop(name, None)
        self._declare_replicas()
        self.terminate(name)

    def terminate(self, name: str) -> None:
        """SIGTERM to the present process *name*, and SIGKILL when its grace period is over, as a kubelet does."""
        if process := self.processes.get(name):
            process.terminate()
            self.world.after(GRACE_S, process.kill)

    def launch(self, name: str) -> None:
        """Start the process *name*, if it is wanted and does not run."""
        machine = self.wanted.get(name)
        present = self.processes.get(name)
        if machine is None or (present is not None and not present.has_ended):
            return
        pid = _FIRST_PID + len(self._pids)
        process = Process(self.world, machine, name, pid=pid, on_end=self._ended)
        self.processes[name] = self._pids[pid] = process
        self.world.note(f"{process} starts on {machine.name}")
        main = self._sharder(process) if name.startswith("sharder") else self._replica(process)
        process.start(main)

    def is_running(self, pid: int) -> bool:
        process = self._pids.get(pid)
        return process is not None and not process.has_ended

    def _ended(self, process: Process) -> None:
        kind = process.name.partition("-")[0]
        self.exits[f"{kind} {process.exit_code}"] += 1
        replica = self.replicas.get(process.name)
        if replica is not None and replica.process is process:
            self.judges.ended(replica)
        if self.processes.get(process.name) is process:
            self.world.after(self._rng.uniform(0.2, 4.0), lambda: self.launch(process.name))

    def _sharder(self, process: Process) -> Coroutine[Any, Any, int | None]:
        settings = SharderSettings(
            identity=str(process).replace("/", "-"),
            election_namespace=LEASE_NAMESPACE,
            lease_duration_s=float(self.scale.lease_s),
            rings=(RING,),
            upgrade_crd=True,
            webhook=_WEBHOOK if self.scale.admits else None,
        )
        host = SimulatedHost(process, self.network, user=process.name)
        self._sharders[process.name] = (process, host)
        return _without_code(sharder_app.run(settings, host))

    def _webhooks(self) -> list[tuple[Process, Handler]]:
        """The sharders' processes that serve a webhook, or did until now."""
        return [
            (process, host.served[BIND_FLAG])
            for process, host in self._sharders.values()
            if BIND_FLAG in host.served
        ]

    def _replica(self, process: Process) -> Coroutine[Any, Any, int]:
        host = SimulatedReplicaHost(process, self.network, user=process.name, is_running=self.is_running)
        replica = self.replicas[process.name] = Replica(process, host, lease_s=float(self.scale.lease_s))
        self._lives.append(replica)
        settings = Settings(
            namespace=SITES,
            member=process.name,
            hold=self.scale.hold,
            lease_duration_s=self.scale.lease_s,
            workers=4,
            blocked_loop_s=0,
            termination_grace_s=GRACE_S,
        )
        return serve(controller_of(replica, self), sc.Sharded(RING), settings, host)

    def _declare_replicas(self) -> None:
        """The StatefulSet of the replicas wants as many as are wanted here."""
        names = [name for name in self.wanted if name.startswith("replica")]
        spec = {"spec": {"replicas": 1 + max((int(name.rpartition("-")[2]) for name in names), default=-1)}}
        path = "/apis/apps/v1/namespaces/default/statefulsets"
        self.store.request("PATCH", f"{path}/replica", spec, content_type="application/merge-patch+json")

    # -- the cluster

    def _machine(self, name: str) -> Machine:
        rng = self.world.rng(name)
        return Machine(
            self.world,
            name,
            rate=1 + rng.uniform(-2e-4, 2e-4),
            offset_s=rng.choice((0.0, 0.0, -300.0, 900.0)),
        )

    def _prepare(self) -> None:
        store = self.store
        store.create_definition(self._ring_definition)
        self.define()
        if self.scale.pages:
            self.define_pages()
        store.create_definition(STATEFUL_SETS_DEFINITION)
        store.create_definition(CONFIGURATIONS_DEFINITION)
        store.request(
            "POST",
            "/apis/apps/v1/namespaces/default/statefulsets",
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "replica"}, "spec": {}},
        )
        for name in (SITES, LEASE_NAMESPACE):
            self.create_namespace(name)
        self.create_ring()

    def repair(self) -> None:
        """Create what a user would miss: namespaces, definition, ring. What exists stays as it is."""
        namespaces = [partial(self.create_namespace, name) for name in (SITES, LEASE_NAMESPACE)]
        missed: list[Callable[[], None]] = [*namespaces, self.define, self.define_ring, self.create_ring]
        if self.scale.pages:
            missed.append(self.define_pages)
        for create in missed:
            with suppress(Refusal):
                create()

    def correct(self) -> None:
        """Correct once more what was ever stored wrongly."""
        for correction in self.corrections:
            correction()

    def create_namespace(self, name: str) -> None:
        """With what users keep in it. Raises: Refusal while it exists."""
        labels = SELECTED["matchLabels"] if name == SITES else {}
        self.store.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        if name == LEASE_NAMESPACE:
            lease = {"metadata": {"name": STRANGER}, "spec": {"holderIdentity": "its-leader"}}
            path = f"/apis/coordination.k8s.io/v1/namespaces/{name}/leases"
            self.store.request(
                "POST", path, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease}
            )
        elif self.scale.watches:
            theme = {"metadata": {"name": THEME, "annotations": {THEME: "0"}}}
            self.store.request("POST", f"/api/v1/namespaces/{name}/serviceaccounts", theme)

    def define(self) -> None:
        """Have the objects' resource served. Raises: Refusal while it exists."""
        self.store.create_definition(self.definition)

    def define_pages(self) -> None:
        """Have one more resource served, if it is not."""
        names = {"kind": "Page", "listKind": "PageList", "plural": "pages", "singular": "page"}
        pages = {**self.definition, "metadata": {"name": "pages.example.com"}}
        pages["spec"] = {**self.definition["spec"], "names": names}
        with suppress(Refusal):
            self.store.create_definition(pages)

    def define_ring(self) -> None:
        """Have rings served, and create the ring. Raises: Refusal while its resource exists."""
        self.store.create_definition(self._ring_definition)
        self.create_ring()

    def create_ring(self) -> None:
        """Raises: Refusal while it exists."""
        self.store.request("POST", "/apis/ringleader.dev/v1alpha1/controllerrings", self.ring)

    def _ring(self) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "leaseNamespace": LEASE_NAMESPACE,
            "settleSeconds": self.scale.settle_s,
            "maxLeaseDurationSeconds": self.scale.max_lease_s,
            "holdSeconds": 4 * self.scale.lease_s,
            "auditIntervalSeconds": self.scale.audit_s,
            "resources": [
                {
                    "group": "example.com",
                    "resource": "websites",
                    "controlledResources": [{"group": "", "resource": "configmaps"}],
                }
            ],
        }
        if self.scale.groups:
            spec |= {"key": "Label", "keyLabel": GROUP}
        if self.scale.pages:
            spec["resources"].append({"group": "example.com", "resource": "pages"})
        if self.scale.selects:
            spec["namespaceSelector"] = SELECTED
        if self.scale.admits:
            spec["assignAtAdmission"] = True
        if self.scale.activates:
            spec["activation"] = {"lease": {"namespace": LEASE_NAMESPACE, "name": FORMER}}
        return {
            "apiVersion": "ringleader.dev/v1alpha1",
            "kind": "ControllerRing",
            "metadata": {"name": RING},
            "spec": spec,
        }


async def _without_code(main: Coroutine[Any, Any, None]) -> int:
    """A sharder that ends without an error has ended as it should."""
    await main
    return 0
