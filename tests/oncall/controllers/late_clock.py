"""The example's controller on a machine whose clock is five minutes ahead."""

from __future__ import annotations

import importlib.util
import sys
from datetime import UTC, datetime, timedelta

from kubeio.clock import SystemClock
from ringleader.assets import website_controller


def wall(self: SystemClock) -> datetime:
    """The wall clock of that machine."""
    return datetime.now(UTC) + timedelta(minutes=5)


SystemClock.wall = wall  # type: ignore[method-assign] # the fault: there is no other clock to put into a process

_found = importlib.util.spec_from_file_location("website", website_controller())
assert _found is not None
assert _found.loader is not None
_module = importlib.util.module_from_spec(_found)
sys.modules["website"] = _module
_found.loader.exec_module(_module)
websites = _module.websites
