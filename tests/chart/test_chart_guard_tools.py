"""What people's tools and the cluster's own controllers meet at the guard: kubectl, backups, garbage collection, the
end of a namespace. From Kubernetes 1.36 on the guard mends what it would refuse before.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
import yaml

from devcluster.real import BinariesMissing, kubernetes_recipe
from devcluster.real.binaries import find_binaries
from devcluster.real.real_plane import RealPlane
from kubeio.resource import LEASES, NAMESPACES
from ringleader.testing.client import Doc, RequestFailedError
from tests.chart.guarded import (
    CONFIGMAPS,
    IS_MENDED,
    KEYS,
    LEASE_NAMESPACE,
    SITES,
    SYSTEM,
    TURN,
    WEBSITES,
    WITHIN_S,
    Guarded,
    controlled_by,
    is_refused,
    lease,
    values,
    website,
)

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

A, B = "web-0-aaaaaaaa", "web-1-bbbbbbbb"
OURS = {KEYS.shard: A, "app": "x"}
SENTENCE = "leave them out of what you apply"


class Said(NamedTuple):
    """What kubectl answered."""

    code: int
    text: str


class Kubectl(NamedTuple):
    """kubectl as the cluster's administrator, in the namespace of the objects."""

    binary: Path
    kubeconfig: Path
    directory: Path

    async def __call__(self, *arguments: str, stdin: Doc | None = None) -> Said:
        flags = [f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.directory}", f"--namespace={SITES}"]
        process = await asyncio.create_subprocess_exec(
            str(self.binary),
            *flags,
            *arguments,
            env={"PATH": os.environ["PATH"], "HOME": str(self.directory)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate(yaml.safe_dump(stdin).encode() if stdin else b"")
        return Said(process.returncode or 0, out.decode())


VALUES = values()


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def mended(guarded: Guarded) -> None:
    """Wait until what a create brings is taken off, where the server has policies for that."""
    if not IS_MENDED:
        return
    async with asyncio.timeout(WITHIN_S):
        for number in range(10_000):
            site = website(f"probe-{number}", labels=OURS)
            try:
                made = await guarded.admin.create(WEBSITES, site, namespace=SITES)
                if KEYS.shard not in made["metadata"]["labels"]:
                    return
            except RequestFailedError as error:
                if error.status != 503:  # the server's policies know a kind that is new after a while
                    raise
            await asyncio.sleep(0.1)


@pytest.fixture
def kubectl(plane: RealPlane, tmp_path: Path) -> Kubectl:
    try:
        binary = find_binaries(["kubectl"], kubernetes_recipe())["kubectl"]
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")
    return Kubectl(binary, plane.kubeconfig, tmp_path)


async def owned(guarded: Guarded, name: str) -> Doc:
    """A Website that the sharder gave an owner."""
    await guarded.admin.create(WEBSITES, website(name), namespace=SITES)
    meta = {"labels": OURS, "annotations": {TURN: "5"}}
    return await guarded.by("sharder").merge(WEBSITES, name, {"metadata": meta}, namespace=SITES)


async def keys_of(guarded: Guarded, name: str) -> tuple[str | None, str | None]:
    meta = (await guarded.admin.get(WEBSITES, name, namespace=SITES))["metadata"]
    return meta.get("labels", {}).get(KEYS.shard), meta.get("annotations", {}).get(TURN)


async def test_kubectl_label_of_an_administrator_is_refused_with_what_to_do(
    guarded: Guarded, kubectl: Kubectl
) -> None:
    await owned(guarded, "label")
    said = await kubectl("label", "websites", "label", f"{KEYS.shard}={B}", "--overwrite")
    assert said.code != 0
    assert SENTENCE in said.text
    assert "ringleader cordon" in said.text
    assert (await kubectl("label", "websites", "label", "app=y", "--overwrite")).code == 0
    assert await keys_of(guarded, "label") == (A, "5")


async def test_kubectl_in_the_sharders_name_breaks_the_glass(guarded: Guarded, kubectl: Kubectl) -> None:
    await owned(guarded, "glass")
    sharder = f"--as=system:serviceaccount:{SYSTEM}:ringleader-sharder"
    said = await kubectl("label", "websites", "glass", f"{KEYS.shard}={B}", "--overwrite", sharder)
    assert said.code == 0, said.text
    assert await keys_of(guarded, "glass") == (B, "5")


async def test_kubectl_apply_of_what_lacks_the_labels_leaves_them(guarded: Guarded, kubectl: Kubectl) -> None:
    for flags in ([], ["--server-side"]):
        name = f"apply{len(flags)}"
        wanted = website(name, labels={"app": "x"})
        assert (await kubectl("apply", *flags, "-f", "-", stdin=wanted)).code == 0
        meta = {"labels": {KEYS.shard: A}, "annotations": {TURN: "5"}}
        await guarded.by("sharder").merge(WEBSITES, name, {"metadata": meta}, namespace=SITES)
        said = await kubectl("apply", *flags, "-f", "-", stdin={**wanted, "spec": {"html": "changed"}})
        assert said.code == 0, said.text
        assert await keys_of(guarded, name) == (A, "5")


async def test_kubectl_replace_without_the_labels_keeps_them_or_is_refused(
    guarded: Guarded, kubectl: Kubectl
) -> None:
    await owned(guarded, "replace")
    said = await kubectl("replace", "-f", "-", stdin=website("replace"))
    assert (said.code == 0) is IS_MENDED, said.text
    assert IS_MENDED or SENTENCE in said.text
    assert await keys_of(guarded, "replace") == (A, "5")


async def test_a_change_of_a_value_is_refused_also_where_losses_are_mended(
    guarded: Guarded, kubectl: Kubectl
) -> None:
    await owned(guarded, "value")
    said = await kubectl("replace", "-f", "-", stdin=website("value", labels={KEYS.shard: B}))
    assert said.code != 0
    assert SENTENCE in said.text


async def test_a_backup_that_is_restored_is_assigned_anew_or_keeps_its_old_names(guarded: Guarded) -> None:
    """Restore is CREATE by an account that may do everything."""
    restored = website("restored", labels=OURS, annotations={TURN: "5", "mine": "y"})
    await guarded.by("a backup").create(WEBSITES, restored, namespace=SITES)
    assert await keys_of(guarded, "restored") == ((None, None) if IS_MENDED else (A, "5"))
    meta = (await guarded.admin.get(WEBSITES, "restored", namespace=SITES))["metadata"]
    assert (meta["labels"]["app"], meta["annotations"]["mine"]) == ("x", "y")


async def test_a_create_of_a_tenant_with_forged_labels_comes_without_them_or_is_refused(
    guarded: Guarded,
) -> None:
    forged = website("forged", labels=OURS, annotations={TURN: "5"})
    try:
        await guarded.by("tenant").create(WEBSITES, forged, namespace=SITES)
    except RequestFailedError as error:
        assert not IS_MENDED
        assert SENTENCE in error.message  # noqa: PT017 - the same
    else:
        assert IS_MENDED
        assert await keys_of(guarded, "forged") == (None, None)


async def test_a_backup_brings_no_leases(guarded: Guarded) -> None:
    """Ghosts: a restored Lease would hold a place that nobody fills."""

    async def restore() -> None:
        await guarded.by("a backup").create(LEASES, lease(A, member="web-0"), namespace=LEASE_NAMESPACE)

    assert await is_refused(restore)


async def child_of(guarded: Guarded, parent: Doc, name: str) -> str:
    """The path of a ConfigMap that *parent* controls."""
    meta = {"name": name, "labels": OURS, "ownerReferences": controlled_by(parent)}
    await guarded.by("web-0").create(CONFIGMAPS, {"metadata": meta}, namespace=SITES)
    return CONFIGMAPS.path(namespace=SITES, name=name)


async def test_garbage_collection_takes_children_with_labels(guarded: Guarded) -> None:
    child = await child_of(guarded, await owned(guarded, "parent"), "child")
    await guarded.admin.delete(WEBSITES, "parent", namespace=SITES)
    await until_gone(guarded, child)


async def test_an_orphaned_child_keeps_its_label_when_its_owner_is_taken_off(
    guarded: Guarded, kubectl: Kubectl
) -> None:
    """The garbage collector patches ownerReferences, and nothing of ours."""
    orphan = await child_of(guarded, await owned(guarded, "leaver"), "orphan")
    assert (await kubectl("delete", "websites", "leaver", "--cascade=orphan")).code == 0
    async with asyncio.timeout(WITHIN_S):
        while "ownerReferences" in (meta := (await guarded.admin.request("GET", orphan))["metadata"]):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert meta["labels"] == OURS


async def test_a_namespace_with_owned_objects_and_one_with_leases_can_be_deleted(guarded: Guarded) -> None:
    await guarded.by("sharder").create(LEASES, lease(A, member="web-0"), namespace=LEASE_NAMESPACE)
    await guarded.admin.create(NAMESPACES, {"metadata": {"name": "leaving"}})
    await guarded.admin.create(CONFIGMAPS, {"metadata": {"name": "last"}}, namespace="leaving")
    labels = {"metadata": {"labels": OURS, "finalizers": ["example.com/x"]}}
    await guarded.by("sharder").merge(CONFIGMAPS, "last", labels, namespace="leaving")
    for name in ("leaving", LEASE_NAMESPACE):
        await guarded.admin.delete(NAMESPACES, name)
    await guarded.admin.merge(CONFIGMAPS, "last", {"metadata": {"finalizers": None}}, namespace="leaving")
    for name in ("leaving", LEASE_NAMESPACE):
        await until_gone(guarded, NAMESPACES.path(name=name))


async def until_gone(guarded: Guarded, path: str) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                await guarded.admin.request("GET", path)
            except RequestFailedError as error:
                if error.status != 404:
                    raise
                return
            await asyncio.sleep(0.2)
