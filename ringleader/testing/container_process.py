"""One container of a pod as a process: started, probed, started again with back-off, ended. A pod's business is not.

Back-off as the kubelet's: the first restart comes at once, each further one twice as late, up to a limit; a container
that ran long enough begins anew.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import aiohttp

from devcluster.children import Child
from kubeio.backoff import exponential_s
from kubeio.clock import Clock
from ringleader.testing.containers import Doc, Probe


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletTiming:
    """Times of a process kubelet, in seconds. The back-off is a real kubelet's unless a test shortens it."""

    poll_s: float = 0.2
    """Between two lists of the pods."""
    probe_period_s: float = 1.0
    """The longest period of a probe."""
    backoff_s: float = 10.0
    longest_backoff_s: float = 300.0
    healthy_s: float = 600.0
    """A container that ran for so long has no failures behind it."""


class ContainerProcess:
    """A container of a pod. *changed* is called after each change of its state."""

    def __init__(
        self,
        spec: Doc,
        start: Callable[[], Awaitable[Child]],
        probes: dict[str, Probe | None],
        *,
        is_restarted: bool,
        grace_s: float,
        timing: KubeletTiming,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self.name = str(spec["name"])
        self.restarts = 0
        self.is_ready = False
        self.child: Child | None = None
        self._image = str(spec.get("image", ""))
        self._start = start
        self._probes = probes
        self._is_restarted = is_restarted
        self._grace_s = grace_s
        self._timing = timing
        self._clock = clock
        self._changed = changed
        self._is_started = False
        self._ending = asyncio.Event()
        self._waits_for = "ContainerCreating"
        self._began = ""
        self._ended: Doc | None = None
        """How the present run ended: a `terminated` state."""
        self._ended_before: Doc | None = None
        """How the run before it ended."""

    async def run(self) -> None:
        """Keep the container running until `end`; started anew when it ends by itself, if it *is_restarted*."""
        failures = 0
        while not self._ending.is_set():
            self.child = await self._start()
            began_at, self._began, self._waits_for = self._clock.now(), now(), ""
            self._ended_before, self._ended = self._ended, None
            self._changed()
            await self._outlive(self.child)
            self._note_end(await self.child.wait())
            if not self._is_restarted:
                self._ending.set()
            if not self._ending.is_set():
                failures = 0 if self._clock.now() - began_at >= self._timing.healthy_s else failures
                self._waits_for = "CrashLoopBackOff"
                self._changed()
                await self._back_off(failures)
                failures += 1
                self.restarts += 1
        self._changed()

    async def end(self, *, grace_s: float) -> None:
        """SIGTERM, and SIGKILL after *grace_s*; it is not started again."""
        self._ending.set()
        if self.child is not None:
            await self.child.end(grace_s=grace_s)
            self._note_end(await self.child.wait())

    @property
    def is_over(self) -> bool:
        """Whether it has ended and is not started again."""
        return self._ending.is_set() and self._ended is not None

    @property
    def exit_code(self) -> int | None:
        """Of its last end; None if it has not ended yet."""
        ended = self._ended or self._ended_before
        return None if ended is None else ended["exitCode"]

    def status(self) -> Doc:
        """Its entry of the pod's `status.containerStatuses`."""
        last = self._ended_before if self.is_over else self._ended or self._ended_before
        if self.is_over:
            state: Doc = {"terminated": self._ended}
        elif self._waits_for:
            state = {"waiting": {"reason": self._waits_for}}
        else:
            state = {"running": {"startedAt": self._began}}
        return {
            "name": self.name,
            "image": self._image,
            "imageID": self._image,
            "ready": self.is_ready,
            "started": self._is_started,
            "restartCount": self.restarts,
            "state": state,
            "lastState": {"terminated": last} if last else {},
        }

    def _note_end(self, exit_code: int) -> None:
        """Note how and when it ended; `run` and `end` may both see it, and the first one's time stays."""
        self._is_started = self.is_ready = False
        self._ended = self._ended or {
            "exitCode": exit_code,
            "reason": "Error" if exit_code else "Completed",
            "startedAt": self._began,
            "finishedAt": now(),
        }

    async def _back_off(self, failures: int) -> None:
        """Wait for the next start, or for `end`."""
        base_s, max_s = self._timing.backoff_s, self._timing.longest_backoff_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(
                exponential_s(failures - 1, base_s=base_s, max_s=max_s) if failures else 0
            ):
                await self._ending.wait()

    async def _outlive(self, child: Child) -> None:
        """Probe *child* until it ends."""
        probing = asyncio.create_task(self._probe_all(child), name=f"probes {self.name}")
        try:
            await child.wait()
        finally:
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)

    async def _probe_all(self, child: Child) -> None:
        async with aiohttp.ClientSession() as session:
            if startup := self._probes["startupProbe"]:
                await self._probe(session, startup, child, on_success=None)
            self._is_started = True
            self._set_ready(self._probes["readinessProbe"] is None)
            async with asyncio.TaskGroup() as group:
                if readiness := self._probes["readinessProbe"]:
                    group.create_task(self._probe(session, readiness, None, on_success=self._set_ready))
                if liveness := self._probes["livenessProbe"]:
                    group.create_task(self._probe(session, liveness, child, on_success=lambda _: None))

    async def _probe(
        self,
        session: aiohttp.ClientSession,
        probe: Probe,
        child: Child | None,
        *,
        on_success: Callable[[bool], None] | None,
    ) -> None:
        """Probe for ever, or until the first success without *on_success*; end *child* after too long without one."""
        await asyncio.sleep(probe.delay_s)
        succeeded, well_at = 0, self._clock.now()
        while True:
            if await _answers(session, probe):
                succeeded, well_at = succeeded + 1, self._clock.now()
                if on_success is None:
                    return
                if succeeded >= probe.successes:
                    on_success(True)
            else:
                succeeded = 0
            if self._clock.now() - well_at >= probe.fails_after_s:
                if child is not None:
                    await child.end(grace_s=self._grace_s)
                    return  # also if the end of the process has swallowed a cancellation (asyncio.wait_for)
                if on_success is not None:
                    on_success(False)
            await asyncio.sleep(probe.period_s)

    def _set_ready(self, is_ready: bool) -> None:
        if is_ready is not self.is_ready:
            self.is_ready = is_ready
            self._changed()


async def _answers(session: aiohttp.ClientSession, probe: Probe) -> bool:
    try:
        async with session.get(probe.url, timeout=aiohttp.ClientTimeout(total=probe.timeout_s)) as answer:
            return 200 <= answer.status < 400
    except (aiohttp.ClientError, TimeoutError):
        return False


def now() -> str:
    """The wall clock as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
