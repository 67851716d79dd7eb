"""Requests and watches between processes and API servers: latency, lost and late messages, partitions.

`Connection` is the transport of one client. Faults are `Rule`s that hold for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from devcluster.accounts import Account
from kubeio.http.lines import Lines
from kubeio.http.messages import Answer, BrokenMessage, Call
from simulation.api_server import ApiServer, Done, ServerWatch
from simulation.event_loop import EventLoop
from simulation.process import Process
from simulation.record import describe_write
from simulation.scale import KEYS
from simulation.world import World

_LATENCY_S: Final = (0.0002, 0.003)
_REFUSED_S: Final = 0.001
_STORED_LATE_S: Final = 5.0
"""So long after a 504 the write may still come true."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A fault of *share* of the requests. Empty fields match everything.

    *what*: request_late, request_lost, answer_lost, request_repeated, server_errors, write_refused, permission_revoked.
    """

    what: str
    process: str = ""
    verb: str = ""
    """`write`, `read`, `watch`, or a method."""
    share: float = 1.0
    delay_s: float = 0.0
    """request_late: the longest delay."""
    is_cut: bool = False
    """request_late: the connection breaks at once, as that of a proxy that has the request by then."""
    code: int = 500
    path: str = ""
    """Part of the path; `?` is its end."""

    def matches(self, process: Process, call: Call) -> bool:
        if (self.process and self.process != process.name) or self.path not in f"{call.path}?":
            return False
        is_read = call.method == "GET"
        if self.verb == "watch":
            return call.is_stream
        return not self.verb or self.verb in ("read" if is_read else "write", call.method)

    @property
    def is_answer(self) -> bool:
        """Whether the server answers with `code` instead of carrying out the request."""
        return self.what in ("server_errors", "write_refused", "permission_revoked")


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that may still arrive."""

    process: Process
    call: Call
    sent_at: float

    def __str__(self) -> str:
        return f"{self.call.method} {self.call.path} of {self.sent_at:.3f}"


class Network:
    """Connects processes with *servers*."""

    def __init__(self, world: World, servers: list[ApiServer]) -> None:
        self.world: Final = world
        self.servers: Final = servers
        self.rules: Final[list[Rule]] = []
        self.streams: Final[list[Stream]] = []
        self.partitions: Final[set[tuple[str, str]]] = set()
        """(machine, server) that do not reach each other."""
        self.requests = 0
        self.carried_out: Sent | None = None
        """The request that is carried out in this very moment."""
        self.carries_again = False
        """Whether that is a repetition, which its process knows nothing of."""
        self.on_send: Final[list[Callable[[Process, Call], None]]] = []
        """Called with every request as it is sent."""
        self._under_way: Final[dict[Process, list[Sent]]] = {}
        self._rng: Final = world.rng("network")

    @property
    def sender(self) -> Process | None:
        """Whose request is carried out in this very moment."""
        return self.carried_out.process if self.carried_out is not None else None

    def latency_s(self) -> float:
        return self._rng.uniform(*_LATENCY_S)

    def reaches(self, process: Process, server: ApiServer) -> bool:
        return (process.machine.name, server.name) not in self.partitions

    def reaches_all(self, process: Process) -> bool:
        """Whether nothing stands between *process* and any server, and every server answers for every resource."""
        answers = (each.is_up and not each.failing and self.reaches(process, each) for each in self.servers)
        return not self.rules and all(answers)

    def rule_for(self, process: Process, call: Call) -> Rule | None:
        """The fault of this request."""
        for rule in self.rules:
            if rule.matches(process, call) and self._rng.random() < rule.share:
                return rule
        return None

    def count(self, process: Process, call: Call) -> None:
        """One more request."""
        self.requests += 1
        for listener in self.on_send:
            listener(process, call)

    def sent(self, process: Process, call: Call) -> Sent:
        """*call* of *process* is on its way, until `arrived`."""
        sent = Sent(process, call, self.world.now)
        if call.method != "GET":
            self._under_way.setdefault(process, []).append(sent)
        return sent

    def arrived(self, process: Process, sent: Sent) -> None:
        """It was carried out, or it never will be."""
        under_way = self._under_way.get(process, [])
        if sent in under_way:
            under_way.remove(sent)

    def under_way(self, process: Process) -> list[Sent]:
        """The writes of *process* that may still arrive."""
        return self._under_way.get(process, [])

    def uniform(self, low: float, high: float) -> float:
        return self._rng.uniform(low, high)

    def choose(self) -> ApiServer:
        """A server for a new connection: as a load balancer does, one that is up, if any is."""
        up = [server for server in self.servers if server.is_up] or self.servers
        return self._rng.choice(up)


