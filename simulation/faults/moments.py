"""Faults that strike at one moment, which others meet in no thousand runs. They are drawn apart, in few runs each."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Final

from devcluster.embedded.status import Refusal
from kubeio.protocol import SHARDER_HOLDER
from simulation.controllers import children_of
from simulation.faults.admission import late_admission
from simulation.faults.strike import CHILDREN_PATH, LEASES_PATH, Strike, fault_at_a_moment, fault_at_rest
from simulation.fleet import Replica
from simulation.network import Rule
from simulation.scale import KEYS, LEASE_NAMESPACE, STRANGER

_OFTEN_S: Final = 0.005
"""So often it is looked whether the moment has come."""
_FEW: Final = 4
"""So many objects that the ring is free of labels between the first and the last of them."""
_MANY: Final = 30
"""So many objects that some are handed over while the sharder corrects others."""
_HELD_S: Final = 0.3
"""So long a watch lags: longer than a shard takes to pass an object on."""
_NEW_PAGE: Final = 1000
"""Number of a page that users do not create."""
_DRIFT: Final = 1.005
"""Two durations on a clock that runs slow."""
_UNKNOWN_NAMES: Final = 10
"""Names without a Lease: the tombstone of one of them is stored between the plan of a move and its write."""
_LATE_S: Final = 2.0
"""The longest delay of these tombstones and moves."""


@fault_at_a_moment(0.02)
def standstill_after_outage(strike: Strike) -> None:
    """A replica renews its Lease, late, for the first time after an outage; then all its threads stand still."""
    if (replica := strike.live_shard()) is None:
        return
    name, lease_s, path = replica.process.name, strike.lease_s, f"{LEASES_PATH}/{replica.shard}"
    outage_s = 1.3 * lease_s
    strike.note(f"standstill_after_outage of {outage_s:.1f} s: {replica.process}")
    strike.add_rule(Rule("request_lost", process=name, path=path), outage_s)
    late = Rule("request_late", process=name, verb="PUT", path=path, delay_s=0.3 * lease_s)
    strike.go_on_in(outage_s, partial(strike.add_rule, late, lease_s))
    strike.go_on_in(outage_s, partial(_stand_still_when_renewed, strike, replica))


def _stand_still_when_renewed(strike: Strike, replica: Replica) -> None:
    age_s = replica.lease_age_s
    if replica.process.has_ended or age_s is None:
        return
    if age_s > strike.lease_s / 2:
        strike.go_on_in(_OFTEN_S, partial(_stand_still_when_renewed, strike, replica))
        return
    strike.note(f"the threads of {replica.process} stand still")
    strike.stand_still(replica, judged_in_s=2 * _DRIFT * strike.lease_s - age_s)


@fault_at_a_moment(0.02)
def contest_emptied(strike: Strike) -> None:
    """The holder of a Lease that the sharder contests is emptied by hand, and its replica starts before a sharder."""
    if (replica := strike.live_shard()) is None:
        return
    strike.note(f"contest_emptied {replica.shard}")
    strike.merge(f"{LEASES_PATH}/{replica.shard}", {"spec": {"holderIdentity": "a-person"}})
    strike.go_on_in(_OFTEN_S, partial(_empty_when_contested, strike, replica))


def _empty_when_contested(strike: Strike, replica: Replica) -> None:
    path = f"{LEASES_PATH}/{replica.shard}"
    with suppress(Refusal):  # it may be gone, and then this is over
        lease = strike.request("GET", path)
        is_taken = (lease["spec"].get("holderIdentity") or "").startswith(SHARDER_HOLDER)
        if not is_taken:
            strike.go_on_in(_OFTEN_S, partial(_empty_when_contested, strike, replica))
        elif KEYS.contested in (lease["metadata"].get("annotations") or {}):
            for process in (*strike.processes("sharder"), replica.process):
                process.kill()
            strike.merge(path, {"spec": {"holderIdentity": ""}})


@fault_at_a_moment(0.02)
def leases_gone_after_maximum(strike: Strike) -> None:
    """The ring's maximum is lowered, then all Leases go: one replica and the next sharders notice neither."""
    if (replica := strike.live_shard()) is None:
        return
    strike.note(f"leases_gone_after_maximum: {replica.process} does not notice")
    strike.cut_off(replica.process, 2 * strike.lease_s)
    usual = strike.fleet.ring["spec"]["maxLeaseDurationSeconds"]
    strike.edit_ring({"maxLeaseDurationSeconds": 1})
    strike.heal_in(3 * strike.lease_s, partial(strike.edit_ring, {"maxLeaseDurationSeconds": usual}))
    for process in strike.processes("sharder"):
        process.kill()
    strike.forge("DELETE", f"/api/v1/namespaces/{LEASE_NAMESPACE}")
    strike.again_in(0.5, partial(strike.fleet.create_namespace, LEASE_NAMESPACE))


