"""What only a real API server has: rights, FlowSchemas, webhooks, feature gates, managedFields of every write.

One environment for the module; every test mends what it broke.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import trustme
import yaml

from devcluster.real import BinariesMissing, RealPlane, real_plane
from kubeio.access.cluster import load_cluster
from kubeio.patch import JsonPatch, MergePatch
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from ringleader.check.command import Report
from ringleader.check.environment import (
    DEPLOYMENTS,
    FLOW_SCHEMAS,
    POLICIES,
    POLICY_BINDINGS,
    STATEFUL_SETS,
)
from ringleader.check.findings import Level
from ringleader.check.hooks import CONFIGURATIONS, ENDPOINT_SLICES
from ringleader.testing.single_task import single_task
from tests.ringleader.check.environment import (
    ACCOUNTS,
    KEYS,
    ONE,
    RING,
    TWO,
    WEBSITES,
    CheckEnvironment,
    found,
    only,
)
from tests.warm_python import warm_python

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).resolve().parents[3]
ROLES = ApiResource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
PRIORITY_LEVELS = ApiResource(
    FLOW_SCHEMAS.group,
    "v1",
    "prioritylevelconfigurations",
    "PriorityLevelConfiguration",
    namespaced=False,
)
BINDINGS = ApiResource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
LOOK = ["get", "list", "watch", "patch"]
OBJECTS = [
    {"apiGroups": ["example.com"], "resources": ["websites"], "verbs": LOOK},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": LOOK},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
]
# docs/operate.md, "What the accounts may do"
SHARDER_RULES = [
    {"apiGroups": ["ringleader.dev"], "resources": ["controllerrings"], "verbs": [*LOOK, "assign", "own"]},
    {"apiGroups": ["ringleader.dev"], "resources": ["controllerrings/status"], "verbs": ["patch"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "list", "watch", "create", "update", "delete"],
    },
    *OBJECTS,
]
SHARD_RULES = [
    {
        "apiGroups": ["ringleader.dev"],
        "resources": ["controllerrings"],
        "resourceNames": [RING],
        "verbs": ["get", "own"],
    },
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "list", "create", "update"],
    },
    *OBJECTS,
]
PAGE = next(
    text for path in (ROOT / "docs").rglob("*.md") if "{name: ringleader-check}" in (text := path.read_text())
)
DOCTOR_RULES: list[dict[str, Any]] = yaml.safe_load(
    PAGE.partition("{name: ringleader-check}")[2].partition("```")[0]
)["rules"]
"""Those of the documents, word for word."""
Doc = dict[str, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def env(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CheckEnvironment]:
    """A healthy environment, with the rights and the FlowSchema that the chart installs."""
    try:
        plane_in = real_plane(tmp_path_factory.mktemp("plane"), controller_manager=False)
        async with (
            single_task(plane_in) as plane,
            Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client,
        ):
            env = CheckEnvironment(plane, client)
            await env.furnish()
            await bind(env, "sharder", ACCOUNTS["sharder"][0], SHARDER_RULES)
            await bind(env, "shard", ACCOUNTS["shard"][0], SHARD_RULES)
            await make(env, PRIORITY_LEVELS, "ringleader-leases", {"spec": priority_level()})
            await make(env, FLOW_SCHEMAS, "ringleader-leases", {"spec": flow_schema()})
            for name, body in guard().items():
                await make(env, POLICIES, name, {"spec": body["policy"]})
                await make(env, POLICY_BINDINGS, name, {"spec": body["binding"]})
            await wait_granted(env)
            yield env
            await env.close()
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


async def diagnosed(
    env: CheckEnvironment,
    holds: Callable[[Report], bool],
    *,
    client: Client | None = None,
    accounts: dict[str, list[str]] | None = None,
) -> Report:
    """The first report for which *holds*: the authorizer knows new roles a moment later."""
    async with asyncio.timeout(20):
        while not holds(report := await env.diagnose(client=client, accounts=accounts)):  # noqa: ASYNC110 - another process's cache
            await asyncio.sleep(0.2)
    return report


async def wait_granted(env: CheckEnvironment) -> None:
    await diagnosed(env, lambda report: not found(report, "rights"))


async def make(
    env: CheckEnvironment, resource: ApiResource, name: str, body: Doc, *, namespace: str = ""
) -> None:
    document = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **body}
    await env.client.create(resource, document, namespace=namespace, type=bytes)


async def bind(env: CheckEnvironment, name: str, user: str, rules: list[Doc]) -> None:
    await make(env, ROLES, name, {"rules": rules})
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    body = {
        "roleRef": {**group, "kind": "ClusterRole", "name": name},
        "subjects": [{**group, "kind": "User", "name": user}],
    }
    await make(env, BINDINGS, name, body)


def priority_level() -> Doc:
    queuing = {"queues": 32, "handSize": 4, "queueLengthLimit": 50}
    limited = {"nominalConcurrencyShares": 10, "limitResponse": {"type": "Queue", "queuing": queuing}}
    return {"type": "Limited", "limited": limited}


def flow_schema() -> Doc:
    """As the chart has it."""
    subjects = [
        {"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}}
        for _, _, namespace, name in (account[0].split(":") for account in ACCOUNTS.values())
    ]
    rule = {
        "verbs": ["get", "list", "watch", "create", "update"],
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "namespaces": ["*"],
    }
    return {
        "priorityLevelConfiguration": {"name": "ringleader-leases"},
        "matchingPrecedence": 150,
        "rules": [{"subjects": subjects, "resourceRules": [rule]}],
    }


def guard() -> dict[str, Doc]:
    """What the check looks at of the chart's policies. They refuse nothing here: the environment writes as it likes."""
    nothing = [{"expression": "true"}]
    kinds = [rule_of("example.com", "websites"), rule_of("", "configmaps")]
    leases = rule_of("coordination.k8s.io", "leases")
    condition = {"name": "keys", "expression": f"'{KEYS.shard}' != ''"}
    bound = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "rings"}}}
    return {
        name: {
            "policy": {
                "matchConstraints": {"resourceRules": rules},
                "matchConditions": [condition],
                "validations": nothing,
            },
            "binding": {"policyName": name, "validationActions": ["Deny"], "matchResources": bound},
        }
        for name, rules in ((f"ringleader-labels-{RING}", kinds), (f"ringleader-leases-{RING}", [leases]))
    }


