"""Faults of the ring and of what the API servers serve: edits, deletions, and definitions of another release."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Final

from devcluster.embedded.status import Refusal
from sharder.schema import SCHEMA, packaged_schema
from simulation.faults.strike import CHILDREN_PATH, DEFINITIONS_PATH, RING_PATH, Strike, fault
from simulation.network import Rule
from simulation.scale import SELECTED, SITES

_NOTHING: Final = {"matchLabels": {"no": "such-label"}}
_RINGS_PATH: Final = f"{DEFINITIONS_PATH}/controllerrings.ringleader.dev"
_WEBSITES_PATH: Final = f"{DEFINITIONS_PATH}/websites.example.com"


@fault
def ring_edited(strike: Strike) -> None:
    """The ring's spec is edited: settle window, imbalance, handoffs, pause."""
    field, value = strike.rng.choice(
        (
            ("settleSeconds", strike.rng.randint(0, 5)),
            ("imbalancePercent", strike.rng.choice((1, 5, 50))),
            ("drainPolicy", "Force"),
            ("maxInFlight", strike.rng.choice((1, 10, 250))),
            ("drainTimeoutSeconds", strike.rng.choice((5, 60))),
            ("paused", True),
            ("minMembers", 2),
        )
    )
    strike.note(f"ring_edited {field}={value}")
    strike.edit_ring({field: value})
    if field == "paused":
        strike.heal_in(strike.span_s(), partial(strike.edit_ring, {"paused": False}))


@fault
def ring_spoiled(strike: Strike) -> None:
    """The ring's spec breaks a rule that a server without CEL does not know; it is corrected later."""
    strike.note("ring_spoiled")
    strike.edit_ring({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}})
    strike.heal_in(strike.span_s(), partial(strike.reset_ring, "namespaceSelector"))


@fault
def status_late(strike: Strike) -> None:
    """A write of the ring's status arrives late: of a sharder that led before, when all is healed perhaps."""
    with suppress(Refusal):  # there may be no ring
        status = {**strike.request("GET", RING_PATH).get("status", {})}
        status.pop("sharder", None)  # another implementation's claim is no write of ours
        in_s = strike.rng.uniform(1, 150)
        strike.note(f"status_late in {in_s:.1f} s")
        strike.fleet.world.after(in_s, partial(_write_status, strike, status))


def _write_status(strike: Strike, status: dict[str, object]) -> None:
    strike.fleet.changed_at = strike.fleet.world.now
    strike.merge(f"{RING_PATH}/status", {"status": status})


@fault
def ring_taken(strike: Strike) -> None:
    """Another implementation's sharder works the ring for a while, as its status says."""
    strike.note("ring_taken")
    strike.merge(f"{RING_PATH}/status", {"status": {"sharder": "another"}})
    for process in strike.processes("sharder"):
        process.kill()
    strike.correct_in(
        strike.span_s(), partial(strike.merge, f"{RING_PATH}/status", {"status": {"sharder": None}})
    )


@fault
def ring_deleted(strike: Strike) -> None:
    """The ring is deleted: every object is given up. It is made anew when it is gone, before a new leader perhaps."""
    strike.note("ring_deleted")
    strike.delete_ring()
    for_s = strike.span_s()
    if strike.rng.random() < 0.3:
        strike.go_on_in(for_s / 2, strike.kill_leader)
    strike.again_in(for_s, strike.fleet.create_ring)


@fault
def namespace_deselected(strike: Strike) -> None:
    """The ring selects no namespace any more, and later what it usually selects."""
    strike.note("namespace_deselected")
    _trouble(strike, CHILDREN_PATH)
    strike.edit_ring({"namespaceSelector": _NOTHING})
    strike.heal_in(strike.span_s(), partial(strike.reset_ring, "namespaceSelector"))


@fault
def namespace_relabelled(strike: Strike) -> None:
    """The objects' namespace loses its labels for a while: a ring with a namespaceSelector selects it no more."""
    strike.note("namespace_relabelled")
    _trouble(strike, "/api/v1/namespaces?")
    path = f"/api/v1/namespaces/{SITES}"
    strike.merge(path, {"metadata": {"labels": dict.fromkeys(SELECTED["matchLabels"])}})
    selected = {"metadata": {"labels": SELECTED["matchLabels"]}}
    strike.correct_in(strike.span_s(), partial(strike.merge, path, selected))


