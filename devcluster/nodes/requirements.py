"""What a node needs of this machine: Linux, root, namespaces, cgroups, overlayfs, a few commands, and the binaries."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from devcluster.nodes.cgroups import missing_controllers
from devcluster.real.binaries import BinariesMissing, check_available, ensure_binaries, find_binaries
from devcluster.real.build_progress import BuildProgress
from devcluster.real.recipes import KUBERNETES_NODE, Recipe, kubernetes_recipe, node_recipes

_COMMANDS = {
    "ip": "iproute2",
    "mount": "mount",
    "nft": "nftables",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}
"""Commands, and the Debian packages that have them."""


class RequirementsMissing(Exception):
    """This machine cannot run nodes: the message is one line that names all that is missing."""


def ensure_node_binaries(*, progress: BuildProgress | None = None) -> dict[str, Path]:
    """Paths of every program of a cluster with nodes; what is nowhere is built first.

    Raises: RequirementsMissing and BinariesMissing before anything is built; BinariesMissing if a build fails.
    """
    check_machine()
    check_available_programs()
    return {
        name: path
        for recipe, names in _wanted()
        for name, path in ensure_binaries(names, recipe, progress=progress).items()
    }


def find_node_binaries() -> dict[str, Path]:
    """As `ensure_node_binaries`, without building. Raises: RequirementsMissing, BinariesMissing."""
    check_machine()
    return {name: path for recipe, names in _wanted() for name, path in find_binaries(names, recipe).items()}


def check_machine() -> None:
    """Raises: RequirementsMissing unless nodes can run here."""
    if missing := _missing():
        raise RequirementsMissing("; ".join(missing))


def check_available_programs() -> None:
    """Raises: BinariesMissing unless every program of a node is there or can be built here."""
    for recipe, names in _wanted():
        check_available(names, recipe)


def _wanted() -> list[tuple[Recipe, list[str]]]:
    kubernetes = kubernetes_recipe()
    names = ["etcd", "kube-apiserver", "kube-controller-manager", *KUBERNETES_NODE]
    if unknown := [name for name in names if name not in kubernetes.packages]:
        raise BinariesMissing(
            f"no {', '.join(unknown)} is pinned for Kubernetes {kubernetes.version}", "use Kubernetes 1.36"
        )
    return [(kubernetes, names), *((recipe, list(recipe.packages)) for recipe in node_recipes())]


def _missing() -> list[str]:
    if sys.platform != "linux":
        return [f"{sys.platform} is not Linux"]
    if os.geteuid() != 0:
        return ["the user is not root (use sudo -E)"]
    missing = [
        f"no {command} on PATH (package {package})"
        for command, package in _COMMANDS.items()
        if shutil.which(command) is None
    ]
    if controllers := missing_controllers():
        missing.append(f"no cgroup controller {', '.join(controllers)} in /sys/fs/cgroup")
    if "overlay" not in Path("/proc/filesystems").read_text().split():
        missing.append("no overlay filesystem in the kernel (modprobe overlay)")
    if not missing and (refusal := _refused_namespaces()):
        missing.append(
            f"the kernel refuses namespaces ({refusal}): CAP_SYS_ADMIN and CAP_NET_ADMIN are needed"
        )
    return missing


def _refused_namespaces() -> str:
    """The refusal of the namespaces and of the one mount that a node begins with; empty if there is none."""
    begin = ["unshare", "--net", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/run"]
    answer = subprocess.run(begin, capture_output=True, text=True, timeout=30, check=False)
    return answer.stderr.strip() if answer.returncode else ""
