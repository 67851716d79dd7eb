"""What can be built from Go modules, at which version, and where the result is kept. Pure but for the
environment and the pinned go.mod and go.sum beside this module.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kubeio.errors import InputError

DEFAULT_KUBERNETES = "1.36.3"
DEFAULT_HELM = "4.3.0"
ETCDUTL = "3.6.8"
FORMER_HELM = "3.22.0"
"""The newest Helm 3, for the test that the chart needs nothing of Helm 4."""
_HELM_3_KUBERNETES = " ".join(
    f"-X helm.sh/helm/v3/pkg/chartutil.k8sVersion{part}" for part in ("Major=1", "Minor=37")
)
"""Version that `helm template` of Helm 3 assumes: that of its client-go. Helm 4 reads it from its own build."""
CONTAINERD = "2.4.2"
KUBERNETES_NODE = ("kube-scheduler", "kube-proxy", "kubelet")
CNI_PLUGINS = ("bridge", "host-local", "loopback")
VERSION_VARIABLE = "RINGLEADER_KUBERNETES_VERSION"

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Recipe:
    """One pinned Go module and the commands that are built from it, in this order."""

    name: str
    version: str
    module: Path
    packages: Mapping[str, str]
    linker_flags: str
    is_chosen: bool = False
    """The user chose this version: ready-made binaries of unknown version are not used."""
    tags: str = ""
    """Build tags, separated by commas."""
    headers: str = ""
    """C library, as pkg-config names it, whose headers the build needs; without one, nothing is C."""
    folders: tuple[str, ...] | None = None
    """Where ready-made binaries may be, instead of KUBEBUILDER_ASSETS and PATH."""

    @property
    def folder_stem(self) -> str:
        """Name of the folder in the cache, without the Go version."""
        digest = hashlib.sha256((self.module / "go.sum").read_bytes()).hexdigest()[:12]
        return f"{self.name}-{self.version}-{digest}"

    @property
    def go_needed(self) -> tuple[int, int]:
        """The oldest Go that go.mod accepts."""
        found = re.search(r"^go (\d+)\.(\d+)", (self.module / "go.mod").read_text(), re.MULTILINE)
        if found is None:
            raise ValueError(f"{self.module / 'go.mod'} has no go line")
        return int(found[1]), int(found[2])


def kubernetes_recipe(version: str | None = None) -> Recipe:
    """etcd, Kubernetes' servers and kubectl, at *version*, or at the one that
    RINGLEADER_KUBERNETES_VERSION names: `1.36.3`, or `1.36` for the newest one of it that is pinned.

    The programs of a node are pinned for 1.36 only.

    Raises: InputError if no such version is pinned.
    """
    asked = version or os.environ.get(VERSION_VARIABLE)
    module = _pinned((asked or DEFAULT_KUBERNETES).removeprefix("v"))
    if module is None:
        known = ", ".join(folder.name for folder in _pinned_modules())
        raise InputError(VERSION_VARIABLE, asked, "is not a pinned Kubernetes version", f"use one of {known}")
    with_node = "cmd/kubelet" in (module / "tools.go").read_text()
    return Recipe(
        name="kubernetes",
        version=module.name,
        module=module,
        packages={
            "etcd": "go.etcd.io/etcd/server/v3",
            "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
            "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
            "kubectl": "k8s.io/kubernetes/cmd/kubectl",
        }
        | ({name: f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES_NODE} if with_node else {}),
        linker_flags=_kubernetes_linker_flags(module.name),
        is_chosen=asked is not None,
    )


def request_info_recipe() -> Recipe:
    """requestinfo, which prints what the API server's own resolver makes of requests: for a test of ours."""
    module = _HERE / "gomod" / DEFAULT_KUBERNETES
    return Recipe(
        name="kubernetes",
        version=DEFAULT_KUBERNETES,
        module=module,
        packages={"requestinfo": "./requestinfo"},
        linker_flags="-s -w",
        folders=(),
    )


def _pinned_modules() -> list[Path]:
    """Folders of the pinned Kubernetes versions, oldest first."""
    folders = [folder for folder in (_HERE / "gomod").iterdir() if (folder / "go.mod").is_file()]
    return sorted(folders, key=lambda folder: [int(part) for part in folder.name.split(".")])


def _pinned(version: str) -> Path | None:
    """The module of *version*, or the newest of the minor version that it is."""
    fitting = [
        folder
        for folder in _pinned_modules()
        if folder.name == version or folder.name.startswith(f"{version}.")
    ]
    return fitting[-1] if fitting and version.count(".") >= 1 else None


def helm_recipe(version: str = DEFAULT_HELM) -> Recipe:
    """Helm's own command. One that is not the default comes from the cache alone."""
    module = f"helm.sh/helm/v{version.partition('.')[0]}"
    return Recipe(
        name="helm",
        version=version,
        module=_HERE / "gomod-helm" / version,
        packages={"helm": f"{module}/cmd/helm"},
        linker_flags=f"-s -w -X {module}/internal/version.version=v{version} {_HELM_3_KUBERNETES}",
        is_chosen=version != DEFAULT_HELM,
    )


def etcdutl_recipe() -> Recipe:
    """etcdutl, which restores snapshots of etcd with raised revisions."""
    return Recipe(
        name="etcdutl",
        version=ETCDUTL,
        module=_HERE / "gomod-etcdutl" / ETCDUTL,
        packages={"etcdutl": "go.etcd.io/etcd/etcdutl/v3"},
        linker_flags="-s -w",
    )


def node_recipes() -> list[Recipe]:
    """containerd with its shim and ctr, pause, runc, and the CNI plugins: all of one pinned module.

    containerd is always built, for its configuration differs between versions; runc and the plugins of the
    machine's packages do as well.
    """
    module = _HERE / "gomod-containerd" / CONTAINERD
    containerd, plugins = (
        "github.com/containerd/containerd/v2",
        "github.com/containernetworking/plugins/plugins",
    )
    return [
        Recipe(
            name="containerd",
            version=CONTAINERD,
            module=module,
            packages={
                name: f"{containerd}/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")
            }
            | {"pause": "./pause"},
            linker_flags=f"-s -w -X {containerd}/version.Version=v{CONTAINERD}",
            tags="no_btrfs,no_devmapper,no_zfs",
            folders=(),
        ),
        Recipe(
            name="containerd",
            version=CONTAINERD,
            module=module,
            packages={"runc": "github.com/opencontainers/runc"},
            linker_flags="-s -w",
            tags="seccomp",  # pods ask for the runtime's seccomp profile
            headers="libseccomp",
        ),
        Recipe(
            name="containerd",
            version=CONTAINERD,
            module=module,
            packages={
                name: f"{plugins}/{'ipam' if name == 'host-local' else 'main'}/{name}" for name in CNI_PLUGINS
            },
            linker_flags="-s -w",
            folders=("/opt/cni/bin", "/usr/lib/cni"),
        ),
    ]


def cache_folder() -> Path:
    """Where built binaries are kept: outside every checkout, one for all of a user's."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "ringleader"


def _kubernetes_linker_flags(version: str) -> str:
    """Without these the server calls itself v0.0.0, and charts that ask for a version refuse it."""
    major, minor, _ = version.split(".", 2)
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    stamps = [f"-X {package}.{name}={value}" for package in packages for name, value in values.items()]
    return " ".join(["-s -w", *stamps])
