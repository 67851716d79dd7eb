"""The proxy of a server, if any: kubeconfig's proxy-url, else the environment. Pure.

The rules are those of kubectl: a `proxy-url` always counts; HTTPS_PROXY (HTTP_PROXY for http servers) counts
unless NO_PROXY names the host or the host is this machine.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit

from kubeio.errors import InputError
from kubeio.http.endpoint import Proxy


def parse_proxy(url: str, *, field: str) -> Proxy:
    """The proxy at *url*; a bare `host:port` is http. Raises InputError naming *field*."""
    split = _split(url if "://" in url else f"http://{url}", field=field)
    shown = without_password(url)
    if split.scheme != "http":
        raise InputError(
            field,
            shown,
            f"is a proxy of the kind {split.scheme!r}, which is not supported",
            "use an http:// proxy (it carries TLS through CONNECT)",
        )
    if not split.hostname:
        raise InputError(field, shown, "names no host", "write http://HOST:PORT")
    authorization = ""
    if split.username is not None:
        pair = f"{unquote(split.username)}:{unquote(split.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    return Proxy(split.hostname, _port(split, field=field) or 80, authorization)


def proxy_from_environment(scheme: str, host: str, port: int, environ: Mapping[str, str]) -> Proxy | None:
    """The proxy that the environment asks for on the way to *host*. Raises InputError."""
    upper = f"{scheme.upper()}_PROXY"
    name = upper if environ.get(upper) else upper.lower()
    url = environ.get(name, "")
    no_proxy = environ.get("NO_PROXY") or environ.get("no_proxy", "")
    if not url or is_exempt(host, port, no_proxy):
        return None
    return parse_proxy(url, field=name)


def is_exempt(host: str, port: int, no_proxy: str) -> bool:
    """Whether *no_proxy* (comma-separated hosts, .suffixes, addresses, networks, each with :port, or *) names *host*.

    This machine itself is always exempt.
    """
    host = host.rstrip(".").lower()
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    entries = [entry.strip().lower() for entry in no_proxy.split(",")]
    return any(_matches(entry, host, port, address) for entry in entries if entry)


def without_password(url: str) -> str:
    """*url* fit to be shown."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        scheme, rest = "", url
    user, at, where = rest.rpartition("@")
    shown = f"{user.partition(':')[0]}:***@{where}" if at else rest
    return f"{scheme}{mark}{shown}"


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _matches(entry: str, host: str, port: int, address: _Address | None) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, wanted_port = _host_and_port(entry)
    if wanted_port is not None and wanted_port != port:
        return False
    wanted_address = _address(name)
    if wanted_address is not None:
        return wanted_address == address
    name = name.removeprefix("*")
    if name.startswith("."):
        return host.endswith(name)
    return host == name or host.endswith("." + name)


def _host_and_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        port = rest.removeprefix(":")
    elif entry.count(":") == 1:
        name, _, port = entry.partition(":")
    else:
        name, port = entry, ""
    return name.rstrip("."), int(port) if port.isdigit() else None


def _address(host: str) -> _Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _split(url: str, *, field: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise InputError(
            field, without_password(url), f"is no URL ({error})", "write http://HOST:PORT"
        ) from None


def _port(split: SplitResult, *, field: str) -> int | None:
    try:
        return split.port
    except ValueError as error:
        raise InputError(
            field, without_password(split.geturl()), f"has a bad port ({error})", "use 1 to 65535"
        ) from None
