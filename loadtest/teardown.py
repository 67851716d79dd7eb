"""The end of a run's objects in a cluster that is not ours: by the run's label only, in a process of its own.

A process of its own, so that a second Ctrl-C ends the command at once and the removal all the same goes on.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from dataclasses import dataclass
from typing import Final

from kubeio.access.cluster import load_cluster
from kubeio.errors import KubeError
from kubeio.program.failures import FailedAt
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from loadtest.inputs.template import Template
from loadtest.objects import LeftOver, RunObjects
from loadtest.progress import Console

_AT_LEAST_S: Final = 2.0
"""Requests of the load that were under way may create one more object until then."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Which objects are to go. Empty texts: what KUBECONFIG, the context and the example offer."""

    run: str
    namespace: str
    template_path: str
    kubeconfig: str
    context: str

    def flags(self) -> list[str]:
        named = {"--template": self.template_path, "--kubeconfig": self.kubeconfig, "--context": self.context}
        flags = ["--run", self.run, "-n", self.namespace]
        return flags + [word for name, value in named.items() if value for word in (name, value)]

    def command_line(self) -> str:
        """What a person pastes."""
        return shlex.join(["ringleader", "loadtest", "teardown", *self.flags()])


async def remove_in_child(left: Leftovers) -> None:
    """Run `ringleader loadtest teardown` outside our process group and wait for it. Raises: LeftOver."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loadtest", "teardown", *left.flags()), start_new_session=True
    )
    if await asyncio.shield(process.wait()) != 0:
        raise LeftOver(f"objects of run {left.run} may be left; remove them by: {left.command_line()}")


async def remove(left: Leftovers, template: Template, console: Console) -> int:
    """Delete every object of the run and give their number. Raises: KubeError, LeftOver."""
    cluster = load_cluster(kubeconfig=left.kubeconfig or None, context=left.context or None)
    namespace = left.namespace or cluster.namespace
    async with Client(cluster, user_agent="ringleader-loadtest", max_connections=96) as client:
        try:
            resource: ApiResource = await Discovery(client).resolve(template.resource_name)
            objects = RunObjects(client, resource, namespace=namespace, run=left.run)
            with console.counting("deleting objects", 0) as tick:
                count = await objects.delete(tick=tick)
                await asyncio.sleep(_AT_LEAST_S if count else 0)
                return count + await objects.delete(tick=tick)
        except KubeError as error:
            raise FailedAt(error, cluster.server) from error
