"""Breaks the code once per rule and sees the named test turn red.

Each `tests/mutants/*.patch` begins with a header:

    Rule: 5.3 (what the patch switches off; the number is a section of docs/protocol.md)
    Test: tests/path/test_file.py::test_name [more tests]

A copy of the checkout is made and the tests must pass there, unbroken. Then each patch is applied to a copy of its
own, and one of its tests must fail. Hunks are found by their text, not by their line number, so that edits
nearby do no harm. Exit 1 names every mutant that lived. With `--table` it writes `tests/mutants/README.md` instead.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATCHES = ROOT / "tests" / "mutants"
TABLE = PATCHES / "README.md"
COPIED = ("ring", "kubeio", "sharder", "shard_controller", "proxy", "devcluster", "ringleader", "loadtest")
ALONGSIDE = ("manifests", "examples", "tests", "docs", "scripts", "pyproject.toml", "README.md")
TEST_TIMEOUT_S = 60
AT_ONCE = 2
_HUNK = re.compile(r"^@@ -(\d+)")


class BadMutant(Exception):
    """A patch file that does not say what it breaks and who notices, or that breaks nothing any more."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """Replace the lines *old* of file *path*, near line *near*, by *new*."""

    path: str
    near: int
    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mutant:
    path: Path
    rule: str
    tests: tuple[str, ...]
    hunks: tuple[Hunk, ...]

    @property
    def name(self) -> str:
        return self.path.stem


def read_mutants() -> list[Mutant]:
    """Every mutant, in order of its rule's section and its name."""
    found = [read_mutant(path) for path in PATCHES.glob("*.patch")]
    return sorted(found, key=lambda mutant: (_section(mutant.rule), mutant.name))


def read_mutant(path: Path) -> Mutant:
    text = path.read_text()
    rule = re.search(r"^Rule: (.+)$", text, re.MULTILINE)
    tests = re.search(r"^Test: (.+)$", text, re.MULTILINE)
    if rule is None or tests is None:
        raise BadMutant(f"{path.name}: wants a line 'Rule: ...' and a line 'Test: path::name'")
    return Mutant(path, rule.group(1), tuple(tests.group(1).split()), tuple(_hunks(text)))


def _section(rule: str) -> tuple[int, ...]:
    number = re.match(r"\d+(\.\d+)*", rule)
    return tuple(int(part) for part in number.group().split(".")) if number else (99,)


def _hunks(text: str) -> Iterator[Hunk]:
    target, near = "", 0
    old: list[str] = []
    new: list[str] = []
    for line in [*text.splitlines(), "--- "]:
        begins = line.startswith("--- ") or _HUNK.match(line)
        if begins and (old or new):
            yield Hunk(target, near, tuple(old), tuple(new))
            old, new, near = [], [], 0
        if line.startswith("+++ b/"):
            target = line.removeprefix("+++ b/")
        elif found := _HUNK.match(line):
            near = int(found.group(1))
        elif near and not begins:
            if line[:1] in ("", " ", "-"):
                old.append(line[1:])
            if line[:1] in ("", " ", "+"):
                new.append(line[1:])


def mutated(mutant: Mutant, tree: Path) -> dict[Path, str]:
    """The files of *tree* as *mutant* would have them. Raises: BadMutant."""
    changed: dict[Path, str] = {}
    for hunk in mutant.hunks:
        path = tree / hunk.path
        text = changed.get(path) or path.read_text()
        lines = _replaced(text.splitlines(), hunk)
        if lines is None:
            raise BadMutant(f"{mutant.path.name} no longer applies to {hunk.path}: make it anew")
        changed[path] = "\n".join(lines) + "\n"
    return changed


def _replaced(lines: list[str], hunk: Hunk) -> list[str] | None:
    """*lines* after *hunk*, at the place nearest to the one it was made at; None if there is none."""
    size = len(hunk.old)
    places = [at for at in range(len(lines) - size + 1) if tuple(lines[at : at + size]) == hunk.old]
    if not places:
        return None
    at = min(places, key=lambda place: abs(place + 1 - hunk.near))
    return [*lines[:at], *hunk.new, *lines[at + size :]]


# -- running


def copy_tree(source: Path, target: Path) -> None:
    for name in (*COPIED, *ALONGSIDE):
        if (source / name).is_dir():
            unwanted = shutil.ignore_patterns(".hypothesis", *(["__pycache__"] if source == ROOT else []))
            shutil.copytree(source / name, target / name, ignore=unwanted)
        else:
            shutil.copy2(source / name, target / name)


