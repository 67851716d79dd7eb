"""Objects that no patch may change: a policy, a webhook or a schema refuses the label. Recorded, retried, reported.

Pure: time and randomness are passed in. Such an object stays where it is and is tried ever more rarely; the others are
not affected. One that is not tried any more, since it is gone or needs no write, is forgotten. Fed by
`sharder.writing.object_writer`, read by assigner, passes and status.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from kubeio.backoff import exponential_s, jittered_s
from kubeio.models import ObjectRef

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from kubeio.models import Meta
    from kubeio.resource import ApiResource

FIRST_RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 120.0
FORGOTTEN_S: Final = 600.0
"""An object that was due for so long was not tried again: passes over a million objects take less."""
MOST: Final = 20_000
"""Objects remembered, 6 MB: of more, the one refused longest ago is tried like any other."""
MESSAGES: Final = 3
"""Refusals kept with the API server's message, the newest ones."""
_JITTER: Final = 0.2


class _Refused(NamedTuple):
    uid: str
    times: int
    again_at: float


class Refusals:
    """Objects that the API server refuses to change now. *on_refused* is called once with each, and the reason."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        rng: random.Random,
        on_refused: Callable[[ApiResource, Meta, str], None],
    ) -> None:
        self._now = now
        self._rng = rng
        self._on_refused = on_refused
        self._refused: OrderedDict[ObjectRef, _Refused] = OrderedDict()
        self._messages: OrderedDict[ObjectRef, str] = OrderedDict()

    def __len__(self) -> int:
        self._forget()
        return len(self._refused)

    def __contains__(self, ref: object) -> bool:
        return ref in self._refused

    def refused(self, resource: ApiResource, meta: Meta, message: str) -> None:
        """Record that the server refuses to change an object, whichever client writes."""
        ref = ObjectRef(resource.group_resource, meta.key)
        known = self._refused.pop(ref, None)
        if known is not None and known.uid != meta.uid:
            known = None
        times = known.times if known is not None else 0
        delay_s = exponential_s(times, base_s=FIRST_RETRY_S, max_s=LONGEST_RETRY_S)
        again_at = self._now() + jittered_s(delay_s, self._rng, jitter=_JITTER)
        self._refused[ref] = _Refused(meta.uid, times + 1, again_at)
        if len(self._refused) > MOST:
            self._refused.popitem(last=False)
        self._messages.pop(ref, None)
        self._messages[ref] = message
        if len(self._messages) > MESSAGES:
            self._messages.popitem(last=False)
        if known is None:
            self._on_refused(resource, meta, message)

    def over(self, ref: ObjectRef) -> None:
        """*ref* was changed, or is gone; costs nothing while nothing is refused."""
        if self._refused and self._refused.pop(ref, None) is not None:
            self._messages.pop(ref, None)

    def again_at(self, ref: ObjectRef, *, uid: str = "") -> float | None:
        """Instant of the next try of *ref*; None if it may be tried now, or has another *uid* than the one refused."""
        known = self._refused.get(ref) if self._refused else None
        if known is None or (uid and known.uid != uid):
            return None
        return known.again_at if known.again_at > self._now() else None

    def messages(self) -> list[str]:
        """The newest refusals, each with its object."""
        return [f"{ref}: {message}" for ref, message in reversed(self._messages.items())]

    def _forget(self) -> None:
        """Forget what was not tried again, the one refused longest ago first."""
        while self._refused:
            ref, first = next(iter(self._refused.items()))
            if self._now() < first.again_at + FORGOTTEN_S:
                return
            self.over(ref)
