"""A Deployment or StatefulSet with the proxy before its controller. Pure but for the chart's text, which it fills in.

The chart fills the same text in templates/_unmodified.tpl; tests/ringleader compares both.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from kubeio.errors import InputError
from ringleader.assets import asset

Doc = dict[str, Any]
KINDS: Final = ("Deployment", "StatefulSet")
_ASKED: Final = {"readinessProbe": "--controller-readiness", "livenessProbe": "--controller-liveness"}
"""Probes of the controller that the proxy asks in the kubelet's place, and the flags for their URLs."""
_STOP_S: Final = 60
"""Seconds of the grace period behind the controller's own end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions:
    """What is put before a controller. *flags*: of the proxy; *command*: the controller's, empty for the manifest's."""

    ring: str
    image: str
    container: str = ""
    flags: Sequence[str] = ()
    command: Sequence[str] = ()
    stop_within_s: float = 30.0


def filled(name: str, gaps: dict[str, str]) -> str:
    """The text *name* of the chart's files with its *gaps* filled."""
    text = asset("manifests", "chart", "files", name).read_text()
    for gap, value in gaps.items():
        text = text.replace(f"$({gap})", value)
    return text


def behind_proxy(workload: Doc, options: ProxyOptions) -> Doc:
    """*workload* with the proxy before its controller. Raises: InputError, with the field that stands against it."""
    changed = copy.deepcopy(workload)
    pod = changed["spec"]["template"]["spec"]
    if any(each["name"] == "ringleader" for each in pod.get("initContainers", [])):
        problem = "is there: the workload was rendered before"
        raise InputError("initContainers", "ringleader", problem, "give its source")
    container = _container(pod, options.container)
    gaps = {
        "CONTAINER": container["name"],
        "IMAGE": options.image,
        "PULL_POLICY": "IfNotPresent",
        "RING": options.ring,
    }
    parts = yaml.safe_load(filled("unmodified.yaml", gaps))
    own = parts["container"]
    field = f"containers.{container['name']}"
    command = [*options.command] or [*container.get("command", []), *container.get("args", [])]
    if not options.command and not container.get("command"):
        raise InputError(
            f"{field}.command",
            "",
            "is missing",
            "write it after `--`; the ENTRYPOINT of the image says which",
        )
    grace_s = max(pod.get("terminationGracePeriodSeconds", 30), round(options.stop_within_s) + _STOP_S)
    flags = [*options.flags]
    for probe, flag in _ASKED.items():
        if all(word.partition("=")[0] != flag for word in options.flags):
            flags += [f"{flag}={url}" for url in _url_of(container, probe, field=field, flag=flag)]
    if changed["kind"] == "StatefulSet":
        flags += ["--hold", f"--termination-grace-period={grace_s}s"]
    pod["terminationGracePeriodSeconds"] = grace_s
    container["command"] = own["command"]
    container["args"] = [*own["args"], *flags, "--", *command]
    for name in ("livenessProbe", "readinessProbe"):
        container[name] = own[name]
    container.pop("startupProbe", None)
    _add(container, "env", own["env"], key="name", field=field)
    _add(container, "ports", own["ports"], key="containerPort", field=field)
    _add(container, "volumeMounts", own["volumeMounts"], key="mountPath", field=field)
    _add(pod, "volumes", parts["volumes"], key="name", field="spec")
    pod["initContainers"] = [parts["initContainer"], *pod.get("initContainers", [])]
    return changed


def _container(pod: Doc, name: str) -> Doc:
    containers: list[Doc] = pod["containers"]
    names = [each["name"] for each in containers]
    if not name and len(containers) > 1:
        raise InputError(
            "--container", None, "is missing", f"the pod has {', '.join(names)}: name the controller's"
        )
    found = [each for each in containers if name in ("", each["name"])]
    if not found:
        raise InputError("--container", name, "is not in the pod", f"use {' or '.join(names)}")
    return found[0]


def _url_of(container: Doc, name: str, *, field: str, flag: str) -> list[str]:
    """The URL that the probe *name* of *container* asks, if there is one. Raises: InputError if it asks otherwise."""
    probe = container.get(name)
    if probe is None:
        return []
    asked = probe.get("httpGet")
    if asked is None:
        raise InputError(
            f"{field}.{name}",
            ", ".join(probe),
            "is nothing that the proxy can ask in the kubelet's place",
            f"use httpGet, remove it, or pass {flag} URL",
        )
    port = asked["port"]
    if isinstance(port, str):
        numbers = {each.get("name"): each["containerPort"] for each in container.get("ports", [])}
        if port not in numbers:
            raise InputError(f"{field}.{name}", port, "is no port of the container", "write its number")
        port = numbers[port]
    return [f"{asked.get('scheme', 'HTTP').lower()}://127.0.0.1:{port}{asked.get('path', '/')}"]


def _add(owner: Doc, name: str, entries: Iterable[Doc], *, key: str, field: str) -> None:
    """Append *entries* to the list *name* of *owner*. Raises: InputError if another one has the same *key*."""
    there = {entry.get(key): entry for entry in owner.get(name) or []}
    for entry in entries:
        if there.get(entry[key], entry) != entry:
            raise InputError(
                f"{field}.{name}",
                entry[key],
                "is what the proxy needs, and stands for something else",
                "rename it",
            )
    new = [entry for entry in entries if entry[key] not in there]
    owner[name] = [*(owner.get(name) or []), *new]
