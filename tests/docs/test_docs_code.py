"""Python that the documents show runs: the blocks of a document are one program, in its order, with strict types.

`<!-- kopf -->` before a block: it is kopf's code, beside ours. `<!-- write: PATH -->`: a file of the tutorial's.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import kopf
import pytest

import shard_controller as sc
from scripts.document import blocks_of
from tests.docs.programs import ROOT, load, program_of

PROGRAMS = ("coming-from-kopf.md", "coming-from-controller-runtime.md", "writing-a-controller.md")


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_of_a_document_declares_controllers_that_can_run(name: str, tmp_path: Path) -> None:
    found = [value for value in vars(load(name, tmp_path)).values() if isinstance(value, sc.Controller)]
    assert found
    assert all(controller.reconciler for controller in found)


async def test_the_outside_system_of_a_document_refuses_a_former_owner(tmp_path: Path) -> None:
    shown = load("writing-a-controller.md", tmp_path)
    await shown.cdn.publish("u-1", "first owner", token=0)
    await shown.cdn.publish("u-1", "second owner", token=70)
    await shown.cdn.publish("u-1", "second owner, again", token=70)
    with pytest.raises(shown.FormerOwner):
        await shown.cdn.purge("u-1", token=0)
    assert shown.cdn.pages == {"u-1": "second owner, again"}
    await shown.cdn.purge("u-2", token=0)


def test_the_programs_of_the_documents_are_typed(tmp_path: Path) -> None:
    paths = []
    for name in PROGRAMS:
        path = tmp_path / f"{Path(name).stem.replace('-', '_')}_program.py"
        path.write_text(program_of(name))
        paths.append(str(path))
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", ".mypy_cache/documents", *paths]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def test_what_is_shown_of_kopf_is_kopf(tmp_path: Path) -> None:
    shown = [
        b.body for b in blocks_of((ROOT / "docs" / "coming-from-kopf.md").read_text()) if b.tag == "kopf"
    ]
    assert len(shown) == 1
    registry = kopf.OperatorRegistry()
    former = kopf.get_default_registry()
    kopf.set_default_registry(registry)
    try:
        exec(compile(shown[0], "coming-from-kopf.md", "exec"), {})
    finally:
        kopf.set_default_registry(former)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_name_of_ours_that_a_document_mentions_exists(name: str) -> None:
    """In tables too: `sc.X`, `ctx.x`."""
    text = (ROOT / "docs" / name).read_text()
    for found in sorted(set(re.findall(r"\bsc\.([A-Za-z_]+)", text))):
        assert hasattr(sc, found), f"{name} mentions sc.{found}"
    known = {*dir(sc.Context), *dir(sc.SyncContext), "object", "meta", "log", "status", "conditions"}
    for found in sorted(set(re.findall(r"\bctx\.([a-z_]+)", text))):
        assert found in known, f"{name} mentions ctx.{found}"


def features_of_kopf() -> list[str]:
    """The decorators that kopf's users write."""
    on = [f"@kopf.on.{name}" for name in vars(kopf.on) if _is_decorator(getattr(kopf.on, name), kopf.on)]
    return [*on, "@kopf.timer", "@kopf.daemon", "@kopf.index", "kopf.TemporaryError", "kopf.PermanentError"]


def _is_decorator(value: object, module: ModuleType) -> bool:
    name = getattr(value, "__name__", "_")
    return (
        callable(value)
        and getattr(value, "__module__", "") == module.__name__
        and not name.startswith("_")
        and name not in ("register", "subhandler", "daemon", "timer", "index")
    )


@pytest.mark.parametrize("feature", features_of_kopf())
def test_the_table_has_every_feature_of_the_kopf_that_is_installed(feature: str) -> None:
    text = (ROOT / "docs" / "coming-from-kopf.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and feature in line.split("|")[1]]
    assert rows, f"{feature} is not in the table"
    for row in rows:
        ours = row.split("|")[2]
        assert "`" in ours or "not offered, because" in ours, row


def test_files_of_the_tutorial_are_valid_python() -> None:
    for block in blocks_of((ROOT / "docs" / "tutorial.md").read_text()):
        if block.language == "python":
            ast.parse(block.body)
            assert block.path, "say <!-- write: PATH --> before it"
