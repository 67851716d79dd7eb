"""`python -m devcluster.real build [--nodes] [NAME ...]`: build a real control plane once, with progress."""

from __future__ import annotations

import argparse
import sys

from devcluster.real.binaries import BinariesMissing, ensure_binaries
from devcluster.real.build_progress import ConsoleProgress
from devcluster.real.recipes import (
    KUBERNETES_NODE,
    Recipe,
    etcdutl_recipe,
    helm_recipe,
    kubernetes_recipe,
    node_recipes,
)
from kubeio.errors import InputError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m devcluster.real", description=__doc__)
    parser.add_argument("action", choices=["build"])
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="etcd, kube-apiserver, helm ... (default: all but what nodes need)",
    )
    parser.add_argument("--nodes", action="store_true", help="also what nodes need: kubelet, containerd ...")
    options = parser.parse_args(arguments)
    try:
        nodes, others = node_recipes(), [kubernetes_recipe(), helm_recipe(), etcdutl_recipe()]
        _check_names([*others, *nodes], options.names)
        for recipe in [*others, *nodes]:
            for_nodes = recipe.packages if recipe in nodes else KUBERNETES_NODE
            everyday = [name for name in recipe.packages if options.nodes or name not in for_nodes]
            _ensure(recipe, options.names or everyday)
    except InputError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command
        return 2
    except BinariesMissing as missing:
        print(f"{missing.reason}; {missing.remedy}", file=sys.stderr)  # noqa: T201 - a command
        return 1
    return 0


def _check_names(recipes: list[Recipe], names: list[str]) -> None:
    known = [name for recipe in recipes for name in recipe.packages]
    for name in names:
        if name not in known:
            raise InputError("NAME", name, "cannot be built", f"use one of {', '.join(known)}")


def _ensure(recipe: Recipe, names: list[str]) -> None:
    wanted = [name for name in recipe.packages if name in names]
    for name, path in ensure_binaries(wanted, recipe, progress=ConsoleProgress()).items():
        print(f"{name}: {path}")  # noqa: T201 - a command


if __name__ == "__main__":
    sys.exit(main())
