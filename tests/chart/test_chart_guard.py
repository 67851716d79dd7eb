"""The guard of a ring's labels and of its Leases, as tables of writes on a real API server (docs/adr/0035).

Each row: who writes, what the object bore before, what it is to bear, and what of it is refused. A replica writes the
Leases of its own member, and nobody but a sharder the election's.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import pytest

from kubeio.access.cluster import load_cluster
from kubeio.resource import LEASES
from kubeio.rest.client import Client
from ringleader.testing.client import MERGE_PATCH, Doc, IndependentClient, RequestFailedError
from tests.chart.guarded import (
    CONFIGMAPS,
    KEYS,
    LEASE_NAMESPACE,
    LONG_POD,
    POLICIES,
    RING_VALUES,
    SERVICES,
    SITES,
    SYSTEM,
    TURN,
    WEBSITES,
    Guarded,
    controlled_by,
    kubeconfig_of,
    lease,
    type_warnings,
    values,
    website,
)

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

A, B, C = "web-0-aaaaaaaa", "web-1-bbbbbbbb", "web-2-cccccccc"
STRANGER = "are written by the sharder and the replicas of the ring"
NOT_ITS_OWN = "a replica of the ring websites passes on or gives up what it owns"
_numbers = count()


class Bears(NamedTuple):
    """Keys of the ring on an object; None: the key is not there."""

    shard: str | None = None
    drain: str | None = None
    turn: str | None = None
    app: str = "x"

    def meta(self) -> dict[str, Any]:
        labels = {KEYS.shard: self.shard, KEYS.drain: self.drain, "app": self.app}
        return {"labels": labels, "annotations": {TURN: self.turn}}


class Row(NamedTuple):
    text: str
    who: str
    before: Bears | None
    after: Bears
    refused: str = ""


OWNED, DRAINED = Bears(A, turn="5"), Bears(A, B, turn="5")
ROWS = [
    Row("a tenant edits other labels", "tenant", OWNED, OWNED._replace(app="y")),
    Row("a tenant creates", "tenant", None, Bears()),
    Row("a tenant creates with a forged owner", "tenant", None, Bears(A), STRANGER),
    Row("a tenant creates with a forged turn", "tenant", None, Bears(turn="9"), STRANGER),
    Row("a tenant changes the owner", "tenant", OWNED, Bears(B, turn="5"), STRANGER),
    Row("a tenant forges an owner", "tenant", Bears(), Bears(A), STRANGER),
    Row("a tenant removes the owner", "tenant", OWNED, Bears(turn="5"), STRANGER),
    Row("a tenant forges a drain", "tenant", OWNED, DRAINED, STRANGER),
    Row("a tenant removes the drain", "tenant", DRAINED, OWNED, STRANGER),
    Row("a tenant changes the turn", "tenant", OWNED, Bears(A, turn="6"), STRANGER),
    Row("a tenant removes the turn", "tenant", OWNED, Bears(A), STRANGER),
    Row("an administrator changes the owner", "admin", OWNED, Bears(B, turn="5"), STRANGER),
    Row("an administrator removes the drain", "admin", DRAINED, OWNED, STRANGER),
    Row("a backup restores", "a backup", None, OWNED),
    Row("a backup writes over", "a backup", OWNED, Bears(B, turn="4"), STRANGER),
    Row("the cluster's own controller copies", "endpointslice-controller", None, OWNED),
    Row("the sharder assigns", "sharder", Bears(), OWNED),
    Row("the sharder assigns anew", "sharder", DRAINED, Bears(B, turn="6")),
    Row("the sharder asks for a handoff", "sharder", OWNED, DRAINED),
    Row("the sharder strips", "sharder", OWNED, Bears()),
    Row("an owner hands over", "web-0", DRAINED, Bears(B, turn="6")),
    Row("an owner gives up", "web-0", Bears(A, "", "5"), Bears()),
    Row("an owner gives up unasked", "web-0", OWNED, Bears()),
    Row("an owner keeps what it is asked for itself", "web-0", Bears(A, A, "5"), OWNED),
    Row("an owner hands over to a third", "web-0", DRAINED, Bears(C, turn="6"), NOT_ITS_OWN),
    Row("an owner asks itself for another", "web-0", OWNED, Bears(A, C, "5"), NOT_ITS_OWN),
    Row("a replica takes what is another's", "web-1", OWNED, Bears(B, turn="6"), NOT_ITS_OWN),
    Row("a replica takes what it shall get", "web-1", DRAINED, Bears(B, turn="6"), NOT_ITS_OWN),
    Row(
        "a replica takes what it shall get and keeps its turn",
        "web-1",
        DRAINED,
        Bears(B, turn="5"),
        NOT_ITS_OWN,
    ),
    Row("a replica takes what has no owner", "web-1", Bears(), Bears(B, turn="6"), NOT_ITS_OWN),
    Row("a replica strips another's", "web-1", OWNED, Bears(), NOT_ITS_OWN),
    Row("a replica asks for its child", "web-1", OWNED, DRAINED),
    Row("a replica asks for its child and turns it", "web-1", OWNED, Bears(A, B, "6"), NOT_ITS_OWN),
    Row("a replica asks in another's name", "web-2", OWNED, DRAINED, NOT_ITS_OWN),
    Row("a life asks an older one of its member", "web-0", OWNED, Bears(A, "web-0-dddddddd", "5")),
    Row("a replica creates its child", "web-0", None, Bears(A, turn="0")),
    Row("a replica creates a child for another", "web-1", None, Bears(A, turn="0"), NOT_ITS_OWN),
    Row(
        "a replica hands over what is of a member whose name begins like its own",
        "web-0",
        Bears("web-0-0-bbbbbbbb", B, "5"),
        Bears(B, turn="6"),
        NOT_ITS_OWN,
    ),
    Row("a shard of the reference hands over", "web-0", Bears("web-0", B, "5"), Bears(B, turn="6")),
    Row("a replica whose token names no pod hands over", "a replica without a pod", DRAINED, Bears(B)),
]


OTHER = {**RING_VALUES, "leaseNamespace": LEASE_NAMESPACE}
VALUES = values(labelGuard={"mutate": "Never"}, rings={KEYS.ring: RING_VALUES, "other": OTHER})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.text.replace(" ", "_"))
async def test_who_may_write_what(guarded: Guarded, row: Row) -> None:
    name = f"site-{next(_numbers)}"
    if row.before is not None:
        await guarded.admin.create(WEBSITES, website(name), namespace=SITES)
        await guarded.by("sharder").merge(WEBSITES, name, {"metadata": row.before.meta()}, namespace=SITES)
    if row.refused:
        with pytest.raises(RequestFailedError) as refused:
            await write(guarded.by(row.who), name, row)
        assert refused.value.status == 403
        assert row.refused in refused.value.message
    else:
        await write(guarded.by(row.who), name, row)
        assert bears(await guarded.admin.get(WEBSITES, name, namespace=SITES)) == row.after


async def write(client: IndependentClient, name: str, row: Row) -> None:
    meta = row.after.meta()
    if row.before is None:
        given = {kind: {k: v for k, v in keys.items() if v is not None} for kind, keys in meta.items()}
        await client.create(WEBSITES, website(name, **given), namespace=SITES)
    else:
        await client.merge(WEBSITES, name, {"metadata": meta}, namespace=SITES)


def bears(obj: Doc) -> Bears:
    labels, annotations = (obj["metadata"].get(kind) or {} for kind in ("labels", "annotations"))
    return Bears(labels.get(KEYS.shard), labels.get(KEYS.drain), annotations.get(TURN), labels["app"])


async def test_controlled_kinds_are_guarded_as_mains_are(guarded: Guarded) -> None:
    obj = {"metadata": {"name": "forged", "labels": {KEYS.shard: A}}}
    with pytest.raises(RequestFailedError, match=STRANGER):
        await guarded.by("tenant").create(CONFIGMAPS, obj, namespace=SITES)


async def test_an_owner_passes_on_what_its_object_controls_although_no_drain_label_is_on_that(
    guarded: Guarded,
) -> None:
    """Protocol 5.4: controlled objects first, to whom the drain label of their root names."""
    root = await guarded.admin.create(WEBSITES, website("root"), namespace=SITES)
    child = {"metadata": {"name": "child", "ownerReferences": controlled_by(root)}}
    await guarded.admin.create(CONFIGMAPS, child, namespace=SITES)
    for who, owner, refused in (("sharder", A, False), ("web-1", B, True), ("web-0", B, False)):
        patch = {"metadata": {"labels": {KEYS.shard: owner}}}
        with pytest.raises(RequestFailedError, match=NOT_ITS_OWN) if refused else nullcontext():
            await guarded.by(who).merge(CONFIGMAPS, "child", patch, namespace=SITES)


async def test_a_write_of_the_status_changes_no_label_of_the_ring(guarded: Guarded) -> None:
    """The API server keeps changes of labels that come with a status of most of its own kinds."""
    service = {"metadata": {"name": "status"}, "spec": {"ports": [{"port": 80}]}}
    await guarded.admin.create(SERVICES, service, namespace=SITES)
    path = SERVICES.path(namespace=SITES, name="status") + "/status"
    forged = {"metadata": {"labels": {KEYS.shard: A}}}
    with pytest.raises(RequestFailedError, match=STRANGER):
        await guarded.by("tenant").request("PATCH", path, body=forged, content_type=MERGE_PATCH)


async def test_the_lives_of_a_pod_with_a_long_name_are_its_own(guarded: Guarded) -> None:
    """A life's name keeps 54 characters of its member's, and no dash at their end; a proxy's has 63 characters."""
    async with IndependentClient(await kubeconfig_of(guarded.plane, guarded.admin, LONG_POD)) as replica:
        cut = LONG_POD[:54].rstrip("-")
        assert len(cut) < 54
        for name, life in (("long", f"{cut}-aaaaaaaa"), ("padded", f"{cut}-".ljust(63, "a"))):
            child = website(name, labels={KEYS.shard: life, "app": "x"})
            await replica.create(WEBSITES, child, namespace=SITES)
        with pytest.raises(RequestFailedError, match=NOT_ITS_OWN):
            await replica.create(WEBSITES, website("long-2", labels={KEYS.shard: A}), namespace=SITES)


