"""The resources that the contract suite works on: definitions, and small objects of them."""

from __future__ import annotations

import asyncio
import copy
import time
from typing import Any

from tests.contract.api import Api

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

_SPEC_SCHEMA = {
    "type": "object",
    "required": ["html"],
    "properties": {
        "html": {"type": "string", "minLength": 1, "maxLength": 2000},
        "theme": {"type": "string", "default": "plain", "enum": ["plain", "dark"]},
        "replicas": {"type": "integer", "minimum": 0, "maximum": 10},
        "port": {"x-kubernetes-int-or-string": True},
        "tags": {"type": "array", "maxItems": 3, "items": {"type": "string"}},
        "nick": {"type": "string", "nullable": True},
        "slug": {"type": "string", "pattern": "^[a-z]+$"},
        "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
        "pages": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path"],
                "properties": {"path": {"type": "string"}, "visible": {"type": "boolean", "default": True}},
            },
        },
    },
}

SITES: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "websites.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {
            "plural": "websites",
            "singular": "website",
            "kind": "Website",
            "shortNames": ["site"],
            "categories": ["all"],
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "Html", "type": "string", "jsonPath": ".spec.html"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": _SPEC_SCHEMA,
                            "status": {
                                "type": "object",
                                "properties": {
                                    "observedGeneration": {"type": "integer"},
                                    "message": {"type": "string"},
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}

GADGETS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gadgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Cluster",
        "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


async def define(api: Api, definition: dict[str, Any]) -> None:
    """Create *definition* unless it is there, and wait until its resource is served."""
    created = await api.post(DEFINITIONS, definition)
    assert created.status in (201, 409), created.text
    await served(api, definition)


async def until_gone(api: Api, path: str, *, within_s: float = 60) -> None:
    """Wait until *path* is answered by 404."""
    deadline = time.monotonic() + within_s
    while (await api.get(path)).status != 404:
        assert time.monotonic() < deadline, f"{path} is still there"
        await asyncio.sleep(0.1)


async def served(api: Api, definition: dict[str, Any]) -> None:
    spec = definition["spec"]
    path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    deadline = time.monotonic() + 15
    while (await api.get(path, limit="1")).status != 200:
        assert time.monotonic() < deadline, f"{path} is not served"
        await asyncio.sleep(0.05)


def renamed(definition: dict[str, Any], plural: str, kind: str, **spec: object) -> dict[str, Any]:
    """*definition* for another resource, with *spec* fields replaced."""
    copied = copy.deepcopy(definition)
    copied["metadata"]["name"] = f"{plural}.{copied['spec']['group']}"
    copied["spec"]["names"] = {"plural": plural, "singular": kind.lower(), "kind": kind}
    copied["spec"] |= spec
    return copied


def site(name: str, *, labels: dict[str, str] | None = None, **spec: object) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name} | ({"labels": labels} if labels is not None else {})
    return {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "metadata": metadata,
        "spec": {"html": "<p>hello</p>"} | spec,
    }


def configmap(name: str, *, labels: dict[str, str] | None = None, **metadata: object) -> dict[str, Any]:
    labelled = {"labels": labels} if labels is not None else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name} | labelled | metadata,
        "data": {"k": "v"},
    }


def gadget(name: str, **spec: object) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": spec}
