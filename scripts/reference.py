"""The reference of the public interface, made from docstrings: `python scripts/reference.py` writes docs/reference.md.

Owns how it looks; what it says stands in the code. tests/docs compares the file with what this makes.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import shard_controller as sc  # noqa: E402 - a script: its folder's parent is where packages are
from ringleader.testing.fleet import Fleet  # noqa: E402

GROUPS: Final = (
    ("Declaring", ("Resource", "Controller", "Owned", "Watch", "Backoff")),
    ("Running", ("run", "Sharded", "Single", "LeaderElected", "Mode")),
    ("In a reconciler", ("Context", "SyncContext", "Conditions", "Meta", "Key")),
    ("What a reconciler answers", ("Done", "RequeueAfter", "Result", "PermanentError")),
    ("Errors it may see", ("ShardError", "Refused", "NotOurs", "Elsewhere")),
    (
        "Predicates",
        ("Predicate", "Snapshot", "generation_changed", "labels_changed", "annotations_changed"),
    ),
)
MADE_FOR_USERS: Final = ("Context", "SyncContext", "Conditions", "Snapshot", "Meta", "Fleet")
"""Classes that users do not make themselves."""
_HEAD: Final = """# Reference

What `import shard_controller as sc` gives, and the fleet of `ringleader.testing`. Made from the docstrings by
`python scripts/reference.py`; [writing-a-controller.md](writing-a-controller.md) is the text to read first.
"""


def reference() -> str:
    """The whole page."""
    named = [name for _, names in GROUPS for name in names]
    missing = set(sc.__all__) ^ set(named)
    if missing:
        raise SystemExit(
            f"scripts/reference.py: GROUPS and shard_controller.__all__ differ in {sorted(missing)}"
        )
    parts = [_HEAD]
    for title, names in GROUPS:
        parts.append(f"## {title}\n")
        parts += [_entry(f"sc.{name}", getattr(sc, name)) for name in names]
    parts += ["## Testing\n", _entry("ringleader.testing.fleet.Fleet", Fleet)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _entry(path: str, value: Any) -> str:
    name = path.rpartition(".")[2]
    if isinstance(value, sc.Predicate):
        return f"### `{path}`\n\n{_words(value)}\n"
    if not (inspect.isclass(value) or inspect.isfunction(value)):  # a union
        return f"### `{path}`\n\n`{' | '.join(each.__name__ for each in value.__args__)}`\n"
    prefix = "class " if inspect.isclass(value) else ""
    shown = f"{prefix}{name}{'' if name in MADE_FOR_USERS else _signature(value)}"
    lines = [f"### `{path}`\n", f"```text\n{shown}\n```\n", _words(value), ""]
    if value is sc.SyncContext:
        lines += ["The names of `sc.Context`, without `await`.", ""]
    elif inspect.isclass(value):
        lines += [f"- **`{shown}`**{': ' if text else ''}{text}" for shown, text in _members(value)]
        lines.append("")
    return "\n".join(lines)


def _members(cls: type) -> Iterator[tuple[str, str]]:
    yield from _attributes(cls)
    for name, member in vars(cls).items():
        function = getattr(member, "__func__", member)  # of a static or class method
        if isinstance(member, property):
            function = member.fget
        elif isinstance(member, cached_property):
            function = member.func
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        if isinstance(member, property | cached_property):
            yield name, _line(function)
        else:
            waits = "await " if inspect.iscoroutinefunction(function) else ""
            yield f"{waits}{name}{_signature(function)}", _line(function)


def _attributes(cls: type) -> Iterator[tuple[str, str]]:
    """What is assigned in the class or its `__init__` with a docstring of its own below it."""
    nodes = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0].body  # type: ignore[attr-defined]
    bodies = [nodes, *(node.body for node in nodes if getattr(node, "name", "") == "__init__")]
    for body in bodies:
        for node, below in pairwise(body):
            if not isinstance(node, ast.AnnAssign | ast.Assign) or not isinstance(below, ast.Expr):
                continue
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "_")
            if (
                isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
                and name[0] != "_"
            ):
                kind = f": {ast.unparse(node.annotation)}" if isinstance(node, ast.AnnAssign) else ""
                yield f"{name}{kind}", " ".join(below.value.value.split())


def _told(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


class _Text(str):
    """An annotation, shown without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _signature(value: Any) -> str:
    try:
        found = inspect.signature(value)
    except ValueError:
        return ""
    empty = inspect.Parameter.empty
    parameters = [
        each if each.annotation is empty else each.replace(annotation=_Text(_told(each.annotation)))
        for each in found.parameters.values()
        if each.name not in ("self", "cls")
    ]
    answer = found.return_annotation
    is_told = answer is not empty and str(answer) != "None"
    return str(
        found.replace(parameters=parameters, return_annotation=_Text(_told(answer)) if is_told else empty)
    )


def _words(value: Any) -> str:
    return inspect.getdoc(value) or ""


def _line(value: Any) -> str:
    return " ".join(_words(value).split())


if __name__ == "__main__":
    (ROOT / "docs" / "reference.md").write_text(reference())
