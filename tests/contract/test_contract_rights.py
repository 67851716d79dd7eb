"""RBAC: what Roles and ClusterRoles in the store allow, what is refused and how, and the reviews that say so before."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from devcluster.plane import ControlPlane
from tests.contract.api import Answer, Api, api_from
from tests.contract.definitions import site

pytestmark = pytest.mark.asyncio(loop_scope="session")
Doc = dict[str, Any]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"


class Person:
    """An account without rights of its own, and what it is granted."""

    def __init__(self, admin: Api, own: Api, name: str, namespace: str) -> None:
        self.admin = admin
        self.api = own
        self.name = name
        self.namespace = namespace

    async def grant(
        self, *rules: Doc, namespace: str = "", role: str = "", subject: Doc | None = None
    ) -> str:
        """Bind *rules* (or the ClusterRole *role*) to the account, in *namespace* or everywhere; gives the role."""
        scope = f"{RBAC}/namespaces/{namespace}" if namespace else RBAC
        kind = "Role" if namespace and not role else "ClusterRole"
        if not role:
            body = {"metadata": {"generateName": "contract-"}, "rules": list(rules)}
            role = (await self.admin.post(f"{scope}/{kind.lower()}s", body)).check(201).meta["name"]
        subject = subject or {"kind": "User", "apiGroup": GROUP, "name": self.name}
        binding = {
            "metadata": {"generateName": "contract-"},
            "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
            "subjects": [subject],
        }
        bindings = "rolebindings" if namespace else "clusterrolebindings"
        (await self.admin.post(f"{scope}/{bindings}", binding)).check(201)
        return role

    async def may(self, verb: str, path: str = "", **attributes: str) -> bool:
        """What a SelfSubjectAccessReview says."""
        status = (await self.review("selfsubjectaccessreviews", verb, path, attributes)).body["status"]
        return bool(status["allowed"])

    async def review(
        self, kind: str, verb: str, path: str, attributes: dict[str, str], **spec: object
    ) -> Answer:
        if path:
            asked: Doc = {"nonResourceAttributes": {"verb": verb, "path": path}}
        else:
            asked = {"resourceAttributes": {"verb": verb, **attributes}}
        return (await self.api.post(f"{REVIEWS}/{kind}", {"spec": asked | spec})).check(201)

    async def wait_until_may(self, verb: str, path: str = "", **attributes: str) -> None:
        """The real server reads roles from a cache."""
        deadline = time.monotonic() + 10
        while not await self.may(verb, path, **attributes):
            assert time.monotonic() < deadline, f"{verb} {path}{attributes} is not granted"
            await asyncio.sleep(0.02)


@pytest_asyncio.fixture(loop_scope="session")
async def person(plane: ControlPlane, api: Api, namespace: str) -> AsyncIterator[Person]:
    name = f"person-{secrets.token_hex(4)}"
    kubeconfig = await plane.kubeconfig_for(name, groups=[f"{name}-friends"], admin=False)
    async with api_from(kubeconfig) as own:
        yield Person(api, own, name, namespace)


def rule(verbs: str, resources: str, group: str = "example.com", **more: object) -> Doc:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()} | more


WEBSITES: dict[str, str] = {"group": "example.com", "resource": "websites"}


async def test_refusals_name_account_verb_resource_and_scope(person: Person, sites: str) -> None:
    who, space = person.name, person.namespace
    refused = {
        (
            "GET",
            sites,
        ): f'cannot list resource "websites" in API group "example.com" in the namespace "{space}"',
        (
            "POST",
            sites,
        ): f'cannot create resource "websites" in API group "example.com" in the namespace "{space}"',
        ("GET", "/apis/example.com/v1/websites"): 'cannot list resource "websites" in API group "example.com"'
        " at the cluster scope",
        ("DELETE", sites): f'cannot deletecollection resource "websites" in API group "example.com" in the '
        f'namespace "{space}"',
    }
    for (method, path), words in refused.items():
        answer = (await person.api.request(method, path, site("a") if method == "POST" else None)).check(403)
        assert answer.message == f'websites.example.com is forbidden: User "{who}" {words}'
        assert (answer.body["reason"], answer.body["status"]) == ("Forbidden", "Failure")
        assert answer.body["details"] == {"group": "example.com", "kind": "websites"}


async def test_refusal_of_one_object_names_it(person: Person, sites: str, leases: str) -> None:
    for method, path, verb in (
        ("GET", f"{sites}/a", "get"),
        ("PUT", f"{sites}/a", "update"),
        ("PATCH", f"{sites}/a", "patch"),
        ("DELETE", f"{sites}/a", "delete"),
    ):
        body = None if method in ("GET", "DELETE") else site("a")
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = (await person.api.request(method, path, body, content_type=kind)).check(403)
        assert answer.message == (
            f'websites.example.com "a" is forbidden: User "{person.name}" cannot {verb} resource "websites" '
            f'in API group "example.com" in the namespace "{person.namespace}"'
        )
        assert answer.body["details"] == {"name": "a", "group": "example.com", "kind": "websites"}
    status = (await person.api.merge(f"{sites}/a/status", {"status": {}})).check(403)
    assert 'cannot patch resource "websites/status" in API group "example.com"' in status.message
    core = (await person.api.get(f"/api/v1/namespaces/{person.namespace}/configmaps/a")).check(403)
    assert core.message == (
        f'configmaps "a" is forbidden: User "{person.name}" cannot get resource "configmaps" in API group "" in the '
        f'namespace "{person.namespace}"'
    )
    assert core.body["details"] == {"name": "a", "kind": "configmaps"}
    watch = (await person.api.get(leases, watch="true")).check(403)
    assert 'cannot watch resource "leases"' in watch.message


async def test_unknown_resource_is_refused_before_it_is_missed(person: Person) -> None:
    answer = (await person.api.get("/apis/example.com/v1/nothings")).check(403)
    assert 'cannot list resource "nothings" in API group "example.com" at the cluster scope' in answer.message


async def test_role_allows_its_verbs_in_its_namespace_only(person: Person, sites: str) -> None:
    await person.grant(rule("get list create", "websites"), namespace=person.namespace)
    await person.wait_until_may("list", namespace=person.namespace, **WEBSITES)
    (await person.api.post(sites, site("a"))).check(201)
    (await person.api.get(f"{sites}/a")).check(200)
    (await person.api.delete(f"{sites}/a")).check(403)
    (await person.api.get("/apis/example.com/v1/websites")).check(403)
    (await person.api.get("/apis/example.com/v1/namespaces/default/websites")).check(403)


async def test_impersonation_needs_its_right_and_brings_the_rights_of_the_other(
    plane: ControlPlane, person: Person, sites: str
) -> None:
    as_ann = {"Impersonate-User": f"ann-{person.name}"}
    refused = (await person.api.request("GET", sites, headers=as_ann)).check(403)
    assert f'User "{person.name}" cannot impersonate' in refused.message
    limited = (await person.admin.request("GET", sites, headers=as_ann)).check(403)
    assert f'User "ann-{person.name}" cannot list resource "websites"' in limited.message
    await person.grant(
        rule("create", "websites"), subject={"kind": "Group", "apiGroup": GROUP, "name": "makers"}
    )
    in_group = as_ann | {"Impersonate-Group": "makers"}
    deadline = time.monotonic() + 10
    while (await person.admin.request("POST", sites, site("a"), headers=in_group)).status == 403:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    while not any(write.user == f"ann-{person.name}" and write.code == 201 for write in plane.writes()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_service_account_is_impersonated_by_a_right_of_its_namespace(
    person: Person, sites: str
) -> None:
    as_robot = {"Impersonate-User": f"system:serviceaccount:{person.namespace}:robot"}
    assert (
        "cannot impersonate" in (await person.api.request("GET", sites, headers=as_robot)).check(403).message
    )
    await person.grant(rule("impersonate", "serviceaccounts", ""), namespace=person.namespace)
    await person.wait_until_may("impersonate", namespace=person.namespace, resource="serviceaccounts")
    assert "serviceaccount:" in (await person.api.request("GET", sites, headers=as_robot)).check(403).message
    other = {"Impersonate-User": "system:serviceaccount:default:robot"}
    assert "cannot impersonate" in (await person.api.request("GET", sites, headers=other)).check(403).message


async def test_cluster_role_counts_in_the_namespace_it_is_bound_in(person: Person, sites: str) -> None:
    role = await person.grant(
        rule("*", "websites"), subject={"kind": "User", "apiGroup": GROUP, "name": "nobody"}
    )
    await person.grant(role=role, namespace=person.namespace)
    await person.wait_until_may("delete", namespace=person.namespace, **WEBSITES)
    (await person.api.get(sites)).check(200)
    (await person.api.get("/apis/example.com/v1/websites")).check(403)


async def test_cluster_role_binding_counts_everywhere_and_status_is_another_resource(
    person: Person, sites: str
) -> None:
    await person.grant(rule("get list watch patch create", "websites"))
    await person.wait_until_may("list", **WEBSITES)
    (await person.api.get("/apis/example.com/v1/websites")).check(200)
    (await person.api.post(sites, site("a"))).check(201)
    (await person.api.merge(f"{sites}/a", {"metadata": {"labels": {"k": "v"}}})).check(200)
    (await person.api.merge(f"{sites}/a/status", {"status": {"message": "x"}})).check(403)
    await person.grant(rule("patch", "websites/status"))
    await person.wait_until_may("patch", subresource="status", **WEBSITES)
    (await person.api.merge(f"{sites}/a/status", {"status": {"message": "x"}})).check(200)


async def test_resource_names_bind_a_rule_to_objects(person: Person, sites: str) -> None:
    await person.grant(rule("get create list", "websites", resourceNames=["a"]), namespace=person.namespace)
    await person.wait_until_may("get", namespace=person.namespace, name="a", **WEBSITES)
    (await person.api.get(f"{sites}/a")).check(404)
    (await person.api.get(f"{sites}/b")).check(403)
    (await person.api.post(sites, site("a"))).check(403)  # a create has no name yet
    (await person.api.get(sites)).check(403)
    (await person.api.get(sites, fieldSelector="metadata.name=a")).check(200)


async def test_groups_and_stars(person: Person, sites: str) -> None:
    friends = {"kind": "Group", "apiGroup": GROUP, "name": f"{person.name}-friends"}
    stars = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    await person.grant(stars, namespace=person.namespace, subject=friends)
    await person.wait_until_may("delete", namespace=person.namespace, subresource="status", **WEBSITES)
    (await person.api.post(sites, site("a"))).check(201)


async def test_a_binding_that_goes_takes_its_rights(person: Person, sites: str) -> None:
    await person.grant(rule("list", "websites"), namespace=person.namespace)
    await person.wait_until_may("list", namespace=person.namespace, **WEBSITES)
    (await person.admin.delete(f"{RBAC}/namespaces/{person.namespace}/rolebindings")).check(200)
    deadline = time.monotonic() + 10
    while (await person.api.get(sites)).status != 403:
        assert time.monotonic() < deadline, "the right outlasts its binding"
        await asyncio.sleep(0.02)


async def test_paths_need_rights_too_but_discovery(person: Person) -> None:
    for path in ("/api", "/apis", "/apis/example.com/v1", "/version", "/openapi/v3", "/readyz"):
        (await person.api.get(path)).check(200)
    refused = (await person.api.get("/debug/x")).check(403)
    assert refused.message == f'forbidden: User "{person.name}" cannot get path "/debug/x"'
    assert refused.body["details"] == {}
    await person.grant({"nonResourceURLs": ["/debug/*"], "verbs": ["get"]})
    await person.wait_until_may("get", "/debug/x")
    assert not await person.may("post", "/debug/x")
    assert not await person.may("get", "/debugging")
    (await person.api.get("/debug/x")).check(404)


async def test_reviews_of_others(person: Person, plane: ControlPlane) -> None:
    await person.grant(rule("list", "websites"))
    await person.wait_until_may("list", **WEBSITES)
    (await person.api.post(f"{REVIEWS}/subjectaccessreviews", {"spec": {"user": "x"}})).check(403)
    admin = Person(person.admin, person.admin, person.name, "")
    for user, verb, allowed in (
        (person.name, "list", True),
        (person.name, "get", False),
        ("other", "list", False),
    ):
        answer = await admin.review("subjectaccessreviews", verb, "", WEBSITES, user=user)
        assert answer.body["status"]["allowed"] is allowed, (user, verb)
        assert answer.body["spec"]["user"] == user
    answer = await admin.review(
        "subjectaccessreviews", "list", "", WEBSITES, user="x", groups=["system:masters"]
    )
    assert answer.body["status"]["allowed"] is True


async def test_rules_review_lists_what_is_granted(person: Person) -> None:
    await person.grant(rule("get list", "websites", resourceNames=["a"]), namespace=person.namespace)
    await person.wait_until_may("get", namespace=person.namespace, name="a", **WEBSITES)
    path = f"{REVIEWS}/selfsubjectrulesreviews"
    status = (
        (await person.api.post(path, {"spec": {"namespace": person.namespace}})).check(201).body["status"]
    )
    granted = rule("get list", "websites", resourceNames=["a"])
    assert granted in status["resourceRules"]
    assert status["incomplete"] is False
    assert any("/version" in each["nonResourceURLs"] for each in status["nonResourceRules"])
    elsewhere = (await person.api.post(path, {"spec": {"namespace": "default"}})).check(201).body["status"]
    assert granted not in elsewhere["resourceRules"]
