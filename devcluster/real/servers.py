"""The command lines of the servers of a control plane, and the files they read. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

FRONT_PROXY = "ringleader-fault-proxy"
"""Name in the certificate of the fault proxy."""
ETCD = "etcd"
ETCD_DATA = "etcd"


def apiserver_name(number: int) -> str:
    """Name of API server *number*, from 1 on: `kube-apiserver`, `kube-apiserver-2` ..."""
    return _numbered("kube-apiserver", number)


def audit_log_name(number: int) -> str:
    """Name of the file with the audit log of API server *number*."""
    return f"{_numbered('audit', number)}.log"


def kubeconfig_name(stem: str, number: int) -> str:
    """Name of the kubeconfig *stem* for API server *number*."""
    return f"{_numbered(stem, number)}.kubeconfig"


def _numbered(stem: str, number: int) -> str:
    return stem if number == 1 else f"{stem}-{number}"


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
    binary: Path,
    folder: Path,
    *,
    port: int,
    etcd_port: int,
    audit_log: str = "",
    node_address: str = "",
    flags: Sequence[str] = (),
) -> list[str]:
    """kube-apiserver on loopback, or with *node_address* on every address, for nodes that reach it at that one.

    *audit_log*: name of the file for its audit log; without one there is none.
    """
    command = [
        str(binary),
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
        f"--tls-cert-file={folder / 'serving.crt'}",
        f"--tls-private-key-file={folder / 'serving.key'}",
        f"--client-ca-file={folder / 'client-ca.crt'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        f"--service-account-key-file={folder / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--service-cluster-ip-range=10.96.0.0/24",
        "--profiling=false",
        *(_for_nodes(folder, node_address) if node_address else _WITHOUT_NODES),
        *flags,
    ]
    if audit_log:
        command += [
            f"--audit-policy-file={folder / 'audit-policy.json'}",
            f"--audit-log-path={folder / audit_log}",
            "--audit-log-mode=blocking",
            "--audit-log-maxsize=0",
        ]
    return command


_WITHOUT_NODES = (
    "--bind-address=127.0.0.1",
    "--advertise-address=127.0.0.1",
    "--authorization-mode=RBAC",
    "--disable-admission-plugins=ServiceAccount",  # no kubelet: pods are objects like others
    "--endpoint-reconciler-type=none",
)


def _for_nodes(folder: Path, address: str) -> list[str]:
    return [
        "--bind-address=0.0.0.0",
        f"--advertise-address={address}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged",
        "--enable-aggregator-routing",  # webhooks by the pods' addresses: this machine has no kube-proxy
        f"--kubelet-client-certificate={folder / 'kubelet-client.crt'}",
        f"--kubelet-client-key={folder / 'kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def front_proxy_flags(folder: Path) -> list[str]:
    """Flags by which kube-apiserver accepts the fault proxy as an authenticating proxy."""
    return [
        f"--requestheader-client-ca-file={folder / 'front-proxy-ca.crt'}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ]


_CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "clusterrole-aggregation-controller",
    "validatingadmissionpolicy-status-controller",
)
WORKLOAD_CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "disruption-controller",
)
"""Controllers that make pods of Deployments and StatefulSets: they need a kubelet."""


def controller_manager_command(
    binary: Path, folder: Path, *, nodes: bool = False, more: Sequence[str] = ()
) -> list[str]:
    """kube-controller-manager with the controllers that matter without nodes and *more*, or with *nodes* in full."""
    with_nodes = [
        f"--root-ca-file={folder / 'serving-ca.crt'}",
        f"--service-account-private-key-file={folder / 'service-accounts.key'}",
        "--use-service-account-credentials",
        f"--flex-volume-plugin-dir={folder / 'volume-plugins'}",
    ]
    return [
        str(binary),
        f"--kubeconfig={folder / 'kube-controller-manager.kubeconfig'}",
        *(with_nodes if nodes else [f"--controllers={','.join((*_CONTROLLERS, *more))}"]),
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--min-resync-period=10m",
        "--namespace-sync-period=10s",
        "--profiling=false",
    ]


def scheduler_command(binary: Path, folder: Path) -> list[str]:
    return [
        str(binary),
        f"--kubeconfig={folder / 'kube-scheduler.kubeconfig'}",
        "--leader-elect=false",
        "--secure-port=0",
        "--profiling=false",
    ]
