"""AdmissionReviews as the API server sends them, and their answers applied to the object they were about."""

from __future__ import annotations

import base64
import json
from typing import Any

import jsonpatch

Doc = dict[str, Any]


def review(
    obj: Doc,
    *,
    resource: str = "websites",
    group: str = "example.com",
    namespace: str = "ns",
    operation: str = "CREATE",
    **request: Any,
) -> bytes:
    """The review of *obj* being created; *request* changes the request."""
    version = "v1"
    asked = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": group, "version": version, "kind": "Kind"},
        "resource": {"group": group, "version": version, "resource": resource},
        "requestKind": {"group": group, "version": version, "kind": "Kind"},
        "name": obj["metadata"].get("name", ""),
        "operation": operation,
        "userInfo": {"username": "ada", "groups": ["system:authenticated"]},
        "object": tracked(obj),
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        **({"namespace": namespace} if namespace else {}),
        **request,
    }
    return json.dumps(
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": asked}
    ).encode()


def tracked(obj: Doc) -> Doc:
    """*obj* with the managedFields that the API server gives it, unless it has some."""
    meta = obj["metadata"]
    if "managedFields" in meta:
        return obj
    maps = {f"f:{kind}": meta.get(kind) or {} for kind in ("labels", "annotations")}
    fields: Doc = {kind: {".": {}, **{f"f:{key}": {} for key in keys}} for kind, keys in maps.items() if keys}
    return {**obj, "metadata": {**meta, "managedFields": [managed({"f:metadata": fields, "f:spec": {}})]}}


def managed(fields: Doc, *, manager: str = "x", operation: str = "Update") -> Doc:
    """An entry of managedFields."""
    kind = {"apiVersion": "example.com/v1", "fieldsType": "FieldsV1"}
    return {**kind, "manager": manager, "operation": operation, "fieldsV1": fields}


def website(name: str, **metadata: Any) -> Doc:
    meta = {"name": name, "creationTimestamp": None, "namespace": "ns", **metadata}
    return {"apiVersion": "example.com/v1", "kind": "Website", "metadata": meta, "spec": {"html": "x"}}


def child(parent: str, **metadata: Any) -> Doc:
    """A ConfigMap that Website *parent* controls."""
    owner = {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "name": parent,
        "uid": f"uid-of-{parent}",
        "controller": True,
    }
    meta = {"name": f"{parent}-html", "namespace": "ns", "ownerReferences": [owner], **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {}}


def answered(body: bytes) -> Doc:
    """The response in an answer; it allows, and is the answer to `review`."""
    found = json.loads(body)
    assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Doc = found["response"]
    assert response["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"
    assert response["allowed"] is True
    return response


def stored(obj: Doc, body: bytes) -> Doc:
    """*obj* as the API server stores it after the answer *body*."""
    response = answered(body)
    if "patch" not in response:
        return obj
    assert response["patchType"] == "JSONPatch"
    patched: Doc = jsonpatch.apply_patch(obj, json.loads(base64.b64decode(response["patch"])))
    return patched