class Connection:
    """Transport of one client of *process*: a `kubeio.http.transport.Transport`."""

    def __init__(self, network: Network, process: Process, account: Account) -> None:
        self._network: Final = network
        self._process: Final = process
        self._account: Final = account
        self._server: ApiServer | None = None
        self._is_closed = False

    async def answer(self, call: Call, timeout_s: float) -> Answer:
        """The whole answer. Raises BrokenMessage."""
        answer = await self._exchange(call, timeout_s)
        if isinstance(answer, ServerWatch):
            raise TypeError("a watch is a stream")
        return answer

    @asynccontextmanager
    async def stream(self, call: Call, timeout_s: float) -> AsyncIterator[Lines | Answer]:
        """Lines of a watch, or a failure whole. Raises BrokenMessage."""
        answer = await self._exchange(call, timeout_s)
        if isinstance(answer, Answer):
            yield answer
            return
        server = self._server
        stream = Stream(
            self._network, self._process, server or self._network.choose(), answer, path=call.path
        )
        try:
            stream.start()
            yield stream.lines
        finally:
            stream.close()

    async def close(self) -> None:
        self._is_closed = True

    async def _exchange(self, call: Call, timeout_s: float) -> Answer | ServerWatch:
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise BrokenMessage("this client is closed", sent=False, answered=False)
        request = _Request(self._network, self._process, self._account, call, loop)
        timer = loop.call_at(loop.time() + timeout_s, request.expire)
        try:
            if self._server is None or not self._server.is_up:
                self._server = self._network.choose()
            request.send(self._server)
            return await request.future
        except BrokenMessage:
            self._server = None
            raise
        finally:
            timer.cancel()


