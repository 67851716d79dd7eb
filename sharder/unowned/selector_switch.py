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

    A death switches it as soon as that allows, also that of a name that never had a Lease: with a short selector the
    objects of dead names are listed. A join has time: the old selector shows a superset. When namespaces or terms
    change, everything is listed again at once: objects that were dropped may be wanted now.
    """
    state = states.current
    while state.view.hold is not None and state.view.hold.reason is WaitReason.NOT_SYNCED:
        state = await states.wait_newer(state)
    selected, dead = state.view.selector_names, state.view.dead_names
    unowned.select(selected, dead)
    switched_at = clock.now()
    differs_since: float | None = None
    while True:
        due_at = None
        has_died = not (selected <= state.view.selector_names and state.view.dead_names <= dead)
        if not has_died and state.view.selector_names == selected:
            differs_since = None
        else:
            differs_since = clock.now() if differs_since is None else differs_since
            due_at = max(switched_at + settle_s, differs_since) if has_died else differs_since + settle_s
        try:
            async with asyncio.timeout(None if due_at is None else max(0.0, due_at - clock.now())):
                before, state = state, await states.wait_newer(state)
        except TimeoutError:
            selected, dead = state.view.selector_names, state.view.dead_names
            unowned.select(selected, dead)
            switched_at = clock.now()
        else:
            if _selects_others(before, state):
                unowned.refresh()


def _selects_others(before: RingState, state: RingState) -> bool:
    """Whether other objects may be wanted than before."""
    return (before.selected, before.terms) != (state.selected, state.terms)
