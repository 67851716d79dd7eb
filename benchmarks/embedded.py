"""`make bench-embedded`: requests per second and core of the control plane in memory, and the memory of its objects.

A value is the *server's* CPU time for a request, from /proc: it means something on a busy machine too. One server holds
the objects for all figures; each worker of pyperf is a client of it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvloop
import yaml

from benchmarks.measuring.senders import spread
from benchmarks.micro import BYTES, make_runner, mean, print_table
from devcluster.embedded import embedded_plane
from kubeio.access.cluster import load_cluster
from kubeio.labels import json_pointer
from kubeio.patch import JsonPatch, MergePatch
from kubeio.resource import CRDS, ApiResource
from kubeio.rest.client import Client
from loadtest.machine import cpu_s, memory_kb
from ringleader.assets import website_crd

WEBSITES: Final = ApiResource("example.com", "v1", "websites", "Website")
LABEL: Final = "shard.ringleader.dev/bench"
CONNECTIONS: Final = 16
Send = Callable[[Client, int], Awaitable[object]]


def site(name: str, number: int) -> dict[str, object]:
    """A custom resource of about 1 KB as it is stored."""
    labels = {LABEL: f"shard-{number % 10}", "app": "bench"}
    meta = {"name": name, "labels": labels, "annotations": {"example.com/note": "y" * 100}}
    return {"apiVersion": "example.com/v1", "kind": "Website", "metadata": meta, "spec": {"html": "x" * 600}}


async def create(client: Client, number: int) -> object:
    """Fresh names in each worker."""
    name = f"new-{os.getpid()}-{number}"
    return await client.create(WEBSITES, site(name, number), namespace="default", type=bytes)


async def fill(client: Client, number: int) -> object:
    return await client.create(WEBSITES, site(f"site-{number:06d}", number), namespace="default", type=bytes)


def fenced(objects: int) -> Send:
    pointer, app = json_pointer("metadata", "labels", LABEL), json_pointer("metadata", "labels", "app")

    async def send(client: Client, number: int) -> object:
        patch = JsonPatch().test(app, "bench").replace(pointer, f"shard-{number % 7}")
        name = f"site-{number % objects:06d}"
        return await client.patch(WEBSITES, name, patch, namespace="default", type=bytes)

    return send


def merged(objects: int) -> Send:
    async def send(client: Client, number: int) -> object:
        patch = MergePatch({"metadata": {"labels": {LABEL: f"s-{number % 7}"}}})
        name = f"site-{number % objects:06d}"
        return await client.patch(WEBSITES, name, patch, namespace="default", type=bytes)

    return send


async def watch(client: Client, number: int) -> None:
    """Read a watch with a selector, and throw it away."""
    query = {"watch": "true", "resourceVersion": "0", "labelSelector": f"{LABEL}=shard-{number}"}
    async with client.stream(WEBSITES.path(namespace="default"), query=query) as lines:
        async for _ in lines:
            pass


_numbers = itertools.count(0, 1_000_000)


async def server_s(loops: int, kubeconfig: str, server: int, send: Send, watchers: int) -> float:
    """CPU seconds of the process *server* for *loops* requests."""
    cluster = load_cluster(kubeconfig=kubeconfig)
    async with Client(cluster, max_connections=CONNECTIONS) as client, asyncio.TaskGroup() as tasks:
        watching = [tasks.create_task(watch(client, number), name="watcher") for number in range(watchers)]
        begin = next(_numbers)
        await spread(partial(send, client), range(begin, begin + CONNECTIONS), at_once=CONNECTIONS)
        before_s = cpu_s([server])
        counted = range(begin + CONNECTIONS, begin + CONNECTIONS + loops)
        await spread(partial(send, client), counted, at_once=CONNECTIONS)
        used_s = cpu_s([server]) - before_s
        for task in watching:
            task.cancel()
    return used_s


def main() -> None:
    runner = make_runner(
        "benchmarks.embedded",
        {
            "objects": (100_000, "objects in the server"),
            "watchers": (5, "watches with a selector beside patches"),
        },
        handed_on=("kubeconfig", "server"),
        min_time_s=1.0,
    )
    options = runner.parse_args()
    if options.worker:
        measure(runner, options)
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop,
    ):
        stack = AsyncExitStack()
        try:
            options.kubeconfig, options.server, empty_mb = loop.run(
                start(stack, Path(directory), options.objects)
            )
            found = measure(runner, options)
        finally:
            loop.run(stack.aclose())
    rows = {
        name: [f"{1 / found[name]:,.0f}/s per core"]
        for name in ("create", "fenced JSON patch", "merge patch")
    }
    rows |= {"memory, empty": [f"{empty_mb:,.0f} MB"]}
    rows |= {
        name: [f"{found[name] / 1e6:,.0f} MB"] for name in ("memory, loaded", "memory, after the patches")
    }
    print_table(f"{options.objects:,} objects of 1 KB, {options.watchers} watchers", ["figure"], rows)


async def start(stack: AsyncExitStack, directory: Path, objects: int) -> tuple[str, str, float]:
    """A server with *objects*: its kubeconfig, its process, and its memory in MB before they were made."""
    plane = await stack.enter_async_context(embedded_plane(directory))
    async with Client(load_cluster(kubeconfig=str(plane.kubeconfig)), max_connections=CONNECTIONS) as client:
        await client.create(CRDS, yaml.safe_load(website_crd().read_text()), type=bytes)
        empty_mb = plane.rss_bytes() / 1e6
        await spread(partial(fill, client), range(objects), at_once=CONNECTIONS)
    return str(plane.kubeconfig), str(plane.pids[0]), empty_mb


def measure(runner: Any, options: Any) -> dict[str, float]:
    """CPU seconds of a request by its kind, and bytes of memory in between."""

    def requests(loops: int, send: Send, watchers: int) -> float:
        return uvloop.run(server_s(loops, options.kubeconfig, int(options.server), send, watchers))

    def memory(loops: int) -> float:
        return loops * memory_kb(int(options.server), "VmRSS") * 1024

    jobs: dict[str, Callable[[str], Any]] = {
        "memory, loaded": lambda name: runner.bench_time_func(name, memory, metadata=BYTES),
        "fenced JSON patch": lambda name: runner.bench_time_func(
            name, requests, fenced(options.objects), options.watchers
        ),
        "merge patch": lambda name: runner.bench_time_func(
            name, requests, merged(options.objects), options.watchers
        ),
        "memory, after the patches": lambda name: runner.bench_time_func(name, memory, metadata=BYTES),
        "create": lambda name: runner.bench_time_func(name, requests, create, 0),
    }
    return {name: mean(job(name)) for name, job in jobs.items()}


if __name__ == "__main__":
    main()
