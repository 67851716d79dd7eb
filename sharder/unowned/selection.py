"""Loop from the membership controller to the unowned watch: selects the names left out, and limits the switches."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sharder.membership.view import WaitReason

if TYPE_CHECKING:
    from kubeio.clock import Clock
    from sharder.membership.controller import MembershipController
    from sharder.unowned.reflectors import UnownedReflectors


async def follow_membership(
    membership: MembershipController, unowned: UnownedReflectors, *, settle_s: float, clock: Clock
) -> None:
    """Keep the unowned watch on what is not dead, switched at most once per settle window.

    A death switches it as soon as that allows; a join has time: the old selector shows a superset.
    """
    view = membership.view
    while view.hold is not None and view.hold.reason is WaitReason.NOT_SYNCED:
        view = await membership.wait_newer(view.version)
    selected: frozenset[str] = view.selector_names
    unowned.select(selected, view.dead_names)
    switched_at = clock.now()
    while True:
        view = await membership.wait_newer(view.version)
        differs_since = clock.now()
        while view.selector_names != selected:
            has_died = not selected <= view.selector_names
            due = max(switched_at + settle_s, differs_since) if has_died else differs_since + settle_s
            try:
                async with asyncio.timeout(max(0.0, due - clock.now())):
                    view = await membership.wait_newer(view.version)
            except TimeoutError:
                selected = view.selector_names
                unowned.select(selected, view.dead_names)
                switched_at = clock.now()
