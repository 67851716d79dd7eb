"""Breaks the code once per rule and sees the named test turn red.

Each `tests/mutants/*.patch` begins with a header:

    Rule: protocol 5.3 (what the patch switches off)
    Test: tests/path/test_file.py::test_name [more tests]

The patch is applied to a copy of the checkout and the tests run there: they must fail. Before that they must
pass unbroken. Exit 1 names every mutant that lived.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATCHES = ROOT / "tests" / "mutants"
COPIED = ("ring", "kubeio", "sharder", "shard_controller", "devcluster", "ringleader", "loadtest")
ALONGSIDE = ("manifests", "examples", "tests", "docs", "scripts", "pyproject.toml", "README.md")


@dataclass(frozen=True, slots=True)
class Mutant:
    path: Path
    rule: str
    tests: tuple[str, ...]


class BadMutant(Exception):
    """A patch file without the header that says what it breaks and who notices."""


def read_mutant(path: Path) -> Mutant:
    text = path.read_text()
    rule = re.search(r"^Rule: (.+)$", text, re.MULTILINE)
    tests = re.search(r"^Test: (.+)$", text, re.MULTILINE)
    if rule is None or tests is None:
        raise BadMutant(f"{path.name}: wants a line 'Rule: ...' and a line 'Test: path::name'")
    return Mutant(path, rule.group(1), tuple(tests.group(1).split()))


def run_tests(tree: Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--durations=0", *tests]
    environment = {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command,
        cwd=tree,
        env=_environment(environment),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def _environment(extra: dict[str, str]) -> dict[str, str]:
    import os

    return {**os.environ, **extra}


def copy_tree(target: Path) -> None:
    for name in (*COPIED, *ALONGSIDE):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target / name)


def verdict(mutant: Mutant) -> str | None:
    """Why *mutant* is not caught, or None when it is."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        tree = Path(name)
        copy_tree(tree)
        applied = subprocess.run(
            ["patch", "-p1", "--batch", "--fuzz=2", "--input", str(mutant.path)],
            cwd=tree,
            capture_output=True,
            text=True,
            check=False,
        )
        if applied.returncode != 0:
            return f"the patch no longer applies: {applied.stdout.strip().splitlines()[-1]}"
        result = run_tests(tree, mutant.tests)
    if result.returncode == 0:
        return "LIVED: the tests pass on broken code"
    if result.returncode != 1:
        return f"pytest could not run the tests (exit {result.returncode}): {result.stdout.strip()[-300:]}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="parts of file names; all mutants if none is given")
    chosen = parser.parse_args().names
    paths = [
        path
        for path in sorted(PATCHES.glob("*.patch"))
        if not chosen or any(name in path.name for name in chosen)
    ]
    mutants = [read_mutant(path) for path in paths]
    if not mutants:
        print(f"mutants: no patch matches {chosen}", file=sys.stderr)
        return 2
    everything = tuple(sorted({test for mutant in mutants for test in mutant.tests}))
    print(f"mutants: {len(everything)} tests on unbroken code", flush=True)
    clean = run_tests(ROOT, everything)
    if clean.returncode != 0:
        print(clean.stdout[-3000:], file=sys.stderr)
        return 1
    alive = 0
    for number, mutant in enumerate(mutants, 1):
        why = verdict(mutant)
        alive += why is not None
        print(
            f"mutants: {number}/{len(mutants)} {mutant.path.stem}: {why or 'caught'} ({mutant.rule})",
            flush=True,
        )
    print(f"mutants: {len(mutants) - alive} caught, {alive} not")
    return 1 if alive else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BadMutant as problem:
        print(f"mutants: {problem}", file=sys.stderr)
        sys.exit(2)
