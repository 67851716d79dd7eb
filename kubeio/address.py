"""Addresses that people write: `host:port` of a server of ours. Pure."""

from __future__ import annotations

from kubeio.errors import InputError

_EVERY_INTERFACE = "0.0.0.0"


def parse_bind(field: str, bind: str) -> tuple[str, int]:
    """Host and port of *bind*, `HOST:PORT` or `[V6]:PORT`; an empty host is every interface.

    Raises: InputError naming *field*.
    """
    host, colon, port = bind.rpartition(":")
    is_v6 = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if is_v6 else host
    if not colon or not port.isdigit() or int(port) > 65535 or (":" in bare and not is_v6):
        remedy = "write HOST:PORT, such as 127.0.0.1:8081 or [::1]:8081; port 0 picks a free one"
        raise InputError(field, bind, "is not an address", remedy)
    return bare or _EVERY_INTERFACE, int(port)
