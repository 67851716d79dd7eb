"""What every server of `devcluster` listens with: a port of loopback that stays free, and TLS for HTTP/1.1."""

from __future__ import annotations

import random
import socket
import ssl
from contextlib import suppress
from typing import Final

import trustme

LOOPBACK: Final = "127.0.0.1"
_OWN_PORTS: Final = range(20_000, 32_000)


def bound_socket(port: int, host: str = LOOPBACK) -> socket.socket:
    """A listening socket on *host*, an address of this machine, on *port* or (0) on a free one.

    Never one of the ports that the kernel gives to outgoing connections: while a server is away for a restart, a
    client that connects again and again would sooner or later be given the server's port, and hold it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    candidates = [port] if port else random.sample(_OWN_PORTS, 200)
    for candidate in candidates:
        with suppress(OSError):
            return socket.create_server((host, candidate), family=family, backlog=1024)
    raise OSError(f"no port of {candidates[0]}.. is free on {host}")


def free_ports(count: int) -> list[int]:
    """Ports of loopback that stay free, as those of `bound_socket`, while the server that had one is away."""
    sockets = [bound_socket(0) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def server_tls(authority: trustme.CA, *addresses: str) -> ssl.SSLContext:
    """The server's side of TLS on loopback and on *addresses*, with a certificate by *authority*."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1", "::1", *addresses).configure_cert(context)
    context.set_alpn_protocols(["http/1.1"])
    return context