@fault
def resource_listed(strike: Strike) -> None:
    """The ring lists a resource that no replica works, and gives it up later."""
    strike.note("resource_listed")
    resources = strike.fleet.ring["spec"]["resources"]
    strike.edit_ring({"resources": [*resources, {"group": "", "resource": "secrets"}]})
    for number in range(3):
        with suppress(Refusal):
            strike.request(
                "POST", f"/api/v1/namespaces/{SITES}/secrets", {"metadata": {"name": f"secret-{number}"}}
            )
    strike.heal_in(strike.span_s(), partial(_give_up, strike, resources))


def _give_up(strike: Strike, resources: list[dict[str, object]]) -> None:
    _trouble(strike, "/secrets")
    strike.edit_ring({"resources": resources})


def _trouble(strike: Strike, path: str) -> None:
    """What is given up cannot be listed or watched for a while, or the ring's status cannot be written, perhaps."""
    if strike.fleet.is_settling or strike.rng.random() < 0.3:
        return
    verb, path = strike.rng.choice((("read", path), ("watch", path), ("write", RING_PATH)))
    strike.revoke(verb, path, code=strike.rng.choice((403, 400)), for_s=strike.span_s())


@fault
def resource_unserved(strike: Strike) -> None:
    """The ring lists a resource whose definition comes later, and gives it up again."""
    if strike.fleet.scale.pages:
        return
    strike.note("resource_unserved")
    resources = strike.fleet.ring["spec"]["resources"]
    strike.edit_ring({"resources": [*resources, {"group": "example.com", "resource": "pages"}]})
    for_s = strike.span_s() + 10
    if strike.rng.random() < 0.5:
        strike.add_rule(Rule("server_errors", verb="read", path="/apis/example.com/v1", code=503), for_s / 2)
    strike.go_on_in(for_s / 2, strike.fleet.define_pages)
    strike.heal_in(for_s + 10, partial(strike.edit_ring, {"resources": resources}))


@fault
def definition_recreated(strike: Strike) -> None:
    """The CustomResourceDefinition is deleted, with all objects, and made anew; discovery fails meanwhile, perhaps."""
    strike.note("definition_recreated")
    strike.users.names.clear()
    strike.forge("DELETE", _WEBSITES_PATH)
    for_s = strike.span_s()
    if strike.rng.random() < 0.5:
        rule = Rule("server_errors", verb="read", path="/apis/example.com/v1", code=503)
        strike.go_on_in(for_s / 2, partial(strike.add_rule, rule, for_s / 2))
    strike.again_in(for_s, strike.fleet.define)


@fault
def status_not_served(strike: Strike) -> None:
    """The definition loses its status subresource, and gets it back later; some replica starts meanwhile."""
    strike.note("status_not_served")
    served = strike.fleet.definition["spec"]["versions"]
    without = [{**version, "subresources": {}} for version in served]
    strike.merge(_WEBSITES_PATH, {"spec": {"versions": without}})
    if replica := strike.replica():
        replica.process.kill()
    strike.correct_in(
        strike.span_s() + 5, partial(strike.merge, _WEBSITES_PATH, {"spec": {"versions": served}})
    )


@fault
def ring_definition_changed(strike: Strike) -> None:
    """The ControllerRing's definition is of an older release, or its number cannot be read; a new leader finds it."""
    number = strike.rng.choice(("1", "1", "two"))
    strike.note(f"ring_definition_changed to schema {number}")
    strike.merge(_RINGS_PATH, {"metadata": {"annotations": {SCHEMA: number}}})
    if strike.rng.random() < 0.3:
        strike.revoke("PATCH", _RINGS_PATH, for_s=strike.span_s())
    strike.kill_leader()
    if number == "two":
        right = {"metadata": {"annotations": {SCHEMA: str(packaged_schema())}}}
        strike.correct_in(strike.span_s(), partial(strike.merge, _RINGS_PATH, right))


@fault
def ring_definition_recreated(strike: Strike) -> None:
    """The ControllerRing's definition is deleted, with the ring, and made anew with it."""
    strike.note("ring_definition_recreated")
    strike.forge("DELETE", _RINGS_PATH)
    strike.again_in(strike.span_s(), strike.fleet.define_ring)
