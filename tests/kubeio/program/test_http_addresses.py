"""Every interface is IPv4 and IPv6: a pod's own address may be either, and so may that of a port-forward."""

from __future__ import annotations

import asyncio
import socket

import pytest

from kubeio.errors import InputError
from kubeio.program.access_gate import RequestOrigin
from kubeio.program.http_server import HttpRequest, HttpServer, Reply


async def local(request: HttpRequest) -> Reply:
    return Reply(200, str(RequestOrigin.of(request).is_local).encode())


async def asked(host: str, port: int) -> str:
    """The body of the answer at *host*."""
    reader, writer = await asyncio.open_connection(host, port)
    name = f"[{host}]" if ":" in host else host
    writer.write(f"GET / HTTP/1.1\r\nHost: {name}:{port}\r\nConnection: close\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer.rpartition(b"\r\n\r\n")[2].decode()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_an_empty_host_is_reached_by_either_family_and_knows_its_own_machine(host: str) -> None:
    if ":" in host and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    async with HttpServer("", 0, local, flag="--health-probe-bind-address") as server:
        assert await asked(host, server.port) == "True"


async def test_a_port_that_is_taken_on_every_interface_is_told() -> None:
    async with HttpServer("", 0, local, flag="--health-probe-bind-address") as server:
        with pytest.raises(InputError, match=f"--health-probe-bind-address: ':{server.port}'.*in use"):
            async with HttpServer("", server.port, local, flag="--health-probe-bind-address"):
                pass
