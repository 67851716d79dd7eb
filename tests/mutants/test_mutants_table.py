"""The mutants still fit the code: each applies, changes code, and names tests that exist. `make mutants` runs them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from scripts.mutants import ROOT, TABLE, BadMutant, Mutant, mutated, read_mutant, read_mutants, table

MUTANTS = read_mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_and_leaves_code_that_can_be_read(mutant: Mutant) -> None:
    changed = mutated(mutant, ROOT)
    assert changed
    for path, text in changed.items():
        assert text != path.read_text()
        if path.suffix == ".py":
            assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(path.read_text())), (
                "only its looks changed"
            )


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_test_that_a_mutant_names_exists(mutant: Mutant) -> None:
    for test in mutant.tests:
        path, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text()


def test_the_table_is_what_the_patches_say() -> None:
    assert TABLE.read_text() == table(MUTANTS), "write it anew: scripts/mutants.py --table"


@pytest.mark.parametrize(
    "section", ["1", "2", "3", "4", "5.1", "5.2", "5.3", "5.4", "5.5", "5.6", "5.7", "5.8", "6", "7", "8"]
)
def test_every_section_of_the_protocol_has_its_mutants(section: str) -> None:
    assert any(mutant.rule.split()[0].rstrip(",").startswith(section) for mutant in MUTANTS)


# -- the runner's own way with patches

PATCH = """Rule: 1 a rule
Test: tests/a.py::test_it

--- a/code.py
+++ b/code.py
@@ -{line},2 +{line},2 @@
 def f():
-    return 1
+    return 2
"""


def patched(directory: Path, code: str, *, line: int = 1) -> str:
    (directory / "code.py").write_text(code)
    patch = directory / "m.patch"
    patch.write_text(PATCH.format(line=line))
    return mutated(read_mutant(patch), directory)[directory / "code.py"]


def test_a_hunk_is_found_by_its_text_wherever_it_went(tmp_path: Path) -> None:
    assert patched(tmp_path, "# new\n\n\n\ndef f():\n    return 1\n\nx = 1\n") == (
        "# new\n\n\n\ndef f():\n    return 2\n\nx = 1\n"
    )


def test_of_equal_places_the_one_nearest_to_its_line_is_meant(tmp_path: Path) -> None:
    twice = "def f():\n    return 1\n\n" * 2
    assert patched(tmp_path, twice, line=4) == "def f():\n    return 1\n\ndef f():\n    return 2\n\n"


def test_a_hunk_whose_text_is_gone_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadMutant, match=r"m\.patch no longer applies to code\.py"):
        patched(tmp_path, "def f():\n    return 3\n")


def test_a_patch_without_a_header_says_what_it_wants(tmp_path: Path) -> None:
    (tmp_path / "m.patch").write_text("--- a/code.py\n")
    with pytest.raises(BadMutant, match="Rule"):
        read_mutant(tmp_path / "m.patch")
