"""Who may reach which pod under the chart's NetworkPolicies. Read as objects: no network plugin runs here."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.example_values import CONTROLLERS, RINGS
from tests.chart.helm import Helm
from tests.chart.manifests import kinds, pod_of

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

Doc = dict[str, Any]
SERVERS: Doc = {"ipBlock": {"cidr": "10.0.0.0/28"}}
SCRAPERS: Doc = {"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}
VIEWERS: Doc = {"namespaceSelector": {"matchLabels": {"team": "ingress"}}}
ANYBODY = "anybody"
RELEASE: Doc = {
    "rings": RINGS,
    "controllers": CONTROLLERS,
    "sharder": {"webhook": {"enabled": True}},
    "dashboard": {"enabled": True},
}


def peers(rules: list[Doc], side: str) -> dict[tuple[str, int], object]:
    """By protocol and port: who may come, or where may be gone."""
    return {
        (port.get("protocol", "TCP"), port["port"]): rule.get(side, ANYBODY)
        for rule in rules
        for port in rule["ports"]
    }


def only(labels: Doc) -> list[Doc]:
    return [{"podSelector": {"matchLabels": labels}}]


async def policies_of(renderer: Helm, values: Doc) -> dict[str, Doc]:
    """The spec of the policy that selects each workload's pods, by the workload's name."""
    objects = await renderer.template(values)
    found = {}
    for workload in kinds(objects, "Deployment") + kinds(objects, "StatefulSet"):
        pod = pod_of(workload)["metadata"]
        (policy,) = (
            policy
            for policy in kinds(objects, "NetworkPolicy")
            if policy["spec"]["podSelector"]["matchLabels"].items() <= pod["labels"].items()
            and policy["metadata"]["namespace"] == pod["namespace"]
        )
        found[workload["metadata"]["name"]] = policy["spec"]
    return found


async def test_no_policy_is_installed_unless_asked_for(renderer: Helm) -> None:
    assert not kinds(await renderer.template(RELEASE), "NetworkPolicy")


async def test_everybody_is_kept_out_but_the_dashboard_and_the_webhooks_callers(renderer: Helm) -> None:
    """Nobody scrapes unless monitoring.from says who. API servers are no pods, so the webhook's port is open."""
    policies = await policies_of(renderer, {**RELEASE, "networkPolicy": {"enabled": True}})
    sharder, dashboard = policies["ringleader-sharder"], policies["ringleader-dashboard"]
    selector = dashboard["podSelector"]["matchLabels"]
    assert peers(sharder["ingress"], "from") == {("TCP", 8081): only(selector), ("TCP", 9443): ANYBODY}
    assert not dashboard["ingress"]
    assert not policies["websites"]["ingress"]
    out = {("TCP", 443): ANYBODY, ("TCP", 6443): ANYBODY, ("TCP", 53): ANYBODY, ("UDP", 53): ANYBODY}
    assert peers(sharder["egress"], "to") == out
    to_sharder = {("TCP", 8081): only(sharder["podSelector"]["matchLabels"])}
    assert peers(dashboard["egress"], "to") == out | to_sharder
    assert policies["websites"]["policyTypes"] == ["Ingress"], "a reconciler's egress is its author's"


async def test_the_port_of_a_webhook_that_is_off_is_closed(renderer: Helm) -> None:
    policies = await policies_of(renderer, {"networkPolicy": {"enabled": True}})
    assert not policies["ringleader-sharder"]["ingress"]


async def test_who_reaches_the_webhook_can_be_limited(renderer: Helm) -> None:
    limits = {"enabled": True, "webhookFrom": [SERVERS], "dashboardFrom": [VIEWERS], "apiServerPorts": [8443]}
    values = {**RELEASE, "networkPolicy": limits, "monitoring": {"from": [SCRAPERS]}}
    policies = await policies_of(renderer, values)
    found = {name: policy["ingress"] for name, policy in policies.items()}
    sharders = [(rule["ports"][0]["port"], rule["from"]) for rule in found["ringleader-sharder"]]
    assert (9443, [SERVERS]) in sharders
    assert (8081, [SCRAPERS]) in sharders
    assert len(sharders) == 3
    assert peers(found["websites"], "from") == {("TCP", 8081): [SCRAPERS]}
    assert peers(found["ringleader-dashboard"], "from") == {("TCP", 8085): [VIEWERS]}
    assert ("TCP", 8443) in peers(policies["ringleader-sharder"]["egress"], "to")