def rule_of(group: str, plural: str) -> Doc:
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": [plural, f"{plural}/*"],
    }


async def test_a_healthy_real_plane_passes_every_check(env: CheckEnvironment) -> None:
    report = await env.diagnose()
    assert [each for each in report.findings if each.level is not Level.OK] == []
    (server,) = [each for each in report.findings if each.check == "server"]
    assert "WatchList on, ConsistentListFromCache on, ShardedListAndWatch off" in server.summary


async def test_a_verb_that_an_account_lacks_is_told_with_the_rule_that_grants_it(
    env: CheckEnvironment,
) -> None:
    for name, rules in (("sharder", SHARDER_RULES), ("shard", SHARD_RULES)):
        less = [
            {**rule, "verbs": [verb for verb in rule["verbs"] if verb not in ("patch", "watch")]}
            if rule["resources"] == ["websites"]
            else rule
            for rule in rules
        ]
        await env.client.patch(ROLES, name, MergePatch({"rules": less}), type=bytes)
    report = await diagnosed(env, lambda report: len(found(report, "rights")) == 2)
    told = found(report, "rights")
    for name, rules in (("sharder", SHARDER_RULES), ("shard", SHARD_RULES)):
        await env.client.patch(ROLES, name, MergePatch({"rules": rules}), type=bytes)
    assert report.findings[0] is told[0]
    assert [each.level for each in told] == [Level.ERROR, Level.ERROR]
    assert told[0].summary == (
        "sharder account system:serviceaccount:system:sharder may not patch, watch websites.example.com in the whole "
        "cluster: ring websites needs that"
    )
    assert told[0].remedy == (
        "this rule in a ClusterRole bound to it grants that: "
        '{apiGroups: ["example.com"], resources: ["websites"], verbs: ["patch", "watch"]}'
    )
    assert told[1].summary.startswith(
        "shard account system:serviceaccount:sites:websites may not patch, watch"
    )
    await wait_granted(env)


@asynccontextmanager
async def as_user(env: CheckEnvironment, user: str) -> AsyncIterator[Client]:
    assert isinstance(env.plane, RealPlane)
    kubeconfig = await env.plane.kubeconfig_for(user, admin=False)
    async with Client(load_cluster(kubeconfig=str(kubeconfig))) as client:
        yield client


async def test_a_check_without_any_right_says_of_each_check_which_rule_to_add(env: CheckEnvironment) -> None:
    async with as_user(env, "nobody") as client:
        report = await env.diagnose(client=client)
    assert report.level is Level.UNCHECKED
    assert report.rings == []
    unchecked = {each.check: each for each in report.findings if each.level is Level.UNCHECKED}
    assert unchecked.keys() >= {
        "owners",
        "silent",
        "clocks",
        "overlaps",
        "rights",
        "crd",
        "server",
        "flowschema",
    }
    assert (
        '"nobody" may not list controllerrings.ringleader.dev in the whole cluster'
        in unchecked["owners"].summary
    )
    assert unchecked["owners"].remedy == (
        "this rule in a ClusterRole bound to it grants that: "
        '{apiGroups: ["ringleader.dev"], resources: ["controllerrings"], verbs: ["list"]}'
    )
    assert 'nonResourceURLs: ["/metrics"]' in unchecked["server"].remedy


async def test_an_impersonated_account_has_its_own_rights_only(env: CheckEnvironment) -> None:
    """The kubeconfig's account may read everything."""
    code, _, err = await ended(env, "status")
    assert code == 0, err
    code, out, err = await ended(env, "status", "--as", "nobody")
    assert (code, out) == (1, "")
    assert '"nobody" may not list controllerrings.ringleader.dev' in err
    code, out, err = await ended(env, "check", "--recheck-after", "1s", "-o", "json", "--as", "nobody")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["level"] == "not checked"
    unchecked = {each["check"]: each["summary"] for each in report["findings"] if each["level"] != "ok"}
    assert '"nobody" may not list controllerrings.ringleader.dev' in unchecked["rings"]


async def ended(env: CheckEnvironment, *words: str) -> tuple[int, str, str]:
    """Exit code and output of the command, as the account of the plane's kubeconfig."""
    process = await asyncio.create_subprocess_exec(
        *(warm_python(), "-m", "ringleader", *words, "--kubeconfig", str(env.plane.kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode(), err.decode()


async def test_a_check_that_may_read_rings_only_judges_these_and_nothing_that_it_did_not_see(
    env: CheckEnvironment,
) -> None:
    """Above all no object is called ownerless because the Leases could not be read."""
    await bind(env, "ring-reader", "reader", [DOCTOR_RULES[0], *DOCTOR_RULES[2:4]])
    async with as_user(env, "reader") as client:
        report = await diagnosed(env, lambda report: RING in report.rings, client=client)
    assert report.level is Level.UNCHECKED
    by_check = {each.check: each for each in report.findings}
    assert by_check["overlaps"].level is Level.OK
    assert by_check["owners"].level is Level.UNCHECKED
    assert "may not list leases.coordination.k8s.io" in by_check["owners"].summary


async def test_the_rules_of_the_documents_are_enough_for_the_check(env: CheckEnvironment) -> None:
    await bind(env, "check", "doc", DOCTOR_RULES)
    async with as_user(env, "doc") as client:
        report = await diagnosed(env, lambda report: report.level is Level.OK, client=client)
    assert report.rings == [RING]


async def test_an_account_asks_for_itself_without_any_further_right(env: CheckEnvironment) -> None:
    """SelfSubjectAccessReview: everybody may."""
    async with as_user(env, "doc") as client:
        report = await env.diagnose(client=client, accounts={"shard": ["self"], "sharder": ["self"]})
    told = found(report, "rights")
    assert any(each.summary.startswith("shard account self may not patch, watch websites") for each in told)
    assert not any(
        "list" in each.summary.partition("may not")[2].partition(" in ")[0].split() for each in told
    )


async def test_accounts_are_found_where_the_chart_installed_them(env: CheckEnvironment) -> None:
    for resource, component, account in (
        (DEPLOYMENTS, "sharder", "from-the-chart"),
        (STATEFUL_SETS, "controller", "websites"),
    ):
        mine = {"app.kubernetes.io/component": component, "app.kubernetes.io/part-of": "ringleader"}
        container = {"name": "x", "image": "x"}
        template = {
            "metadata": {"labels": mine},
            "spec": {"serviceAccountName": account, "containers": [container]},
        }
        body = {
            "metadata": {"name": component, "labels": mine},
            "spec": {"serviceName": "x", "selector": {"matchLabels": mine}, "template": template},
        }
        await make(env, resource, component, body, namespace="sites")
    async with as_user(env, "doc") as client:
        report = await env.diagnose(client=client, accounts={})
    for resource, name in ((DEPLOYMENTS, "sharder"), (STATEFUL_SETS, "controller")):
        await env.client.delete(resource, name, namespace="sites")
    told = found(report, "rights")
    assert {each.object for each in told} == {"system:serviceaccount:sites:from-the-chart"}
    assert all(
        each.check in ("rights", "flowschema") for each in report.findings if each.level is not Level.OK
    )


async def test_lease_requests_without_a_flow_schema_of_their_own_are_told(env: CheckEnvironment) -> None:
    await env.client.delete(FLOW_SCHEMAS, "ringleader-leases")
    report = await env.diagnose()
    await make(env, FLOW_SCHEMAS, "ringleader-leases", {"spec": flow_schema()})
    told = found(report, "flowschema")
    assert [each.object for each in told] == [ACCOUNTS["shard"][0], ACCOUNTS["sharder"][0]]
    assert told[0].evidence == ["they match FlowSchema service-accounts, priority level workload-low"]


ELSEWHERE: Doc = {
    "apiGroups": ["example.com"],
    "apiVersions": ["*"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["pages"],
}
"""A rule about another kind than the ring's."""


@pytest.mark.parametrize(
    ("what", "resource", "patch", "told"),
    [
        ("labels", POLICY_BINDINGS, {"validationActions": ["Warn"]}, "refuses nothing"),
        (
            "labels",
            POLICIES,
            {"matchConstraints": {"resourceRules": [ELSEWHERE]}},
            "does not know websites.example.com",
        ),
        ("labels", POLICIES, {"matchConditions": None}, f"keeps other labels than {KEYS.shard}"),
        ("leases", POLICY_BINDINGS, {"matchResources": None}, "is bound to another namespace than rings"),
    ],
)
async def test_a_guard_that_is_not_the_rings_is_told(
    env: CheckEnvironment, what: str, resource: ApiResource, patch: Doc, told: str
) -> None:
    name = f"ringleader-{what}-{RING}"
    whole = guard()[name]["binding" if resource is POLICY_BINDINGS else "policy"]
    await env.client.patch(resource, name, MergePatch({"spec": patch}), type=bytes)
    report = await env.diagnose()
    await env.client.patch(resource, name, MergePatch({"spec": whole}), type=bytes)
    first = only(report, "guard")
    assert first.level is Level.WARNING
    assert told in first.summary


async def test_a_ring_without_a_guard_is_told_with_what_strangers_may_do(env: CheckEnvironment) -> None:
    name = f"ringleader-leases-{RING}"
    await env.client.delete(POLICIES, name)
    report = await env.diagnose()
    await make(env, POLICIES, name, {"spec": guard()[name]["policy"]})
    first = only(report, "guard")
    assert first.summary == (
        f"the Leases of ring {RING} are not guarded: there is no validatingadmissionpolicy/{name}, and whoever may "
        "write Leases there may forge them"
    )
    assert "labelGuard.mode: Enforce" in first.remedy


async def test_an_account_with_every_verb_is_told_to_be_a_stranger_to_the_guard(
    env: CheckEnvironment,
) -> None:
    await bind(env, "wild", "wild", [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])
    accounts = {"sharder": ["wild"], "shard": ACCOUNTS["shard"]}
    report = await diagnosed(env, lambda report: bool(found(report, "guard")), accounts=accounts)
    told = found(report, "guard")
    assert [each.level for each in told] == [Level.ERROR]
    assert "the guard refuses every write of sharder account wild" in told[0].summary


async def test_a_server_that_reads_consistent_lists_from_etcd_is_told() -> None:
    """The gate cannot be switched off on the newest server any more: the finding is judged without one."""
    from ringleader.check.evidence import Evidence
    from ringleader.check.server import judge_version
    from ringleader.cluster.snapshot import Snapshot

    evidence = Evidence(Snapshot(datetime.now(UTC)), server="https://x", version="v1.30.2")
    evidence.features = {"ConsistentListFromCache": False, "WatchList": False}
    told = [each.summary for each in judge_version(evidence)]
    assert "older than 1.31" in told[0]
    assert "has ConsistentListFromCache off" in told[1]
    assert "has WatchList off" in told[2]


# -- webhooks -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def hooked(env: CheckEnvironment, client_config: Doc) -> AsyncIterator[Report]:
    """What is found while the ring is assigned at admission by such a webhook."""
    webhook = {
        "name": "websites.admission.ringleader.dev",
        "clientConfig": client_config,
        "rules": [
            {
                "apiGroups": ["none.example.com"],
                "apiVersions": ["*"],
                "resources": ["x"],
                "operations": ["CREATE"],
            }
        ],
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "timeoutSeconds": 1,
        "admissionReviewVersions": ["v1"],
    }
    await make(env, CONFIGURATIONS, f"ringleader-{RING}", {"webhooks": [webhook]})
    await env.edit_ring(assignAtAdmission=True)
    await env.tell_status(Ready=("True", "Working", ""))
    try:
        # the sharder's rights on the configuration are not what is tried here
        yield await env.diagnose(accounts={"sharder": ["admin"], "shard": ACCOUNTS["shard"]})
    finally:
        await env.client.delete(CONFIGURATIONS, f"ringleader-{RING}")
        await env.edit_ring(assignAtAdmission=None)
        await env.tell_status(Ready=("True", "Working", ""))


def bundle(authority: trustme.CA) -> str:
    return base64.b64encode(authority.cert_pem.bytes()).decode()


@asynccontextmanager
async def served(certificate: trustme.LeafCert) -> AsyncIterator[int]:
    """A TLS server on loopback; gives its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_webhook_that_answers_with_a_good_certificate_is_fine(env: CheckEnvironment) -> None:
    authority = trustme.CA()
    async with (
        served(authority.issue_cert("127.0.0.1")) as port,
        hooked(env, {"url": f"https://127.0.0.1:{port}/assign", "caBundle": bundle(authority)}) as report,
    ):
        assert found(report, "webhook") == []


async def test_a_webhook_that_does_not_answer_is_told_with_its_address(env: CheckEnvironment) -> None:
    async with hooked(env, {"url": "https://127.0.0.1:1/assign", "caBundle": bundle(trustme.CA())}) as report:
        (told,) = found(report, "webhook")
    assert told.summary.startswith(
        "mutatingwebhookconfiguration/ringleader-websites leads to 127.0.0.1:1, which does not answer: "
    )


async def test_a_certificate_that_ends_soon_is_told_with_the_day(env: CheckEnvironment) -> None:
    authority = trustme.CA()
    ends = datetime.now(UTC) + timedelta(days=3)
    async with (
        served(authority.issue_cert("127.0.0.1", not_after=ends)) as port,
        hooked(env, {"url": f"https://127.0.0.1:{port}/assign", "caBundle": bundle(authority)}) as report,
    ):
        (told,) = found(report, "webhook")
    assert told.level is Level.WARNING
    assert f"the certificate that it serves ends in 3.0 days ({ends:%Y-%m-%dT%H:%M}" in told.summary


async def test_a_certificate_of_another_authority_is_told_as_that(env: CheckEnvironment) -> None:
    async with (
        served(trustme.CA().issue_cert("127.0.0.1")) as port,
        hooked(env, {"url": f"https://127.0.0.1:{port}/assign", "caBundle": bundle(trustme.CA())}) as report,
    ):
        (told,) = found(report, "webhook")
    assert "its certificate is refused" in told.summary


async def test_a_service_without_an_address_is_told(env: CheckEnvironment) -> None:
    service = {"namespace": "sites", "name": "hook", "path": "/assign/websites"}
    config = {"service": service, "caBundle": bundle(trustme.CA())}
    async with hooked(env, config) as report:
        (told,) = found(report, "webhook")
    assert (
        "leads to service sites/hook, which does not answer: no ready address stands behind it"
        in told.summary
    )
    body = {
        "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": True}}],
        "ports": [],
    }
    await make(env, ENDPOINT_SLICES, "hook-1", body, namespace="sites")
    async with hooked(env, config) as report:
        assert found(report, "webhook") == []


# -- managedFields of every write -------------------------------------------------------------------------------


async def test_a_handoff_is_late_by_the_time_of_its_label(env: CheckEnvironment) -> None:
    """No sharder says so: managedFields tell when the label was written."""
    await env.label("site-000", {KEYS.drain: TWO})
    await env.edit_ring(drainTimeoutSeconds=1)
    await env.tell_status(Ready=("True", "Working", ""))
    await asyncio.sleep(1.5)
    report = await env.diagnose()
    await env.edit_ring(drainTimeoutSeconds=None)
    await env.tell_status(Ready=("True", "Working", ""))
    await env.label("site-000", {KEYS.drain: None})
    first = only(report, "handoffs")
    assert first.summary.startswith(
        f"website/site-000 -n sites is stuck: its owner {ONE} does not hand it over to {TWO}"
    )


async def test_shards_are_known_by_the_label_that_they_write(env: CheckEnvironment) -> None:
    """Two controllers write the status of everything; one of them has handed an object over once."""
    for index in range(4):
        for manager in ("ours", "websites-operator"):
            patch = MergePatch({"status": {"configMap": f"{manager}-{index}", "observedGeneration": 1}})
            await env.client.patch(
                WEBSITES,
                f"site-{index:03d}",
                patch,
                namespace="sites",
                subresource="status",
                field_manager=manager if index else "ours",
                type=bytes,
            )
    label = JsonPatch().add(f"/metadata/labels/{KEYS.shard.replace('/', '~1')}", TWO)
    await env.client.patch(WEBSITES, "site-000", label, namespace="sites", field_manager="ours", type=bytes)
    report = await env.diagnose()
    assert "and websites-operator wrote it too" in only(report, "writers").summary
