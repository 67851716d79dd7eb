"""`make bench-store`: the stored forms of a replica's cache on the same objects.

Memory, time for a line of a watch and for a read, the longest slice of a list. There is no server and no network.
Times are CPU time. pyperf runs each figure in processes of its own.
"""

from __future__ import annotations

import random
import time
from functools import cache, partial
from typing import Any, Final, NamedTuple, cast, get_args

import msgspec

from benchmarks.micro import BYTES, make_runner, mean, print_table, timed_s
from kubeio.clock import SystemClock
from kubeio.queues.workqueue import WorkQueue
from kubeio.resource import ApiResource
from kubeio.watches.watch_events import Changed, decode_line
from shard_controller.declare.request import Request
from shard_controller.declare.resource import Resource as Declared
from shard_controller.declare.resource import Stored
from shard_controller.objects.caches import ResourceCache

WORDS: Final = [
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
]
WEBSITES: Final = ApiResource("example.com", "v1", "websites", "Website")
SLICE: Final = 500
"""Objects of a page of a list: the loop is not released between them."""
READS: Final = 20_000
_rng: Final = random.Random(2)  # noqa: S311 - no secrets


class Spec(msgspec.Struct):
    html: str
    replicas: int


class Website(msgspec.Struct):
    spec: Spec | None = None


class Loaded(NamedTuple):
    """A cache with all objects, and the CPU seconds that this took."""

    kind: ResourceCache
    took_s: float
    longest_slice_s: float


@cache
def lines(count: int, *, metadata_only: bool) -> list[bytes]:
    """ADDED events of Websites of about 1.2 KB, a third of that managedFields; words drawn at random."""
    rng = random.Random(1)  # noqa: S311 - the same objects each time
    managed = {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {".": {}, "f:html": {}}}
    entry = {
        "apiVersion": "example.com/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": managed,
        "operation": "Update",
    }
    made = []
    for number in range(count):
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
        made.append(b'{"type":"ADDED","object":%s}' % msgspec.json.encode(document))
    return made


def load(form: Stored, count: int) -> Loaded:
    """Decode *count* lines, store the objects as *form* and queue their keys."""
    declared = Declared("websites.example.com/v1", Website, stored=form)
    kind = ResourceCache(WEBSITES, declared=declared)
    queue: WorkQueue[Request] = WorkQueue(clock=SystemClock(), rng=_rng)

    def learn(batch: list[bytes]) -> None:
        for line in batch:
            change = kind.store.learn(cast(Changed, decode_line(line, "bench")).object)
            if change is not None:
                queue.add(Request(kind.name, change.key))

    source = lines(count, metadata_only=kind.is_metadata_only)
    slices_s = [
        timed_s(time.process_time, partial(learn, source[begin : begin + SLICE]))
        for begin in range(0, count, SLICE)
    ]
    return Loaded(kind, sum(slices_s), max(slices_s))


def kept_bytes(loops: int, form: Stored, count: int) -> float:
    return loops * load(form, count).kind.store.stored_bytes() / count


def learn_s(loops: int, form: Stored, count: int) -> float:
    return sum(load(form, count).took_s for _ in range(loops))


def slice_s(loops: int, form: Stored, count: int) -> float:
    return loops * load(form, count).longest_slice_s


def read_s(loops: int, form: Stored, count: int) -> float:
    """Reads in random order, metadata decoded."""
    kind = load(form, count).kind
    keys = _rng.sample(kind.store.keys(), min(count, READS))
    return timed_s(time.process_time, lambda: [kind.get(key) for _ in range(loops) for key in keys])


def main() -> None:
    runner = make_runner("benchmarks.store", {"count": (30_000, "objects")})
    count = runner.parse_args().count
    rows = {}
    for form in get_args(Stored):
        figures = [
            (
                runner.bench_time_func(f"{form}: kept per object", kept_bytes, form, count, metadata=BYTES),
                1,
                "B",
            ),
            (runner.bench_time_func(f"{form}: line", learn_s, form, count, inner_loops=count), 1e6, "us"),
            (
                runner.bench_time_func(f"{form}: read", read_s, form, count, inner_loops=min(count, READS)),
                1e6,
                "us",
            ),
            (runner.bench_time_func(f"{form}: longest slice", slice_s, form, count), 1e3, "ms"),
        ]
        rows[form] = [f"{mean(found) * scale:,.1f} {unit}" for found, scale, unit in figures]
    if not runner.args.worker:
        columns = [
            "kept per object",
            "line to store and queue",
            "read, with metadata",
            f"longest slice of {SLICE}",
        ]
        print_table(f"{count:,} objects of 1.2 KB", columns, rows)


if __name__ == "__main__":
    main()
