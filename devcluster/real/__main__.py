"""`python -m devcluster.real build [NAME ...]`: build what a real control plane needs, once, with progress."""

from __future__ import annotations

import argparse
import sys

from devcluster.real.binaries import BinariesMissing, ensure_binaries
from devcluster.real.build_progress import ConsoleProgress
from devcluster.real.recipes import Recipe, helm_recipe, kubernetes_recipe
from kubeio.errors import InputError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m devcluster.real", description=__doc__)
    parser.add_argument("action", choices=["build"])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="etcd, kube-apiserver, helm ... (default: all)"
    )
    options = parser.parse_args(arguments)
    try:
        recipes = [kubernetes_recipe(), helm_recipe()]
        _check_names(recipes, options.names)
        for recipe in recipes:
            _ensure(recipe, options.names)
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
    wanted = [name for name in recipe.packages if not names or name in names]
    for name, path in ensure_binaries(wanted, recipe, progress=ConsoleProgress()).items():
        print(f"{name}: {path}")  # noqa: T201 - a command


if __name__ == "__main__":
    sys.exit(main())
