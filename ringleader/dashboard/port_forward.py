"""`kubectl port-forward` as a child process: started, its port read, its end noticed.

The child gets the connection of this command: kubeconfig, context, cluster, user, server and impersonation.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, cast

from kubeio.errors import InputError, KubeError

if TYPE_CHECKING:
    from ringleader.options import ConnectionOptions

START_S: Final = 20.0
"""For kubectl to log in and to open its port."""
_FORWARDING: Final = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+) ->")


class PortForwardEnded(KubeError):
    """kubectl ended, or opened no port."""


class PortForward:
    """A running `kubectl port-forward`. `port` is its port on this machine, 0 before it is open."""

    def __init__(self, process: asyncio.subprocess.Process, output: asyncio.StreamReader) -> None:
        self.port = 0
        self.on_end: Callable[[], object] = lambda: None
        """Called when the process has ended."""
        self._process = process
        self._output = output
        self._started = asyncio.Event()
        self._last_line = ""

    async def read(self) -> None:
        """Follow the output until the process ends."""
        async for line in self._output:
            if found := _FORWARDING.search(line):
                self.port = int(found[1])
                self._started.set()
            elif not line.startswith(b"Handling connection"):
                self._last_line = line.decode(errors="replace").strip() or self._last_line
        await self._process.wait()
        self._started.set()
        self.on_end()

    async def wait_open(self, remedy: str) -> None:
        """Return when the port is open. Raises PortForwardEnded with *remedy* if it does not open."""
        try:
            async with asyncio.timeout(START_S):
                await self._started.wait()
        except TimeoutError:
            problem = f"kubectl port-forward opened no port within {START_S:.0f} s"
            raise PortForwardEnded(f"{problem}; {remedy}") from None
        if not self.port:
            raise PortForwardEnded(f"{self.problem}; {remedy}")

    @property
    def problem(self) -> str:
        """Reason of its end, in its own words."""
        return f"kubectl port-forward ended ({self._process.returncode}): {self._last_line or 'no output'}"


def kubectl_words(where: ConnectionOptions) -> list[str]:
    """The flags of kubectl that *where* stands for. The kubeconfig goes by KUBECONFIG: it may be several files."""
    flags = {
        "--context": where.context,
        "--cluster": where.overrides.cluster,
        "--user": where.overrides.user,
        "--server": where.overrides.server,
        "--as": where.overrides.as_user,
        "--as-uid": where.overrides.as_uid,
    }
    words = [f"{flag}={value}" for flag, value in flags.items() if value]
    return [*words, *(f"--as-group={group}" for group in where.overrides.as_groups)]


@asynccontextmanager
async def port_forward(
    where: ConnectionOptions, *, namespace: str, pod: str, port: int, remedy: str
) -> AsyncIterator[PortForward]:
    """A port of this machine that leads to *port* of *pod* while the scope lasts.

    Raises: InputError with *remedy* if there is no kubectl, PortForwardEnded if it opens no port.
    """
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise InputError("kubectl", "", "is not on the PATH", f"install it, or {remedy}")
    words = ["port-forward", f"--namespace={namespace}", f"pod/{pod}", f":{port}", "--address=127.0.0.1"]
    process = await asyncio.create_subprocess_exec(
        kubectl,
        *words,
        *kubectl_words(where),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **({"KUBECONFIG": where.kubeconfig} if where.kubeconfig else {})},
    )
    forward = PortForward(process, cast(asyncio.StreamReader, process.stdout))
    reading = asyncio.create_task(forward.read(), name="kubectl port-forward")
    try:
        await forward.wait_open(remedy)
        yield forward
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                # Process.kill() may reap the child before its watcher does
                os.kill(process.pid, signal.SIGKILL)
        await reading
