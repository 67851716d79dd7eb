"""`make bench-store`: the stored forms of a replica's cache on the same objects, each in a process of its own.

Measures memory, time per event and per read, the longest pause, and what the garbage collector does; decides nothing.
There is no server and no network: lines of a watch go into the store as fast as it takes them.
"""

from __future__ import annotations

import gc
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, cast, get_args

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from kubeio.clock import SystemClock
from kubeio.models import ObjectKey
from kubeio.queues.workqueue import WorkQueue
from kubeio.resource import ApiResource
from kubeio.watches.watch_events import Changed, decode_line
from shard_controller.declare.request import Request
from shard_controller.declare.resource import Resource as Declared
from shard_controller.declare.resource import Stored
from shard_controller.objects.caches import ResourceCache

WORDS: Final = (
    "alpha",
    "beta",
    "gamma",
    "delta",
    "site",
    "page",
    "blog",
    "shop",
    "docs",
    "news",
    "team",
    "home",
)
_rng: Final = random.Random(2)  # noqa: S311 - no secrets
WEBSITES: Final = ApiResource("example.com", "v1", "websites", "Website")
SLICE: Final = 500
"""What a page of a list holds: the store is not left between its objects."""


class Spec(msgspec.Struct):
    html: str
    replicas: int


class Website(msgspec.Struct):
    spec: Spec | None = None


class Figures(msgspec.Struct):
    """Of one form; sizes in bytes, times in microseconds on the CPU unless the name says otherwise."""

    form: str
    rss_mb: float
    per_object: float
    stored: float
    learn_us: float
    read_us: float
    model_us: float
    worst_slice_ms: float
    collections: int
    full_collection_ms: float


def lines(count: int, *, metadata_only: bool) -> Iterator[bytes]:
    """ADDED events of Websites of about 1.2 KB, a third of that managedFields; words drawn at random."""
    rng = random.Random(1)  # noqa: S311 - the same objects each time
    for number in range(count):
        managed = {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {".": {}, "f:html": {}}}
        entry = {
            "apiVersion": "example.com/v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": managed,
            "operation": "Update",
        }
        document: dict[str, Any] = {
            "apiVersion": "example.com/v1",
            "kind": "Website",
            "metadata": {
                "creationTimestamp": f"2026-11-21T10:{rng.randrange(60):02}:{rng.randrange(60):02}Z",
                "generation": 1,
                "labels": {"app": "web", "shard.ringleader.dev/sites": "web-0-5eed5eed"},
                "managedFields": [
                    {**entry, "manager": name, "time": "2026-11-21T10:00:00Z"} for name in ("a", "b")
                ],
                "name": f"site-{number:06}",
                "namespace": f"team-{number % 50}",
                "resourceVersion": str(1000 + number),
                "uid": f"{rng.getrandbits(128):032x}",
            },
            "spec": {
                "html": " ".join(rng.choices(WORDS, k=50)) + f"{rng.getrandbits(128):032x}",
                "replicas": rng.randrange(10),
            },
            "status": {
                "conditions": [{"type": "Ready", "status": "True", "reason": "Published", "message": ""}]
            },
        }
        if metadata_only:
            del document["spec"], document["status"]
        yield b'{"type":"ADDED","object":%s}' % json.dumps(document, separators=(",", ":")).encode()


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def measure(form: Stored, count: int) -> Figures:
    """Load *count* objects into a kind stored as *form*, queue their keys, and read them in random order."""
    declared = Declared("websites.example.com/v1", Website, stored=form)
    kind = ResourceCache(WEBSITES, clock=SystemClock(), declared=declared)
    queue: WorkQueue[Request] = WorkQueue(clock=SystemClock(), rng=_rng)
    before, source = rss_bytes(), lines(count, metadata_only=kind.is_metadata_only)
    collected = _collections()
    spent_s = worst_s = 0.0
    while batch := list(islice(source, SLICE)):
        began = time.process_time()
        for line in batch:
            event = cast(Changed, decode_line(line, "bench"))
            change = kind.store.learn(event.object)
            if change is not None:
                queue.add(Request(kind.name, change.key))
        took_s = time.process_time() - began
        spent_s, worst_s = spent_s + took_s, max(worst_s, took_s)
    collected = _collections() - collected
    rss = rss_bytes()
    keys = _rng.sample(kind.store.keys(), min(count, 20_000))
    return Figures(
        form=form,
        rss_mb=rss / 1e6,
        per_object=(rss - before) / count,
        stored=kind.store.stored_bytes() / count,
        learn_us=spent_s / count * 1e6,
        read_us=_per_key_us(kind.get, keys),
        model_us=_per_key_us(lambda key: _decoded(kind, declared, key), keys),
        worst_slice_ms=worst_s * 1e3,
        collections=collected,
        full_collection_ms=_timed_s(gc.collect) * 1e3,
    )


def _collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())


def _decoded(kind: ResourceCache, declared: Declared[Any], key: ObjectKey) -> None:
    found = kind.get(key)
    if found is not None:
        declared.decode(found.raw)


def _per_key_us(read: Callable[[ObjectKey], object], keys: list[ObjectKey]) -> float:
    return _timed_s(lambda: [read(key) for key in keys]) / len(keys) * 1e6


def _timed_s(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def main(
    count: Annotated[int, typer.Option(help="Objects.")] = 100_000,
    form: Annotated[str, typer.Option(help="Only this one; prints JSON.")] = "",
) -> None:
    """Memory and time of every stored form."""
    if form:
        sys.stdout.buffer.write(msgspec.json.encode(measure(cast(Stored, form), count)))
        return
    table = Table("form", *(name.replace("_", " ") for name in Figures.__struct_fields__[1:]))
    for name in get_args(Stored):
        command = [sys.executable, "-m", "benchmarks.store", "--count", str(count), "--form", name]
        ran = subprocess.run(command, check=True, capture_output=True)
        figures = msgspec.json.decode(ran.stdout, type=Figures)
        values = [getattr(figures, field) for field in Figures.__struct_fields__[1:]]
        table.add_row(
            name, *(f"{value:,.1f}" if isinstance(value, float) else str(value) for value in values)
        )
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
