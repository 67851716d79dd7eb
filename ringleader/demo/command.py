"""`ringleader demo`: starts control plane and fleet, runs the acts, checks the evidence, ends with a verdict."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from devcluster.plane import ControlPlane
from devcluster.real import real_plane
from kubeio.errors import InputError
from kubeio.program.durations import parse_whole_seconds
from ringleader.demo.acts import LATECOMER, REPLICAS, Acts
from ringleader.demo.document import Document, What, document, faults
from ringleader.demo.fleet_view import fleet_view
from ringleader.demo.running import background, build_if_missing, run_in_folder, until_interrupted
from ringleader.demo.sampler import FleetSampler
from ringleader.demo.screen import Screen, choose_screen
from ringleader.demo.timing import fitting_lease_s, patience_s
from ringleader.output import Form, print_document, print_line
from ringleader.testing import commands
from ringleader.testing.client import RequestFailedError
from ringleader.testing.commands import FleetSpec, Mode
from ringleader.testing.evidence import Evidence
from ringleader.testing.fleet import Fleet, open_fleet
from ringleader.testing.replica import ReplicaFailedError

OBJECTS = 2000
HOLD_S = 60
UNFENCED_MODULE = "ringleader.demo.unfenced"
UPDATES_PER_S = 20.0
WAIT_MS = "20"
_SAMPLE_S = 0.5
_IDLE = 4
"""The pause after a sample, in multiples of the time that it took."""
_NAMED = 5


def read_lease(text: str | None) -> int | None:
    """Seconds of `--lease-duration`. Raises: InputError."""
    if text is None:
        return None
    lease_s = parse_whole_seconds("--lease-duration", text)
    if not 2 <= lease_s <= 60:
        raise InputError("--lease-duration", text, "does not fit the demo", "use 2s to 60s")
    return lease_s


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The flags of the command."""

    objects: int = OBJECTS
    real: bool = False
    keep: bool = False
    fenced: bool = True
    seed: int = 1
    lease_s: int | None = None
    """Of replicas and sharders; what fits plane and machine if None."""
    until: What | None = None
    """The last act; all acts if None."""

    def fleet_spec(self) -> FleetSpec:
        load_per_core = os.getloadavg()[0] / (os.cpu_count() or 1)
        lease_s = self.lease_s or fitting_lease_s(is_real=self.real, load_per_core=load_per_core)
        return FleetSpec(
            lease_s=lease_s,
            patience_s=patience_s(lease_s),
            settle_s=2,
            environment={commands.WAIT_MS: WAIT_MS},
            shard_module=commands.SHARD_MODULE if self.fenced else UNFENCED_MODULE,
            shard_flags=("--hold",),  # replicas with lasting names, as of a StatefulSet
            ring_spec={"holdSeconds": HOLD_S},
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    document: Document
    evidence: Evidence


def run_demo(options: DemoOptions, *, is_headless: bool, form: Form | None) -> int:
    """The command: 0 if every claim was proved, 1 if one was not."""
    if options.real and (problem := build_if_missing()):
        sys.stderr.write(f"error: --real: {problem}\n")
        return 1
    return run_in_folder(lambda folder: _Demo(options, folder, is_headless=is_headless, form=form).run())


class _Demo:
    """One run of the command."""

    def __init__(
        self, options: DemoOptions, directory: Path, *, is_headless: bool, form: Form | None
    ) -> None:
        self.options = options
        self.directory = directory
        self.is_quiet = is_headless or form is not None
        self.form = form or Form.JSON

    async def run(self) -> int:
        async with self._fleet() as fleet:
            subtitle = (
                f"leases of {fleet.spec.lease_s} s; each reconcile waits {WAIT_MS} ms for an outside call"
            )
            with choose_screen(is_headless=self.is_quiet, subtitle=subtitle) as screen:
                outcome = await self._run_acts(fleet, screen)
            code = self._conclude(outcome)
            if not self.is_quiet:
                for line in next_lines(self.options, fleet):
                    print_line(line)
            if self.options.keep:
                await until_interrupted()
            return code

    @asynccontextmanager
    async def _fleet(self) -> AsyncIterator[Fleet]:
        async with AsyncExitStack() as stack:
            plane = await stack.enter_async_context(
                _plane(self.directory / "plane", is_real=self.options.real)
            )
            spec = self.options.fleet_spec()
            yield await stack.enter_async_context(open_fleet(plane, self.directory / "fleet", spec=spec))

    async def _run_acts(self, fleet: Fleet, screen: Screen) -> Outcome:
        """Start the fleet, run the acts with traffic throughout, and read everything at the end."""
        sampler = FleetSampler(fleet)
        acts = Acts(fleet, screen, sampler)
        where = "a real kube-apiserver and etcd" if self.options.real else "the embedded control plane"
        screen.act(
            "Starting",
            f"{where}; leases of {fleet.spec.lease_s} s; each reconcile waits {WAIT_MS} ms for an outside call",
        )
        async with self._sampling(sampler, screen):
            await fleet.start(replicas=REPLICAS, mode=Mode.LEADER_ELECTED)
            await fleet.objects.create_many(self.options.objects - 1)
            screen.say(
                f"{self.options.objects:,} objects, {REPLICAS} replicas, {fleet.spec.sharders} sharders"
            )
            rng = random.Random(self.options.seed)  # noqa: S311 - it chooses objects
            updates = fleet.objects.run_updates(per_s=UPDATES_PER_S, rng=rng)
            async with background(updates, name="updates"):
                await acts.run(until=self.options.until)
            await fleet.wait_quiet()
            outcome = await _read_all(fleet, acts)
            _say_end(outcome, screen)
            if not self.is_quiet:
                await asyncio.sleep(2 * _SAMPLE_S)  # so that the last sample shows the end
            return outcome

    def _sampling(self, sampler: FleetSampler, screen: Screen) -> AbstractAsyncContextManager[None]:
        """Sample the fleet for the screen during the block; without a screen nothing is read."""
        return (
            contextlib.nullcontext()
            if self.is_quiet
            else background(_run_sampler(sampler, screen), name="sampler")
        )

    def _conclude(self, outcome: Outcome) -> int:
        """Print the document if it was asked for; name what went wrong."""
        if self.is_quiet:
            print_document(outcome.document, form=self.form)
        wrong = faults(outcome.document)
        for line in [*wrong, *_names(outcome.evidence)]:
            sys.stderr.write(f"FAILED: {line}\n")
        return 1 if wrong else 0


def _plane(directory: Path, *, is_real: bool) -> AbstractAsyncContextManager[ControlPlane]:
    if is_real:
        return real_plane(directory, audit=True, faults=True)
    from devcluster.embedded import embedded_plane

    return embedded_plane(directory, faults=True)


async def _run_sampler(sampler: FleetSampler, screen: Screen) -> None:
    while True:
        began = time.monotonic()
        with contextlib.suppress(RequestFailedError, aiohttp.ClientError, TimeoutError, ReplicaFailedError):
            sampler.leader = await sampler.fleet.leader()
        with contextlib.suppress(RequestFailedError, aiohttp.ClientError, TimeoutError):
            screen.show(fleet_view(await sampler.sample()))
        await asyncio.sleep(max(_SAMPLE_S, _IDLE * (time.monotonic() - began)))


async def _read_all(fleet: Fleet, acts: Acts) -> Outcome:
    """Read everything that the verdict needs, by the independent client, when nothing moves."""
    evidence = fleet.evidence()
    evidence.require_reconciles(len(fleet.objects.refs))
    shown = document(
        evidence,
        owners=await fleet.owners(),
        live=fleet.lives(),
        stale=await fleet.objects.stale(),
        updates=fleet.objects.updates,
        events=acts.events,
    )
    return Outcome(shown, evidence)


def _say_end(outcome: Outcome, screen: Screen) -> None:
    shown, longest = outcome.document, outcome.evidence.longest_unattended
    wrong = faults(shown)
    fresh = shown.objects - shown.stale
    screen.act(
        "The end", "; ".join(wrong) or "both checks pass: no object had two workers, none was left behind"
    )
    screen.say(
        f"{shown.reconciles:,} reconciles, {shown.overlaps} overlaps; {shown.foreign_writes} foreign writes, "
        f"{shown.refused_writes} refused"
    )
    if longest is not None:
        screen.say(f"longest unattended: {longest.key} for {longest.length_s:.1f} s ({longest.reason})")
    screen.say(
        f"{fresh:,}/{shown.objects:,} up to date, read by an independent client",
        weight="bad" if wrong else "good",
    )


def _names(evidence: Evidence) -> list[str]:
    """The first wrong writes and overlaps; writes to another's object before writes to an unowned one."""
    foreign = sorted(evidence.foreign_writes, key=lambda found: not found.label)
    return [str(found) for found in [*foreign, *evidence.overlaps][:_NAMED]]


def next_lines(options: DemoOptions, fleet: Fleet) -> list[str]:
    """Commands to paste: for the fleet that stays, or to go on."""
    installed = Path(sys.argv[0]).with_name("ringleader")
    command = str(installed) if "/" in sys.argv[0] and installed.is_file() else "ringleader"
    if not options.keep:
        return [
            "",
            "Next commands:",
            f"  {command} demo --keep          # the fleet stays up, to be inspected",
            f"  {command} demo --no-fence      # the same without the fence: fails and names an object",
            f"  {command} devcluster up        # a control plane of your own",
        ]
    spec = fleet.spec
    return [
        "",
        "The fleet stays up; Ctrl-C ends it. Commands for another terminal:",
        f"  export KUBECONFIG={fleet.plane.kubeconfig}",
        f"  {command} status",
        f"  {command} describe website/{LATECOMER} -n {spec.namespace}",
        f"  kubectl get websites -n {spec.namespace} -L {spec.keys.shard}",
    ]
