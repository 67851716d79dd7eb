"""The guard of a ring's labels, as a table of writes on a real API server (docs/adr/0035).

Each row: who writes, what the object bore before, what it is to bear, and what of it is refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from devcluster.real.real_plane import RealPlane
from kubeio.access.cluster import load_cluster
from kubeio.rest.client import Client
from ringleader.testing.client import MERGE_PATCH, Doc, IndependentClient, RequestFailedError
from tests.chart.guarded import (
    CONFIGMAPS,
    KEYS,
    LONG_POD,
    POLICIES,
    SERVICES,
    SITES,
    TURN,
    WEBSITES,
    Guarded,
    guarded_plane,
    in_force,
    kubeconfig_of,
    type_warnings,
    values,
    website,
)
from tests.chart.helm import Helm

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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(
    plane: RealPlane, admin: IndependentClient, helm_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Guarded]:
    helm = Helm(helm_binary, tmp_path_factory.mktemp("guard"), plane.kubeconfig)
    async with guarded_plane(plane, admin, helm, values(labelGuard={"mutate": "Never"})) as guarded:
        await in_force(guarded)
        yield guarded


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
    reference = {key: root["metadata"][key] for key in ("name", "uid")}
    reference |= {"apiVersion": root["apiVersion"], "kind": root["kind"], "controller": True}
    child = {"metadata": {"name": "child", "ownerReferences": [reference]}}
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
    """A life's name keeps 54 characters of its member's, and no dash at their end."""
    async with IndependentClient(await kubeconfig_of(guarded.plane, guarded.admin, LONG_POD)) as replica:
        cut = LONG_POD[:54].rstrip("-")
        assert len(cut) < 54
        child = website("long", labels={KEYS.shard: f"{cut}-aaaaaaaa", "app": "x"})
        await replica.create(WEBSITES, child, namespace=SITES)
        with pytest.raises(RequestFailedError, match=NOT_ITS_OWN):
            await replica.create(WEBSITES, website("long-2", labels={KEYS.shard: A}), namespace=SITES)


async def test_every_policy_refuses_what_it_cannot_judge(guarded: Guarded) -> None:
    """Ignore would let a write pass whose judgement exceeds the server's budget."""
    policies = await guarded.admin.list_all(POLICIES)
    assert {policy["metadata"]["name"]: policy["spec"]["failurePolicy"] for policy in policies} == {
        "ringleader-labels-websites": "Fail",
        "ringleader-leases-websites": "Fail",
        "ringleader-sharder-election": "Fail",
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
