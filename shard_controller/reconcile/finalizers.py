"""Finalizers of a controller: put on every object before its first reconcile, run and taken off when it goes.

Decides nothing about ownership: whoever the label names runs them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from shard_controller.api.context import Context

Functions = Mapping[str, Callable[[Any], Any]]


async def ensure(functions: Functions, context: Context[Any]) -> None:
    """Have every declared finalizer on the object, in one fenced write if one is missing."""
    present = context.meta.finalizers
    missing = [name for name in functions if name not in present]
    if missing and not context.is_deleting:
        await context.write_finalizers([*present, *missing])


async def run(
    functions: Functions,
    context: Context[Any],
    call: Callable[[Callable[[Any], Any], Context[Any]], Awaitable[object]],
) -> None:
    """Run the declared finalizers that are still on the object, in order; each is taken off once it has run.

    A function that raises leaves its finalizer on: it runs again, so it must bear that.
    """
    for name, function in functions.items():
        if name in context.meta.finalizers:
            await call(function, context)
            await context.write_finalizers([kept for kept in context.meta.finalizers if kept != name])