async def test_every_policy_refuses_what_it_cannot_judge(guarded: Guarded) -> None:
    """Ignore would let a write pass whose judgement exceeds the server's budget."""
    policies = await guarded.admin.list_all(POLICIES)
    assert {policy["metadata"]["name"]: policy["spec"]["failurePolicy"] for policy in policies} == {
        "ringleader-sharder-election": "Fail",
        **{
            f"ringleader-{what}-{ring}": "Fail"
            for what in ("labels", "leases")
            for ring in ("websites", "other")
        },
    }
    assert await type_warnings(guarded.admin) == []


async def test_an_object_with_20000_labels_costs_what_one_with_five_does(guarded: Guarded) -> None:
    """Time that the server's own clock counts for the policy, of a stranger's edit of another label."""
    took_s = {}
    for labels in (5, 20_000):
        name = f"labels-{labels}"
        many = {f"label-{number}": "x" for number in range(labels)}
        await guarded.admin.create(WEBSITES, website(name, labels=many), namespace=SITES)
        before = await policy_time_s(guarded)
        patch = {"metadata": {"labels": {"label-0": "y"}}}
        await guarded.admin.merge(WEBSITES, name, patch, namespace=SITES)
        took_s[labels] = await policy_time_s(guarded) - before
    assert took_s[5] > 0
    assert took_s[20_000] < 0.02, took_s


