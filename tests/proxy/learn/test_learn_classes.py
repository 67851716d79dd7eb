"""From what was seen to the classes of a controller."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from proxy.learn.classes import judge, unknown_of
from proxy.learn.findings import Verdict, verdict_of
from proxy.learn.known import known_program, warn_if_known
from proxy.learn.seen import LockName, Seen
from tests.proxy.learn.requests import (
    DEPLOYMENTS,
    KUBE_CONTROLLER_MANAGER,
    LEASES,
    PODS,
    ask,
    deployments,
    watches,
)


def found(
    seen: Seen, letter: str, *, command: tuple[str, ...] = KUBE_CONTROLLER_MANAGER
) -> list[tuple[Verdict, str]]:
    return [(each.verdict, each.text) for each in judge(seen, command) if each.letter == letter]


def test_a_controller_that_owns_what_it_makes_is_of_class_a() -> None:
    findings = judge(deployments(), KUBE_CONTROLLER_MANAGER)
    assert verdict_of(findings) is Verdict.YES
    (finding,) = findings
    assert finding.letter == "A"
    assert "it makes pods that replicasets.apps control (9 in this run)" in finding.text


@pytest.mark.parametrize(
    ("command", "agents", "name"),
    [
        (["/usr/bin/external-dns", "--source=service"], [], "external-dns"),
        (["/bin/operator"], ["PrometheusOperator"], "PrometheusOperator"),
        (["/nginx-ingress-controller"], [], "nginx-ingress-controller"),
        (["kube-scheduler"], [], "kube-scheduler"),
    ],
)
def test_known_programs_of_class_g_are_known_by_their_name_or_their_user_agent(
    command: list[str], agents: list[str], name: str
) -> None:
    seen = deployments()
    seen.agents.update(agents)
    (finding,) = judge(seen, command)
    assert (finding.letter, finding.verdict) == ("G", Verdict.NO)
    assert finding.text.startswith(f"{name} is known")


@pytest.mark.parametrize(("program", "warnings"), [("/usr/bin/external-dns", 1), ("/manager", 0)])
def test_a_proxy_that_runs_a_known_program_warns(program: str, warnings: int) -> None:
    with capture_logs() as logs:
        warn_if_known([program])
    assert [each["log_level"] for each in logs] == ["warning"] * warnings


def test_an_unknown_program_is_not_known() -> None:
    assert known_program(["/manager"], ["manager", "kube-controller-manager"]) is None


@pytest.mark.parametrize(
    "target",
    [
        "/api/v1/namespaces/web/resourcequotas/all/status",
        "/apis/autoscaling/v2/namespaces/web/horizontalpodautoscalers/shop/status",
        "/apis/policy/v1/namespaces/web/poddisruptionbudgets/shop/status",
        "/apis/networking.k8s.io/v1/namespaces/web/ingresses/shop/status",
    ],
)
def test_kinds_whose_status_is_computed_from_many_objects_are_of_class_g(target: str) -> None:
    seen = deployments()
    ask(seen, "PUT", target, {})
    assert [verdict for verdict, _ in found(seen, "G")] == [Verdict.NO]


def test_who_makes_something_for_each_ingress_is_not_of_class_g_for_that() -> None:
    seen = watches(Seen(), "/apis/networking.k8s.io/v1/ingresses")
    ask(seen, "PUT", "/apis/networking.k8s.io/v1/namespaces/web/ingresses/shop/status", {})
    seen.kind("certificates.example.com").created["ingresses.networking.k8s.io"] = 1
    assert verdict_of(judge(seen, ["/manager"])) is Verdict.YES


def test_a_scheduler_is_known_by_its_bindings() -> None:
    seen = watches(Seen(), "/api/v1/pods")
    ask(seen, "POST", f"{PODS}/x/binding", {}, status=201)
    assert [verdict for verdict, _ in found(seen, "G")] == [Verdict.NO]


def test_a_controller_that_writes_nothing_is_unclear() -> None:
    seen = watches(Seen(), "/api/v1/services", "/api/v1/nodes")
    (finding,) = judge(seen, ["/manager"])
    assert finding.verdict is Verdict.UNCLEAR
    assert "nodes, services" in finding.text


def test_a_controller_that_waits_for_its_lock_is_unclear() -> None:
    seen = deployments()
    for _ in range(2):
        ask(seen, "GET", f"{LEASES}/other")
    seen.holders[LockName("leases.coordination.k8s.io", "web", "other")] = "replica-1"
    assert verdict_of(judge(seen, KUBE_CONTROLLER_MANAGER)) is Verdict.UNCLEAR
    assert any("replica-1" in text for _, text in found(seen, ""))


@pytest.mark.parametrize(
    ("status", "remedy"), [(404, "create the namespace web"), (403, "give it the right")]
)
def test_a_controller_that_cannot_create_its_lock_is_unclear(status: int, remedy: str) -> None:
    seen = deployments()
    for _ in range(2):
        ask(seen, "GET", f"{LEASES}/other", status=404)
        ask(seen, "POST", LEASES, {"metadata": {"name": "other"}}, status=status)
    (finding,) = [each for each in judge(seen, KUBE_CONTROLLER_MANAGER) if each.verdict is Verdict.UNCLEAR]
    assert f"could not create its lock web/other ({status})" in finding.text
    assert finding.remedy.startswith(remedy)
    ask(seen, "POST", LEASES, {"metadata": {"name": "other"}}, status=201)
    assert verdict_of(judge(seen, KUBE_CONTROLLER_MANAGER)) is Verdict.YES


def test_a_controller_that_ends_by_itself_is_unclear() -> None:
    seen = deployments()
    seen.exit_code = 1
    assert verdict_of(judge(seen, KUBE_CONTROLLER_MANAGER)) is Verdict.UNCLEAR


def endpoints(seen: Seen, *, left: int) -> None:
    ask(seen, "POST", "/api/v1/namespaces/web/endpoints", {"metadata": {"name": "shop"}}, status=201)
    seen.kind("endpoints").beside["services"] = 1
    seen.kind("endpoints").left["services"] = left


@pytest.mark.parametrize("left", [0, 2])
def test_what_has_the_name_of_an_object_is_of_class_c(left: int) -> None:
    seen = watches(Seen(), "/api/v1/services", "/api/v1/endpoints")
    endpoints(seen, left=left)
    ((verdict, text),) = found(seen, "C")
    assert verdict is Verdict.YES
    assert "--companions endpoints=services" in text
    assert (f"{left} were deleted by name" in text) is bool(left)


def test_what_has_the_name_of_an_object_outside_of_the_ring_is_not_kept_apart() -> None:
    seen = deployments()
    seen.kind("endpoints").writes["create"] = 1
    seen.kind("endpoints").beside["services"] = 1
    ((verdict, text),) = found(seen, "C")
    assert verdict is Verdict.CARE
    assert "not fenced" in text


def copies_labels(seen: Seen) -> None:
    seen.kind("replicasets.apps").copied.append("team=a of Deployment shop")


def watches_the_old_way(seen: Seen) -> None:
    ask(seen, "GET", "/apis/apps/v1/watch/deployments")


def evicts(seen: Seen) -> None:
    ask(seen, "POST", f"{PODS}/x/eviction", {}, status=201)


def scales(seen: Seen) -> None:
    ask(seen, "PUT", f"{DEPLOYMENTS}/shop/scale", {})


def writes_one_object_again_and_again(seen: Seen) -> None:
    for _ in range(2):
        ask(seen, "PUT", "/api/v1/namespaces/web/configmaps/all", {"metadata": {"name": "all"}})


def writes_a_side_object(seen: Seen) -> None:
    ask(seen, "PUT", "/api/v1/namespaces/web/secrets/certificate", {"metadata": {"name": "certificate"}})


def writes_it_before_it_leads(seen: Seen) -> None:
    writes_a_side_object(seen)
    seen.kind("secrets").before_lock = 1


def writes_orphans(seen: Seen) -> None:
    seen.kind("pods").orphans = 1


def adopts(seen: Seen) -> None:
    seen.kind("pods").adopted = 1


def makes_bare_children(seen: Seen) -> None:
    ask(seen, "POST", PODS, {"metadata": {"name": "bare"}}, status=201)


def reads_all_of_another_kind(seen: Seen) -> None:
    watches(seen, "/api/v1/nodes")


def sends_yaml(seen: Seen) -> None:
    ask(seen, "PATCH", f"{PODS}/x", b"metadata: {}", content_type="application/apply-patch+yaml")


def drops_labels(seen: Seen) -> None:
    seen.kind("pods").dropped.append("web/x lost team")


@pytest.mark.parametrize(
    ("does", "letter", "expected"),
    [
        (copies_labels, "E", Verdict.YES),
        (watches_the_old_way, "", Verdict.NO),
        (evicts, "", Verdict.NO),
        (scales, "", Verdict.NO),
        (writes_one_object_again_and_again, "I", Verdict.UNCLEAR),
        (writes_a_side_object, "I", Verdict.CARE),
        (writes_it_before_it_leads, "I", Verdict.YES),
        (writes_orphans, "B", Verdict.YES),
        (adopts, "J", Verdict.CARE),
        (makes_bare_children, "", Verdict.CARE),
        (reads_all_of_another_kind, "G", Verdict.CARE),
        (sends_yaml, "", Verdict.CARE),
        (drops_labels, "F", Verdict.YES),
    ],
)
def test_each_habit_has_its_class(does: Callable[[Seen], None], letter: str, expected: Verdict) -> None:
    seen = deployments()
    does(seen)
    assert [verdict for verdict, _ in found(seen, letter)] == [expected]
    assert verdict_of(judge(seen, KUBE_CONTROLLER_MANAGER)) is expected


def test_each_tree_of_kinds_is_said() -> None:
    seen = watches(deployments(), "/apis/example.com/v1/websites")
    ask(seen, "PUT", "/apis/example.com/v1/namespaces/web/websites/x/status", {})
    texts = [text for _, text in found(seen, "A")]
    assert [text.partition(" one by one")[0] for text in texts] == [
        "it works deployments.apps",
        "it works websites.example.com",
    ]
    assert verdict_of(judge(seen, KUBE_CONTROLLER_MANAGER)) is Verdict.YES


def test_kinds_of_its_own_group_that_it_only_read_are_named() -> None:
    seen = watches(deployments(), "/apis/apps/v1/daemonsets", "/api/v1/nodes")
    (text,) = [text for text in unknown_of(seen) if "wrote none" in text]
    assert text.startswith("What it does with daemonsets.apps: ")


def test_what_no_run_shows_is_said() -> None:
    seen = deployments()
    seen.gaps.add("GET pods: Forbidden")
    unknown = unknown_of(seen)
    assert {text[0] for text in unknown} == {"C", "D", "E", "G", "H", "L"}
    seen.kind("replicasets.apps").templates = 1
    seen.kind("pods").beside["nodes"] = seen.kind("pods").left["nodes"] = 1
    assert {text[0] for text in unknown_of(seen)} == {"D", "G", "H", "L"}
