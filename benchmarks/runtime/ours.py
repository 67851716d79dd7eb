"""The measured program on `shard_controller`: a controller that does what its flags say.

Started by the benchmark as `python -m benchmarks.runtime.ours`. It runs what `sc.run` runs; beside it, with
`--ticker`, a task on the same event loop that wants to wake up every millisecond and notes how late it does.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Never

import msgspec

import shard_controller as sc
from benchmarks.runtime.tally import Report, Tally
from kubeio.program.runtime import configure_logging
from kubeio.program.runtime import run as run_process
from shard_controller.process import app
from shard_controller.process.settings import Settings

TICK_S: Final = 0.001
WEBSITES: Final = "websites.example.com/v1"
WRITES_ONE_IN: Final = 8
"""Under full load: the reconciles that write."""


class Spec(msgspec.Struct, gc=False):
    html: str


class Website(msgspec.Struct, gc=False):
    """The model as a user of the example writes it."""

    spec: Spec


class Unread(msgspec.Struct, gc=False):
    """The same left as the JSON that came."""

    spec: msgspec.Raw


class Untouched(msgspec.Struct, gc=False):
    """No field of the object is read."""


MODELS: Final[dict[str, Any]] = {"raw": Unread, "website": Website, "untouched": Untouched}


def build(flags: argparse.Namespace, report: Report, tally: Tally) -> sc.Controller[Any]:
    """The controller that *flags* describe."""
    resource: sc.Resource[Any] = sc.Resource(WEBSITES, MODELS[flags.model], stored=flags.stored)
    controller: sc.Controller[Any] = sc.Controller(resource, workers=flags.workers, timeout_s=30)
    controller.reconcile(_reconcilers(flags, report, tally)[flags.act])
    return controller


def _reconcilers(
    flags: argparse.Namespace, report: Report, tally: Tally
) -> dict[str, Callable[[sc.Context[Any]], Any]]:
    done, at_once = sc.Done(), sc.RequeueAfter(seconds=0)

    async def get(ctx: sc.Context[Any]) -> sc.Result:
        """Read the object and be content; come again as often as options."""
        _ = ctx.object  # a runtime may decode it no sooner
        return at_once if tally.one() else done

    async def read(ctx: sc.Context[Website]) -> sc.Result:
        """The same, and read a field of the model."""
        _ = ctx.object.spec.html
        return at_once if tally.one() else done

    async def write(ctx: sc.Context[Any]) -> sc.Result:
        """One fenced write of the status, unless the status has the value."""
        ctx.status["configMap"] = flags.value
        tally.one()
        return done

    async def load(ctx: sc.Context[Any]) -> sc.Result:
        """Again and again, at once, giving way once as real reconciles do; some of the objects with a write."""
        await asyncio.sleep(0)
        tally.one()
        if int(ctx.name.rpartition("-")[2]) % WRITES_ONE_IN == 0:
            ctx.status["configMap"] = f"round-{tally.count}"
        return at_once

    async def report_begin(ctx: sc.Context[Website]) -> sc.Result:
        """Report when this reconcile began, unless it is the object's first."""
        at = time.monotonic()
        if tally.is_loaded:
            sent_at = ctx.object.spec.html.partition("sent-at ")[2] or "0"
            report.write("began", at=at, version=ctx.meta.resource_version, sent_at=float(sent_at))
        tally.one()
        return done

    return {"get": get, "read": read, "write": write, "load": load, "report": report_begin}


async def tick(report: Report, tally: Tally) -> Never:
    """Wake up every millisecond, and report the worst delay at the first tick after the load.

    What delays that very tick is in it: the last reconciles of the load may run without giving way.
    """
    worst_s, ticks, is_reported = 0.0, 0, False
    while True:
        due_at = time.monotonic() + TICK_S
        await asyncio.sleep(TICK_S)
        now = time.monotonic()
        worst_s = max(worst_s, now - due_at)
        ticks += 1
        if tally.is_loaded and not is_reported:
            is_reported = True
            report.write("ticked", at=now, worst_ms=1000 * worst_s, ticks=ticks)


async def _serve(flags: argparse.Namespace, report: Report, tally: Tally) -> int:
    settings = Settings(
        kubeconfig=flags.kubeconfig,
        namespace=flags.namespace,
        ring_file=flags.ring_file,
        member=flags.member,
        lease_duration_s=flags.lease_s,
    )
    mode: sc.Mode = sc.Sharded(flags.ring) if flags.ring_file else sc.Single()
    async with asyncio.TaskGroup() as tasks:
        ticker = tasks.create_task(tick(report, tally), name="ticker") if flags.ticker else None
        code = await app.serve(build(flags, report, tally), mode, settings)
        if ticker is not None:
            ticker.cancel()
    return code


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--kubeconfig", "--namespace", "--report"):
        parser.add_argument(name, required=True)
    parser.add_argument("--objects", type=int, required=True)
    parser.add_argument("--again", type=int, default=0)
    parser.add_argument("--act", default="get", choices=["get", "read", "write", "load", "report"])
    parser.add_argument("--model", default="website", choices=sorted(MODELS))
    parser.add_argument("--stored", default="raw")
    parser.add_argument("--value", default="")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--ticker", action="store_true")
    parser.add_argument("--ring", default="")
    parser.add_argument("--ring-file", type=Path)
    parser.add_argument("--member", default="replica")
    parser.add_argument("--lease-s", type=int, default=15)
    return parser.parse_args(arguments)


def main() -> int:
    flags = parse(sys.argv[1:])
    configure_logging(format="console", level="info")
    report = Report(flags.report)
    return run_process(_serve(flags, report, Tally(report, objects=flags.objects, again=flags.again)))


if __name__ == "__main__":
    sys.exit(main())
