"""The webhook's settings, and the flags they are made of. Pure, and nothing heavy: every sharder reads its flags."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final
from urllib.parse import urlsplit

from kubeio.errors import InputError
from kubeio.labels import check_namespace
from kubeio.program.http_server import parse_bind

BIND_FLAG: Final = "--webhook-bind"
DEFAULT_SECRET: Final = "ringleader-webhook"  # noqa: S105 - the name of a Secret


@dataclass(frozen=True, slots=True)
class ServiceTarget:
    """The webhook behind a Service of the cluster."""

    namespace: str
    name: str
    port: int = 443

    @property
    def host(self) -> str:
        """DNS name that the certificate has to contain."""
        return f"{self.name}.{self.namespace}.svc"

    def client_config(self, path: str) -> dict[str, object]:
        where = {"namespace": self.namespace, "name": self.name, "port": self.port, "path": path}
        return {"service": where}


@dataclass(frozen=True, slots=True)
class UrlTarget:
    """The webhook at an address outside the cluster: `https://host:port`; *host* is what the certificate names."""

    url: str
    host: str

    def client_config(self, path: str) -> dict[str, object]:
        return {"url": f"{self.url}{path}"}


Target = ServiceTarget | UrlTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """Lifetimes of certificates. *spread_s*: after it every API server and sharder has seen a change for certain."""

    authority_s: float = 365 * 86_400.0
    serving_s: float = 60 * 86_400.0
    spread_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """Listen address, address for the API server (*target*), and the Secret with the webhook's keys."""

    host: str
    port: int
    target: Target
    namespace: str
    secret: str = DEFAULT_SECRET
    lifetimes: Lifetimes = field(default_factory=Lifetimes)


def read_flags(*, bind: str, service: str, url: str, secret: str, namespace: str) -> WebhookSettings | None:
    """Parse the webhook's flags; None if the webhook is not asked for. Raises InputError."""
    if not bind:
        _refuse_alone(service=service, url=url, secret=secret)
        return None
    if find_spec("cryptography") is None:
        raise InputError(
            BIND_FLAG,
            bind,
            "needs the package cryptography, which is not installed",
            "pip install cryptography",
        )
    host, port = parse_bind(BIND_FLAG, bind)
    if bool(service) is bool(url):
        raise InputError(
            BIND_FLAG,
            bind,
            "is not all: how does the API server find it?",
            "add --webhook-service NAMESPACE/NAME[:PORT], or --webhook-url https://HOST:PORT outside the cluster",
        )
    target = read_service(service) if service else read_url(url)
    return WebhookSettings(
        host=host, port=port, target=target, namespace=namespace, secret=secret or DEFAULT_SECRET
    )


def read_service(text: str) -> ServiceTarget:
    """`NAMESPACE/NAME` or `NAMESPACE/NAME:PORT`. Raises InputError."""
    namespace, slash, rest = text.partition("/")
    name, colon, port = rest.partition(":")
    if not slash or not name or (colon and not (port.isdecimal() and 0 < int(port) <= 65535)):
        raise InputError(
            "--webhook-service", text, "is not a Service", "write NAMESPACE/NAME, or NAMESPACE/NAME:PORT"
        )
    check_namespace("--webhook-service", namespace)
    return ServiceTarget(namespace, check_namespace("--webhook-service", name), int(port) if port else 443)


def read_url(text: str) -> UrlTarget:
    """`https://HOST[:PORT][/PATH]`, as the API server would call it. Raises InputError."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if not host or parts.scheme != "https" or parts.username or parts.query or parts.fragment:
        raise InputError(
            "--webhook-url",
            text,
            "is no address that an API server would call",
            "write https://HOST:PORT, without a user, a query and a fragment",
        )
    return UrlTarget(text.rstrip("/"), host)


def _refuse_alone(**flags: str) -> None:
    for name, value in flags.items():
        if value:
            raise InputError(
                f"--webhook-{name}", value, "does nothing without --webhook-bind", "add --webhook-bind :9443"
            )