def run_tests(tree: Path, tests: tuple[str, ...], *, writes_bytecode: bool = False) -> tuple[int, str]:
    """Exit code and output of pytest over *tests* in *tree*."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--durations=0"]
    command += ["--tb=short", f"--timeout={TEST_TIMEOUT_S}", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"}
    environment["PYTHONDONTWRITEBYTECODE"] = "" if writes_bytecode else "1"
    done = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, timeout=1800, check=False
    )
    return done.returncode, done.stdout + done.stderr


def verdict(mutant: Mutant, template: Path) -> str | None:
    """Why *mutant* is not caught, or None when it is."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        tree = Path(name)
        copy_tree(template, tree)
        try:
            for path, text in mutated(mutant, tree).items():
                path.write_text(text)
        except BadMutant as problem:
            return str(problem)
        code, output = run_tests(tree, mutant.tests)
    if code == 0:
        return "LIVED: the tests pass on broken code"
    if code != 1:
        return f"pytest could not run the tests (exit {code}): {output.strip()[-300:]}"
    if "Failed: Timeout" in output:
        return "the test only hangs: it has to fail by itself"
    return None


def run_all(mutants: list[Mutant], *, jobs: int) -> int:
    """Tell the verdict on each of *mutants*; how many are not caught, or -1 if the tests fail on unbroken code."""
    tests = tuple(sorted({test for mutant in mutants for test in mutant.tests}))
    print(f"mutants: {len(tests)} tests on unbroken code", flush=True)
    with tempfile.TemporaryDirectory(prefix="unbroken-") as name, ThreadPoolExecutor(jobs) as threads:
        template = Path(name)
        copy_tree(ROOT, template)
        code, output = run_tests(template, tests, writes_bytecode=True)
        if code != 0:
            failures = output.partition("= FAILURES =")[2].partition("slowest durations")[0]
            print((failures or output)[-6000:], file=sys.stderr)
            return -1

        def judge(mutant: Mutant) -> tuple[Mutant, str | None, float]:
            began = time.monotonic()
            return mutant, verdict(mutant, template), time.monotonic() - began

        alive = 0
        for number, (mutant, why, took_s) in enumerate(threads.map(judge, mutants), 1):
            alive += why is not None
            shown = why or "caught"
            print(
                f"mutants: {number}/{len(mutants)} {mutant.name}: {shown} in {took_s:.0f} s ({mutant.rule})",
                flush=True,
            )
    return alive


# -- the table


def table(mutants: list[Mutant]) -> str:
    """`tests/mutants/README.md`: which rule is broken by which patch, and which test says so."""
    head = (
        "# Every rule, broken once\n\n"
        "Each patch switches one rule of [the protocol](../../docs/protocol.md) off (9.n: trap n of its list),\n"
        "and the named test fails. `make mutants` proves it; `ARGS=drain` runs those with `drain` in their names.\n"
        "This file is written by `scripts/mutants.py --table`.\n\n"
        "| rule | patch | test |\n|---|---|---|\n"
    )
    return head + "".join(
        f"| {mutant.rule} | [{mutant.name}]({mutant.path.name}) | {'<br>'.join(map(_shown, mutant.tests))} |\n"
        for mutant in mutants
    )


def _shown(test: str) -> str:
    path, _, name = test.partition("::")
    return f"[{name.replace('|', chr(92) + '|') or Path(path).stem}](../../{path})"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="parts of file names; all mutants if none is given")
    parser.add_argument("--jobs", type=int, default=AT_ONCE, help=f"mutants at once (default {AT_ONCE})")
    parser.add_argument(
        "--table", action="store_true", help=f"write {TABLE.relative_to(ROOT)} and run nothing"
    )
    asked = parser.parse_args()
    if asked.table:
        TABLE.write_text(table(read_mutants()))
        return 0
    mutants = [m for m in read_mutants() if not asked.names or any(part in m.name for part in asked.names)]
    if not mutants:
        print(f"mutants: no patch matches {asked.names}", file=sys.stderr)
        return 2
    began = time.monotonic()
    alive = run_all(mutants, jobs=asked.jobs)
    if alive < 0:
        return 1
    took_s = time.monotonic() - began
    print(f"mutants: {len(mutants) - alive} caught, {alive} not, in {took_s:.0f} s")
    return 1 if alive else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BadMutant as problem:
        print(f"mutants: {problem}", file=sys.stderr)
        sys.exit(2)
