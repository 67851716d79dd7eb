"""The command lines of etcd, kube-apiserver and kube-controller-manager, and the files they read. Pure but for
the choice of free ports.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FRONT_PROXY = "ringleader-fault-proxy"
"""Name in the certificate of the fault proxy."""
_PORTS = range(20000, 30000)
"""Below the ports that the kernel gives to outgoing connections: one that is free now stays free while the
server that had it is away."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the files of one control plane are."""

    directory: Path

    def path(self, name: str) -> Path:
        return self.directory / name

    @property
    def audit_log(self) -> Path:
        return self.directory / "audit.log"

    @property
    def etcd_data(self) -> Path:
        return self.directory / "etcd"


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    for port in random.sample(_PORTS, 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no free port on 127.0.0.1")


def etcd_command(binary: Path, layout: Layout, *, port: int) -> list[str]:
    url = f"http://127.0.0.1:{port}"
    return [
        str(binary),
        f"--data-dir={layout.etcd_data}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        "--listen-peer-urls=http://127.0.0.1:0",
        "--unsafe-no-fsync",
        "--log-level=error",
        "--quota-backend-bytes=8589934592",
    ]


def apiserver_command(
    binary: Path, layout: Layout, *, port: int, etcd_port: int, audit: bool, flags: Sequence[str] = ()
) -> list[str]:
    command = [
        str(binary),
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--cert-dir={layout.directory}",
        f"--tls-cert-file={layout.path('serving.crt')}",
        f"--tls-private-key-file={layout.path('serving.key')}",
        f"--client-ca-file={layout.path('client-ca.crt')}",
        f"--token-auth-file={layout.path('tokens.csv')}",
        f"--service-account-key-file={layout.path('service-accounts.pub')}",
        f"--service-account-signing-key-file={layout.path('service-accounts.key')}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--service-cluster-ip-range=10.96.0.0/24",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",  # no kubelet: pods are objects like others
        "--endpoint-reconciler-type=none",
        "--profiling=false",
        *flags,
    ]
    if audit:
        command += [
            f"--audit-policy-file={layout.path('audit-policy.json')}",
            f"--audit-log-path={layout.audit_log}",
            "--audit-log-mode=blocking",
            "--audit-log-maxsize=0",
        ]
    return command


def front_proxy_flags(layout: Layout) -> list[str]:
    """Flags by which kube-apiserver believes whom the fault proxy names."""
    return [
        f"--requestheader-client-ca-file={layout.path('front-proxy-ca.crt')}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ]


def controller_manager_command(binary: Path, layout: Layout) -> list[str]:
    controllers = (
        "garbage-collector-controller",
        "namespace-controller",
        "serviceaccount-controller",
        "clusterrole-aggregation-controller",
        "validatingadmissionpolicy-status-controller",
    )
    return [
        str(binary),
        f"--kubeconfig={layout.path('controller-manager.kubeconfig')}",
        f"--controllers={','.join(controllers)}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--min-resync-period=10m",
        "--namespace-sync-period=10s",
        "--profiling=false",
    ]
