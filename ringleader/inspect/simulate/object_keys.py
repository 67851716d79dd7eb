"""Objects as the ring sees them: keys in batches, invented, from a file, or from the cluster by pages of metadata.

Owns the form of a file of keys and what is said about its broken lines. Keeps no object.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from kubeio.errors import InputError
from ringleader.cluster.objects import object_pages, ring_kinds
from ringleader.cluster.placement import Placer, key_of, main_of
from ringleader.cluster.reader import ClusterReader
from ringleader.inspect.simulate.simulation import Batch
from sharder.planning.keys import Root

if TYPE_CHECKING:
    from kubeio.rest.client import Client
    from kubeio.rest.discovery import Discovery
    from ringleader.cluster.ring import Ring
    from sharder.planning.keys import Role

BATCH: Final = 20_000
MOST_OBJECTS: Final = 100_000_000
MOST_TOLD: Final = 10
"""Broken lines of a file that are named; of further ones their number."""
MOST_REMEMBERED: Final = 200_000
"""Controllers remembered where only they can tell a key: 40 MB; the keys of further ones are read one by one."""

_KEY: Final = re.compile(r"([^\s,_]*_[^\s,_]*_[^\s,_]*|=[^\s,]+)(?:,([0-9]{1,9}))?")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
_FORM: Final = "GROUP_NAMESPACE_NAME, GROUP_NAMESPACE_NAME,CONTROLLED or =LABEL"
Report = Callable[[str], None]


def invented_keys(count: int) -> Iterator[Batch]:
    """*count* objects of one namespace, each with a key of its own."""
    for start in range(0, count, BATCH):
        yield Batch(
            [f"example.com_default_object-{number}" for number in range(start, min(start + BATCH, count))]
        )


def parse_objects(text: str) -> int | Path:
    """A number of objects, or the file that lists their keys (`-`: standard input). Raises: InputError."""
    if not _NUMBER.fullmatch(text):
        path = Path("/dev/stdin" if text == "-" else text)
        if path.is_dir():
            raise InputError("--objects", text, "is a directory", "name a file with one key per line")
        if not path.exists():
            raise InputError("--objects", text, "does not exist", "write a number, or name a file of keys")
        return path
    number = int(text)
    if not 1 <= number <= MOST_OBJECTS:
        problem = "is no object at all" if number == 0 else "is not a number of objects"
        raise InputError("--objects", text, problem, f"write a number from 1 to {MOST_OBJECTS}, or a file")
    return number


def keys_of_file(path: Path, *, report: Report) -> Iterator[Batch]:
    """The keys that file *path* lists; its broken lines go to *report* and are left out.

    Raises: InputError if it cannot be read, or if no line of it is a key.
    """
    try:
        stream = path.open("rb")
    except OSError as error:
        raise InputError(
            "--objects", str(path), f"cannot be read ({error.strerror})", "name a readable file"
        ) from error
    with stream:
        reader = _Reader(path.name, report)
        yield from reader.batches(stream)
    if not reader.found:
        raise InputError("--objects", str(path), "holds no key", f"write one per line: {_FORM}")


class _Reader:
    """Reads one file of keys, and counts what was found and what is broken."""

    def __init__(self, name: str, report: Report) -> None:
        self.found = 0
        self.broken = 0
        self._name = name
        self._report = report

    def batches(self, stream: BinaryIO) -> Iterator[Batch]:
        keys: list[str] = []
        controlled: list[int] = []
        for number, raw in enumerate(stream, start=1):
            line = raw.decode(errors="replace").strip()
            if not line or line.startswith("#"):
                continue
            match = _KEY.fullmatch(line)
            if match is None or match[1] == "__" or "\N{REPLACEMENT CHARACTER}" in line:
                self._leave_out(number, line)
                continue
            keys.append(match[1])
            controlled.append(int(match[2] or 0))
            if len(keys) == BATCH:
                self.found += BATCH
                yield Batch(keys, controlled=controlled)
                keys, controlled = [], []
        self.found += len(keys)
        yield Batch(keys, controlled=controlled)
        if self.broken > MOST_TOLD:
            self._report(f"{self._name}: {self.broken - MOST_TOLD} more lines are no keys and are left out")

    def _leave_out(self, number: int, line: str) -> None:
        self.broken += 1
        if self.broken <= MOST_TOLD:
            shown = line if len(line) <= 60 else f"{line[:57]}..."
            self._report(f"{self._name}, line {number}: {shown!r} is no key and is left out; write {_FORM}")


def tell_on_stderr(line: str) -> None:
    """Say *line* beside the output of a command."""
    sys.stderr.write(f"warning: {line}\n")


async def read_keys(
    client: Client, discovery: Discovery, ring: Ring, *, mains: Collection[str], timeout_s: float
) -> AsyncIterator[Batch]:
    """Every object of *ring* that is of one of *mains* or follows it; what controls comes before what is controlled.

    A batch for each page and main resource. Objects of namespaces that the ring does not select are left out unless
    they still have its label, as in `ringleader status`.
    """
    kinds = await ring_kinds(discovery, ring)
    snapshot = await ClusterReader(client, timeout_s=timeout_s).snapshot(ring.name)
    placer = Placer(client, snapshot.of(ring.name), kinds, most_remembered=MOST_REMEMBERED)
    others = {kind for kind in ring.mains if kind not in mains}
    resources = [
        each for each in kinds.labelled if each.group_resource not in others or kinds.may_be_controlled(each)
    ]
    async for resource, objects in object_pages(client, resources, timeout_s=timeout_s):
        wanted = [each.meta for each in objects if snapshot.wants(ring, each.meta)]
        for batch in _batches(await placer.roles(resource, wanted)):
            if not batch.main or batch.main in mains:
                yield batch


def _batches(roles: Iterable[Role]) -> list[Batch]:
    """A batch for each main resource that objects of *roles* are or follow."""
    found: defaultdict[str, _Found] = defaultdict(_Found)
    for role in roles:
        key = key_of(role)
        if key is not None:
            found[main_of(role)].add(key, is_root=isinstance(role, Root))
    return [Batch(each.keys, each.roots, each.controlled, main) for main, each in found.items()]


@dataclass(slots=True)
class _Found:
    """The entries of one batch."""

    keys: list[str] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    controlled: list[int] = field(default_factory=list)

    def add(self, key: str, *, is_root: bool) -> None:
        self.keys.append(key)
        self.roots.append(int(is_root))
        self.controlled.append(int(not is_root))
