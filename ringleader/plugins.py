"""Commands that live in packages above this one: named here, imported when they run.

`loadtest` uses `ringleader`; so `ringleader` knows of it by name only, and the order of the packages has no cycle.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Final

import typer

from kubeio.errors import InputError

LOADTEST: Final = "loadtest.command"
_NEEDED: Final = ("locust", "matplotlib", "aiohttp")
"""What the extra brings, and the core does not."""


def load_app(module: str) -> typer.Typer:
    """The command of *module*. Raises: InputError if the extra that it needs is not installed."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            "installation",
            ", ".join(missing),
            "is missing for this command",
            "install it: pip install 'ringleader[devcluster,loadtest]'",
        )
    app: typer.Typer = importlib.import_module(module).app
    return app
