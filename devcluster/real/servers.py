"""The command lines of etcd, kube-apiserver and kube-controller-manager, and the files they read. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

FRONT_PROXY = "ringleader-fault-proxy"
"""Name in the certificate of the fault proxy."""
AUDIT_LOG = "audit.log"
ETCD_DATA = "etcd"


def etcd_command(binary: Path, folder: Path, *, port: int) -> list[str]:
    url = f"http://127.0.0.1:{port}"
    return [
        str(binary),
        f"--data-dir={folder / ETCD_DATA}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        "--listen-peer-urls=http://127.0.0.1:0",
        "--unsafe-no-fsync",
        "--log-level=error",
        "--quota-backend-bytes=8589934592",
    ]


def apiserver_command(
    binary: Path, folder: Path, *, port: int, etcd_port: int, audit: bool, flags: Sequence[str] = ()
) -> list[str]:
    command = [
        str(binary),
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--cert-dir={folder}",
        f"--tls-cert-file={folder / 'serving.crt'}",
        f"--tls-private-key-file={folder / 'serving.key'}",
        f"--client-ca-file={folder / 'client-ca.crt'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        f"--service-account-key-file={folder / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
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
            f"--audit-policy-file={folder / 'audit-policy.json'}",
            f"--audit-log-path={folder / AUDIT_LOG}",
            "--audit-log-mode=blocking",
            "--audit-log-maxsize=0",
        ]
    return command


def front_proxy_flags(folder: Path) -> list[str]:
    """Flags by which kube-apiserver accepts the fault proxy as an authenticating proxy."""
    return [
        f"--requestheader-client-ca-file={folder / 'front-proxy-ca.crt'}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ]


WORKLOAD_CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "disruption-controller",
)
"""Controllers that make pods of Deployments and StatefulSets: they need a kubelet."""


def controller_manager_command(binary: Path, folder: Path, *, more: Sequence[str] = ()) -> list[str]:
    """The controllers that a cluster without nodes needs, and *more*."""
    controllers = (
        "garbage-collector-controller",
        "namespace-controller",
        "serviceaccount-controller",
        "clusterrole-aggregation-controller",
        "validatingadmissionpolicy-status-controller",
        *more,
    )
    return [
        str(binary),
        f"--kubeconfig={folder / 'controller-manager.kubeconfig'}",
        f"--controllers={','.join(controllers)}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--min-resync-period=10m",
        "--namespace-sync-period=10s",
        "--profiling=false",
    ]
