"""The load, as a locust file: users that create, change and delete objects, and the shape of their number.

`ringleader loadtest` starts it. Workers on other machines: `locust -f loadtest/locustfile.py --worker --master-host X`
with a KUBECONFIG of their own; the plan comes from the master.
"""

from __future__ import annotations

import itertools
import random
import ssl
import tempfile
import time
import uuid
from collections import deque
from pathlib import Path
from typing import Any, Final

import gevent
from gevent.pool import Pool
from locust import FastHttpUser, LoadTestShape, events, task
from locust.exception import StopTest
from locust.runners import WorkerRunner

from loadtest.access import LoadAccess, read_access
from loadtest.bridge import Bridge, connect
from loadtest.inputs.template import Template, created_name, prefilled_name
from loadtest.pacing import Pacing
from loadtest.plan import LoadPlan, decode

_BURST: Final = "burst"
_AT_ONCE: Final = 64
"""Connections that a burst uses in each process."""
_MANAGER: Final = "fieldManager=ringleader-loadtest"
_RETRY_AFTER_S: Final = 1.0
_REFRESH_S: Final = 1.0
"""Between two readings of the credentials, at least."""
_SPAWN_RATE: Final = 100.0
"""Users per second: locust warns of more."""
_FADE_S: Final = 900.0
"""How long the shape waits, beside the length of the load, should the command be gone: the fleet settles meanwhile."""


class Worker:
    """What the users of this process share."""

    def __init__(self) -> None:
        self.name = ""
        """In the names of what this process creates: unique among processes, machines and runs."""
        self.plan: LoadPlan | None = None
        self.template: Template | None = None
        self.access: LoadAccess | None = None
        self.bridge: Bridge | None = None
        self.created: deque[str] = deque()
        self.numbers = itertools.count()
        self.versions = itertools.count(1)
        self.users = itertools.count()
        self._read_at = -_REFRESH_S

    def prepare(self, text: str) -> LoadPlan:
        """Take the plan, once in each process: locust forks after the import."""
        if self.plan is None:
            random.seed()
            self.name = uuid.uuid4().hex[:8]
            self.plan = decode(text)
            self.template = Template(self.plan.template, where="template")
        return self.plan

    def refresh(self) -> None:
        """Read the credentials anew: at the start, and when the server refuses them. Raises: AccessFailed."""
        if time.monotonic() - self._read_at > _REFRESH_S:
            self._read_at = time.monotonic()
            self.access = read_access()


worker = Worker()


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator] # locust has no types
def prepare_process(parser: Any) -> None:
    """The first event of a locust process, before it forks or connects: a worker that is ready can send."""
    if worker.access is None:
        worker.refresh()
    parser.add_argument(
        "--plan", default="", include_in_web_ui=False, help="The load as JSON, by the command."
    )


@events.init.add_listener  # type: ignore[untyped-decorator] # locust has no types
def on_init(environment: Any, runner: Any, **_: Any) -> None:
    if not isinstance(runner, WorkerRunner):
        worker.prepare(environment.parsed_options.plan)
        worker.bridge = connect(environment)
    runner.register_message(_BURST, lambda environment, msg, **_: make_burst(environment, msg.data))


class Change:
    """The requests of one user on objects, with the names of operations in the statistics."""

    def __init__(self, user: ObjectUser, plan: LoadPlan, template: Template) -> None:
        self._user = user
        self._plan = plan
        self._template = template

    def create(self) -> None:
        name = created_name(self._template.prefix, self._plan.run, worker.name, next(worker.numbers))
        body = self._template.object(name, run=self._plan.run)
        if self._send("POST", f"{self._plan.collection}?{_MANAGER}", "create", body, "application/json"):
            worker.created.append(name)

    def update(self) -> None:
        name = self._any_name()
        if not name:
            return self.create()
        body = self._template.change(name, next(worker.versions))
        path = f"{self._plan.collection}/{name}?{_MANAGER}"
        self._send("PATCH", path, "update", body, "application/merge-patch+json")
        return None

    def delete(self) -> None:
        if not worker.created:
            return self.create()
        self._send("DELETE", f"{self._plan.collection}/{worker.created.popleft()}", "delete", None, "")
        return None

    def _any_name(self) -> str:
        """One of the objects that existed before, or of this process's own, all alike; empty if there is none."""
        chosen = random.randrange(max(1, self._plan.prefilled + len(worker.created)))  # noqa: S311 - load
        if chosen < self._plan.prefilled:
            return prefilled_name(self._template.prefix, self._plan.run, chosen)
        return worker.created[chosen - self._plan.prefilled] if worker.created else ""

    def _exists(self, path: str) -> bool:
        """Whether the object at *path* should exist: another user of this process may just have deleted it."""
        name = path.rpartition("/")[2].partition("?")[0]
        return name in worker.created or not name.startswith(
            created_name(self._template.prefix, self._plan.run, worker.name, 0).removesuffix("0")
        )

    def _send(self, method: str, path: str, name: str, body: Any, content_type: str) -> bool:
        """Send until the server takes it or refuses it: 429 is obeyed as client-go does, and counted apart."""
        while True:
            headers = dict(worker.access.headers) if worker.access else {}
            if content_type:
                headers["Content-Type"] = content_type
            with self._user.client.request(
                method, path, name=name, json=body, headers=headers, catch_response=True
            ) as answer:
                if answer.status_code == 429:
                    answer.request_meta["name"] = f"{name} (429)"
                    answer.success()
                    pause_s = _retry_after_s(answer.headers)
                elif answer.status_code == 401:
                    worker.refresh()
                    return False
                else:
                    if answer.status_code == 404 and name == "update" and not self._exists(path):
                        answer.request_meta["name"] = "update (deleted meanwhile)"
                        answer.success()
                    elif not answer.status_code or answer.status_code >= 300:
                        answer.failure(f"{answer.status_code} {(answer.text or '')[:200]}".strip())
                    return 200 <= (answer.status_code or 0) < 300
            gevent.sleep(pause_s)


