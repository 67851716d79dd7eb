"""Paces of the rings whose objects `status --count` lists. Pure."""

from __future__ import annotations

import msgspec

from ringleader.cluster.picture import RingPicture
from sharder.rings.settling_pace import SettlingPace


class Paces:
    """The pace of each ring."""

    def __init__(self) -> None:
        self._paces: dict[str, SettlingPace] = {}

    def begin(self, shown: RingPicture, at: float) -> float:
        """The ring as it was at *at*, which is returned, before anything is paced."""
        self._paces[shown.name] = SettlingPace()
        self._paces[shown.name].look(at, shown.to_do)
        return at

    def paced(self, shown: RingPicture, at: float) -> RingPicture:
        """*shown* as it was seen at *at*, with its pace and what is left."""
        pace = self._paces.setdefault(shown.name, SettlingPace())
        pace.look(at, shown.to_do)
        return msgspec.structs.replace(shown, rate_per_second=pace.per_s, seconds_left=pace.left_s)
