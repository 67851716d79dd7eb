"""Controllers that are known to compute from all objects of a kind (class G): by program, and by writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Final

import structlog

from proxy.learn.seen import Seen

log = structlog.get_logger("proxy")

PROGRAMS: Final = {
    "cluster-autoscaler": "sizes node groups for all pods",
    "contour": "routes from all Ingresses and HTTPProxies",
    "descheduler": "balances all pods over the nodes",
    "envoy-gateway": "routes from all Gateways and HTTPRoutes",
    "external-dns": "compares all sources with a whole DNS zone, and deletes records of objects that it does not see",
    "haproxy-ingress": "routes from all Ingresses",
    "kube-scheduler": "places pods by what all other pods take",
    "kube-state-metrics": "counts all objects",
    "nginx-ingress": "routes from all Ingresses",
    "nginx-ingress-controller": "routes from all Ingresses",
    "prometheus-operator": "writes one configuration from all monitors that a Prometheus selects",
    "prometheusoperator": "writes one configuration from all monitors that a Prometheus selects",
    "traefik": "routes from all Ingresses and IngressRoutes",
}
"""By the name of the program or of its user agent, in lower case."""

_ROUTES: Final = "such a controller routes from all of them"
STATUS: Final = {
    "horizontalpodautoscalers.autoscaling": "it scales workloads by the load of their pods, whoever "
    "owns them",
    "httproutes.gateway.networking.k8s.io": _ROUTES,
    "ingresses.networking.k8s.io": _ROUTES,
    "poddisruptionbudgets.policy": "it counts all pods that a budget selects, whoever owns them",
    "resourcequotas": "it counts all objects of a namespace",
}
"""Kinds whose status is computed from many objects, if their objects control nothing."""
READS: Final = {
    "servicemonitors.monitoring.coreos.com": "it writes one configuration from all monitors that a Prometheus selects",
}
"""Kinds that are read by such controllers only."""


def known_program(command: Sequence[str], agents: Iterable[str] = ()) -> tuple[str, str] | None:
    """Name, and what it computes, of a known program that is run by *command* or sends *agents*; None: it is none."""
    names = [PurePath(command[0]).name] if command else []
    for name in (*names, *sorted(agents)):
        if (does := PROGRAMS.get(name.lower())) is not None:
            return name, does
    return None


def warn_if_known(command: Sequence[str]) -> None:
    """Log a warning if *command* runs a known program."""
    if (known := known_program(command)) is not None:
        log.warning("controller that must not be sharded", program=known[0], reason=f"it {known[1]}")


def known_shapes(seen: Seen) -> list[str]:
    """Why what was *seen* is a controller of class G; empty: nothing says so."""
    found = []
    if "create binding" in seen.kind("pods").writes:
        found.append(
            "it binds pods to nodes (pods/binding): a scheduler places pods by what all other pods take"
        )
    for name, why in STATUS.items():
        kind = seen.kinds.get(name)
        is_owner = any(each.made_for(name) for each in seen.kinds.values())
        if kind is not None and not is_owner and any(verb.endswith(" status") for verb in kind.writes):
            found.append(f"it writes the status of {name}: {why}")
    found += [
        f"it reads {name}: {why}"
        for name, why in READS.items()
        if name in seen.kinds and seen.kinds[name].is_read
    ]
    return found
