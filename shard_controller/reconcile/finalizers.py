"""Finalizers of a controller: put on every object before its first reconcile, run and taken off when it goes.

Decides nothing about ownership: the labelled owner runs them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from shard_controller.api.context import Context
from shard_controller.api.session import ReconcileSession

Functions = Mapping[str, Callable[[Any], Any]]


async def ensure(functions: Functions, context: Context[Any], session: ReconcileSession) -> None:
    """Have every declared finalizer on the object, in one fenced write if one is missing."""
    present = session.meta.finalizers
    missing = [name for name in functions if name not in present]
    if missing and not session.is_deleting:
        await session.write_finalizers([*present, *missing])
        context.meta = session.meta


async def run(
    functions: Functions,
    context: Context[Any],
    session: ReconcileSession,
    call: Callable[[Callable[[Any], Any], Context[Any]], Awaitable[object]],
) -> None:
    """Run the declared finalizers that are still on the object, in order; each is taken off once it has run.

    A function that raises leaves its finalizer on: it runs again, so it must bear that.
    """
    for name, function in functions.items():
        if name in session.meta.finalizers:
            await call(function, context)
            await session.write_finalizers([kept for kept in session.meta.finalizers if kept != name])
            context.meta = session.meta
