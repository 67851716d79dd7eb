"""The workloads that a fleet works on, as documents. Pure."""

from __future__ import annotations

from typing import Any

from ringleader.testing.unmodified.objects import FAILURES, VERSION


def template(name: str, *, version: int = 0, more: dict[str, str] | None = None) -> dict[str, Any]:
    """The pod template number *version* of the workload *name*."""
    return {
        "metadata": {"labels": {"app": name, VERSION: str(version), **(more or {})}},
        "spec": {
            "containers": [{"name": "web", "image": f"web:{version}"}],
            "terminationGracePeriodSeconds": 0,
        },
    }


def deployment(name: str, *, replicas: int) -> dict[str, Any]:
    """At most one pod more than *replicas* while it rolls."""
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 2,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": {"app": name}},
            "template": template(name),
        },
    }


def stateful_set(name: str, *, replicas: int) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": template(name),
        },
    }


def job(name: str, *, completions: int, parallelism: int, failures: int) -> dict[str, Any]:
    """A Job whose first pods fail, *failures* of them."""
    made_of = template(name, more={FAILURES: str(failures)})
    made_of["spec"]["restartPolicy"] = "Never"
    return {
        "metadata": {"name": name},
        "spec": {
            "completions": completions,
            "parallelism": parallelism,
            "backoffLimit": 6,
            "template": made_of,
        },
    }
