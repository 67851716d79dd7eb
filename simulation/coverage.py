"""What runs reached: log lines, decisions, membership transitions, exits and faults; and what none of them ever did."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from sharder.membership.shards import ShardState
from sharder.planning import decisions, planner
from sharder.writing import ring_context
from simulation.faults import KINDS

_ROOT: Final = Path(__file__).resolve().parent.parent
_SIMULATED: Final = (
    "sharder",
    "shard_controller",
    "kubeio/watches",
    "kubeio/leases",
    "kubeio/queues",
    "kubeio/rest",
)
_LEFT_OUT: Final = (
    "sharder/live",
    "sharder/rings/ring_file.py",
    "shard_controller/observe/watchdog.py",
)
"""What no run starts: the live view, rings in files, threads beside the loop."""
_NOT_SIMULATED: Final = frozenset(
    {
        "admission failed",
        "object cannot be read",
        "object could not be stored in the cache",
        "object not handled",
        "reconcile in a thread overruns",
        "released namespaces could not be removed from status",
        "removed namespaces released",
        "waiting",
    }
)
"""Lines that no run writes: metadata that no API server gives, faults of ours that one object would bring about,
reconcilers in threads, rings in files, replicas without a ring."""
_LEVELS: Final = frozenset({"info", "warning", "error", "exception"})


def watch_decisions(reached: Counter[str]) -> None:
    """Count the planner's decisions of this process by their type."""
    plan = planner.plan

    def counted(*args: object, **kwargs: object) -> decisions.Decision:
        decision = plan(*args, **kwargs)  # type: ignore[arg-type]
        reached[f"decision {type(decision).__name__}"] += 1
        return decision

    # the name that the sharder calls it by
    ring_context.plan = counted  # type: ignore[attr-defined]


def note_log(reached: Counter[str], event: Mapping[str, object]) -> None:
    """Count a log line; one about a shard's state counts as a transition, too."""
    reached[f"log {event.get('event')}"] += 1
    if event.get("event") == "shard changed state":
        reached[f"transition {event.get('was') or 'none'} > {event.get('state')}"] += 1


def expected() -> frozenset[str]:
    """All that could be reached: log lines that the code has, decisions, states, faults."""
    logs = {f"log {event}" for path in _sources() for event in _events(path)}
    kinds = {f"decision {kind.__name__}" for kind in decisions.Decision.__args__}
    states = {f"state {state}" for state in ShardState}
    return frozenset(logs | kinds | states | {f"fault {kind}" for kind in KINDS})


def never_reached(reached: Mapping[str, int]) -> list[str]:
    """What of `expected` is not in *reached*."""
    states = {f"state {name.rpartition('> ')[2]}" for name in reached if name.startswith("transition")}
    return sorted(name for name in expected() if name not in reached and name not in states)


def _sources() -> Iterator[Path]:
    for folder in _SIMULATED:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            if not path.relative_to(_ROOT).as_posix().startswith(_LEFT_OUT):
                yield path


def _events(path: Path) -> Iterator[str]:
    """First arguments of `log.info(...)` and the like."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _LEVELS
            and "log" in ast.unparse(node.func.value)
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and node.args[0].value not in _NOT_SIMULATED
        ):
            yield str(node.args[0].value)
