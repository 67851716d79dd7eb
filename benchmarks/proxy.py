"""`python -m benchmarks.proxy`: CPU time of a chunk of a watch and of writes through the relay, beside that without it.

The relay runs in a process of its own. Rounds alternate, and the ratios are of all CPU time: client, relay and control
plane. Other work on the machine changes CPU time little, and ratios less.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.measuring.planes import open_plane
from benchmarks.measuring.relay_process import LABELS
from benchmarks.measuring.report import Goal
from benchmarks.measuring.run import Options, Run, make_parser, run_benchmark
from benchmarks.measuring.senders import spread
from devcluster.children import start_child, wait_for_file
from devcluster.flag_values import count
from kubeio.access.cluster import load_cluster
from kubeio.patch import MergePatch
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from loadtest.machine import cpu_s
from proxy.controller_files import KUBECONFIG

CONFIG_MAPS: Final = ApiResource("", "v1", "configmaps", "ConfigMap")
PATH: Final = "/api/v1/namespaces/default/configmaps"
OBJECTS: Final = 64
AT_ONCE: Final = 8
WATCHES: Final = 10
PACE_PER_S: Final = 200
GOALS: Final = {
    "chunk": Goal("watch", "chunk of a watch: the relay's CPU", "us", most=150),
    "chunk-ratio": Goal("watch", "chunk of a watch: all CPU, with the relay to without", "times"),
    "patch": Goal("write", "PATCH: the relay's CPU", "us"),
    "patch-ratio": Goal("write", "PATCH: all CPU, with the relay to without", "times"),
    "create": Goal("write", "CREATE that gets labels: the relay's CPU", "us"),
    "create-ratio": Goal("write", "CREATE that gets labels: all CPU, with the relay to without", "times"),
}

Work = Callable[[Client], Awaitable[int]]
"""Does something through a client; how many chunks or writes it was."""


class Flags(Options):
    rounds: int
    requests: int


@dataclass
class Series:
    """CPU microseconds of one chunk or write, per round."""

    relay_us: list[float] = field(default_factory=list)
    plane_us: dict[str, list[float]] = field(default_factory=lambda: {"without": [], "with": []})
    all_us: dict[str, list[float]] = field(default_factory=lambda: {"without": [], "with": []})

    def note(self, run: Run, line: str) -> None:
        """The medians of the rounds."""
        without, through = (statistics.median(each) for each in self.all_us.values())
        pairs = zip(*self.all_us.values(), strict=True)
        run.figure(
            line, statistics.median(self.relay_us), f"{min(self.relay_us):.0f} to {max(self.relay_us):.0f}"
        )
        ratio = statistics.median(more / less for less, more in pairs)
        run.detail(
            GOALS[line].row,
            **{line: {"relay_us": self.relay_us, "plane_us": self.plane_us, "all_us": self.all_us}},
        )
        run.figure(f"{line}-ratio", ratio, f"{without:.0f} us without, {through:.0f} us with")


def main() -> int:
    parser = make_parser("proxy", __doc__)
    parser.add_argument("--rounds", type=count, default=5, help="pairs of measurements")
    parser.add_argument("--requests", type=count, default=1_000, help="writes in each")
    parser.set_defaults(objects=OBJECTS)
    options = parser.parse_args(namespace=Flags())
    return run_benchmark("proxy", GOALS, options, partial(measure, options))


async def measure(options: Flags, run: Run) -> None:
    """Raises: BinariesMissing."""
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(open_plane(run.directory / "plane", is_real=options.is_real))
        files = run.directory / "files"
        command = [
            sys.executable,
            "-m",
            "benchmarks.measuring.relay_process",
            str(plane.kubeconfig),
            str(files),
        ]
        relay = await start_child(command, name="relay", log=run.directory / "relay.log")
        stack.push_async_callback(partial(relay.end, grace_s=5))
        await wait_for_file(relay, files / "port")
        direct, through = [
            await stack.enter_async_context(client_of(path))
            for path in (plane.kubeconfig, files / KUBECONFIG)
        ]
        await run.read_versions(plane, direct)
        for number in range(OBJECTS):
            made = {"metadata": {"name": name_of(number), "labels": LABELS}, "data": {"k": "x" * 1000}}
            await direct.create(CONFIG_MAPS, made, namespace="default", type=bytes)

        async def alternate(line: str, work: Work) -> None:
            series = Series()
            for number in range(options.rounds + 1):  # the first warms up
                for client in (direct, through) if number % 2 else (through, direct):
                    await measure_once(
                        series,
                        work,
                        client,
                        path="with" if client is through else "without",
                        pids=plane.pids,
                        relay=relay.pid,
                    )
                if number == 0:
                    series = Series()
            series.note(run, line)

        with run.row("watch"):
            await alternate("chunk", partial(watch, direct, requests=options.requests))
        with run.row("write"):
            await alternate("patch", partial(patch, requests=options.requests))
            await alternate("create", partial(create, requests=options.requests))


async def measure_once(
    series: Series, work: Work, client: Client, *, path: str, pids: Sequence[int], relay: int
) -> None:
    relay_before_s, plane_before_s, own_before_s = cpu_s([relay]), cpu_s(pids), time.process_time()
    done = await work(client)
    relay_s = cpu_s([relay]) - relay_before_s
    plane_s = cpu_s(pids) - plane_before_s
    all_s = relay_s + plane_s + time.process_time() - own_before_s
    series.plane_us[path].append(plane_s / done * 1e6)
    series.all_us[path].append(all_s / done * 1e6)
    if path == "with":
        series.relay_us.append(relay_s / done * 1e6)


async def watch(writer: Client, client: Client, *, requests: int) -> int:
    """Watches that see each change for itself: *writer*, which is past the relay, makes them one by one."""
    complete = asyncio.Event()
    open_watches = chunks = 0

    async def follow() -> None:
        nonlocal open_watches, chunks
        query = {
            "watch": "true",
            "labelSelector": ",".join(f"{name}={value}" for name, value in LABELS.items()),
        }
        async with client.stream(PATH, query=query | {"resourceVersion": version}) as lines:
            open_watches += 1
            async for _ in lines:
                chunks += 1
                if chunks >= WATCHES * requests:
                    complete.set()

    version = await newest_version(writer)
    async with asyncio.TaskGroup() as tasks:
        following = [tasks.create_task(follow(), name=f"watch-{number}") for number in range(WATCHES)]
        begin = asyncio.get_running_loop().time()
        for number in range(requests):
            await asyncio.sleep(max(0.0, begin + number / PACE_PER_S - asyncio.get_running_loop().time()))
            await writer.patch(
                CONFIG_MAPS, name_of(number), changed(), namespace="default", type=bytes, metadata_only=True
            )
        async with asyncio.timeout(30):
            await complete.wait()
        for task in following:
            task.cancel()
    return chunks


async def patch(client: Client, *, requests: int) -> int:
    """Merge patches of existing objects."""

    async def send(number: int) -> object:
        return await client.patch(CONFIG_MAPS, name_of(number), changed(), namespace="default", type=bytes)

    await spread(send, range(requests), at_once=AT_ONCE)
    return requests


async def create(client: Client, *, requests: int) -> int:
    """New objects of 1 KB."""

    async def send(number: int) -> object:
        made = {
            "metadata": {"generateName": f"new-{number}-", "labels": LABELS | {"new": "yes"}},
            "data": {"k": "x" * 1000},
        }
        return await client.create(CONFIG_MAPS, made, namespace="default", type=bytes)

    await spread(send, range(requests), at_once=AT_ONCE)
    return requests


async def newest_version(client: Client) -> str:
    """The version of the collection as it is now."""
    page = await client.list_page(CONFIG_MAPS, namespace="default", limit=1)
    return page.resource_version


def changed() -> MergePatch:
    return MergePatch({"data": {"t": str(time.monotonic_ns())}})


def name_of(number: int) -> str:
    return f"bench-{number % OBJECTS}"


def client_of(kubeconfig: Path) -> Client:
    return Client(load_cluster(kubeconfig=str(kubeconfig)), max_connections=AT_ONCE)


if __name__ == "__main__":
    sys.exit(main())
