"""Makes the files of a new project: every template with its placeholders filled, into a folder that has nothing yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from string import Template

from kubeio.errors import InputError
from ringleader.output import print_line
from ringleader.scaffold.names import Names, names_of

_TEMPLATES = Path(__file__).resolve().parent / "template"
_SUFFIX = ".tmpl"


def run_init(project: str, *, folder: Path | None, group: str, kind: str, plural: str) -> int:
    """The command. Raises: InputError on names that cannot be used, and on a folder that is not empty."""
    names = names_of(project, group=group, kind=kind, plural=plural)
    place = folder or Path(project)
    written = create_project(place, names)
    print_line(f"{place}: {len(written)} files: {', '.join(written)}")
    print_line(f"next: cd {place} && python -m pytest, then read README.md")
    return 0


def create_project(folder: Path, names: Names) -> list[str]:
    """Write every file into *folder*, which is made if need be; their names. Raises: InputError, OSError."""
    if folder.exists() and not folder.is_dir():
        raise InputError("DIR", str(folder), "is not a folder", "name a folder that is new or empty")
    if folder.exists() and any(folder.iterdir()):
        raise InputError("DIR", str(folder), "is not empty", "name a folder that is new or empty")
    files = dict(_files(names))
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return sorted(files)


def _files(names: Names) -> Iterator[tuple[str, str]]:
    """Name and content of each file."""
    for path in sorted(_TEMPLATES.rglob(f"*{_SUFFIX}")):
        name = str(path.relative_to(_TEMPLATES)).removesuffix(_SUFFIX)
        yield name.replace("dot-", "."), Template(path.read_text()).substitute(names.fields())