class _Request:
    """One request on its way to a server and back. It may be carried out after its client gave up."""

    def __init__(
        self,
        network: Network,
        process: Process,
        account: Account,
        call: Call,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.future: Final[asyncio.Future[Answer | ServerWatch]] = loop.create_future()
        self._network: Final = network
        self._world: Final = network.world
        self._process: Final = process
        self._account: Final = account
        self._call: Final = call
        self._loop: Final = loop
        self._rule: Final = network.rule_for(process, call)

    def send(self, server: ApiServer) -> None:
        network, rule = self._network, self._rule
        network.count(self._process, self._call)
        if not server.is_up:
            self._world.after(_REFUSED_S, lambda: self._break("connection refused", sent=False))
            return
        if not network.reaches(self._process, server):
            return  # nothing comes back before the deadline
        delay_s = network.latency_s()
        what = rule.what if rule is not None else ""
        self._sent = network.sent(self._process, self._call)
        if what == "request_lost":
            network.arrived(self._process, self._sent)
            self._world.after(delay_s, lambda: self._break("connection reset"))
            return
        if what == "request_late" and rule is not None:
            if rule.is_cut:
                self._world.after(delay_s, lambda: self._break("connection reset"))
            delay_s += network.uniform(0, rule.delay_s)
        self._world.after(delay_s, lambda: self._arrive(server))
        if what == "request_repeated" and not self._call.is_stream:
            self._world.after(delay_s + network.uniform(0, 5), lambda: self._carry_out_again(server))

    def expire(self) -> None:
        """The client's patience is over."""
        self._set_exception(BrokenMessage("no answer in time", sent=True, answered=False, expired=True))

    def _arrive(self, server: ApiServer) -> None:
        rule = self._rule
        if self._is_stored_late():
            self._world.after(self._network.uniform(0, _STORED_LATE_S), lambda: self._store(server))
        else:
            self._network.arrived(self._process, self._sent)
        if not server.is_up:
            self._break("connection reset")
        elif (
            rule is not None
            and rule.is_answer
            and (rule.what == "permission_revoked" or not self._call.is_stream)
        ):
            headers = [(b"Retry-After", b"1")] if rule.code == 429 else []
            body = (
                b'{"kind":"Status","status":"Failure","reason":"Simulated","message":"simulated","code":%d}'
                % rule.code
            )
            self._answered(Answer(rule.code, headers, body), server)
        else:
            self._carry_out(server, lambda answer: self._answered(answer, server))

    def _is_stored_late(self) -> bool:
        """Whether the server gives up on this request, and stores it all the same."""
        rule = self._rule
        return (
            rule is not None and (rule.what, rule.code) == ("server_errors", 504) and not self._call.is_stream
        )

    def _store(self, server: ApiServer) -> None:
        self._network.arrived(self._process, self._sent)
        if server.is_up:
            self._carry_out(server, _drop)

    def _carry_out_again(self, server: ApiServer) -> None:
        self._network.carries_again = True
        self._carry_out(server, _drop)
        self._network.carries_again = False

    def _carry_out(self, server: ApiServer, done: Done) -> None:
        self._network.carried_out = self._sent
        server.serve(self._call, self._account, done)
        self._network.carried_out = None

    def _answered(self, answer: Answer | ServerWatch, server: ApiServer) -> None:
        call = self._call
        if call.method != "GET":
            status = answer.status if isinstance(answer, Answer) else 0
            self._world.note(f"{self._process} {describe_write(call, KEYS)} -> {status}", _detail(call))
        if self._rule is not None and self._rule.what == "answer_lost":
            self._world.after(self._network.latency_s(), lambda: self._break("connection reset"))
        elif self._network.reaches(self._process, server):
            self._world.after(self._network.latency_s(), lambda: self._deliver(answer))

    def _deliver(self, answer: Answer | ServerWatch) -> None:
        self._process.deliver(_loop(self._loop), self._set_result, answer)

    def _break(self, reason: str, *, sent: bool = True) -> None:
        error = BrokenMessage(reason, sent=sent, answered=False)
        self._process.deliver(_loop(self._loop), self._set_exception, error)

    def _set_result(self, answer: Answer | ServerWatch) -> None:
        if not self.future.done():
            if self._call.method == "GET" and "/leases" in self._call.path and _is_ok(answer):
                self._process.read_leases_at = min(self._process.read_leases_at, self._world.now)
            self.future.set_result(answer)

    def _set_exception(self, error: BrokenMessage) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Stream:
    """A watch on its way: lines in order, each as late as the network makes it."""

    def __init__(
        self, network: Network, process: Process, server: ApiServer, watch: ServerWatch, *, path: str
    ) -> None:
        self.path: Final = path
        self.process: Final = process
        self.server: Final = server
        self.watch: Final = watch
        self.lines: Final = Lines(_nothing, _nothing)
        self.held_until = 0.0
        """Lines wait until then; TCP keeps them."""
        self._network: Final = network
        self._world: Final = network.world
        self._loop: Final = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._is_scheduled = False
        self._has_ended = False
        self._last_at = 0.0

    def start(self) -> None:
        self._network.streams.append(self)
        self.watch.start(self._send, self._end)

    def close(self) -> None:
        """The client reads no more."""
        self.watch.close()
        if self in self._network.streams:
            self._network.streams.remove(self)

    def cut(self) -> None:
        """The connection breaks; what is under way is lost."""
        self.watch.close()
        self._waiting.clear()
        error = BrokenMessage("connection reset", sent=True, answered=True)
        self.process.deliver(_loop(self._loop), self.lines.fail, error)

    def _send(self, line: bytes) -> None:
        self._waiting.append(line)
        self._schedule()

    def _end(self) -> None:
        self._has_ended = True
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._last_at = max(self._world.now + self._network.latency_s(), self.held_until, self._last_at)
            self._world.at(self._last_at, self._deliver)

    def _deliver(self) -> None:
        self._is_scheduled = False
        if self._world.now < self.held_until or not self._network.reaches(self.process, self.server):
            self._world.after(0.5, self._schedule)
            return
        if self._waiting:
            chunk = b"".join(self._waiting)
            self._waiting.clear()
            self.process.deliver(_loop(self._loop), self.lines.feed, chunk)
        if self._has_ended:
            self.process.deliver(_loop(self._loop), self.lines.end)


def _loop(loop: asyncio.AbstractEventLoop) -> EventLoop:
    if not isinstance(loop, EventLoop):
        raise TypeError("a simulated process runs on simulated loops")
    return loop


def _detail(call: Call) -> bytes:
    """What of a write belongs to the digest: all but keys and certificates, which are others in every run."""
    is_secret = "/secrets" in call.path or "webhookconfigurations" in call.path
    return b"" if is_secret or call.body is None else call.body


def _is_ok(answer: Answer | ServerWatch) -> bool:
    return isinstance(answer, Answer) and answer.status == 200


def _drop(answer: object) -> None:
    """Nobody waits for it."""


def _nothing() -> None:
    """The socket is never held back."""
