"""The author check: a plain watch that reads nothing of ours but a label and a field of the objects' status.

Rule: in every version in which the status differs from that of the version before, `status.worker` is the shard
label of that very version. A status write tests the label and leaves it as it is, so no other version is excused.

`python -m tests.fleet.chaos.author_check` is a process of its own on the `kubernetes` package; its file has a line
for each finding, for each change of a label, and for each version when it has been idle for a moment.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

Doc = dict[str, Any]
_GONE = 410
_REPORTED_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Misattributed:
    """A status that *author* wrote while the object's label named another: it must never happen."""

    key: str
    version: str
    author: str
    label: str
    label_before: str

    def __str__(self) -> str:
        return (
            f"{self.key}: version {self.version} has a new status by {self.author or 'nobody'} under the label"
            f" {self.label or '(none)'} (the version before: {self.label_before or '(none)'})"
        )


@dataclass(slots=True)
class AuthorCheck:
    """Judges the versions of objects in the order in which a watch shows them."""

    label_key: str
    judged: int = 0
    """Versions with a new status."""
    findings: list[Misattributed] = field(default_factory=list)
    _last: dict[str, Doc] = field(default_factory=dict)

    def start(self, objects: list[Doc]) -> None:
        """Begin anew with a list: what happened since the last version seen is unknown, and not judged."""
        self._last = {each["metadata"]["uid"]: each for each in objects}

    def see(self, kind: str, found: Doc) -> Misattributed | None:
        """Judge the next version of an object; *kind* is the type of its event."""
        uid = found["metadata"]["uid"]
        before = self._last.pop(uid, None)
        if kind == "DELETED":
            return None
        self._last[uid] = found
        status = found.get("status") or {}
        if before is None or (before.get("status") or {}) == status:
            return None
        self.judged += 1
        label, author = self.label(found), str(status.get("worker") or "")
        if label == author:
            return None
        meta = found["metadata"]
        key = f"{meta.get('namespace', '')}/{meta['name']}"
        finding = Misattributed(key, meta["resourceVersion"], author, label, self.label(before))
        self.findings.append(finding)
        return finding

    def label(self, found: Doc) -> str:
        return str((found["metadata"].get("labels") or {}).get(self.label_key, ""))


# -- what reads the file -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class AuthorReport:
    """What the process has written so far."""

    path: Path
    version: int = 0
    judged: int = 0
    lists: int = 0
    findings: list[Misattributed] = field(default_factory=list)
    labels: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """Of each uid: from which version on it bore which label."""
    _position: int = 0

    def read(self) -> None:
        """Read what came since the last call."""
        with self.path.open("rb") as file:
            file.seek(self._position)
            fresh = file.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._position += len(whole)
        for line in whole.splitlines():
            self._take(json.loads(line))

    def _take(self, line: Doc) -> None:
        if "finding" in line:
            self.findings.append(Misattributed(**line["finding"]))
        elif "label" in line:
            self.labels.setdefault(line["uid"], []).append((int(line["version"]), line["label"]))
        else:
            self.version, self.judged, self.lists = line["version"], line["judged"], line["lists"]

    def label_before(self, uid: str, version: int) -> str | None:
        """The label of the last version of *uid* before *version*; None if it is not known."""
        known = [label for at, label in self.labels.get(uid, []) if at < version]
        return known[-1] if known else None


# -- the process ---------------------------------------------------------------------------------------------------


def watch(kubeconfigs: list[str], check: AuthorCheck, out: TextIO, *, namespace: str, resource: str) -> None:
    """List and watch for ever, through the servers in turn."""
    version, lists = "", 0
    labels: dict[str, str] = {}
    reported_at = 0.0
    for kubeconfig in itertools.cycle(kubeconfigs):
        with contextlib.suppress(
            Exception
        ):  # a server that is away, a definition that is gone: the next in turn
            for kind, found in _events(kubeconfig, version, namespace=namespace, resource=resource):
                if kind == "LIST":
                    check.start(found["items"])
                    lists += 1
                    events = [("ADDED", item) for item in found["items"]]
                elif kind == "EXPIRED":
                    version = ""
                    break
                else:
                    events = [(kind, found)]
                    finding = None if kind == "BOOKMARK" else check.see(kind, found)
                    if finding is not None:
                        _write(out, finding=asdict(finding))
                version = found["metadata"]["resourceVersion"]
                for _, each in events:
                    meta = each["metadata"]
                    if "uid" in meta and labels.get(meta["uid"]) != check.label(each):
                        labels[meta["uid"]] = label = check.label(each)
                        _write(out, uid=meta["uid"], version=meta["resourceVersion"], label=label)
                if kind == "LIST" or time.monotonic() - reported_at > _REPORTED_EVERY_S:
                    reported_at = time.monotonic()
                    _write(out, version=int(version), judged=check.judged, lists=lists)
        time.sleep(0.1)


def _events(kubeconfig: str, version: str, *, namespace: str, resource: str) -> Iterator[tuple[str, Doc]]:
    """A list unless *version* says where to go on, then what the watch shows until it ends."""
    from kubernetes import client, config

    plural, _, group = resource.partition(".")
    connect: Callable[[str], Any] = config.new_client_from_config
    api: Any = client.CustomObjectsApi(connect(kubeconfig))
    place: Doc = {"group": group, "version": "v1", "namespace": namespace, "plural": plural}
    if not version:
        listed = api.list_namespaced_custom_object(**place, _request_timeout=10)
        yield "LIST", listed
        version = listed["metadata"]["resourceVersion"]
    stream = api.list_namespaced_custom_object(
        **place,
        watch=True,
        resource_version=version,
        allow_watch_bookmarks=True,
        timeout_seconds=60,
        _request_timeout=(5, 70),
        _preload_content=False,
    )
    if stream.status == _GONE:
        yield "EXPIRED", {}
        return
    buffer = b""
    for part in stream.stream(None, decode_content=False):
        *lines, buffer = (buffer + part).split(b"\n")
        for line in filter(None, lines):
            event = json.loads(line)
            if event["type"] == "ERROR":
                yield "EXPIRED", event["object"]
                return
            yield event["type"], event["object"]


def _write(out: TextIO, **line: Any) -> None:
    out.write(json.dumps(line) + "\n")
    out.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="author_check")
    parser.add_argument("--kubeconfig", action="append", required=True, help="one for each API server")
    parser.add_argument("--label", required=True, help="key of the shard label")
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--resource", required=True, help="such as websites.example.com")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with options.out.open("a") as out:
        watch(
            options.kubeconfig,
            AuthorCheck(options.label),
            out,
            namespace=options.namespace,
            resource=options.resource,
        )


if __name__ == "__main__":
    main()
