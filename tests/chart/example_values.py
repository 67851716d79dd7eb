"""Values of the chart that its tests render: the least, everything at once, and a release without a sharder."""

from __future__ import annotations

from typing import Any

import pytest

Doc = dict[str, Any]
RING: Doc = {
    "resources": [
        {
            "group": "example.com",
            "resource": "websites",
            "controlledResources": [{"group": "", "resource": "configmaps"}],
        }
    ]
}
RINGS: Doc = {"websites": RING}
CONTROLLER: Doc = {
    "image": {"repository": "registry.example.com/websites", "tag": "1"},
    "target": "/app/controller.py:websites",
    "rules": [{"apiGroups": ["example.com"], "resources": ["websites/status"], "verbs": ["patch"]}],
}
CONTROLLERS: Doc = {"websites": CONTROLLER}
DEPLOYMENTS: Doc = {"resources": [{"group": "apps", "resource": "deployments"}]}
POD: Doc = {
    "podLabels": {"team": "sites"},
    "podAnnotations": {"a": "b"},
    "pod": {
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
        "securityContext": {"fsGroup": 5000},
        "volumes": [{"name": "more", "emptyDir": {}}],
        "containers": [{"name": "beside", "image": "registry.example.com/beside:1"}],
    },
}
EVERYTHING: Doc = {
    "fullnameOverride": "sharding",
    "image": {"repository": "registry.example.com/ringleader", "digest": f"sha256:{'0' * 64}"},
    "imagePullSecrets": [{"name": "registry"}],
    "sharder": {
        "replicas": 3,
        "webhook": {"enabled": True},
        "extraArgs": ["--context=in-cluster"],
        "env": [{"name": "TZ", "value": "UTC"}],
        "serviceAccount": {"create": True, "name": "", "annotations": {"example.com/role": "sharder"}},
        **POD,
    },
    "dashboard": {
        "enabled": True,
        "serviceAccount": {"create": True, "name": "", "annotations": {"example.com/role": "dashboard"}},
        **POD,
    },
    "priority": {
        "leaseShares": 20,
        "labelShares": 10,
        "labelBorrowingPercent": 0,
        "extraServiceAccounts": [{"namespace": "elsewhere", "name": "others"}],
    },
    "networkPolicy": {
        "enabled": True,
        "webhookFrom": [{"ipBlock": {"cidr": "10.0.0.0/28"}}],
        "dashboardFrom": [{"namespaceSelector": {"matchLabels": {"team": "ingress"}}}],
    },
    "monitoring": {"from": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]},
    "rings": RINGS,
    "externalRings": {
        "elsewhere.example.com": {**DEPLOYMENTS, "leaseNamespace": "elsewhere", "assignAtAdmission": True}
    },
    "controllerDefaults": {"extraArgs": ["--workers=16"], "probes": True},
    "controllers": {
        "websites": {
            **CONTROLLER,
            **POD,
            "namespace": "elsewhere",
            "env": [{"name": "TZ", "value": "UTC"}],
            "envFrom": [{"secretRef": {"name": "websites"}}],
            "resources": {"requests": {"memory": "64Mi"}},
            "volumeMounts": [{"name": "more", "mountPath": "/more"}],
            "podDisruptionBudget": {"maxUnavailable": "50%"},
            "askAboutTokens": True,
            "scaling": {"enabled": True, "objectsPerReplica": 20_000},
        },
        "others": {
            "ring": "elsewhere.example.com",
            "image": {"repository": "registry.example.com/others", "digest": f"sha256:{'1' * 64}"},
            "command": ["/others"],
            "args": ["--shard=$(POD_NAME)"],
            "probes": False,
            "replicas": 0,
            "serviceAccount": {"create": False, "name": "others"},
            "podDisruptionBudget": {"enabled": False},
        },
    },
}
DEPLOYMENTS_RING: Doc = {
    "key": "Owner",
    "maxInFlight": 10_000,
    "resources": [
        {
            "group": "apps",
            "resource": "deployments",
            "controlledResources": [{"group": "apps", "resource": "replicasets"}],
        },
        {
            "group": "apps",
            "resource": "replicasets",
            "controlledResources": [{"group": "", "resource": "pods"}],
        },
    ],
}
UNMODIFIED: Doc = {
    "image": {"repository": "registry.example.com/manager", "tag": "1"},
    "command": ["/manager"],
    "args": ["--leader-elect", "--name=$(POD_NAME)"],
    "unmodified": {
        "leaves": ["pods"],
        "companions": ["endpoints=deployments.apps"],
        "locks": ["manager.example.com"],
        "readiness": "http://127.0.0.1:8081/readyz",
        "liveness": "http://127.0.0.1:8081/healthz",
    },
    "rules": [{"apiGroups": ["apps"], "resources": ["deployments/status"], "verbs": ["update"]}],
}
UNMODIFIED_RELEASE: Doc = {
    "rings": {"deployments": DEPLOYMENTS_RING},
    "controllers": {"deployments": UNMODIFIED},
    "fence": {"rings": {"deployments": {"identity": "life"}}},
}
ONLY_CONTROLLERS: Doc = {"sharder": {"enabled": False}, "rings": RINGS, "controllers": CONTROLLERS}
CASES = [
    pytest.param({}, id="defaults"),
    pytest.param(EVERYTHING, id="everything"),
    pytest.param(ONLY_CONTROLLERS, id="only controllers"),
    pytest.param(UNMODIFIED_RELEASE, id="unmodified"),
]