class ObjectUser(FastHttpUser):
    """A client with a connection of its own."""

    connection_timeout = 10.0
    network_timeout = 30.0

    def __init__(self, environment: Any) -> None:
        plan = worker.prepare(environment.parsed_options.plan)
        access, template = worker.access, worker.template
        if access is None or template is None:
            raise StopTest("there is no plan")
        self.host = access.server
        self.insecure = access.is_insecure
        self.ssl_context_factory = lambda: tls_context(access)
        if access.proxy_host:
            self.proxy_host, self.proxy_port = access.proxy_host, access.proxy_port
        super().__init__(environment)
        self.change = Change(self, plan, template)
        place = getattr(environment.runner, "worker_index", 0)  # among locust's workers
        self._pacing = Pacing(plan.per_user, seed=f"{plan.run}/{place}/{next(worker.users)}")
        weights = plan.schedule.operations
        self._operations = random.choices(list(weights), list(weights.values()), k=997)  # noqa: S311
        self._next = random.randrange(997)  # noqa: S311

    def on_start(self) -> None:
        """Begin at the first instant of this user."""
        gevent.sleep(self.wait_time())

    def wait_time(self) -> float:
        """Seconds until the next operation is due."""
        return self._pacing.wait_s(time.monotonic())

    @task
    def operate(self) -> None:
        self._next = (self._next + 1) % len(self._operations)
        getattr(self.change, self._operations[self._next])()


class ScheduleShape(LoadTestShape):
    """Users as the plan's schedule wants them, its bursts, and then none until the command ends the run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._bursts_made = 0
        self._is_started = False

    def tick(self) -> tuple[int, float] | None:
        plan, bridge = worker.plan, worker.bridge
        if plan is None:
            return None
        if not self._is_started:
            self._is_started = True
            self.reset_time()  # type: ignore[no-untyped-call]
            if bridge is not None:
                bridge.started()
        t = self.get_run_time()  # type: ignore[no-untyped-call]
        self._burst(plan, t)
        if bridge is not None and bridge.stopped:
            bridge.report_now()
            return None
        fade_s = plan.schedule.duration_s + _FADE_S if bridge is not None else 0.0
        if t >= plan.schedule.duration_s + fade_s:
            return None
        return plan.users_at(t), _SPAWN_RATE

    def _burst(self, plan: LoadPlan, t: float) -> None:
        bursts = plan.schedule.bursts
        while self._bursts_made < len(bursts) and t >= bursts[self._bursts_made].at:
            objects = bursts[self._bursts_made].objects
            self._bursts_made += 1
            clients = getattr(self.runner, "clients", None)
            ids = [each.id for each in clients.all] if clients is not None else [None]
            for index, client_id in enumerate(ids):
                part = objects // len(ids) + (index < objects % len(ids))
                self.runner.send_message(_BURST, part, client_id)  # type: ignore[union-attr] # set by locust


def make_burst(environment: Any, objects: int) -> None:
    """Create *objects* objects as fast as the server takes them; returns at once."""
    left = iter(range(objects))

    def create() -> None:
        change = ObjectUser(environment).change
        for _ in left:
            change.create()

    pool = Pool(_AT_ONCE)
    for _ in range(min(_AT_ONCE, objects)):
        pool.spawn(create)


def tls_context(access: LoadAccess) -> ssl.SSLContext:
    """The server's authority and our certificate."""
    context = ssl.create_default_context(cadata=access.ca or None)
    if access.is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.certificate:
        with tempfile.TemporaryDirectory(prefix="ringleader-") as folder:
            pem = Path(folder) / "pair.pem"  # the ssl module reads files only
            pem.touch(mode=0o600)
            pem.write_text(f"{access.certificate}\n{access.key}")
            context.load_cert_chain(pem)
    return context


def _retry_after_s(headers: Any) -> float:
    try:
        return float(headers.get("Retry-After") or _RETRY_AFTER_S)
    except (TypeError, ValueError):
        return _RETRY_AFTER_S
