"""Which versions the stream of a watch has passed, so that what was noted of them is not needed any more. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kubeio.models import ObjectKey


class Passed:
    """Tells what the stream has passed for certain: at two calls in a row, since events may still be under way."""

    def __init__(self) -> None:
        self._before: dict[ObjectKey, int] = {}

    def keys(self, noted: Mapping[ObjectKey, int], streamed: int) -> list[ObjectKey]:
        """Those of *noted* whose version was not above *streamed* at the call before, either."""
        now = {key: version for key, version in noted.items() if version <= streamed}
        passed = [key for key, version in now.items() if self._before.get(key) == version]
        for key in passed:
            del now[key]
        self._before = now
        return passed
