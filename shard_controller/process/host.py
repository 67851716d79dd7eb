"""Surroundings of a replica: those of every shard, and what watches its event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeio.shard.host import ShardHost
from shard_controller.observe.watchdog import LoopBlockReporter

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from shard_controller.observe.metrics import ControllerMetrics


_controllers: set[str] = set()


class ReplicaHost(ShardHost):
    """The surroundings of a replica on an ordinary machine."""

    @property
    def controllers(self) -> set[str]:
        """Names of the controllers that run in this process."""
        return _controllers

    def watch_loop(
        self, *, blocked_s: float, describe: Callable[[], object], metrics: ControllerMetrics
    ) -> AbstractAsyncContextManager[object]:
        """A watch over the running event loop."""
        return LoopBlockReporter(blocked_s=blocked_s, describe=describe, metrics=metrics, clock=self.clock)
