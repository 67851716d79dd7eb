"""Who is measured: the runtime in its forms, and its peers. Command lines, and why somebody cannot take part.

Pure but for the search for what is installed; the programs themselves are beside this module.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.runtime.ours import can_choose_storage
from devcluster.real.binaries import BinariesMissing, ensure_binaries
from devcluster.real.build_progress import BuildProgress
from devcluster.real.recipes import Recipe

GO_PROGRAM: Final = "controller-runtime-peer"
_PYTHON: Final = (sys.executable, "-P", "-m")
_PEER: Final = Path(__file__).with_name("peer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a program is asked to load, and where it reports."""

    kubeconfig: Path
    namespace: str
    objects: int
    report: Path


@dataclass(frozen=True, slots=True)
class Contestant:
    """A program that takes part. *command* is meant for one that is not kept out by *why_not*."""

    key: str
    name: str
    command: Callable[[Order], list[str]]
    why_not: str = ""


def ours(order: Order, *flags: str) -> list[str]:
    """The command line of the program on `shard_controller`, with *flags*."""
    return [
        *(*_PYTHON, "benchmarks.runtime.ours", "--kubeconfig", str(order.kubeconfig)),
        *("--namespace", order.namespace, "--objects", str(order.objects)),
        *("--report", str(order.report), *flags),
    ]


def our_forms() -> list[Contestant]:
    """The runtime with each form of storage; without a choice the only one there is counts as raw."""
    if not can_choose_storage():
        why = "sc.Resource does not let its user choose how objects are stored"
        return [
            Contestant("ours-raw", "ringleader", ours),
            Contestant("ours-compressed", "ringleader, compressed", ours, why),
            Contestant("ours-metadata", "ringleader, metadata only", ours, why),
        ]
    return [
        Contestant("ours-raw", "ringleader, raw", lambda order: ours(order, "--stored", "raw")),
        Contestant(
            "ours-compressed",
            "ringleader, compressed",
            lambda order: ours(order, "--stored", "compressed"),
        ),
        Contestant(
            "ours-metadata",
            "ringleader, metadata only",
            lambda order: ours(order, "--stored", "metadata", "--model", "untouched"),
        ),
    ]


def kopf() -> Contestant:
    """kopf, where it is installed."""
    why = "" if importlib.util.find_spec("kopf") else "kopf is not installed; `make setup` brings it"
    return Contestant("kopf", "kopf", _plain("benchmarks.runtime.with_kopf"), why)


def kubernetes_informer() -> Contestant:
    """The informer of the `kubernetes` package, which we depend on anyhow."""
    found = importlib.util.find_spec("kubernetes.informer")
    why = (
        "" if found else "this version of the kubernetes package has no informer; install version 37 or newer"
    )
    return Contestant(
        "kubernetes", "kubernetes SharedInformer", _plain("benchmarks.runtime.with_kubernetes"), why
    )


def controller_runtime(progress: BuildProgress) -> list[Contestant]:
    """controller-runtime, with full objects and with metadata only; built once, if Go is there (minutes)."""
    path, why = Path(GO_PROGRAM), ""
    try:
        path = ensure_binaries([GO_PROGRAM], go_recipe(), progress=progress)[GO_PROGRAM]
    except BinariesMissing as missing:
        why = f"{missing.reason}; {missing.remedy}"

    def command(order: Order) -> list[str]:
        return [
            *(str(path), "--kubeconfig", str(order.kubeconfig), "--namespace", order.namespace),
            *("--objects", str(order.objects), "--report", str(order.report)),
        ]

    def metadata(order: Order) -> list[str]:
        return [*command(order), "--metadata"]

    return [
        Contestant("go", "controller-runtime", command, why),
        Contestant("go-metadata", "controller-runtime, metadata only", metadata, why),
    ]


def go_recipe(module: Path = _PEER) -> Recipe:
    """How the peer in Go is built; its version follows its source, so that a changed one is built anew."""
    source = hashlib.sha256((module / "main.go").read_bytes()).hexdigest()[:8]
    return Recipe(
        name=GO_PROGRAM,
        version=f"{go_version()}-{source}",
        module=module,
        packages={GO_PROGRAM: "."},
        linker_flags="-s -w",
    )


def go_version() -> str:
    """The pinned version of controller-runtime."""
    text = (_PEER / "go.mod").read_text()
    found = re.search(r"sigs\.k8s\.io/controller-runtime v(\S+)", text)
    if found is None:
        raise ValueError(f"{_PEER / 'go.mod'} does not require controller-runtime")
    return found[1]


def _plain(module: str) -> Callable[[Order], list[str]]:
    """A peer in Python that takes its order as four words."""
    return lambda order: [
        *(*_PYTHON, module, str(order.kubeconfig), order.namespace),
        *(str(order.objects), str(order.report)),
    ]
