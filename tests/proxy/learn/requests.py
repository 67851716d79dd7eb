"""Requests of a controller, noted as learn mode notes them."""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.headers import Request
from proxy.learn.requests import Call, note_call, read_call
from proxy.learn.seen import Seen

DEPLOYMENTS = "/apis/apps/v1/namespaces/web/deployments"
PODS = "/api/v1/namespaces/web/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/web/leases"
KUBE_CONTROLLER_MANAGER = ("/bin/kube-controller-manager", "--kubeconfig={kubeconfig}")


def call(method: str, target: str, body: Any = None, **headers: str) -> Call | None:
    """The call that a request is; *headers* with underscores, *body* as JSON unless it is bytes."""
    content = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    if content and "content_type" not in headers:
        pairs.append((b"content-type", b"application/json"))
    return read_call(Request(method.encode(), target.encode(), pairs, content, is_upgrade=False))


def ask(seen: Seen, method: str, target: str, body: Any = None, *, status: int = 200, **headers: str) -> None:
    """Note a request and its answer in *seen*."""
    found = call(method, target, body, **headers)
    assert found is not None
    note_call(seen, found, status)


def watches(seen: Seen, *targets: str) -> Seen:
    """*seen*, with a list and a watch of each of *targets*."""
    for target in targets:
        ask(seen, "GET", f"{target}?limit=500")
        ask(seen, "GET", f"{target}?watch=true&resourceVersion=7")
    return seen


def deployments() -> Seen:
    """What the controllers of Deployments and ReplicaSets do."""
    seen = watches(Seen(), "/apis/apps/v1/deployments", "/apis/apps/v1/replicasets", "/api/v1/pods")
    ask(seen, "PUT", f"{DEPLOYMENTS}/shop/status", {"metadata": {"name": "shop"}})
    for _ in range(2):
        ask(seen, "PUT", f"{LEASES}/manager", {"metadata": {"name": "manager"}})
    seen.kind("replicasets.apps").created["deployments.apps"] = 3
    seen.kind("pods").created["replicasets.apps"] = 9
    return seen
