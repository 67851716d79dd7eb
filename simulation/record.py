"""Readable lines for the record of a run, and the part of a record that shows one failure. Pure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kubeio.http.messages import Call
from kubeio.protocol import RingKeys

_MERGE = "merge-patch"
_ALWAYS = re.compile(r"^FAULT|^VIOLATION|log info: leading|healed")
_PID = re.compile(r"(?<=\d)/\d+")
_OF_PROCESSES = re.compile(r" log | leases/| ends with | starts on ")


def describe_write(call: Call, keys: RingKeys) -> str:
    """A write in few words: method, object, and what it does to the ring's labels or a Lease's holder."""
    parts = call.path.split("/")
    where = "/".join(parts[parts.index("namespaces") + 2 :] if "namespaces" in parts else parts[-2:])
    return f"{call.method} {where}{_effect(call, keys)}"


def _effect(call: Call, keys: RingKeys) -> str:
    if not call.body:
        return ""
    try:
        doc: Any = msgspec.json.decode(call.body)
    except (msgspec.DecodeError, RecursionError):
        return " (unreadable)"
    if isinstance(doc, list):
        return _json_patch(doc, keys)
    if not isinstance(doc, dict):
        return ""
    meta, spec = doc.get("metadata"), doc.get("spec")
    found = []
    if isinstance(meta, dict):
        found += _labels(meta.get("labels"), keys)
        if keys.contested in (meta.get("annotations") or {}):
            found.append("contested")
    if isinstance(spec, dict) and "holderIdentity" in spec:
        found.append(f"holder={spec['holderIdentity'] or ''}")
    return f" {' '.join(found)}" if found else ""


def _json_patch(operations: list[Any], keys: RingKeys) -> str:
    names = {f"/metadata/labels/{key.replace('/', '~1')}": name for key, name in _names(keys).items()}
    found = []
    for operation in operations:
        name = names.get(operation.get("path", ""))
        if name is None:
            continue
        match operation["op"]:
            case "test":
                found.append(f"if {name}={operation.get('value')}:")
            case "remove":
                found.append(f"-{name}")
            case _:
                found.append(f"{name}={operation.get('value')}")
    return f" {' '.join(found)}" if found else ""


def _labels(labels: object, keys: RingKeys) -> list[str]:
    if not isinstance(labels, Mapping):
        return []
    return [f"{name}={labels[key]}" for key, name in _names(keys).items() if key in labels]


def _names(keys: RingKeys) -> dict[str, str]:
    return {keys.shard: "shard", keys.drain: "drain"}


def describe_log(process: str, event: Mapping[str, Any]) -> str:
    """A log line: process, event, and its fields."""
    fields = " ".join(f"{key}={value}" for key, value in event.items() if key not in ("event", "level"))
    return f"{process} log {event.get('level', 'info')}: {event.get('event')} {fields}".rstrip()


def relevant(lines: Iterable[str], what: str, *, most: int) -> list[str]:
    """The last *most* of the lines about the objects, shards and processes that *what* names, with faults and exits.

    What only repeats itself, such as renewals, is shown once.
    """
    names = set(re.findall(r"[a-z]+-\d+(?:-[0-9a-f]{8})?", what))
    shards = {name for name in names if re.fullmatch(r"[a-z]+-\d+-[0-9a-f]{8}", name)}
    processes = shards | {name.rsplit("-", 1)[0] for name in shards}
    objects, workers = _any_of(names - processes), _any_of(processes)
    found: deque[str] = deque(maxlen=most)
    shown: set[str] = set()
    for line in lines:
        text = _PID.sub("", line[12:])
        if _ALWAYS.search(text):
            shown.clear()
        elif text in shown:
            continue  # it goes on renewing, or reconciling
        elif not objects.search(text) and not (workers.search(text) and _OF_PROCESSES.search(text)):
            continue
        shown.add(text)
        found.append(line)
    return list(found)


def _any_of(names: set[str]) -> re.Pattern[str]:
    """A pattern for any of *names*; of none it matches nothing."""
    return re.compile("|".join(rf"\b{re.escape(name)}\b" for name in sorted(names)) or r"(?!)")