@fault_at_a_moment(0.1)  # one run in five has admission
def ring_deleted_while_objects_land(strike: Strike) -> None:
    """Sharders name the owners of new objects, and the ring is deleted before these are stored.

    It is edited while it waits for them, perhaps, and another sharder leads.
    """
    if not strike.fleet.scale.admits:
        return
    strike.note("ring_deleted_while_objects_land")
    late_admission(strike, for_s=5.0)
    for _ in range(_FEW):
        strike.users.create_one()
    strike.go_on_in(1.0, strike.delete_ring)
    if strike.rng.random() < 0.5:
        strike.go_on_in(2.0, partial(strike.edit_ring, {"assignAtAdmission": False}))
        if strike.rng.random() < 0.5:
            strike.go_on_in(3.0, strike.kill_leader)
    strike.again_in(60.0, strike.fleet.create_ring)


@fault_at_a_moment(0.1)  # one run in five has pages
def resource_removed_while_objects_land(strike: Strike) -> None:
    """The ring gives up a resource that replicas work, before new objects of it are stored, and takes it back later."""
    if not strike.fleet.scale.pages:
        return
    strike.note("resource_removed_while_objects_land")
    late_admission(strike, for_s=5.0)
    for number in range(_FEW):
        strike.users.create_page(_NEW_PAGE + number)
    resources = strike.fleet.ring["spec"]["resources"]
    left = [each for each in resources if each["resource"] != "pages"]
    strike.go_on_in(1.0, partial(strike.edit_ring, {"resources": left}))
    strike.heal_in(strike.rng.uniform(20, 100), partial(strike.edit_ring, {"resources": resources}))


@fault_at_a_moment(0.02)
def ring_deleted_while_tombstones_land(strike: Strike) -> None:
    """The ring is deleted, and objects get unknown names: tombstones land while these begin to count as dead."""
    strike.note("ring_deleted_while_tombstones_land")
    dead_in_s = strike.fleet.ring["spec"]["maxLeaseDurationSeconds"]
    strike.delete_ring()
    _give_unknown_name(strike)  # the ring does not go before this one is dead
    for process in strike.processes("sharder"):
        # "/websites/" is in the paths of the objects, and of the ring's status
        for verb, path in (("POST", f"{LEASES_PATH}?"), ("PATCH", "/websites/")):
            late = Rule("request_late", process=process.name, verb=verb, path=path, delay_s=_LATE_S)
            strike.go_on_in(dead_in_s - 1.5 * _LATE_S, partial(strike.add_rule, late, 3 * _LATE_S))
    for number in range(_UNKNOWN_NAMES):
        early_s = _LATE_S * (1 - number / _UNKNOWN_NAMES)
        strike.go_on_in(dead_in_s - early_s, partial(_give_unknown_name, strike))
    strike.again_in(dead_in_s + 60.0, strike.fleet.create_ring)


def _give_unknown_name(strike: Strike) -> None:
    if path := strike.site():
        strike.forge_label(path, KEYS.shard, f"replica-9-{strike.rng.getrandbits(32):08x}")


@fault_at_rest(0.1)
def labels_forged_at_rest(strike: Strike) -> None:
    """Drain labels are written by hand while nothing moves: no pass over all objects is due.

    Some are those of ConfigMaps, all that a website controls. Perhaps writes fail meanwhile, the sharder's watches lag,
    or a shard is silent.
    """
    strike.note("labels_forged_at_rest")
    if strike.rng.random() < 0.5:
        failing = Rule("server_errors", verb="PATCH", share=0.3, code=strike.rng.choice((429, 500)))
        strike.add_rule(failing, strike.rng.uniform(0.5, 5))
    for _ in range(_MANY):
        to = strike.rng.choice((strike.shard(), STRANGER))
        if strike.rng.random() < 0.3:
            _ask_for_children(strike, to)
        else:
            _ask_for_one(strike, to)
    match strike.rng.choice(("", "late watches", "silence")):
        case "late watches":
            strike.fleet.world.after(strike.rng.uniform(0.001, 0.01), partial(_hold_watches, strike))
        case "silence":
            if (replica := strike.live_shard()) is not None:
                strike.cut_off(replica.process, 1.3 * strike.lease_s)
                strike.fleet.world.after(1.1 * strike.lease_s, partial(_ask_for_many, strike, replica.shard))


def _ask_for_one(strike: Strike, to: str) -> None:
    if (path := strike.site()) and not strike.works_pages(to):
        strike.forge_label(path, KEYS.drain, to)


def _ask_for_many(strike: Strike, to: str) -> None:
    for _ in range(_MANY):
        _ask_for_one(strike, to)


def _ask_for_children(strike: Strike, to: str) -> None:
    """All ConfigMaps that one website controls."""
    if (path := strike.site()) and not strike.works_pages(to):
        for name in children_of(path.rpartition("/")[2], strike.fleet.scale):
            strike.forge_label(f"{CHILDREN_PATH}/{name}", KEYS.drain, to)


def _hold_watches(strike: Strike) -> None:
    """Sharders see labels, and their ends, late."""
    for stream in strike.fleet.network.streams:
        if stream.process.name.startswith("sharder") and "/websites" in stream.path:
            stream.held_until = strike.fleet.world.now + _HELD_S
