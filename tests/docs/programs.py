"""The Python programs that documents show."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from scripts.document import blocks_of

ROOT = Path(__file__).resolve().parents[2]


def program_of(name: str) -> str:
    """The Python that *name* shows, as one file."""
    blocks = [
        block.body
        for block in blocks_of((ROOT / "docs" / name).read_text())
        if block.language == "python" and not block.tag
    ]
    return "\n\n".join(blocks)


def load(name: str, folder: Path) -> ModuleType:
    """The program of *name* as a module, its file in *folder*."""
    path = folder / f"{Path(name).stem.replace('-', '_')}_program.py"
    path.write_text(program_of(name))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