async def policy_time_s(guarded: Guarded) -> float:
    """Seconds that the API server spent on policies in updates so far."""
    async with Client(load_cluster(kubeconfig=str(guarded.plane.kubeconfig))) as client:
        text = (await client.request("GET", "/metrics", accept="*/*")).body.decode()
    name = "apiserver_admission_controller_admission_duration_seconds_sum"
    of = ('name="ValidatingAdmissionPolicy"', 'operation="UPDATE"', 'type="validate"')
    lines = [line for line in text.splitlines() if line.startswith(name) and all(o in line for o in of)]
    return sum(float(line.split()[-1]) for line in lines)


# -- Leases

LEASE_STRANGER = "Leases of the ring websites are written by its sharder and its replicas only"
OTHER_RING = "Leases of the ring other are written by its sharder and its replicas only"
OTHER_MEMBER = "a replica writes the Leases of its own member only"
SHARDERS_OWN = "only the sharder takes a Lease of the ring websites or contests it"
ELECTION = "the sharders' election is written by the sharders only"
CONTESTED = {KEYS.contested: "2026-01-01T00:00:00Z"}
PROVED = {KEYS.released_by: "web-0-dddddddd"}
TAKEN = "sharder:ringleader-sharder-a"


class LeaseRow(NamedTuple):
    text: str
    who: str
    before: Doc | None
    after: Doc
    refused: str = ""


def own(**changed: object) -> Doc:
    """The Lease of web-0's life."""
    return lease(A, member="web-0", **changed)  # type: ignore[arg-type] # the table's own words


def reference(**changed: object) -> Doc:
    """The Lease of a shard of the reference implementation: called like its pod, without annotations of ours."""
    made = lease("web-0", member="web-0", **changed)  # type: ignore[arg-type] # the table's own words
    del made["metadata"]["annotations"]
    return made


