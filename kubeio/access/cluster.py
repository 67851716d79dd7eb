"""Address of an API server and identity towards it: a `Cluster`, from a kubeconfig or from inside a pod.

Owns the choice of the source and every check of its entries (`user` entries: `kubeio.access.identity`). Opens no
connection and runs no plugin: that happens at the first request.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kubeio.access.credentials import ANONYMOUS, FixedCredentials
from kubeio.access.identity import credentials_of, impersonation_of, token_file
from kubeio.access.kubeconfig import ConfigEntry, Kubeconfig, abbreviated, read_kubeconfig
from kubeio.access.overrides import NONE, Overrides
from kubeio.access.proxies import parse_proxy, proxy_from_environment
from kubeio.clock import Clock, SystemClock
from kubeio.errors import InputError
from kubeio.http.endpoint import Credentials, Endpoint, Proxy, Trust
from kubeio.suggestions import nearest

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Everything needed to reach one API server with one identity. Immutable; may be shared between threads."""

    server: str
    namespace: str
    """Default namespace of commands."""
    user: str
    """Name of the kubeconfig's user and of an impersonated one, for messages."""
    endpoint: Endpoint
    trust: Trust
    proxy: Proxy | None
    impersonation: tuple[tuple[str, str], ...] = ()
    """Headers of impersonation."""
    credentials: Credentials = field(default_factory=lambda: FixedCredentials(ANONYMOUS), compare=False)
    is_own: bool = False
    """Whether this process runs in a pod of that cluster, as the pod's service account."""


def load_cluster(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    overrides: Overrides = NONE,
    service_account: Path = SERVICE_ACCOUNT,
) -> Cluster:
    """The cluster that *kubeconfig* (one path, or several as in $KUBECONFIG) and *context* name.

    Without *kubeconfig*: $KUBECONFIG, else the pod's service account, whose files are in *service_account*, else
    ~/.kube/config.
    Raises: InputError naming field, value and remedy.
    """
    environ = os.environ
    clock = SystemClock()
    names_entries = context is not None or overrides.cluster or overrides.user or overrides.server
    if kubeconfig is not None:
        merged = read_kubeconfig(_paths(kubeconfig), source="--kubeconfig")
    elif environ.get("KUBECONFIG"):
        merged = read_kubeconfig(_paths(environ["KUBECONFIG"]), source="KUBECONFIG", skip_missing=True)
    elif not names_entries and is_in_cluster(environ, service_account):
        return in_cluster(environ, service_account, clock=clock, overrides=overrides)
    else:
        home = Path("~/.kube/config").expanduser()
        if not home.exists():
            if overrides.server:
                return cluster_of(
                    Kubeconfig(), context=None, environ=environ, clock=clock, overrides=overrides
                )
            raise InputError(
                "--kubeconfig",
                str(home),
                "does not exist, KUBECONFIG is not set, and this is not a pod with a service account",
                "pass --kubeconfig FILE or set KUBECONFIG",
            )
        merged = read_kubeconfig([home], source="~/.kube/config")
    return cluster_of(merged, context=context, environ=environ, clock=clock, overrides=overrides)


def is_in_cluster(environ: Mapping[str, str], directory: Path) -> bool:
    """Whether this is a pod with a service account."""
    return bool(
        environ.get("KUBERNETES_SERVICE_HOST")
        and environ.get("KUBERNETES_SERVICE_PORT")
        and (directory / "token").exists()
    )


