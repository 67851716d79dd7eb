"""Records a rebalance while it happens: who has how many objects, moment by moment, into a file of `record`'s form.

Objects are listed once and watched from then on. What has moved is what the watch saw, or the sharder's own count
where its /metrics are named. Reads only.
"""

from __future__ import annotations

import asyncio
import signal
import urllib.request
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kubeio.clock import SystemClock
from kubeio.errors import InputError, KubeError
from ringleader.cluster.following import Following
from ringleader.cluster.picture import RingPicture
from ringleader.cluster.snapshot import read_rings
from ringleader.inspect.plot.record import Moment, encode
from ringleader.inspect.simulate.premises import chosen_ring
from ringleader.inspect.simulate.stock import tell_on_stderr
from ringleader.options import ConnectionOptions, connected
from ringleader.progress import progress

if TYPE_CHECKING:
    from kubeio.rest.client import Client

MOVING: Final = ("rebalance", "owner_dead")
"""Reasons of `ringleader_moves_total` that are moves from one member to another."""
_METRICS_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to record: which *ring*, into which *file*, how often and how long; *metrics* is the sharder's URL."""

    file: Path
    ring: str | None = None
    every_s: float = 2.0
    for_s: float = 300.0
    metrics: str | None = None

    def __post_init__(self) -> None:
        if self.metrics is not None and not self.metrics.startswith(("http://", "https://")):
            remedy = "write the sharder's, such as http://127.0.0.1:8080/metrics"
            raise InputError("--metrics", self.metrics, "is not a URL", remedy)
        if not self.file.parent.is_dir():
            problem = f"is in {self.file.parent}, which is not a folder"
            raise InputError("FILE", str(self.file), problem, "name an existing one")


def run_record(where: ConnectionOptions, order: Order) -> int:
    """Record until the time is over or Ctrl-C; how many moments there are. Raises: InputError, FailedAt."""

    async def work(client: Client, _: object) -> int:
        from kubeio.rest.discovery import Discovery

        ring = chosen_ring(await read_rings(client, timeout_s=where.timeout_s), order.ring)
        async with Following(client, Discovery(client), ring.name, timeout_s=where.timeout_s) as following:
            return await _Recorder(following, ring.name, order).run()

    return connected(where, work)


def objects_of(shown: RingPicture) -> dict[str, int]:
    """Objects by member, over its lives; members that have none and no place are left out."""
    found: Counter[str] = Counter()
    for life in shown.members:
        if life.objects or life.ideal:
            found[life.member] += life.objects
    return dict(found)


def moves_of(text: str, ring: str) -> tuple[int, int]:
    """What the sharder counted: moves asked for or made, and those that are in flight.

    Raises: ValueError if *text* is not the metrics of a sharder that works *ring*.
    """
    from prometheus_client.parser import text_string_to_metric_families

    asked, in_flight, is_known = 0, 0, False
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.get("ring") != ring:
                continue
            if sample.name == "ringleader_moves_total" and sample.labels.get("reason") in MOVING:
                asked += int(sample.value)
            elif sample.name == "ringleader_handoffs_in_flight":
                in_flight, is_known = int(sample.value), True
    if not is_known:
        raise ValueError(f"it says nothing about ring {ring}")
    return asked, in_flight


class _Recorder:
    """One recording."""

    def __init__(self, following: Following, ring: str, order: Order) -> None:
        self._following = following
        self._ring = ring
        self._order = order
        self._clock = SystemClock()
        self._first: int | None = None

    async def run(self) -> int:
        stopped, written = asyncio.Event(), 0
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, stopped.set)
        deadline = 0.0
        try:
            with self._order.file.open("wb") as file, progress(f"moments of ring {self._ring}", None) as done:
                while True:
                    if (moment := await self._moment(is_first=not written)) is not None:
                        file.write(encode(moment))
                        file.flush()
                        if not written:  # the first one takes a list of everything
                            deadline = self._clock.now() + self._order.for_s
                        written += 1
                        done(1)
                    left_s = min(self._order.every_s, deadline - self._clock.now())
                    with suppress(TimeoutError):
                        await asyncio.wait_for(stopped.wait(), max(0.0, left_s))
                    if stopped.is_set() or self._clock.now() >= deadline:
                        return written
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def _moment(self, *, is_first: bool) -> Moment | None:
        """The ring now; None while it cannot be read, which ends only what had not begun."""
        try:
            (shown,) = await self._following.look()
            seen = self._following.watches.moved(self._ring)
            moved = seen if self._order.metrics is None else await self._counted()
        except InputError:
            raise
        except KubeError as error:
            if is_first:
                raise
            tell_on_stderr(f"{error}; the recording goes on")
            return None
        return Moment(self._clock.wall(), moved, shown.in_flight, shown.unowned, objects_of(shown))

    async def _counted(self) -> int:
        """Moves that are done since the first time. Raises: InputError."""
        url = self._order.metrics or ""
        try:
            asked, in_flight = moves_of(await asyncio.to_thread(_get, url), self._ring)
        except (OSError, ValueError) as error:
            remedy = "name /metrics on the port of the leading sharder's probes, or leave the flag out"
            raise InputError("--metrics", url, f"cannot be read: {error}", remedy) from error
        self._first = asked - in_flight if self._first is None else self._first
        return max(0, asked - in_flight - self._first)


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=_METRICS_TIMEOUT_S) as answer:  # noqa: S310 - Order checked its scheme
        text: bytes = answer.read()
    return text.decode()
