"""`ringleader proxy --render FILE`: prints a workload with the proxy before its controller, and the rights it needs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import yaml

from kubeio.errors import InputError
from kubeio.fence import BINDINGS, POLICIES, policies_of
from kubeio.program.flag_parser import FlagParser
from kubeio.program.yaml_file import read_file
from kubeio.protocol import RingEntry, RingKeys
from kubeio.shard.ring import RingView, ring_from_file
from proxy.kinds import tree_kinds
from proxy.settings import Settings, read_settings
from ringleader.unmodified import RENDER
from ringleader.unmodified.workload import KINDS, Doc, ProxyOptions, behind_proxy, filled

_GIVEN: Final = (
    "--ring",
    "--member",
    "--hold",
    "--termination-grace-period",
    "--health-probe-bind-address",
    "--controller-files",
    "--service-account",
)
"""Flags of the proxy that rendering sets itself."""


def run_render(words: Sequence[str]) -> int:
    """The command. Raises: InputError."""
    own, command = (words, ()) if "--" not in words else _split(words)
    flags, rest = _parser().parse_known_args(list(own))
    if not flags.render:
        raise InputError(
            RENDER, None, "names no file", "name the one with the workload, or - for standard input"
        )
    if not flags.ring_file:
        raise InputError(
            "--ring-file", None, "is missing", "name the file with the ring: its rights follow from it"
        )
    view = ring_from_file(Path(flags.ring_file))
    settings = _settings(rest)
    tree_kinds(view, settings.resources, settings.leaves)
    documents = _documents(flags.render)
    (at,) = _workloads(documents, flags.render)
    options = ProxyOptions(
        ring=view.metadata.name,
        image=flags.image,
        container=flags.container,
        flags=rest,
        command=command,
        stop_within_s=settings.stop_within_s,
    )
    workload = documents[at]
    documents[at], granted = (
        behind_proxy(workload, options),
        rights(workload, view, is_fenced=settings.is_fenced),
    )
    yaml.safe_dump_all(documents, sys.stdout, sort_keys=False, explicit_start=True, width=120)
    sys.stdout.write(f"---\n{granted}")
    return 0


def rights(workload: Doc, view: RingView, *, is_fenced: bool) -> str:
    """What the account of *workload* may do as a shard of the ring, as YAML; the rights of its own work come beside.

    *is_fenced*: its requests name the life that sends them.
    """
    meta, pod = workload["metadata"], workload["spec"]["template"]["spec"]
    account = pod.get("serviceAccountName", "default")
    if account == "default":
        raise InputError(
            "serviceAccountName", account, "is every pod's", "give the controller an account of its own"
        )
    rules = object_rules(view.spec.resources)
    if is_fenced:
        rules += life_rules(view.keys)
    gaps = {
        "NAME": f"ringleader-{view.metadata.name}-{meta['name']}",
        "LABELS": json.dumps({"app.kubernetes.io/part-of": "ringleader"}),
        "RING": view.metadata.name,
        "ACCOUNT": account,
        "NAMESPACE": meta["namespace"],
        "WORKLOAD": meta["name"],
        "LEASE_NAMESPACE": view.spec.lease_namespace,
        "RULES": "\n  ".join(f"- {json.dumps(rule)}" for rule in rules),
    }
    texts = ["shard-rbac.yaml", *(["life-rbac.yaml"] if is_fenced else [])]
    return "---\n".join(filled(text, gaps) for text in texts)


def object_rules(entries: Iterable[RingEntry]) -> list[dict[str, list[str]]]:
    """What a shard does with the ring's objects: one rule per API group."""
    groups: dict[str, set[str]] = {}
    for entry in entries:
        for kind in (entry.main, *entry.controlled_resources):
            groups.setdefault(kind.group, set()).add(kind.resource)
    verbs = ["get", "list", "watch", "patch"]
    return [
        {"apiGroups": [group], "resources": sorted(groups[group]), "verbs": verbs} for group in sorted(groups)
    ]


def life_rules(keys: RingKeys) -> list[dict[str, list[str]]]:
    """What it takes to name a life, and to see that policies refuse foreign ones."""
    return [
        {
            "apiGroups": ["authentication.k8s.io"],
            "resources": [f"userextras/{keys.life_extra}"],
            "verbs": ["impersonate"],
        },
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": [POLICIES.plural, BINDINGS.plural],
            "resourceNames": list(policies_of(keys.ring)),
            "verbs": ["get"],
        },
    ]


def _split(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    at = list(words).index("--")
    return words[:at], words[at + 1 :]


def _settings(rest: Sequence[str]) -> Settings:
    """The proxy's settings by *rest*, its own flags. Raises: InputError; SystemExit for unknown flags."""
    for word in rest:
        if word.partition("=")[0] in _GIVEN:
            raise InputError(word.partition("=")[0], None, "is set by --render itself", "leave it out")
    return read_settings([*rest, "--ring=-", "--member=-", "--", sys.executable])


def _documents(name: str) -> list[Doc]:
    """The YAML documents in the file *name*, or (`-`) on standard input. Raises: InputError."""
    content = sys.stdin.buffer.read() if name == "-" else read_file(RENDER, Path(name))
    try:
        found: list[Any] = [doc for doc in yaml.safe_load_all(content) if doc is not None]
    except (yaml.YAMLError, UnicodeDecodeError):
        found = [None]
    if not all(isinstance(doc, dict) for doc in found):
        raise InputError(RENDER, name, "is not YAML of objects", "write it as for kubectl apply -f")
    return found


def _workloads(documents: Sequence[Doc], name: str) -> list[int]:
    """The place of the one workload among *documents*. Raises: InputError if there is none, several, or half a one."""
    places = [at for at, doc in enumerate(documents) if doc.get("kind") in KINDS]
    if len(places) != 1:
        found = (
            f"has {len(places)} Deployments and StatefulSets"
            if places
            else "has no Deployment or StatefulSet"
        )
        raise InputError(RENDER, name, found, "give the one that runs the controller")
    workload = documents[places[0]]
    try:
        meta, pod = workload["metadata"], workload["spec"]["template"]["spec"]
        shaped = isinstance(meta["name"], str) and all(
            isinstance(each["name"], str) for each in pod["containers"]
        )
    except (KeyError, TypeError):
        shaped = False
    if not shaped:
        raise InputError(
            RENDER, name, "has a workload without name or containers", "write it as for kubectl apply -f"
        )
    if not meta.get("namespace"):
        remedy = "write it: rights are given to an account in it"
        raise InputError("metadata.namespace", "", f"is missing in {workload['kind']} {meta['name']}", remedy)
    return places


def _parser() -> FlagParser:
    parser = FlagParser(
        prog="ringleader proxy --render",
        usage="%(prog)s FILE --ring-file FILE [OPTIONS] [FLAGS OF THE PROXY] [-- COMMAND...]",
        description="Print the Deployment or StatefulSet in FILE with the proxy before its controller, what else is in "
        "FILE, and the rights that its account needs as a shard. COMMAND: the controller's, if FILE does not name it.",
    )
    parser.add_argument(RENDER, metavar="FILE", nargs="?", help="A file of YAML, or - for standard input.")
    parser.add_argument("--ring-file", metavar="FILE", default="", help="The ring.")
    image = f"ringleader:{version('ringleader')}"
    parser.add_argument(
        "--image", metavar="IMAGE", default=image, help="Ringleader's. [default: %(default)s]"
    )
    parser.add_argument(
        "--container", metavar="NAME", default="", help="The controller's, if the pod has several."
    )
    return parser
