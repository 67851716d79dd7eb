"""Between two runs of the controller: what is asked for is given up, and trees that have arrived whole become visible.

The next run must not see a root of which the controller misses a part below: it would make that part again. A tree
that the controller sees already, and of which a part is missing, is closed: no write passes to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import Final

import structlog

from kubeio.clock import Clock
from kubeio.errors import KubeError
from proxy.informers import TreeInformers
from proxy.object_writer import ObjectWriter
from proxy.restart import HandedOver, nodes_of
from proxy.trees import Node, Trees
from proxy.whole_trees import find_absent

log = structlog.get_logger("proxy")

_WRITES_AT_ONCE: Final = 32
_LOOK_EVERY_S: Final = 0.05
"""Changes are looked at so often at most: many come at once."""
_KNOWN_WITHIN_S: Final = 5.0
"""Time for the events of the proxy's own writes."""
_LEAVING_AGAIN_S: Final = 1.0
"""What a leaving shard could not give up is tried again after so long: no controller runs that a restart would end."""


class Handover:
    """Gives up and shows objects by *writer*, of the trees of one run after the other."""

    def __init__(self, writer: ObjectWriter, *, clock: Clock) -> None:
        self._writer: Final = writer
        self._clock: Final = clock
        self._slots: Final = asyncio.Semaphore(_WRITES_AT_ONCE)
        self._torn: Final[set[str]] = set()
        """Visible objects whose trees may have been given up in part, because the API server failed meanwhile."""

    async def between_runs(self, trees: Trees, informers: TreeInformers) -> HandedOver:
        """Give up what is asked for, and make visible the trees that have arrived whole. No controller runs."""
        asked, arrived = nodes_of(trees, trees.due.asked), nodes_of(trees, trees.due.arrived)
        await self._give_up_all(trees, list(filter(trees.may_go, asked)))
        kept = [node for node in arrived if node.drain is None]
        torn = nodes_of(trees, self._torn)
        absent = await find_absent(trees, [*kept, *torn], informers, arriving={node.uid for node in kept})
        _close(trees, absent)
        self._torn.intersection_update(absent)
        shown = await self._show_trees(trees, [node for node in kept if node.uid not in absent])
        await self._wait_known(trees, shown)
        return HandedOver({node.uid: node.resource_version for node in (*asked, *arrived)}, absent)

    async def give_up_until(self, over: asyncio.Event, trees: Trees, changed: asyncio.Event) -> None:
        """Give up what is asked for as it is asked for, until *over*; what failed is tried again after a while."""
        handled: dict[str, str] = {}
        async with asyncio.TaskGroup() as tasks:
            ended = tasks.create_task(over.wait(), name="end")
            while not over.is_set():
                changed.clear()
                asked = [
                    node
                    for node in nodes_of(trees, trees.due.asked)
                    if handled.get(node.uid) != node.resource_version
                ]
                await self._give_up_all(trees, asked)
                handled |= {node.uid: node.resource_version for node in asked}
                woken = tasks.create_task(changed.wait(), name="changes")
                done, _ = await asyncio.wait(
                    {ended, woken}, timeout=_LEAVING_AGAIN_S, return_when=asyncio.FIRST_COMPLETED
                )
                woken.cancel()
                if not done:
                    handled.clear()
                await asyncio.sleep(_LOOK_EVERY_S)

    async def show(self, nodes: Iterable[Node]) -> list[Node]:
        """Make *nodes* visible; those that are now, or are gone. What fails stays hidden."""
        shown: list[Node] = []

        async def show(node: Node) -> None:
            async with self._slots:
                try:
                    if await self._writer.show(node):
                        shown.append(node)
                except KubeError as error:
                    log.warning(
                        "object not made visible", object=f"{node.resource} {node.key}", error=str(error)
                    )

        async with asyncio.TaskGroup() as tasks:
            for node in nodes:
                tasks.create_task(show(node), name="show")
        return shown

    async def _show_trees(self, trees: Trees, nodes: Sequence[Node]) -> list[Node]:
        """Show *nodes*, children before their parents, and nothing above what fails."""
        shown: list[Node] = []
        above = {node.uid: trees.above(node.uid) for node in nodes}
        blocked: set[str] = set()
        deepest_first = sorted(nodes, key=lambda node: len(above[node.uid]), reverse=True)
        for _, level in groupby(deepest_first, key=lambda node: len(above[node.uid])):
            free = {node.uid: node for node in level if node.uid not in blocked}
            done = await self.show(free.values())
            failed = free.keys() - {node.uid for node in done}
            blocked.update(uid for each in failed for uid in above[each])
            _close(trees, failed)
            shown += done
        return shown

    async def _wait_known(self, trees: Trees, shown: Sequence[Node]) -> None:
        """Wait until the informers know what was *shown*: the controller's first list is as new as theirs."""
        until = self._clock.now() + _KNOWN_WITHIN_S
        while self._clock.now() < until:
            nodes = [trees.get(node.uid) for node in shown]
            if all(node is None or trees.is_visible(node) for node in nodes):
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _give_up_all(self, trees: Trees, nodes: Sequence[Node]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for node in nodes:
                tasks.create_task(self._give_up(trees, node), name="give up")

    async def _give_up(self, trees: Trees, node: Node) -> None:
        async with self._slots:
            was_whole = node.uid not in self._torn
            self._torn.add(node.uid)
            try:
                if await self._writer.give_up(trees, node.uid) and was_whole:
                    self._torn.discard(node.uid)
            except KubeError as error:
                log.warning("object not given up", object=f"{node.resource} {node.key}", error=str(error))


def _close(trees: Trees, uids: Collection[str]) -> None:
    """Close the trees of *uids* whose roots the controller sees."""
    for root in {root.uid: root for uid in uids if (root := trees.root_of(uid)) is not None}.values():
        if trees.is_visible(root):
            trees.close(root.uid)
