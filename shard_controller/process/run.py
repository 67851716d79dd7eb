"""`run`: a controller as a process."""

from __future__ import annotations

from typing import Any

from shard_controller.api.controller import Controller, Mode, Single
from shard_controller.process import app
from shard_controller.process.settings import Settings


def run(controller: Controller[Any], *, mode: Mode | None = None, **settings: Any) -> int:
    """Run *controller* until SIGTERM; the exit code. *settings* are the fields of `Settings`.

    Call it as `sys.exit(sc.run(websites, mode=sc.Sharded("websites")))`.
    """
    return app.run(controller, mode or Single(), Settings(**settings))