LEASE_ROWS = [
    LeaseRow("a replica creates its Lease", "web-0", None, own()),
    LeaseRow("a replica creates another member's", "web-1", None, own(), OTHER_MEMBER),
    LeaseRow("a replica creates its own under another's name", "web-0", None, lease(B, member="web-0"), OTHER_MEMBER),
    LeaseRow("a replica creates one held by another", "web-0", None, own(holder=B), SHARDERS_OWN),
    LeaseRow("a replica renews", "web-0", own(), own(marks={"ringleader.dev/synced": "true"})),
    LeaseRow("a replica releases", "web-0", own(), own(holder="")),
    LeaseRow("a next life takes it over, with another duration", "web-0", own(holder=""), own(duration_s=4)),
    LeaseRow("a next life releases an older one", "web-0", own(), own(holder="", marks=PROVED)),
    LeaseRow("a replica edits the duration while it is held", "web-0", own(), own(duration_s=1), SHARDERS_OWN),
    LeaseRow("a replica empties another's holder", "web-1", own(), own(holder=""), OTHER_MEMBER),
    LeaseRow("a replica claims another's for its member", "web-1", own(), lease(A, member="web-1"), OTHER_MEMBER),
    LeaseRow("a replica takes back what the sharder took", "web-0", own(holder=TAKEN), own(), SHARDERS_OWN),
    LeaseRow("a replica clears a contest", "web-0", own(marks=CONTESTED), own(), SHARDERS_OWN),
    LeaseRow("a replica leaves the ring with its Lease", "web-0", own(), own(ring="none"), SHARDERS_OWN),
    LeaseRow("a replica brings a Lease from elsewhere", "web-0", own(ring="none"), own(), SHARDERS_OWN),
    LeaseRow("a replica of this ring joins another", "web-0", None, own(ring="other"), OTHER_RING),
    LeaseRow("a replica whose token names no pod renews", "a replica without a pod", own(), own()),
    LeaseRow("the sharder takes, and contests", "sharder", own(), own(holder=TAKEN, marks=CONTESTED)),
    LeaseRow("the sharder buries a name", "sharder", None, own(holder=TAKEN, marks=CONTESTED)),
    LeaseRow("an administrator edits", "admin", own(), own(holder=""), LEASE_STRANGER),
    LeaseRow("an administrator edits the duration", "admin", own(), own(duration_s=1), LEASE_STRANGER),
    LeaseRow("a tenant joins", "tenant", None, own(), LEASE_STRANGER),
    LeaseRow("a backup brings a ghost", "a backup", None, own(), LEASE_STRANGER),
    LeaseRow("a tenant has a Lease of his own", "tenant", None, own(ring="of-a-tenant")),
    LeaseRow("a shard of the reference renews", "web-0", reference(), reference()),
    LeaseRow("a shard of the reference is back after a take", "web-0", reference(holder=TAKEN), reference()),
]  # fmt: skip


@pytest.mark.parametrize("row", LEASE_ROWS, ids=lambda row: row.text.replace(" ", "_"))
async def test_who_may_write_which_lease(guarded: Guarded, row: LeaseRow) -> None:
    sharder, name = guarded.by("sharder"), row.after["metadata"]["name"]
    path, method = LEASES.path(namespace=LEASE_NAMESPACE), "POST"
    after = {**row.after, "metadata": {**row.after["metadata"]}}
    if row.before is not None:
        made = await sharder.create(LEASES, row.before, namespace=LEASE_NAMESPACE)
        after["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]
        path, method = f"{path}/{name}", "PUT"
    writing = partial(guarded.by(row.who).request, method, path, body=after)
    try:
        if row.refused:
            with pytest.raises(RequestFailedError) as refused:
                await writing()
            assert refused.value.status == 403
            assert row.refused in refused.value.message
        else:
            await writing()
            found = await sharder.get(LEASES, name, namespace=LEASE_NAMESPACE)
            assert found["spec"]["holderIdentity"] == row.after["spec"]["holderIdentity"]
    finally:
        if row.before is not None or not row.refused:
            await sharder.delete(LEASES, name, namespace=LEASE_NAMESPACE)


@pytest.mark.parametrize("who", ["web-0", "a replica without a pod", "tenant", "admin", "a backup"])
async def test_the_election_is_written_by_sharders_only(guarded: Guarded, who: str) -> None:
    election = {"metadata": {"name": "ringleader-sharder"}, "spec": {"holderIdentity": "s1"}}
    sharder = guarded.by("sharder")
    await sharder.create(LEASES, election, namespace=SYSTEM)
    change = {"spec": {"holderIdentity": "me"}}
    try:
        with pytest.raises(RequestFailedError, match=ELECTION):
            await guarded.by(who).merge(LEASES, "ringleader-sharder", change, namespace=SYSTEM)
        await sharder.merge(LEASES, "ringleader-sharder", change, namespace=SYSTEM)
    finally:
        await sharder.delete(LEASES, "ringleader-sharder", namespace=SYSTEM)
    with pytest.raises(RequestFailedError, match=ELECTION):
        await guarded.by(who).create(LEASES, election, namespace=SYSTEM)


async def test_a_lease_of_the_ring_is_free_to_delete(guarded: Guarded) -> None:
    """Namespaces end so, and a name is freed so; the sharder treats such a name as contested."""
    await guarded.by("sharder").create(LEASES, own(), namespace=LEASE_NAMESPACE)
    await guarded.admin.delete(LEASES, A, namespace=LEASE_NAMESPACE)
