"""Rendered objects of the chart: chosen by kind, and applied to a server without effect."""

from __future__ import annotations

from typing import Any

from kubeio.rest.discovery import Discovery
from ringleader.testing.client import IndependentClient

Doc = dict[str, Any]
RESTRICTED = "pod-security.kubernetes.io/enforce"


def kinds(objects: list[Doc], kind: str) -> list[Doc]:
    return [obj for obj in objects if obj["kind"] == kind]


def pod_of(workload: Doc) -> Doc:
    """A pod of a Deployment or StatefulSet."""
    template = workload["spec"]["template"]
    meta = {**template["metadata"], "name": "pod", "namespace": workload["metadata"]["namespace"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}


async def dry_run(admin: IndependentClient, discovery: Discovery, obj: Doc) -> None:
    """Apply *obj* without effect. Raises what the server says against it."""
    group = obj["apiVersion"].rpartition("/")[0]
    resource = await discovery.resolve(f"{obj['kind']}.{group}" if group else obj["kind"])
    meta = obj["metadata"]
    await admin.request(
        "PATCH",
        resource.path(namespace=meta.get("namespace", "") if resource.namespaced else "", name=meta["name"]),
        query={"dryRun": "All", "fieldValidation": "Strict", "fieldManager": "test", "force": "true"},
        body=obj,
        content_type="application/apply-patch+yaml",
    )
