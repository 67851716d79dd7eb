"""The guard of Leases, as a table of writes on a real API server: a replica writes its own member's, nobody else the
election's (docs/adr/0035).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from devcluster.real.real_plane import RealPlane
from kubeio.resource import LEASES
from ringleader.testing.client import Doc, IndependentClient, RequestFailedError
from tests.chart.guarded import (
    KEYS,
    LEASE_NAMESPACE,
    RING_VALUES,
    SYSTEM,
    Guarded,
    guarded_plane,
    in_force,
    lease,
    values,
)
from tests.chart.helm import Helm

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

A, B = "web-0-aaaaaaaa", "web-1-bbbbbbbb"
STRANGER = "Leases of the ring websites are written by its sharder and its replicas only"
OTHER_RING = "Leases of the ring other are written by its sharder and its replicas only"
OTHER_MEMBER = "a replica writes the Leases of its own member only"
SHARDERS_OWN = "only the sharder takes a Lease of the ring websites or contests it"
ELECTION = "the sharders' election is written by the sharders only"
CONTESTED = {KEYS.contested: "2026-01-01T00:00:00Z"}
PROVED = {KEYS.released_by: "web-0-dddddddd"}
TAKEN = "sharder:ringleader-sharder-a"


class Row(NamedTuple):
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


ROWS = [
    Row("a replica creates its Lease", "web-0", None, own()),
    Row("a replica creates another member's", "web-1", None, own(), OTHER_MEMBER),
    Row("a replica creates its own under another's name", "web-0", None, lease(B, member="web-0"), OTHER_MEMBER),
    Row("a replica creates one held by another", "web-0", None, own(holder=B), SHARDERS_OWN),
    Row("a replica renews", "web-0", own(), own(marks={"ringleader.dev/synced": "true"})),
    Row("a replica releases", "web-0", own(), own(holder="")),
    Row("a next life takes it over, with another duration", "web-0", own(holder=""), own(duration_s=4)),
    Row("a next life releases an older one", "web-0", own(), own(holder="", marks=PROVED)),
    Row("a replica edits the duration while it is held", "web-0", own(), own(duration_s=1), SHARDERS_OWN),
    Row("a replica empties another's holder", "web-1", own(), own(holder=""), OTHER_MEMBER),
    Row("a replica claims another's for its member", "web-1", own(), lease(A, member="web-1"), OTHER_MEMBER),
    Row("a replica takes back what the sharder took", "web-0", own(holder=TAKEN), own(), SHARDERS_OWN),
    Row("a replica clears a contest", "web-0", own(marks=CONTESTED), own(), SHARDERS_OWN),
    Row("a replica leaves the ring with its Lease", "web-0", own(), own(ring="none"), SHARDERS_OWN),
    Row("a replica brings a Lease from elsewhere", "web-0", own(ring="none"), own(), SHARDERS_OWN),
    Row("a replica of this ring joins another", "web-0", None, own(ring="other"), OTHER_RING),
    Row("a replica whose token names no pod renews", "a replica without a pod", own(), own()),
    Row("the sharder takes, and contests", "sharder", own(), own(holder=TAKEN, marks=CONTESTED)),
    Row("the sharder buries a name", "sharder", None, own(holder=TAKEN, marks=CONTESTED)),
    Row("an administrator edits", "admin", own(), own(holder=""), STRANGER),
    Row("an administrator edits the duration", "admin", own(), own(duration_s=1), STRANGER),
    Row("a tenant joins", "tenant", None, own(), STRANGER),
    Row("a backup brings a ghost", "a backup", None, own(), STRANGER),
    Row("a tenant has a Lease of his own", "tenant", None, own(ring="of-a-tenant")),
    Row("a shard of the reference renews", "web-0", reference(), reference()),
    Row("a shard of the reference is back after a take", "web-0", reference(holder=TAKEN), reference()),
]  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(
    plane: RealPlane, admin: IndependentClient, helm_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Guarded]:
    helm = Helm(helm_binary, tmp_path_factory.mktemp("guard"), plane.kubeconfig)
    other = {"name": "other", "spec": {**RING_VALUES["spec"], "leaseNamespace": LEASE_NAMESPACE}}
    rings = values(rings=[RING_VALUES, other])
    async with guarded_plane(plane, admin, helm, rings) as guarded:
        await in_force(guarded)
        yield guarded


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.text.replace(" ", "_"))
async def test_who_may_write_which_lease(guarded: Guarded, row: Row) -> None:
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
