"""The page of the chart's values: `python scripts/values.py` writes docs/values.md.

Texts and defaults stand in values.yaml (`# --` above a value, as helm-docs reads them), types in values.schema.json,
and there texts of what has a name of the user's choice (`rings.NAME`). tests/chart compares the page with this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
CHART: Final = ROOT / "manifests" / "chart"
NAMED: Final = (
    ("rings", "NAME", "ring"),
    ("controllers", "NAME", "controller"),
    ("externalRings", "NAME", "externalRing"),
)
"""Maps by name, and the definition of what each name leads to."""
_LINE = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z]+):(?P<value>.*)$")
_HEAD: Final = """# Values of the chart

Made from [values.yaml](../manifests/chart/values.yaml) and its schema by `python scripts/values.py`. The schema refuses
what is not listed here. [operate.md](operate.md) shows them in use.
"""
Doc = Mapping[str, Any]


def page() -> str:
    """The whole page."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    text = (CHART / "values.yaml").read_text()
    defaults = yaml.safe_load(text)
    told = dict(texts(text))
    rows = [
        _row(path, _at(schema, path, schema), words, _shown(_value(defaults, path)))
        for path, words in told.items()
    ]
    parts = [_HEAD, _table(rows)]
    for field, name, definition in NAMED:
        entry = schema["definitions"][definition]
        rows = list(_rows_below(f"{field}.{name}", entry, schema))
        parts += [f"## One of `{field}`\n", f"{_about(definition)}\n", _table(rows)]
    return "\n".join(parts)


def _rows_below(path: str, entry: Doc, schema: Doc) -> Iterator[str]:
    """A row of each described value of *entry*, and of those below it."""
    for key, one in entry["properties"].items():
        if "description" in one:
            yield _row(f"{path}.{key}", _resolved(one, schema), one["description"], "")
            resolved = _resolved(one, schema)
            if "properties" in resolved and "required" not in resolved:
                yield from _rows_below(f"{path}.{key}", resolved, schema)


def _about(definition: str) -> str:
    return {
        "ring": "Every field of the ring's `spec` (`kubectl explain controllerring.spec`). The chart itself reads:",
        "controller": "Every value of `controllerDefaults`, and:",
        "externalRing": "All are optional.",
    }[definition]


def texts(values: str) -> Iterator[tuple[str, str]]:
    """Path and text of each value that has one, in the file's order."""
    path: list[str] = []
    words: list[str] = []
    for line in values.splitlines():
        comment = line.strip()
        if comment.startswith("# -- "):
            words = [comment.removeprefix("# -- ")]
        elif comment.startswith("#") and words:
            words.append(comment.removeprefix("#").strip())
        elif found := _LINE.match(line):
            path = [*path[: len(found["indent"]) // 2], found["key"]]
            if words:
                yield ".".join(path), " ".join(words)
            words = []
        else:
            words = []


def leaves(values: Doc, told: Mapping[str, str], prefix: str = "") -> Iterator[str]:
    """Paths of everything that values.yaml sets; a map with a text of its own is one value."""
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value and path not in told:
            yield from leaves(value, told, f"{path}.")
        else:
            yield path


def _table(rows: list[str]) -> str:
    return "\n".join(["| value | type | default | what it does |", "|---|---|---|---|", *rows]) + "\n"


def _row(path: str, schema: Doc, words: str, default: str) -> str:
    cells = [f"`{path}`", _kind(schema), default, words]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _shown(value: object) -> str:
    return f"`{json.dumps(value)}`"


def _value(defaults: Doc, path: str) -> object:
    found: Any = defaults
    for key in path.split("."):
        found = found[key]
    return found


def _resolved(schema: Doc, root: Doc) -> Doc:
    """*schema* with what it refers to in its place."""
    while "$ref" in schema:
        schema = root["definitions"][schema["$ref"].rpartition("/")[2]]
    return schema


def _at(schema: Doc, path: str, root: Doc) -> Doc:
    for key in path.split("."):
        schema = _resolved(_resolved(schema, root)["properties"][key], root)
    return schema


def _kind(schema: Doc) -> str:
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    kinds = schema.get("type", "string")
    names = [kinds] if isinstance(kinds, str) else [kind for kind in kinds if kind != "array"]
    words = {"object": "map", "array": "list"}
    return " or ".join(words.get(name, name) for name in names)


if __name__ == "__main__":
    (ROOT / "docs" / "values.md").write_text(page())
