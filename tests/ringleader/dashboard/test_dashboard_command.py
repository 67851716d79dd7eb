"""`ringleader dashboard --endpoint`: what it prints, serves and says, and how it ends."""

from __future__ import annotations

import re
import signal

from tests.ringleader.dashboard.processes import dashboard, failed
from tests.sharder.io.environment import RING, SharderEnvironment
from tests.sharder.live.scenes import Scene, state_of
from tests.sharder.live.served import ask, get, listening, published


async def test_the_command_serves_until_it_is_interrupted(env: SharderEnvironment) -> None:
    await env.ring()
    await env.shard("a")
    kubeconfig = f"--kubeconfig={env.plane.kubeconfig}"
    async with published(state_of(websites=Scene(["a"]))) as sharder:
        endpoint = f"--endpoint=http://127.0.0.1:{sharder.port}"
        async with dashboard(RING, kubeconfig, endpoint) as running:
            assert re.fullmatch(rf"http://127\.0\.0\.1:\d+/#{RING}", running.url)
            assert (await get(running, "/"))[0] == 200
            async with listening(running, "/events") as events:
                snapshot = await events.until("snapshot")
            assert set(snapshot["rings"][RING]["members"]) == {"a"}
            assert (await ask(running, f"/whatif/{RING}/2"))[1]["joined"] == ["new-1"]
            assert await running.interrupt() == (0, "")


async def test_a_background_job_whose_shell_lets_it_ignore_sigint_ends_by_sigterm(
    env: SharderEnvironment,
) -> None:
    await env.ring()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited by what is started
    try:
        async with dashboard(f"--kubeconfig={env.plane.kubeconfig}") as running:
            assert await running.interrupt(by=signal.SIGTERM) == (0, "")
    finally:
        signal.signal(signal.SIGINT, before)


async def test_a_wrong_endpoint_ends_the_command_in_one_line(env: SharderEnvironment) -> None:
    kubeconfig = f"--kubeconfig={env.plane.kubeconfig}"
    code, err = await failed(kubeconfig, "--endpoint=http://127.0.0.1:1")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("error: http://127.0.0.1:1 does not answer: ")
    code, err = await failed(kubeconfig, "--endpoint=ftp://x")
    assert (code, err.count("\n")) == (2, 1)
    assert "--endpoint: 'ftp://x'" in err


async def test_a_cluster_without_a_leader_is_waited_for(env: SharderEnvironment) -> None:
    await env.ring()
    async with (
        dashboard(f"--kubeconfig={env.plane.kubeconfig}") as running,
        listening(running, "/events") as events,
    ):
        problem = (await events.until("disconnected"))["problem"]
        assert problem == "no sharder leads: there is no Lease ringleader-sharder in any namespace"
        assert await running.interrupt() == (0, "")
