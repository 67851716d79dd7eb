"""`top` and `describe --pod-proxy` with a real replica and a real API server's proxy to its pod.

There is no kubelet: the Pod is an object, whose address on this machine leads to the replica's port. The replica
knows its pod as one of the chart does, and its Lease is in another namespace than the pod.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from devcluster.real import BinariesMissing, real_plane
from kubeio.access.cluster import load_cluster
from kubeio.rest.client import Client
from ringleader.testing.commands import FleetSpec
from ringleader.testing.fleet import open_fleet
from tests.addresses import own_address
from tests.ringleader.test_ringleader_fleet_looks import run
from tests.ringleader.test_ringleader_pod_proxy import pod

pytestmark = [pytest.mark.real, pytest.mark.fleet, pytest.mark.timeout(300)]


@asynccontextmanager
async def address_of_a_pod(address: str, port: int) -> AsyncIterator[int]:
    """A port of *address* that leads to *port* of loopback."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, behind_writer), copy(behind_reader, writer))

    server = await asyncio.start_server(connect, address, 0)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


async def test_a_replicas_metrics_come_through_its_pod_and_its_debug_page_says_what_to_do(
    tmp_path: Path,
) -> None:
    spec = FleetSpec(lease_s=5, sharders=1, environment={"POD_NAMESPACE": "default"})
    try:
        async with (
            real_plane(tmp_path / "plane", controller_manager=False) as plane,
            open_fleet(plane, tmp_path / "fleet", spec=spec) as fleet,
            Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client,
        ):
            await fleet.start(replicas=1)
            await fleet.objects.create_many(10)
            await fleet.wait_converged()
            port = int((fleet.directory / "replica-1.port").read_text())
            async with address_of_a_pod(own_address(), port) as pod_port:
                await pod(client, own_address(), name="replica-1")
                flags = ("--port", str(pod_port), "-o", "json")
                code, out, err = await run(fleet, "top", *flags, "--interval", "1s")
                assert code == 0, out + err
                (row,) = json.loads(out)["replicas"]
                assert (row["name"], row["problem"]) == ("replica-1", "")
                assert row["objects"] >= 10
                assert row["memoryBytes"] > 10 << 20
                words = ("describe", "website/site-0000", "-n", spec.namespace, "--pod-proxy")
                _, out, err = await run(fleet, *words, *flags)
                assert "pod default/replica-1 could not be asked" in out, out + err
                assert "port-forward" in out
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")
