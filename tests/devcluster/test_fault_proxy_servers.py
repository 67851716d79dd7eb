"""The fault proxy before several servers: it looks for one that is back while connections go through them in turn."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

import trustme

from devcluster.faults.proxy import FaultProxy
from devcluster.listening import bound_socket, free_ports, server_tls


async def test_connections_while_all_servers_are_away_do_not_end_the_proxy() -> None:
    upstreams = [f"https://127.0.0.1:{port}" for port in free_ports(2)]
    proxy = FaultProxy(upstreams, upstream_tls=ssl.create_default_context(), key=b"", names_users=False)
    clients, orders = bound_socket(0), bound_socket(0)
    serving = asyncio.create_task(proxy.serve(clients, orders, server_tls(trustme.CA())))
    await asyncio.sleep(0)
    until = asyncio.get_running_loop().time() + 1.0
    while asyncio.get_running_loop().time() < until:
        with contextlib.suppress(ConnectionRefusedError):
            await proxy.connect(asyncio.Protocol())
    assert not serving.done(), serving.exception()
    serving.cancel()
    await asyncio.wait([serving])
    asyncio.get_running_loop().remove_reader(orders.fileno())
    orders.close()
