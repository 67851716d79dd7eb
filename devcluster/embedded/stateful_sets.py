"""StatefulSets for the embedded plane: a definition that serves them as objects alone. No controller makes pods."""

from __future__ import annotations

from typing import Any, Final

_ANYTHING: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
STATEFUL_SETS_DEFINITION: Final[dict[str, Any]] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "statefulsets.apps"},
    "spec": {
        "group": "apps",
        "scope": "Namespaced",
        "names": {"plural": "statefulsets", "singular": "statefulset", "kind": "StatefulSet"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _ANYTHING}}
        ],
    },
}
"""A real server has them built in."""
