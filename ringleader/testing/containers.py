"""Containers as local processes: command lines, environment and probes, as a kubelet makes them of a pod. Pure.

An image is no file system here: `Images` says which local program stands for a program in it. A pod's address is a
loopback address of its own, so an argument such as `--health-probe-bind-address=:8081` gets that address.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

Doc = dict[str, Any]
_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_HOSTLESS: Final = re.compile(r"^(--[a-z-]+=):(?=\d+$)")


class PodError(Exception):
    """A pod asks for what a process kubelet does not have."""


@dataclass(frozen=True, slots=True)
class Images:
    """Local programs for those in images. *entrypoint*: what an image runs if the container names no command."""

    programs: Mapping[str, Sequence[str]] = field(default_factory=lambda: {"python": [sys.executable]})
    entrypoint: Sequence[str] = ()

    def command(
        self,
        container: Doc,
        environment: Mapping[str, str],
        *,
        address: str,
        mounts: Mapping[str, Path] | None = None,
    ) -> list[str]:
        """Command line of *container*. *mounts*: local folders by the paths that they have in it.

        Raises: PodError if there is none.
        """
        words = [*(container.get("command") or self.entrypoint), *container.get("args", [])]
        if not words:
            raise PodError(f"container {container['name']}: it names no command, and its image has none here")
        program, *rest = [local(expand(word, environment), mounts or {}) for word in words]
        own = [_HOSTLESS.sub(rf"\g<1>{address}:", word) for word in rest]
        return [*self.programs.get(program, [program]), *own]


def expand(text: str, environment: Mapping[str, str]) -> str:
    """*text* with `$(NAME)` replaced as the kubelet does it: what is unknown stays, `$$` is a dollar."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else environment.get(name, match[0])

    return _REFERENCE.sub(value, text)


def local(word: str, mounts: Mapping[str, Path]) -> str:
    """*word* with a path, or a flag's, that is below one of *mounts* in its local place."""
    flag, equals, value = word.rpartition("=")
    for mounted, folder in mounts.items():
        if value == mounted or value.startswith(f"{mounted}/"):
            return f"{flag}{equals}{folder}{value.removeprefix(mounted)}"
    return word


def mounts_of(pod: Doc, container: Doc, volumes: Path) -> dict[str, Path]:
    """Folders below *volumes* for the emptyDirs of *pod* that *container* mounts, by its paths.

    /tmp is left out: it is this machine's.
    """
    names = {volume["name"] for volume in pod["spec"].get("volumes", []) if "emptyDir" in volume}
    mounted = container.get("volumeMounts", [])
    return {
        mount["mountPath"]: volumes / mount["name"]
        for mount in mounted
        if mount["name"] in names and mount["mountPath"] != "/tmp"  # noqa: S108 - a path in the container
    }


def environment_of(pod: Doc, container: Doc, *, address: str = "") -> dict[str, str]:
    """Variables that the container names, the downward API included. Raises: PodError."""
    environment: dict[str, str] = {}
    for entry in container.get("env", []):
        source = entry.get("valueFrom")
        if source is None:
            environment[entry["name"]] = expand(entry.get("value", ""), environment)
        elif "fieldRef" in source:
            environment[entry["name"]] = field_of(pod, source["fieldRef"]["fieldPath"], address=address)
        else:
            raise PodError(f"env {entry['name']}: {', '.join(source)} is not supported")
    return environment


def field_of(pod: Doc, path: str, *, address: str = "") -> str:
    """The field *path* of the downward API. Raises: PodError."""
    keyed = _KEYED.fullmatch(path)
    if keyed is not None:
        return str((pod["metadata"].get(keyed[1]) or {}).get(keyed[2], ""))
    if path in ("status.podIP", "status.hostIP"):
        return address
    section, _, name = path.partition(".")
    if (section, name) in _FIELDS:
        return str(pod[section].get(name, ""))
    raise PodError(f"the field {path} is not supported")


_FIELDS: Final = {
    ("metadata", "name"),
    ("metadata", "namespace"),
    ("metadata", "uid"),
    ("spec", "nodeName"),
    ("spec", "serviceAccountName"),
}


@dataclass(frozen=True, slots=True)
class Probe:
    """One HTTP probe of a container. Times in seconds."""

    url: str
    period_s: float
    timeout_s: float
    delay_s: float
    fails_after_s: float
    """Without a success."""
    successes: int


def probe_of(container: Doc, kind: str, *, address: str, longest_period_s: float) -> Probe | None:
    """The `startupProbe`, `readinessProbe` or `livenessProbe` of *container*. Raises: PodError.

    *longest_period_s* bounds its period, so that a success is seen soon. It fails no earlier than *container* says.
    """
    spec = container.get(kind)
    if spec is None:
        return None
    if "httpGet" not in spec:
        raise PodError(f"container {container['name']}: {kind}: only httpGet is supported")
    port = port_of(container, spec["httpGet"]["port"])
    period_s = float(spec.get("periodSeconds", 10))
    return Probe(
        url=f"http://{address}:{port}{spec['httpGet'].get('path', '/')}",
        period_s=min(period_s, longest_period_s),
        timeout_s=float(spec.get("timeoutSeconds", 1)),
        delay_s=float(spec.get("initialDelaySeconds", 0)),
        fails_after_s=int(spec.get("failureThreshold", 3)) * period_s,
        successes=int(spec.get("successThreshold", 1)),
    )


def port_of(container: Doc, port: int | str) -> int:
    """The number of *port*, which may be a name of *container*'s."""
    by_name = {entry.get("name"): entry["containerPort"] for entry in container.get("ports", [])}
    return port if isinstance(port, int) else int(by_name[port])
