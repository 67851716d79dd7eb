"""How many seeds of the simulation it takes to notice each broken rule: the strength of the simulation itself.

Each patch of tests/mutants is applied to a copy of the checkout, and seeds run there until a judge finds something.
Those of tests/simulation/patches break several rules at once: what one alone would not show.
Results are kept in tests/simulation/mutants.json; `--table` writes them into docs/testing-results.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from devcluster.flag_values import count
from scripts.mutants import ROOT, BadMutant, Mutant, mutated, read_mutant, read_mutants

PATCHES = ROOT / "tests" / "simulation" / "patches"
RESULTS = ROOT / "tests" / "simulation" / "mutants.json"
PAGE = ROOT / "docs" / "testing-results.md"
BEGIN, END = "<!-- mutants: begin -->\n", "<!-- mutants: end -->"
COPIED = (
    "ring",
    "kubeio",
    "sharder",
    "shard_controller",
    "devcluster",
    "ringleader",
    "simulation",
    "manifests",
    "examples",
)
FIRST = 1
REASONS = {
    "a-cut-off-create-is-repeated": "it delays a handoff, which breaks no rule that is judged",
    "admission-outside-the-namespaces": "the configuration has the selector too, so the API server does not ask",
    "contest-shorter-than-its-duration": "the former maximum is waited for; contest-of-the-present-maximum breaks both",
    "edited-lease-is-taken-uncontested": "the longest duration is waited for twice; f5-duration-edited breaks both",
    "history-is-not-compared": "a list and the leader's own Lease show it too; f11-history-is-not-compared breaks all",
    "lost-answer-means-not-given": "the version that was tested bears the drain label: it is acknowledged again",
    "makes-its-lease-again": "the next renewal meets the tombstone, which is the sharder's",
    "stale-list-believed": "the simulated servers keep NotOlderThan, as real ones do",
    "works-on-what-is-anothers": "an object that is another's leaves the watch, and with it the cache",
    "works-without-lease": "the workers wait for the Lease too; never-paused breaks both",
}
"""Why the simulation cannot notice some rules alone: others stand beside them."""
_FAILED = re.compile(r"^FAILED seed (\d+) .*?reconciles  (?P<rule>[^:]+):", re.MULTILINE)


def find(mutant: Mutant, *, seeds: int) -> dict[str, object]:
    """The first seed at which a judge notices *mutant*, and which judge. Raises: BadMutant."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        tree = Path(name)
        for folder in COPIED:
            shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
        for path, text in mutated(mutant, tree).items():
            path.write_text(text)
        command = [sys.executable, "-m", "simulation", "--until-failure", "--no-shrink"]
        command += ["--first", str(FIRST), "--seeds", str(seeds)]
        environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"}
        began = time.monotonic()
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    found = _FAILED.search(done.stdout)
    if done.returncode not in (0, 1) or (done.returncode == 1 and found is None):
        raise BadMutant(f"{mutant.name}: {(done.stdout + done.stderr)[-500:]}")
    return {
        "rule": mutant.rule,
        "seeds": int(found.group(1)) - FIRST + 1 if found else None,
        "judge": found["rule"] if found else "",
        "of": seeds,
        "seconds": round(time.monotonic() - began),
    }


def known_mutants() -> list[Mutant]:
    """Every patch that can be tried."""
    return [*read_mutants(), *map(read_mutant, sorted(PATCHES.glob("*.patch")))]


def table(results: dict[str, dict[str, object]]) -> str:
    """The table of docs/testing-results.md: found ones by their seeds, then the others."""
    found = sorted(
        (each for each in results.items() if each[1]["seeds"]), key=lambda each: (each[1]["seeds"], each[0])
    )
    left = sorted(each for each in results.items() if not each[1]["seeds"])
    lines = ["| mutant | rule | seeds until found | judge |\n", "|---|---|---|---|\n"]
    for name, result in (*found, *left):
        seeds = result["seeds"] or f"not in {result['of']}: {REASONS.get(name, 'a gap')}"
        lines.append(f"| {name} | {result['rule']} | {seeds} | {result['judge']} |\n")
    return "".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", help="whole names of patches; all that have results if none is given"
    )
    parser.add_argument("--seeds", type=count, default=500, help="most seeds for each (default 500)")
    parser.add_argument(
        "--table", action="store_true", help="write the table into docs/testing-results.md and run nothing"
    )
    flags = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if flags.table:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + table(results) + END + rest.partition(END)[2])
        return 0
    known = {mutant.name: mutant for mutant in known_mutants()}
    names = flags.names or list(results)
    if unknown := [name for name in names if name not in known]:
        print(f"error: {unknown[0]}: is no patch in tests/mutants", file=sys.stderr)
        return 2
    for number, name in enumerate(names, 1):
        try:
            results[name] = find(known[name], seeds=flags.seeds)
        except BadMutant as problem:
            print(f"simulation mutants: {problem}", file=sys.stderr)
            continue
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        result = results[name]
        shown = f"found by seed {result['seeds']} ({result['judge']})" if result["seeds"] else "NOT FOUND"
        print(f"{number}/{len(names)} {name}: {shown}, {result['seconds']} s", flush=True)
    return 1 if any(not results[name]["seeds"] for name in names if name in results) else 0


if __name__ == "__main__":
    sys.exit(main())
