"""Follows the ring's state for the unowned watch: selects the names it leaves out, and limits the switches."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sharder.membership.view import WaitReason

if TYPE_CHECKING:
    from kubeio.clock import Clock
    from sharder.planning.state import RingState, RingStates
    from sharder.unowned.reflectors import UnownedReflectors


async def follow_states(
    states: RingStates, unowned: UnownedReflectors, *, settle_s: float, clock: Clock
) -> None:
    """Keep the unowned watch on what is not dead, switched at most once per settle window.

    A death switches it as soon as that allows; a join has time: the old selector shows a superset. When namespaces or
    terms change, everything is listed again at once: objects that were dropped may be wanted now.
    """
    state = states.current
    while state.view.hold is not None and state.view.hold.reason is WaitReason.NOT_SYNCED:
        state = await states.wait_newer(state)
    selected = state.view.selector_names
    unowned.select(selected, state.view.dead_names)
    switched_at = clock.now()
    differs_since: float | None = None
    while True:
        due_at = None
        if state.view.selector_names == selected:
            differs_since = None
        else:
            differs_since = clock.now() if differs_since is None else differs_since
            has_died = not selected <= state.view.selector_names
            due_at = max(switched_at + settle_s, differs_since) if has_died else differs_since + settle_s
        try:
            async with asyncio.timeout(None if due_at is None else max(0.0, due_at - clock.now())):
                before, state = state, await states.wait_newer(state)
        except TimeoutError:
            selected = state.view.selector_names
            unowned.select(selected, state.view.dead_names)
            switched_at = clock.now()
        else:
            if _selects_others(before, state):
                unowned.refresh()


def _selects_others(before: RingState, state: RingState) -> bool:
    """Whether other objects may be wanted than before."""
    return (before.selected, before.terms) != (state.selected, state.terms)
