"""The exit timer of tests: it ends nothing."""

from __future__ import annotations

from kubeio.shard.exit_timer import ExitTimer


class NotedTimer(ExitTimer):
    """Notes when it would end the process, instead of ending it."""

    ends_at: float | None = None

    def _arm(self, left_s: float) -> None:
        self.ends_at = self._clock.now() + left_s

    def _disarm(self) -> None:
        self.ends_at = None
