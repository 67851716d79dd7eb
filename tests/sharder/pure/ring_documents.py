"""A small ControllerRing as a YAML document, with fields of its spec changed."""

from __future__ import annotations

from typing import Any

import yaml

SMALL = """
apiVersion: ringleader.dev/v1alpha1
kind: ControllerRing
metadata: {name: websites}
spec:
  leaseNamespace: ring-system
  resources:
    - group: example.com
      resource: websites
      controlledResources: [{resource: configmaps}]
"""


def ring(**spec: Any) -> dict[str, Any]:
    """The small ring with fields of its spec replaced; None removes one."""
    document: dict[str, Any] = yaml.safe_load(SMALL)
    document["spec"] = {k: v for k, v in {**document["spec"], **spec}.items() if v is not None}
    return document
