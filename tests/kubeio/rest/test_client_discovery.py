"""Resources by the names that people use, from a server's aggregated discovery."""

from __future__ import annotations

import pytest

from kubeio.errors import Forbidden, InputError, ServerFailure
from kubeio.resource import LEASES, ApiResource
from kubeio.rest.discovery import Discovery
from tests.kubeio.http.wire_server import Conversation, WireServer, answering, failure_status

DEPLOYMENTS = ApiResource("apps", "v1", "deployments", "Deployment")
WEBSITES = ApiResource("example.com", "v1", "websites", "Website")

HPA = ("horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler", True, ["hpa"])
CORE = [
    ("configmaps", "configmap", "ConfigMap", True, ["cm"]),
    ("events", "event", "Event", True, ["ev"]),
    ("namespaces", "namespace", "Namespace", False, ["ns"]),
]
GROUPS: dict[str, dict[str, list[tuple[str, str, str, bool, list[str]]]]] = {
    "apps": {"v1": [("deployments", "deployment", "Deployment", True, ["deploy"])]},
    "events.k8s.io": {"v1": [("events", "event", "Event", True, ["ev"])]},
    "autoscaling": {"v2": [HPA], "v1": [HPA]},
    "coordination.k8s.io": {"v1": [("leases", "lease", "Lease", True, [])]},
    "example.com": {"v1": [("websites", "website", "Website", True, ["web"])]},
    "other.example.org": {
        "v1": [
            ("websites", "website", "Website", True, []),
            ("cms", "cm", "Cms", False, []),  # a full name that is a short name elsewhere
        ]
    },
}


def aggregated(
    groups: dict[str, dict[str, list[tuple[str, str, str, bool, list[str]]]]],
) -> dict[str, object]:
    def one(plural: str, singular: str, kind: str, namespaced: bool, short: list[str]) -> dict[str, object]:
        return {
            "resource": plural,
            "responseKind": {"group": "", "version": "", "kind": kind},
            "scope": "Namespaced" if namespaced else "Cluster",
            "singularResource": singular,
            "shortNames": short,
            "verbs": ["get", "list", "watch"],
            "subresources": [{"subresource": "status", "verbs": ["get"]}],
        }

    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": name, "creationTimestamp": None},
                "versions": [
                    {"version": version, "freshness": "Current", "resources": [one(*r) for r in resources]}
                    for version, resources in versions.items()
                ],
            }
            for name, versions in groups.items()
        ],
    }


async def discovered(conversation: Conversation) -> None:
    answers = {"/api": aggregated({"": {"v1": CORE}}), "/apis": aggregated(GROUPS)}
    while True:
        await conversation.answer(answers[(await conversation.request()).path])


@pytest.fixture
def serve(server: WireServer) -> WireServer:
    server.script = discovered
    return server


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("deployments", DEPLOYMENTS),
        ("deployment", DEPLOYMENTS),
        ("Deployment", DEPLOYMENTS),
        ("DEPLOY", DEPLOYMENTS),
        ("deployments.apps", DEPLOYMENTS),
        ("deploy.apps", DEPLOYMENTS),
        ("deployments.apps/v1", DEPLOYMENTS),
        ("deployments.v1.apps", DEPLOYMENTS),
        ("deployments.ap", DEPLOYMENTS),
        ("leases.coordination.k8s.io", LEASES),
        ("websites.example.com/v1", WEBSITES),
        ("websites", WEBSITES),
        ("websites.other.example.org", ApiResource("other.example.org", "v1", "websites", "Website")),
        ("web", WEBSITES),
        ("configmaps/v1", ApiResource("", "v1", "configmaps", "ConfigMap")),
        ("configmaps.v1.", ApiResource("", "v1", "configmaps", "ConfigMap")),
        ("cm", ApiResource("other.example.org", "v1", "cms", "Cms", namespaced=False)),
        ("ns", ApiResource("", "v1", "namespaces", "Namespace", namespaced=False)),
        ("events", ApiResource("", "v1", "events", "Event")),
        ("events.events.k8s.io", ApiResource("events.k8s.io", "v1", "events", "Event")),
        ("hpa", ApiResource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")),
        ("hpa/v1", ApiResource("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler")),
    ],
)
async def test_name_means_what_kubectl_takes_it_for(
    serve: WireServer, text: str, expected: ApiResource
) -> None:
    async with serve.client() as client:
        assert await Discovery(client).resolve(text) == expected


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("websits", "did you mean websites"),
        ("websites.exmple.com", "websites.example.com"),
        ("deplyment", "deployments.apps"),
        ("hpa/v3", "served versions are v2, v1"),
        ("flowers.garden.io", "install its CRD first"),
    ],
)
async def test_unknown_name_is_an_input_error_that_names_the_nearest(
    serve: WireServer, text: str, remedy: str
) -> None:
    async with serve.client() as client:
        with pytest.raises(InputError) as caught:
            await Discovery(client).resolve(text)
    assert (caught.value.field, caught.value.value) == ("resource", text)
    assert remedy in caught.value.remedy
    assert serve.url in caught.value.problem


async def test_a_resource_is_known_with_its_subresources(serve: WireServer) -> None:
    async with serve.client() as client:
        discovery = Discovery(client)
        assert await discovery.subresources(WEBSITES) == ("status",)
        assert await discovery.subresources(ApiResource("garden.io", "v1", "flowers", "Flower")) == ()


async def test_catalog_is_asked_for_once_and_again_when_a_name_is_unknown(server: WireServer) -> None:
    known = {"apps": GROUPS["apps"]}

    async def script(conversation: Conversation) -> None:
        while True:
            request = await conversation.request()
            await conversation.answer(aggregated(known if request.path == "/apis" else {"": {"v1": CORE}}))

    server.script = script
    async with server.client() as client:
        discovery = Discovery(client)
        for _ in range(3):
            await discovery.resolve("deploy")
        assert len(server.requests) == 2
        known["example.com"] = GROUPS["example.com"]
        assert await discovery.resolve("websites") == WEBSITES
        assert len(server.requests) == 4


async def test_forbidden_discovery_is_reported_as_such(server: WireServer) -> None:
    server.script = answering(failure_status(403, "Forbidden"), status=403)
    async with server.client() as client:
        with pytest.raises(Forbidden):
            await Discovery(client).resolve("deploy")


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[]",
        b'{"kind":"APIGroupDiscoveryList","items":[{"versions":5}]}',
        b'{"kind":"APIVersions","versions":["v1"]}',
    ],
)
async def test_discovery_that_is_nonsense_is_a_failure_of_the_server(server: WireServer, body: bytes) -> None:
    server.script = answering(body)
    async with server.client() as client:
        with pytest.raises(ServerFailure, match=r"GET /api.*aggregated discovery"):
            await Discovery(client).resolve("deploy")
