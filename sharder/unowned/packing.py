"""One pending object in 35 bytes; values that repeat among many are kept once. Pure.

`kubeio.models.Meta` of an object takes 1 to 2 KB; of a pending object only identity, version, a few labels and the
controller matter.

A record: uid (16 bytes), resourceVersion (8), since (4, milliseconds), reads of the Leases begun before (4: 13 years of
them), labels (2, a number in `SharedValues`), marks (1). An object with a controller, or with a uid that is no UUID,
has a `Rest` besides.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import msgspec

from kubeio.models import OwnerReference, controller_of

RECORD: Final = struct.Struct("<16sQIIHB")
LONGEST_MS: Final = 2**32 - 1
_MOST_REPEATED: Final = 2**16 - 1
UNPACKED: Final = _MOST_REPEATED
"""In the place of the number: the labels are in the `Rest`."""
NO_UID: Final = bytes(16)

Labels = tuple[tuple[str, str], ...]


class Marks:
    """The bits of a record's last byte."""

    PRIORITY: Final = 0b0011
    HAS_REST: Final = 0b1000
    IS_LISTED: Final = 0b0001_0000
    """The list under way, or the last one, showed it."""


class PackedController(msgspec.Struct, frozen=True, gc=False):
    """The object that controls a waiting one."""

    api_version: str
    kind: str
    name: str
    uid: str


class Rest(msgspec.Struct, frozen=True, gc=False):
    """Parts of a pending object that do not fit into a record."""

    controller: PackedController | None = None
    uid: str = ""
    """Set if it is no UUID."""
    labels: Labels = ()
    """Set if there are too many different ones to number them."""


class PackedRecord(NamedTuple):
    """A record, taken apart."""

    uid: bytes
    version: int
    since_ms: int
    reads_before: int
    labels: int
    marks: int


def unpacked(record: bytes) -> PackedRecord:
    return PackedRecord(*RECORD.unpack(record))


def version_of(record: bytes) -> int:
    return int.from_bytes(record[16:24], "little")


def labels_of(record: bytes) -> int:
    """The number of its labels; 0: none."""
    return record[32] | record[33] << 8


def marks_of(record: bytes) -> int:
    return record[34]


def marked(record: bytes, marks: int) -> bytes:
    """*record* with other *marks*."""
    return record[:34] + bytes((marks,))


def packed_uid(uid: str) -> bytes:
    """*uid* in 16 bytes; `NO_UID` if it would not come out of them as it was."""
    if len(uid) != 36:
        return NO_UID
    try:
        number = int(uid.replace("-", ""), 16)
        made = number.to_bytes(16, "big")
    except (ValueError, OverflowError):
        return NO_UID
    return made if text_uid(made) == uid and made != NO_UID else NO_UID


def text_uid(packed: bytes) -> str:
    digits = packed.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


class SharedValues:
    """Sets of labels that many objects share, by number; the empty one is 0."""

    def __init__(self) -> None:
        self._numbers: dict[Labels, int] = {(): 0}
        self._labels: list[Labels] = [()]

    def number(self, labels: Labels) -> int:
        """The number of *labels*; `UNPACKED` when there are no more numbers."""
        known = self._numbers.get(labels)
        if known is not None:
            return known
        if len(self._labels) >= _MOST_REPEATED:
            return UNPACKED
        self._labels.append(labels)
        self._numbers[labels] = len(self._labels) - 1
        return len(self._labels) - 1

    def labels(self, number: int) -> Labels:
        return self._labels[number]


def packed_controller(references: list[OwnerReference]) -> PackedController | None:
    """The one among *references* that controls, if any."""
    found = controller_of(references)
    return (
        PackedController(found.api_version, found.kind, found.name, found.uid) if found is not None else None
    )


def reference_to(controller: PackedController) -> OwnerReference:
    return OwnerReference(
        controller.api_version, controller.kind, controller.name, controller.uid, controller=True
    )