def in_cluster(
    environ: Mapping[str, str], directory: Path, *, clock: Clock, overrides: Overrides = NONE
) -> Cluster:
    """The cluster that this pod runs in, as its service account. Raises InputError."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ["KUBERNETES_SERVICE_PORT"]
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    endpoint = parse_server(server, field_="KUBERNETES_SERVICE_HOST")
    where = ConfigEntry(
        {"ca": "ca.crt", "token": "token", "namespace": "namespace"}, "serviceaccount", directory / "token"
    )
    ca = where.file_bytes("ca") or b""
    _check_ca(ca, where, "ca", str(directory / "ca.crt"))
    namespace_file = directory / "namespace"
    return Cluster(
        server=server,
        namespace=namespace_file.read_text().strip() if namespace_file.exists() else "default",
        user=f"service account of the pod{_acting_as(overrides.as_user)}",
        endpoint=endpoint,
        trust=Trust(ca=ca, ca_file=directory / "ca.crt"),
        proxy=proxy_from_environment(endpoint.scheme, endpoint.host, endpoint.port, environ),
        impersonation=impersonation_of(ConfigEntry(overrides.impersonation, "user", directory / "token")),
        credentials=token_file(where, "token", clock=clock),
        is_own=True,
    )


def cluster_of(
    merged: Kubeconfig,
    *,
    context: str | None,
    environ: Mapping[str, str],
    clock: Clock,
    overrides: Overrides = NONE,
) -> Cluster:
    """The cluster of *context* (None: the current one) in *merged*. Raises InputError."""
    name = context or merged.current_context
    file = merged.files[0] if merged.files else Path()
    if name or not overrides.server:
        chosen = _context(merged, name, is_explicit=context is not None)
    else:
        chosen = ConfigEntry({}, "context", file)
    cluster = ConfigEntry({}, "cluster", file)
    if overrides.cluster or chosen.text("cluster") or not overrides.server:
        cluster = _referred(chosen, "cluster", merged.clusters, flag=overrides.cluster)
    if overrides.server:
        cluster = ConfigEntry({**cluster.fields, "server": overrides.server}, cluster.where, cluster.file)
    user = ConfigEntry({}, "user", chosen.file)
    if user_name := overrides.user or chosen.text("user"):
        user = _referred(chosen, "user", merged.users, flag=overrides.user)
    user = ConfigEntry({**user.fields, **overrides.impersonation}, user.where, user.file)
    server = cluster.text("server")
    if not server:
        raise cluster.error("server", server, "is missing", "write https://HOST:PORT")
    where = "--server" if overrides.server else f"{cluster.where}.server in {cluster.file}"
    endpoint = parse_server(server, field_=where)
    return Cluster(
        server=server.rstrip("/"),
        namespace=chosen.text("namespace") or "default",
        user=f"{user_name or 'anonymous'}{_acting_as(user.text('as'))}",
        endpoint=endpoint,
        trust=_trust(cluster),
        proxy=_proxy(cluster, endpoint, environ),
        impersonation=impersonation_of(user),
        # over plain http nothing secret is sent, as in kubectl
        credentials=credentials_of(user, cluster=cluster, clock=clock)
        if endpoint.is_tls
        else FixedCredentials(ANONYMOUS),
    )


def _acting_as(user: str) -> str:
    return f" as {user}" if user else ""


def parse_server(url: str, *, field_: str) -> Endpoint:
    """*url* taken apart. Raises InputError naming *field_*."""
    try:
        split = urlsplit(url if "://" in url else f"http://{url}")
        port = split.port
    except ValueError as error:
        raise InputError(field_, url, f"is no URL ({error})", "write https://HOST:PORT") from None
    if split.scheme not in ("https", "http") or not split.hostname:
        raise InputError(field_, url, "is no http(s) URL", "write https://HOST:PORT")
    if split.username or split.query or split.fragment:
        raise InputError(field_, url, "has more than host, port and path", "write https://HOST:PORT[/PATH]")
    default = 443 if split.scheme == "https" else 80
    return Endpoint(split.scheme, split.hostname, port or default, split.path.rstrip("/"))


def _paths(text: str) -> list[Path]:
    paths = [Path(part).expanduser() for part in text.split(os.pathsep) if part]
    if not paths:
        raise InputError("--kubeconfig", text, "names no file", "name a kubeconfig file")
    return paths


def _context(merged: Kubeconfig, name: str, *, is_explicit: bool) -> ConfigEntry:
    if not name:
        raise InputError(
            "current-context",
            "",
            f"is not set in {merged.shown_files}",
            f"pass --context NAME ({nearest('', merged.contexts)})",
        )
    if name not in merged.contexts:
        source = "--context" if is_explicit else f"current-context in {merged.shown_files}"
        raise InputError(source, name, "is not a context of the kubeconfig", nearest(name, merged.contexts))
    return merged.contexts[name]


def _referred(
    context: ConfigEntry, kind: str, known: Mapping[str, ConfigEntry], *, flag: str = ""
) -> ConfigEntry:
    """The entry of *kind* that *flag* names, else the one that *context* names. Raises InputError."""
    name = flag or context.text(kind)
    if not name:
        raise context.error(kind, name, "is missing", f"name one: {nearest('', known)}")
    if name not in known and flag:
        raise InputError(
            f"--{kind}", name, f"is not among the {kind}s of the kubeconfig", nearest(name, known)
        )
    if name not in known:
        raise context.error(kind, name, f"is not among the {kind}s of the kubeconfig", nearest(name, known))
    return known[name]


def _trust(cluster: ConfigEntry) -> Trust:
    is_insecure = cluster.flag("insecure-skip-tls-verify")
    server_name = cluster.text("tls-server-name")
    ca, ca_field = cluster.data("certificate-authority-data"), "certificate-authority-data"
    ca_file = None
    if ca is None:
        ca, ca_field = cluster.file_bytes("certificate-authority"), "certificate-authority"
        ca_file = cluster.path("certificate-authority")
    if is_insecure and ca is not None:
        raise cluster.error(
            "insecure-skip-tls-verify", True, f"contradicts {ca_field}", "remove one of the two"
        )
    if ca is not None:
        _check_ca(
            ca, cluster, ca_field, abbreviated(cluster.text(ca_field)) if ca_file is None else str(ca_file)
        )
    return Trust(ca=ca or b"", ca_file=ca_file, server_name=server_name, is_insecure=is_insecure)


def _check_ca(ca: bytes, where: ConfigEntry, name: str, shown: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=ca.decode("ascii"))
    except (ValueError, ssl.SSLError) as error:
        raise where.error(
            name,
            shown,
            f"holds no PEM certificate ({error})",
            "use the file between BEGIN and END CERTIFICATE",
        ) from None


def _proxy(cluster: ConfigEntry, endpoint: Endpoint, environ: Mapping[str, str]) -> Proxy | None:
    url = cluster.text("proxy-url")
    if url:
        return parse_proxy(url, field=f"{cluster.where}.proxy-url in {cluster.file}")
    return proxy_from_environment(endpoint.scheme, endpoint.host, endpoint.port, environ)
