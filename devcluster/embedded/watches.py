"""Events of a watch: the selector semantics of the real server, and the lines of a stream. Pure.

An object that starts to match is ADDED; one that stops is DELETED with its *old* state and labels under the new
version, so that a handoff looks like a deletion. `streams` sends the lines.
"""

from __future__ import annotations

from typing import Final

import msgspec

from devcluster.embedded import table
from devcluster.embedded.paths import Target
from devcluster.embedded.reads import Selection, check_version_match, one, parse_version, selection
from devcluster.embedded.shapes import Shape, renumbered
from devcluster.embedded.status import Cause, Refusal, StatusSubject, invalid, too_large
from devcluster.embedded.store import Entry, Event

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class Watch:
    """Parameters and selectors of one watch."""

    __slots__ = (
        "_first_row",
        "_include",
        "_skips_initial",
        "bookmarks",
        "send_initial",
        "shape",
        "target",
        "timeout_s",
        "version",
        "wanted",
    )

    def __init__(self, target: Target, query: dict[str, str], shape: Shape) -> None:
        self.target: Final = target
        self.wanted: Final[Selection] = selection(target, query)
        self.shape: Final = shape
        self.version: Final = query.get("resourceVersion", "")
        self.bookmarks: Final = query.get("allowWatchBookmarks") in ("true", "1")
        self.send_initial: Final = query.get("sendInitialEvents") in ("true", "1")
        self.timeout_s: Final = float(query.get("timeoutSeconds") or 0)
        self._include = query.get("includeObject", "Metadata")
        self._first_row = True
        self._skips_initial = query.get("sendInitialEvents") in ("false", "0")
        parse_version(self.version)
        match = query.get("resourceVersionMatch", "")
        if "sendInitialEvents" in query:
            if match != "NotOlderThan":
                raise _forbidden(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                )
            if not self.bookmarks and self.send_initial:
                raise _forbidden(
                    "allowWatchBookmarks", "sendInitialEvents requires setting allowWatchBookmarks to true"
                )
        elif match:
            check_version_match(self.version, match)
            raise _forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )

    def start(self) -> tuple[list[Entry], list[Event]]:
        """(objects to announce first, events to send after them). Raises: 410, 504."""
        collection = self.target.kind.collection
        number = parse_version(self.version)
        if number > collection.versions.current:
            raise too_large(number, collection.versions.current)
        if not self.version:
            collection.confirm()
        if self.send_initial or (number == 0 and not self._skips_initial):
            return [entry for entry in collection.entries() if self.wanted.matches(entry)], []
        return [], collection.since(number or collection.versions.current)

    def line(self, event: Event) -> bytes | None:
        """The line of *event*, or None if the selectors do not match it."""
        old, new = event.old, event.new
        was = old is not None and self.wanted.matches(old)
        if new is not None and self.wanted.matches(new):
            return self._encode("MODIFIED" if was else "ADDED", new)
        if was and old is not None:
            return self._encode("DELETED", renumbered(old, event.version))
        return None

    def added(self, entry: Entry) -> bytes:
        return self._encode("ADDED", entry)

    def bookmark(self, version: int, *, initial_end: bool = False) -> bytes:
        kind, api_version = self.target.kind.kind, self.target.kind.api_version(self.target.version.name)
        if self.shape is Shape.PARTIAL:
            kind, api_version = "PartialObjectMetadata", "meta.k8s.io/v1"
        metadata: dict[str, object] = {"resourceVersion": str(version)}
        if initial_end:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        if self.shape is Shape.TABLE:
            rows = [{"cells": [], "object": {"kind": kind, "apiVersion": api_version, "metadata": metadata}}]
            shown: dict[str, object] = {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "columnDefinitions": [],
                "rows": rows,
            }
            shown["metadata"] = {"resourceVersion": str(version)}
        else:
            shown = {"kind": kind, "apiVersion": api_version, "metadata": metadata}
        return msgspec.json.encode({"type": "BOOKMARK", "object": shown}) + b"\n"

    def _encode(self, type_: str, entry: Entry) -> bytes:
        if self.shape is Shape.TABLE:
            shown = table.encode(
                self.target.kind,
                self.target.version,
                [entry],
                str(entry.version),
                include=self._include,
                definitions=self._first_row,
            )
            self._first_row = False
        else:
            shown = one(self.target, entry, self.shape)
        return b'{"type":"%s","object":%s}\n' % (type_.encode(), shown)


def error_line(refusal: Refusal) -> bytes:
    """The last line of a watch that failed after it was accepted."""
    return b'{"type":"ERROR","object":%s}\n' % refusal.body()


def _forbidden(field: str, why: str) -> Refusal:
    return invalid(
        StatusSubject("meta.k8s.io", "listoptions", "ListOptions", ""),
        [Cause(field, why, "FieldValueForbidden")],
    )
