"""Conditions of a status: staged during a reconcile, merged once at its end. Pure but for the wall clock passed in.

Follows the Kubernetes convention: one entry per type, `lastTransitionTime` moves only when the status does; and that
of kstatus: `Stalled` is there only while it is True, and says that waiting alone will not help. Users reach it as
`ctx.conditions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

Entry = dict[str, object]


class Conditions:
    """The conditions of one object in one reconcile."""

    def __init__(
        self, existing: Sequence[Mapping[str, object]], *, generation: int, wall: Callable[[], datetime]
    ) -> None:
        self._existing = [dict(entry) for entry in existing]
        self._generation = generation
        self._wall = wall
        self._staged: dict[str, Entry] = {}
        self._removed: set[str] = set()

    def set(self, type: str, status: bool | None, reason: str, message: str = "") -> None:  # noqa: A002 - the API's name
        """Stage the condition *type*; the last call per type wins. A *status* of None is `Unknown`.

        Raises: ValueError if *reason* is empty: the API requires one.
        """
        if not reason:
            raise ValueError(f"condition {type}: a reason of one word is required, such as 'Published'")
        self._removed.discard(type)
        self._staged[type] = {
            "type": type,
            "status": "Unknown" if status is None else str(status),
            "reason": reason,
            "message": message,
        }

    def remove(self, type: str) -> None:  # noqa: A002 - the API's name
        """Stage that there is no condition *type*."""
        self._staged.pop(type, None)
        self._removed.add(type)

    def get(self, type: str) -> Mapping[str, object] | None:  # noqa: A002 - the API's name
        """The condition *type* as it stands on the object, whatever is staged."""
        return next((entry for entry in self._existing if entry.get("type") == type), None)


class StagedConditions(Conditions):
    """The conditions of one reconcile with the runtime's own changes, and the list to write."""

    def stall(self, reason: str, message: str) -> None:
        """Stage a permanent failure: `Stalled` True and `Ready`, if the object has it, False; unless staged already."""
        self._unless_staged("Stalled", True, reason, message)
        if self.get("Ready") is not None:
            self._unless_staged("Ready", False, reason, message)

    def recover(self) -> None:
        """Stage the removal of `Stalled`, unless `Stalled` is staged already."""
        if self.get("Stalled") is not None and "Stalled" not in self._staged:
            self.remove("Stalled")

    def _unless_staged(self, type: str, status: bool, reason: str, message: str) -> None:  # noqa: A002 - the API's name
        if type not in self._staged and type not in self._removed:
            self.set(type, status, reason, message)

    def merged(self) -> list[Entry] | None:
        """The whole list to write; None if nothing would change."""
        result = [self._merge(entry) for entry in self._existing if entry.get("type") not in self._removed]
        known = {entry.get("type") for entry in self._existing}
        result += [self._new(entry) for name, entry in self._staged.items() if name not in known]
        return None if result == self._existing else result

    def _merge(self, old: Entry) -> Entry:
        staged = self._staged.get(str(old.get("type")))
        if staged is None:
            return old
        merged = {**old, **staged, "observedGeneration": self._generation}
        if old.get("status") != staged["status"] or not old.get("lastTransitionTime"):
            merged["lastTransitionTime"] = self._now()
        return merged

    def _new(self, staged: Entry) -> Entry:
        return {**staged, "observedGeneration": self._generation, "lastTransitionTime": self._now()}

    def _now(self) -> str:
        return self._wall().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
