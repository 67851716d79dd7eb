"""A watermark for each object: versions below it do not count any more. Pure.

It rises when an object is given up or read directly: the watch may still show what was before.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubeio.models import ObjectKey
from shard_controller.objects.passed import Passed


@dataclass(slots=True)
class _Floor:
    version: int
    unanswered: bool


class MinVersions:
    """Per object the smallest version that still counts, for those we acknowledged or read directly.

    Empty at rest: an entry goes once the stream has passed it (`forget`).
    """

    def __init__(self) -> None:
        self._min_versions: dict[ObjectKey, _Floor] = {}
        self._passed = Passed()

    def __len__(self) -> int:
        return len(self._min_versions)

    def floor(self, key: ObjectKey) -> int:
        entry = self._min_versions.get(key)
        return entry.version if entry else 0

    def is_unanswered(self, key: ObjectKey) -> bool:
        entry = self._min_versions.get(key)
        return entry is not None and entry.unanswered

    def acknowledging(self, key: ObjectKey, *, tested: int) -> None:
        """An acknowledgement that tests version *tested* is about to be sent: it counts from now on."""
        self._raise_to(key, tested + 1, unanswered=True)

    def acknowledged(self, key: ObjectKey, *, version: int) -> None:
        """The answer came: the object stands at *version*."""
        self._raise_to(key, version, unanswered=False)

    def read(self, key: ObjectKey, *, version: int) -> None:
        """A consistent read showed *version*. One that is not newer than what was tested answers nothing."""
        entry = self._min_versions.get(key)
        if entry is not None and entry.unanswered and version < entry.version:
            return
        self._raise_to(key, version, unanswered=False)

    def shown(self, key: ObjectKey, *, version: int) -> None:
        """The cache has *version*. If that counts, an acknowledgement without an answer needs none any more."""
        entry = self._min_versions.get(key)
        if entry is not None and version >= entry.version:
            entry.version, entry.unanswered = version, False

    def gone(self, key: ObjectKey) -> None:
        """A consistent read found no such object: whatever was acknowledged, nothing older counts."""
        entry = self._min_versions.get(key)
        if entry is not None:
            entry.unanswered = False

    def ignore_up_to(self, key: ObjectKey, *, version: int) -> None:
        """The object is gone although the cache has it in *version*: that state does not count."""
        self._raise_to(key, version + 1, unanswered=False)

    def forget(self, streamed: int) -> None:
        """Drop what the stream has passed: called now and then with the newest version seen on the object's watch."""
        answered = {key: entry.version for key, entry in self._min_versions.items() if not entry.unanswered}
        for key in self._passed.keys(answered, streamed):
            del self._min_versions[key]

    def _raise_to(self, key: ObjectKey, version: int, *, unanswered: bool) -> None:
        entry = self._min_versions.get(key)
        if entry is None:
            self._min_versions[key] = _Floor(version, unanswered)
        elif version >= entry.version:
            entry.version, entry.unanswered = version, unanswered
