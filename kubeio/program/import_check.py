"""Whether the packages that Python finds under our names are ours: PyPI has a `ring` and a `sharder` of other people.

Owns the signs by which ours are known. Nothing is imported to look for them: what a foreign package does when it is
imported is its own.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

from kubeio.errors import InputError

SIGNS: Final = {"ring": b"ALGORITHM: Final", "sharder": b"DISTRIBUTION: Final"}
"""Text of our own `__init__.py` that no other package has."""
_INSTALLED: Final = {"site-packages", "dist-packages"}


class ForeignPackage(InputError, ImportError):
    """A package of another project, or a file of the user's, stands where Python looks for ours."""


def check_packages() -> None:
    """See that `ring` and `sharder` are ours. Raises: ForeignPackage."""
    for name, sign in SIGNS.items():
        origin = _origin(name)
        if not origin:
            remedy = "install Ringleader again (pip install --force-reinstall ringleader)"
            raise ForeignPackage(
                "import", name, "finds nothing, though the rest of Ringleader is there", remedy
            )
        if sign not in Path(origin).read_bytes():
            problem = f"finds {origin}, which is not Ringleader's package of that name"
            raise ForeignPackage("import", name, problem, _remedy(name, Path(origin)))


def _origin(name: str) -> str:
    """The file that `import name` would run; empty if there is none."""
    spec = importlib.util.find_spec(name)
    return spec.origin or "" if spec is not None else ""


def _remedy(name: str, origin: Path) -> str:
    if _INSTALLED.isdisjoint(origin.parts):
        return "rename it, or take its folder off the path (PYTHONPATH, or the folder that the command is started in)"
    return f"remove it (pip uninstall {name}), then install Ringleader again in an environment of its own"
