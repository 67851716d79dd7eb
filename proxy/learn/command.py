"""`ringleader proxy --learn`: runs the controller alone behind a relay that observes, then prints the report.

The report goes to the standard output, and nothing else: the controller's own output goes where the log goes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from kubeio.program.host import Host
from kubeio.program.runtime import configure_logging, run
from proxy.controller_files import KUBECONFIG, environment, write_files
from proxy.controller_process import BehindRelay
from proxy.learn.findings import Verdict
from proxy.learn.looks import Looks
from proxy.learn.observed_relay import ObservedRelay
from proxy.learn.report import Report, make_report, report_text
from proxy.learn.requests import note_call, read_call
from proxy.learn.seen import Seen
from proxy.learn.settings import LearnSettings, read_learn_settings
from proxy.learn.survey import survey
from proxy.locks import EchoLocks
from proxy.loopback import Loopback, make_certificates

if TYPE_CHECKING:
    from kubeio.access.cluster import Cluster
    from kubeio.rest.client import Client
    from proxy.headers import Request

log = structlog.get_logger("proxy")

_PLACEHOLDER: Final = "{kubeconfig}"
NOT_SHARDABLE: Final = 1


def learn(arguments: Sequence[str]) -> int:
    """Learn what *arguments* describe; the exit code."""
    settings = read_learn_settings(arguments)
    configure_logging(format=settings.log_format, level=settings.log_level)
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(2, 1)
        return run(_learn(settings, output.write))


async def _learn(settings: LearnSettings, write: Callable[[str], object]) -> int:
    report = await observe(settings, Host())
    if settings.output == "json":
        write(msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n")
    else:
        write(report_text(report))
    return 0 if report.verdict in (Verdict.YES, Verdict.CARE) else NOT_SHARDABLE


async def observe(settings: LearnSettings, host: Host) -> Report:
    """Run the controller until its time is over, it ends or this task is cancelled; the report.

    Raises: KubeError, OSError.
    """
    cluster = host.cluster(kubeconfig=settings.kubeconfig, context=settings.context)
    seen, since = Seen(), host.clock.wall()
    async with host.client(cluster, user_agent="ringleader-proxy") as client:
        began = host.clock.now()
        seen.exit_code = await _run(settings, host, cluster, client, seen)
        seen.seconds = host.clock.now() - began
        await survey(seen, client, since=since)
    return make_report(seen, settings.command)


async def _run(
    settings: LearnSettings, host: Host, cluster: Cluster, client: Client, seen: Seen
) -> int | None:
    """Run the controller; its exit code if it ended by itself."""
    loopback, locks = Loopback(make_certificates(host.clock.wall())), EchoLocks(())
    async with asyncio.TaskGroup() as tasks:
        looks = Looks(seen, client, tasks)

        def note(request: Request, status: int) -> None:
            if (call := read_call(request)) is not None:
                note_call(seen, call, status)
                if call.info.verb == "create" and not call.info.subresource and status < 300:
                    looks.note_created(call)

        relay = ObservedRelay(cluster, loopback=loopback, director=looks, locks=locks, observe=note)
        with tempfile.TemporaryDirectory(prefix="ringleader-learn-") as name:
            folder = Path(name)
            async with relay.serving() as port:
                namespace = settings.namespace or cluster.namespace
                write_files(folder, port=port, ca=loopback.ca, token=loopback.token, namespace=namespace)
                process = BehindRelay(
                    [part.replace(_PLACEHOLDER, str(folder / KUBECONFIG)) for part in settings.command],
                    relay,
                    locks,
                    environment=environment(os.environ, folder, port=port),
                    stop_within_s=settings.stop_within_s,
                )
                await looks.prepare()
                await process.start()
                log.info("learning", command=settings.command[0], until=settings.seconds or "a signal")
                try:
                    code = await _wait_for_end(process, settings.seconds)
                finally:
                    await process.stop()
                await relay.wait_quiet()
    return code


async def _wait_for_end(process: BehindRelay, seconds: float | None) -> int | None:
    """Return when the controller ended (its exit code), its time is over, or this task was cancelled."""
    try:
        async with asyncio.timeout(seconds):
            return await process.wait()
    except TimeoutError:
        return None
    except asyncio.CancelledError:
        if (current := asyncio.current_task()) is not None:
            current.uncancel()
        return None
