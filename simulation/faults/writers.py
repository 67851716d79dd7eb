"""What people and other programs write: labels and Leases by hand, edits of the ring, deletions."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from devcluster.embedded.status import Refusal
from kubeio.clock import micro_time
from simulation.controllers import REFUSED, UNFIT
from simulation.faults.strike import CHILDREN_PATH, LEASES_PATH, MERGE, Strike, fault
from simulation.network import Rule
from simulation.scale import FORMER, KEYS, LEASE_NAMESPACE, RING, SITES, STRANGER, THEME


@fault
def labels_forged(strike: Strike) -> None:
    """Somebody writes ring labels by hand."""
    number = strike.rng.choice((1, 5, 30))
    strike.note(f"labels_forged of {number} objects")
    for _ in range(number):
        path = strike.site()
        if not path:
            return
        key = strike.rng.choice((KEYS.shard, KEYS.drain))
        value = strike.rng.choice(
            (None, "", strike.shard(), f"replica-9-{strike.rng.getrandbits(32):08x}", "no.lease", STRANGER)
        )
        if strike.works_pages(value or ""):
            continue  # its owner would never see it: who forges that has to undo it
        if (
            key == KEYS.shard
            and strike.fleet.of_shard(value or "")
            and not strike.fleet.scale.audits_within_run
        ):
            continue  # only the audit finds an object with the label of another shard that works
        strike.forge_label(path, key, value)


@fault
def lease_deleted(strike: Strike) -> None:
    """A shard's Lease is deleted by hand, and a policy refuses tombstones perhaps."""
    name = strike.shard()
    if not name:
        return
    if strike.rng.random() < 0.3:
        strike.refuse("POST", LEASES_PATH)
    replica = strike.fleet.of_shard(name)
    if replica is not None and strike.rng.random() < 0.5:
        strike.cut_off(replica.process, strike.lease_s)
    strike.note(f"lease_deleted {name}")
    strike.delete_lease(name)


@fault
def contest_disturbed(strike: Strike) -> None:
    """A Lease is deleted while its process is cut off, and the contest has a hard time: a new leader, an edit."""
    if (replica := strike.live_shard()) is None:
        return
    name = replica.shard
    strike.cut_off(replica.process, strike.lease_s)
    strike.note(f"contest_disturbed {name}")
    way = strike.rng.choice(("leaders", "label", "maximum"))
    if way == "maximum":
        strike.edit_ring({"maxLeaseDurationSeconds": 1})
        usual = strike.fleet.ring["spec"]["maxLeaseDurationSeconds"]
        strike.heal_in(strike.lease_s, partial(strike.edit_ring, {"maxLeaseDurationSeconds": usual}))
    if way == "leaders":
        leader = strike.leader()
        for process in strike.processes("sharder"):
            if process is not leader:
                process.kill()
        if leader is not None:
            strike.go_on_in(strike.rng.uniform(1, 8), leader.terminate)
    strike.go_on_in(0.1, partial(strike.delete_lease, name))
    if way == "label":
        strike.go_on_in(strike.rng.uniform(0.5, 3), partial(strike.unlabel_lease, name))


@fault
def lease_edited(strike: Strike) -> None:
    """The duration of a shard's Lease is edited, or its holder: not the renewals."""
    replica = strike.live_shard()
    name = replica.shard if replica is not None and strike.rng.random() < 0.7 else strike.shard()
    if name:
        if replica is not None and strike.rng.random() < 0.5:
            strike.cut_off(replica.process, strike.lease_s)
        if strike.rng.random() < 0.3:  # nobody takes it at once
            for process in strike.processes("sharder"):
                process.kill()
        seconds = strike.rng.choice((1, 3, int(strike.lease_s) * 2))
        changes: tuple[dict[str, object], ...] = (
            {"leaseDurationSeconds": seconds},
            {"holderIdentity": "a-person"},
        )
        change = strike.rng.choice(changes)
        strike.note(f"lease_edited {name}: {change}")
        with suppress(Refusal):
            strike.request(
                "PATCH",
                f"{LEASES_PATH}/{name}",
                {"spec": change},
                content_type=MERGE,
            )


@fault
def lease_forged(strike: Strike) -> None:
    """A Lease of the ring that no process holds: a restored backup."""
    name = f"ghost-{strike.rng.getrandbits(32):08x}"
    strike.note(f"lease_forged {name}")
    strike.forge(
        "POST",
        LEASES_PATH,
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": name,
                "labels": {KEYS.ring_label: RING},
                "annotations": {KEYS.member: "ghost", KEYS.protocol: "v1", KEYS.synced: "true"},
            },
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": int(strike.lease_s),
                "renewTime": "2026-01-01T00:00:00.000000Z",
                "acquireTime": "2026-01-01T00:00:00.000000Z",
                "leaseTransitions": 0,
            },
        },
    )


@fault
def children_deleted(strike: Strike) -> None:
    """Children are deleted by hand."""
    strike.note("children_deleted")
    strike.delete_children()


