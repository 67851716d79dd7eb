"""The configuration files of a node: containerd, CNI, kubelet, kube-proxy. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PAUSE = "ringleader.dev/pause:1"
SOCKET = "/run/containerd/containerd.sock"
"""/run is a file system of the node's own."""


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """Where a node keeps its files, all below *folder*."""

    name: str
    folder: Path

    @property
    def containerd(self) -> Path:
        return self.folder / "containerd.toml"

    @property
    def kubelet(self) -> Path:
        return self.folder / "kubelet.json"

    @property
    def proxy(self) -> Path:
        return self.folder / "kube-proxy.json"

    @property
    def cni(self) -> Path:
        return self.folder / "cni"

    def log(self, program: str) -> Path:
        return self.folder / f"{program}.log"


def containerd_config(files: NodeFiles, binaries: Mapping[str, Path]) -> str:
    """containerd.toml. restrict_oom_score_adj: runc may not have CAP_SYS_RESOURCE."""
    runtime = "plugins.'io.containerd.cri.v1.runtime'"
    return f"""\
version = 3
root = '{files.folder / "containerd"}'
state = '/run/containerd'
disabled_plugins = ['io.containerd.nri.v1.nri', 'io.containerd.tracing.processor.v1.otlp']
[grpc]
address = '{SOCKET}'
[plugins.'io.containerd.internal.v1.opt']
path = '{files.folder / "opt"}'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{PAUSE}'
[{runtime}]
restrict_oom_score_adj = true
[{runtime}.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[{runtime}.containerd.runtimes.runc.options]
BinaryName = '{binaries["runc"]}'
[{runtime}.cni]
bin_dirs = ['{files.cni / "bin"}']
conf_dir = '{files.cni}'
"""


def cni_config(files: NodeFiles, pods: str) -> str:
    """A bridge of the node's pods. No address is translated: this machine and the other nodes have routes to pods."""
    plugin = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(files.cni / "addresses"),
        },
    }
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]}, indent=1)


def kubelet_config(files: NodeFiles, *, address: str, client_ca: Path, cgroup: str) -> str:
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "authentication": {"x509": {"clientCAFile": str(client_ca)}, "webhook": {"enabled": True}},
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "enforceNodeAllocatable": [],
        "evictionHard": {},
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "podLogsDir": str(files.folder / "pods"),
        "resolvConf": "",  # no DNS: pods reach the API server by KUBERNETES_SERVICE_HOST
        "volumePluginDir": str(files.folder / "volume-plugins"),
    }
    return json.dumps(config, indent=1)


def kubelet_flags(files: NodeFiles, *, address: str, kubeconfig: Path) -> list[str]:
    return [
        f"--config={files.kubelet}",
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={files.name}",
        f"--node-ip={address}",
        f"--root-dir={files.folder / 'kubelet'}",
        f"--cert-dir={files.folder / 'pki'}",
    ]


def proxy_config(files: NodeFiles, *, kubeconfig: Path, all_pods: str) -> str:
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "clusterCIDR": all_pods,
        "hostnameOverride": files.name,
        "conntrack": {"maxPerCore": 0, "min": 0},
    }
    return json.dumps(config, indent=1)