@fault
def owner_forged(strike: Strike) -> None:
    """A ConfigMap names a controller that no object can be, or one that does not exist."""
    name = f"stranger-{strike.rng.getrandbits(32):08x}"
    controller = strike.rng.choice(("a/b", "missing", "..", "x" * 300))
    strike.note(f"owner_forged {name}: {controller[:20]}")
    reference = {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "name": controller,
        "uid": f"{strike.rng.getrandbits(32):08x}-0000-4000-8000-000000000000",
        "controller": True,
    }
    strike.forge("POST", CHILDREN_PATH, {"metadata": {"name": name, "ownerReferences": [reference]}})


@fault
def member_cordoned(strike: Strike) -> None:
    """A member is cordoned or weighted, and set free later."""
    if (replica := strike.replica()) is None:
        return
    changes: tuple[dict[str, object], ...] = ({"cordoned": True}, {"weight": 3}, {"weight": 1})
    strike.set_member(replica.process.name, strike.rng.choice(changes), strike.span_s() * 2)


@fault
def owner_forced(strike: Strike) -> None:
    """An owner renews its Lease and cannot hand over: its patches are refused; the ring forces such owners."""
    if (replica := strike.live_shard()) is None:
        return
    name, for_s = replica.process.name, 4 * strike.lease_s
    strike.note(f"owner_forced {name} within {for_s} s")
    strike.add_rule(Rule("write_refused", process=name, verb="PATCH", path="websites", code=403), for_s)
    strike.set_member(name, {"cordoned": True}, for_s)
    strike.edit_ring({"drainPolicy": "Force", "drainTimeoutSeconds": 5})
    strike.heal_in(for_s, partial(strike.edit_ring, {"drainPolicy": "Wait", "drainTimeoutSeconds": 60}))


@fault
def object_stuck(strike: Strike) -> None:
    """A policy refuses every patch of an object, and its owner dies: its name is dead for long."""
    if (replica := strike.live_shard()) is None:
        return
    owned = strike.owned_by(replica.shard)
    if not owned:
        return
    name, for_s = strike.rng.choice(owned), 100.0
    strike.note(f"object_stuck {name} of {replica.shard} for {for_s} s")
    strike.add_rule(Rule("write_refused", verb="PATCH", path=f"websites/{name}", code=422), for_s)
    replica.process.kill()


@fault
def namespace_recreated(strike: Strike) -> None:
    """A namespace is deleted with all that is in it, and made anew: the objects' or the Leases'."""
    name = strike.rng.choice((SITES, LEASE_NAMESPACE))
    strike.note(f"namespace_recreated {name}")
    if name == SITES:
        strike.users.names.clear()
    strike.forge("DELETE", f"/api/v1/namespaces/{name}")
    strike.again_in(strike.span_s(), partial(strike.fleet.create_namespace, name))


@fault
def content_unfit(strike: Strike) -> None:
    """Users write what the controller's model, its index, or its reconciler cannot take, and correct it sometime."""
    for _ in range(strike.rng.choice((1, 5, 20))):
        if path := strike.site():
            _write_unfit(strike, path)


def _write_unfit(strike: Strike, path: str) -> None:
    content = strike.rng.choice((UNFIT, REFUSED, REFUSED, "no number"))
    strike.users.leave(path.rpartition("/")[2])  # no later edit repairs what the last one needs
    strike.note(f"content_unfit {path.rpartition('/')[2]}: {content}")
    strike.merge(path, {"spec": {"html": content}})
    if strike.rng.random() < 0.3:
        strike.refuse("PATCH", f"{path}/status")
    while_reconciled_s = strike.rng.uniform(0, strike.fleet.scale.longest_reconcile_s + 0.005)
    in_s = strike.rng.choice((while_reconciled_s, while_reconciled_s, strike.span_s()))
    strike.correct_in(in_s, partial(strike.merge, path, {"spec": {"html": "2"}}))


@fault
def theme_changed(strike: Strike) -> None:
    """An object outside the ring changes, on which all others depend; the controller's map function fails, perhaps."""
    change = partial(_set_theme, strike)
    change(strike.rng.choice((str(strike.rng.randrange(10**6)), "no number")))
    strike.correct_in(strike.span_s(), partial(change, str(strike.rng.randrange(10**6))))


def _set_theme(strike: Strike, theme: str) -> None:
    strike.note(f"theme_changed to {theme}")
    path = f"/api/v1/namespaces/{SITES}/serviceaccounts/{THEME}"
    strike.merge(path, {"metadata": {"annotations": {THEME: theme}}})


@fault
def former_returns(strike: Strike) -> None:
    """The controller that the ring replaces holds its Lease again for a while, and releases it; it may do no more."""
    path, for_s = f"{LEASES_PATH}/{FORMER}", strike.span_s()
    strike.note(f"former_returns for {for_s:.1f} s")
    if strike.rng.random() < 0.5:
        strike.refuse("PUT", path)
    renewed = micro_time(strike.rng.choice(strike.fleet.machines).wall())
    spec = {"holderIdentity": "its-pod", "leaseDurationSeconds": 15, "renewTime": renewed}
    strike.merge(path, {"spec": spec})
    strike.correct_in(for_s, partial(strike.merge, path, {"spec": {"holderIdentity": ""}}))
