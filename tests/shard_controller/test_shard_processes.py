"""Real shard processes on the embedded control plane; the tests write the labels that a sharder would write."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any, Literal

import pytest

from devcluster.embedded import Fault
from kubeio.models import Lease
from kubeio.patch import MergePatch
from kubeio.protocol import CONTROLLER_RINGS
from kubeio.resource import LEASES
from ringleader.demo.command import UNFENCED_MODULE
from tests.shard_controller.bench import NAMESPACE, Bench, Shard
from tests.shard_controller.objects import CONFIGMAPS, KEYS, WEBSITES


async def test_an_assigned_object_gets_its_child_and_one_status_write(bench: Bench) -> None:
    shard = await bench.start("web-0")
    await bench.site("blog", "publish hello\nready", owner=shard)
    await bench.until(lambda: bench.condition("blog"), equals="True")
    assert await bench.page("blog") == "hello"
    child = await bench.find(CONFIGMAPS, "blog")
    assert child["metadata"]["labels"][KEYS.shard] == shard.name
    assert child["metadata"]["ownerReferences"][0]["controller"] is True
    assert child["metadata"]["annotations"] == {KEYS.turn: "0"}, "it was born with its owner's name"
    await asyncio.sleep(0.5)
    assert len(bench.writes("web-0", resource="websites.example.com")) == 1
    assert (await bench.find(WEBSITES, "blog"))["status"]["observedGeneration"] == 1


async def test_an_object_of_another_shard_is_never_seen(bench: Bench) -> None:
    shard = await bench.start("web-0")
    await bench.site("theirs", "publish hello", owner="web-1-00000000")
    await bench.site("ours", "publish hello", owner=shard)
    await bench.until(lambda: bench.page("ours"))
    assert shard.reconciles("theirs") == []
    assert await bench.page("theirs") == ""


async def test_objects_of_others_do_not_reach_a_shard_s_memory(bench: Bench) -> None:
    for number in range(3):
        await bench.site(f"theirs-{number}", "publish hello", owner="web-1-00000000")
        await bench.site(f"nobodys-{number}", "publish hello")
    shard = await bench.start("web-0")
    assert shard.logged("working")[0]["objects"] == 0


async def test_a_plain_drain_removes_both_labels_children_first(bench: Bench) -> None:
    shard = await bench.start("web-0")
    await bench.site("blog", "publish hello", owner=shard)
    await bench.until(lambda: bench.page("blog"))
    await bench.label(WEBSITES, "blog", drain="")
    await bench.until(lambda: bench.is_free(WEBSITES, "blog"))
    assert await bench.owner(CONFIGMAPS, "blog") == ""
    released = [w.resource for w in bench.writes("web-0", verb="patch", code=200) if lost_label(bench, w)]
    assert released == ["configmaps", "websites.example.com"]


async def test_a_child_of_a_former_object_of_the_same_name_is_left_and_the_log_shows_the_former_uid(
    bench: Bench,
) -> None:
    shard = await bench.start("web-0")
    former = await bench.site("blog", "ready", owner="")
    await bench.delete(WEBSITES, "blog")
    other = await bench.site("shop", "ready", owner="")
    await bench.configmap("blog", controller=former, owner=shard.name, other=other)
    await bench.site("blog", "publish hello", owner=shard)
    await bench.until(lambda: bool(shard.logged("reconcile failed")))
    error = shard.logged("reconcile failed")[0]["error"]
    assert f"is controlled by Website blog (uid {former['metadata']['uid']}); it is left as it is" in error


async def test_a_directed_drain_passes_the_tree_in_one_write_each(bench: Bench) -> None:
    old, new = await bench.start("web-0"), await bench.start("web-1")
    await bench.site("blog", "publish hello", owner=old)
    await bench.until(lambda: bench.page("blog"))
    await bench.label(WEBSITES, "blog", drain=new.name)
    await bench.until(lambda: bench.owner(WEBSITES, "blog"), equals=new.name)
    assert await bench.owner(CONFIGMAPS, "blog") == new.name
    assert KEYS.drain not in await bench.labels(WEBSITES, "blog")
    await bench.until(lambda: new.reconciles("blog"))
    after = [write.labels_after for write in bench.writes() if write.name == "blog" and write.labels_after]
    assert all(KEYS.shard in labels for labels in after)


@pytest.mark.parametrize("holder", ["taken", "released", "missing"])
async def test_a_drain_towards_a_lease_that_is_not_held_is_plain(bench: Bench, holder: str) -> None:
    shard = await bench.start("web-0")
    if holder != "missing":
        await foreign_lease(bench, "web-9-00000009", "somebody" if holder == "taken" else "")
    await bench.site("blog", "publish hello", owner=shard)
    await bench.until(lambda: bench.page("blog"))
    await bench.label(WEBSITES, "blog", drain="web-9-00000009")
    await bench.until(lambda: bench.is_free(WEBSITES, "blog"))


async def test_a_drain_towards_the_owner_itself_removes_the_drain_label_only(bench: Bench) -> None:
    shard = await bench.start("web-0")
    await bench.site("blog", "publish hello", owner=shard)
    await bench.until(lambda: bench.page("blog"))
    await bench.label(WEBSITES, "blog", drain=shard.name)
    await bench.until(lambda: bench.labels(WEBSITES, "blog"), equals={KEYS.shard: shard.name})
    assert await bench.owner(WEBSITES, "blog") == shard.name
    await bench.edit("blog", "publish again")
    await bench.until(lambda: bench.page("blog"), equals="again")


async def test_the_running_reconcile_ends_before_the_object_is_given_up(bench: Bench) -> None:
    shard = await bench.start("web-0")
    await bench.site("blog", "sleep 1\npublish hello", owner=shard)
    await bench.until(lambda: shard.reconciles("blog"))
    await bench.label(WEBSITES, "blog", drain="")
    await bench.until(lambda: bench.is_free(WEBSITES, "blog"))
    assert shard.outcomes() == ["done"]
    assert await bench.page("blog") == "hello"
    assert await bench.is_free(CONFIGMAPS, "blog")


async def test_nothing_is_reconciled_between_drain_label_and_return(bench: Bench) -> None:
    shard = await bench.start("web-0")
    await bench.site("blog", "publish hello", owner=shard)
    await bench.until(lambda: bench.page("blog"))
    await bench.label(WEBSITES, "blog", drain="")
    await bench.until(lambda: bench.is_free(WEBSITES, "blog"))
    before = len(shard.reconciles("blog"))
    await bench.edit("blog", "publish unowned")
    await asyncio.sleep(0.5)
    assert len(shard.reconciles("blog")) == before
    await bench.label(WEBSITES, "blog", shard=shard.name)
    await bench.label(CONFIGMAPS, "blog", shard=shard.name)
    await bench.until(lambda: bench.page("blog"), equals="unowned")


async def test_a_write_to_an_object_that_was_taken_away_is_refused_and_recorded(
    bench: Bench, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    shard = await bench.start("web-0")
    await bench.site("blog", f"await {gate}\nready", owner=shard)
    await bench.until(lambda: shard.reconciles("blog"))
    await bench.plane.faults.add(Fault(what="slow_watches", user="web-0", delay_s=2.0))
    await bench.label(WEBSITES, "blog", shard="web-9-00000009")
    gate.touch()  # the write is under way before the shard sees its loss
    await bench.until(lambda: shard.records("refused"))
    assert shard.outcomes() == ["lost"]
    await asyncio.sleep(2.5)
    assert len(shard.reconciles("blog")) == 1
    assert "status" not in await bench.find(WEBSITES, "blog")
    assert bench.writes("web-0", resource="websites.example.com", code=422)


async def test_without_the_fence_the_same_write_gets_through(bench: Bench, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    shard = await bench.start("web-0", module=UNFENCED_MODULE)
    await bench.site("blog", f"await {gate}\nready", owner=shard)
    await bench.until(lambda: shard.reconciles("blog"))
    await bench.plane.faults.add(Fault(what="slow_watches", user="web-0", delay_s=2.0))
    await bench.label(WEBSITES, "blog", shard="web-9-00000009")
    gate.touch()
    await bench.until(lambda: bench.condition("blog"), equals="True")
    foreign = bench.writes("web-0", resource="websites.example.com", code=200)
    assert (foreign[0].labels_before or {})[KEYS.shard] == "web-9-00000009"


async def test_sigterm_ends_what_runs_releases_the_lease_and_exits_with_0(bench: Bench) -> None:
    shard = await bench.start("web-0")
    await bench.site("blog", "sleep 1\npublish hello", owner=shard)
    await bench.until(lambda: shard.reconciles("blog"))
    assert await shard.terminate() == 0
    assert await bench.page("blog") == "hello"
    assert shard.outcomes() == ["done"]
    assert await bench.holder(shard) == ""


async def test_a_lost_answer_keeps_the_lease_at_sigterm(bench: Bench) -> None:
    """What was sent may still be carried out for a minute: until then nobody may take the name for given back."""
    shard = await bench.start("web-0")
    await bench.plane.faults.add(
        Fault(what="lose_answer", user="web-0", verb="patch", resource="websites.example.com", count=1)
    )
    await bench.site("blog", "ready", owner=shard)
    await bench.until(lambda: len(shard.records("end")) > 1)
    assert await shard.terminate() == 0
    assert await bench.holder(shard) == shard.name


async def test_a_reconcile_that_outlasts_its_timeout_is_cut_off_at_sigterm(bench: Bench) -> None:
    shard = await bench.start("web-0")
    await bench.site("blog", "sleep 60", owner=shard)
    await bench.until(lambda: shard.reconciles("blog"))
    assert await shard.terminate(within_s=12) == 0
    assert await bench.holder(shard) == ""


async def test_a_ring_that_is_being_deleted_is_not_joined(bench: Bench) -> None:
    """A held Lease keeps the ring: replicas that are restarted for ever would never let it go."""
    holds = MergePatch({"metadata": {"finalizers": ["example.com/keep"]}})
    await bench.client.patch(CONTROLLER_RINGS, KEYS.ring, holds, type=dict)
    await bench.client.delete(CONTROLLER_RINGS, KEYS.ring)
    shard = await bench.start("web-0", wait=False)
    assert await shard.ended() == 2
    assert "is being deleted" in shard.log.read_text()
    leases = await bench.client.list_page(LEASES, namespace=NAMESPACE)
    assert not [lease for lease in leases.objects if lease.meta.name.startswith("web-0")]


@pytest.mark.parametrize("how", ["taken", "deleted", "duration edited"])
async def test_a_lost_lease_ends_the_process_with_3(bench: Bench, how: str) -> None:
    shard = await bench.start("web-0")
    if how == "deleted":
        await bench.delete(LEASES, shard.name)
    else:
        spec = {"holderIdentity": "sharder"} if how == "taken" else {"leaseDurationSeconds": 60}
        await bench.merge(LEASES, shard.name, spec=spec)
    assert await shard.ended(within_s=8) == 3
    lease = await bench.lease(shard)
    assert lease is None if how == "deleted" else lease["spec"]["holderIdentity"] != ""


async def test_a_process_that_slept_through_its_lease_while_working_does_not_wake_up_to_work(
    bench: Bench,
) -> None:
    shard = await bench.start("web-0")
    await bench.site("blog", "sleep 30\npublish late", owner=shard)
    await bench.until(lambda: shard.reconciles("blog"))
    shard.signal(signal.SIGSTOP)
    await asyncio.sleep(3.3)  # beyond the Lease, within the reconcile's own timeout
    shard.signal(signal.SIGCONT)
    assert await shard.ended(within_s=5) == 3


async def test_what_runs_is_cut_off_when_the_lease_gets_too_old_and_goes_on_when_it_is_renewed(
    bench: Bench,
) -> None:
    shard = await bench.start("web-0")
    await bench.plane.faults.add(
        Fault(what="error", user="web-0", resource="leases.coordination.k8s.io", for_s=5)
    )
    await bench.site("blog", "sleep 3.8\nready", owner=shard)
    await bench.until(lambda: shard.records("end"))
    assert shard.outcomes() == ["lost"]
    await bench.until(lambda: bench.condition("blog"), equals="True", within_s=15)
    assert shard.process.returncode is None


async def test_an_idle_process_that_slept_through_its_lease_goes_on_if_it_was_not_taken(bench: Bench) -> None:
    shard = await bench.start("web-0")
    shard.signal(signal.SIGSTOP)
    await asyncio.sleep(4)
    shard.signal(signal.SIGCONT)
    await asyncio.sleep(0.2)
    await bench.site("blog", "publish hello", owner=shard)
    await bench.until(lambda: bench.page("blog"))
    assert shard.process.returncode is None


async def test_every_life_has_a_name_of_its_own_and_a_released_lease_is_worn_again(bench: Bench) -> None:
    first = await bench.start("web-0")
    assert await first.terminate() == 0
    second = await bench.start("web-0")
    assert second.name == first.name
    second.signal(signal.SIGKILL)
    await second.ended()
    third = await bench.start("web-0")
    assert third.name != second.name
    annotations = (await bench.lease(third))["metadata"]["annotations"]
    assert annotations["ringleader.dev/member"] == "web-0"
    assert annotations["ringleader.dev/protocol"] == "v1"


async def test_a_shard_says_when_its_caches_are_full_with_a_renewal_of_its_own(bench: Bench) -> None:
    shard = await bench.start("web-0")
    await bench.until(lambda: marks(bench, shard, "synced"), equals="true")
    spec = (await bench.lease(shard))["spec"]
    assert spec["renewTime"] > spec["acquireTime"], "a ghost's Lease never changes"
    assert await marks(bench, shard, "resources") == "configmaps,websites.example.com"


async def marks(bench: Bench, shard: Shard, name: str) -> str | None:
    found = (await bench.lease(shard))["metadata"]["annotations"].get(f"ringleader.dev/{name}")
    return None if found is None else str(found)


async def test_a_shard_whose_caches_do_not_fill_says_nothing(bench: Bench) -> None:
    fault = Fault(what="error", resource="configmaps", code=500)
    await bench.plane.faults.add(fault)
    shard = await bench.start("web-0", wait=False)

    async def renews() -> bool:
        if not shard.records("life"):
            return False
        shard.name = shard.records("life")[-1]["shard"]
        spec = (await bench.lease(shard))["spec"]
        return bool(spec["renewTime"] > spec["acquireTime"])

    await bench.until(renews)
    assert "ringleader.dev/synced" not in (await bench.lease(shard))["metadata"]["annotations"]


async def test_quick_succession_releases_the_lease_of_a_life_that_demonstrably_ended(bench: Bench) -> None:
    first = await bench.start("web-0", flags=("--hold",))
    assert (await bench.lease(first))["metadata"]["annotations"]["ringleader.dev/hold"] == "true"
    first.signal(signal.SIGKILL)
    await first.ended()
    second = await bench.start("web-0", flags=("--hold",))
    old = await bench.lease(first)
    assert old["spec"].get("holderIdentity", "") == ""
    assert "ringleader.dev/hold" not in old["metadata"]["annotations"]
    third = await bench.start("web-0")
    assert third.name not in (first.name, second.name)


async def test_the_lease_of_a_life_that_still_runs_is_left_alone(bench: Bench) -> None:
    first = await bench.start("web-0")
    second = await bench.start("web-0")
    assert second.name != first.name
    assert await bench.holder(first) == first.name


async def test_a_child_of_ours_that_exists_is_adopted(bench: Bench, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    shard = await bench.start("web-0")
    site = await bench.site("blog", f"await {gate}\npublish hello", owner=shard)
    await bench.configmap("blog", controller=site, owner=shard.name)
    gate.touch()
    await bench.until(lambda: bench.page("blog"), equals="hello")
    assert len(bench.writes("web-0", resource="configmaps", code=201)) == 0


async def test_a_child_of_another_controller_is_left_as_it_is(bench: Bench) -> None:
    shard = await bench.start("web-0")
    other = await bench.site("other", "", owner="web-9-00000009")
    await bench.configmap("blog", controller=other, owner="web-9-00000009")
    await bench.site("blog", "publish hello", owner=shard)
    await bench.until(lambda: shard.records("end") and shard.logged("reconcile failed"))
    assert shard.records("end")[0]["outcome"] == "error"
    assert await bench.page("blog") == "old"
    assert "Website other" in shard.logged("reconcile failed")[0]["error"]


async def test_a_child_of_ours_under_another_live_name_is_asked_for_and_comes(bench: Bench) -> None:
    ours, theirs = await bench.start("web-0"), await bench.start("web-1")
    site = await bench.site("blog", "", owner=ours)
    await bench.configmap("blog", controller=site, owner=theirs.name)
    await bench.edit("blog", "publish hello")
    await bench.until(lambda: bench.page("blog"), equals="hello")
    assert await bench.owner(CONFIGMAPS, "blog") == ours.name
    asked = [(w.labels_after or {}).get(KEYS.drain) for w in bench.writes("web-0", resource="configmaps")]
    assert ours.name in asked


@pytest.mark.parametrize("fault", ["lose_answer", "error"])
async def test_an_unanswered_create_is_settled_before_the_reconcile_ends(
    bench: Bench, fault: Literal["lose_answer", "error"]
) -> None:
    shard = await bench.start("web-0")
    await bench.plane.faults.add(
        Fault(what=fault, user="web-0", verb="create", resource="configmaps", count=1)
    )
    await bench.site("blog", "publish hello\nready", owner=shard)
    await bench.until(lambda: bench.condition("blog"), equals="True")
    assert await bench.page("blog") == "hello"
    await bench.until(lambda: shard.records("end"))
    assert shard.records("end")[0]["outcome"] == "done"


async def test_a_drain_waits_for_a_create_whose_answer_is_late(bench: Bench) -> None:
    shard = await bench.start("web-0", duration_s=15)
    await bench.plane.faults.add(
        Fault(what="latency", user="web-0", verb="create", resource="configmaps", count=1, delay_s=1.5)
    )
    await bench.site("blog", "publish hello", owner=shard)
    await bench.until(lambda: shard.reconciles("blog"))
    await bench.label(WEBSITES, "blog", drain="")
    await bench.until(lambda: bench.is_free(WEBSITES, "blog"))
    assert await bench.page("blog") == "hello"
    assert await bench.is_free(CONFIGMAPS, "blog")


async def test_an_acknowledgement_whose_answer_was_lost_counts_as_given(bench: Bench) -> None:
    shard = await bench.start("web-0", duration_s=15)
    await bench.site("blog", "", owner=shard)
    await bench.until(lambda: shard.records("end"))
    before = len(shard.reconciles("blog"))
    await bench.plane.faults.add(
        Fault(what="lose_answer", user="web-0", verb="patch", resource="websites.example.com", count=1)
    )
    await bench.label(WEBSITES, "blog", drain="")
    await bench.until(lambda: bench.is_free(WEBSITES, "blog"))
    await asyncio.sleep(0.5)
    assert len(shard.reconciles("blog")) == before
    await bench.label(WEBSITES, "blog", shard=shard.name)
    await bench.until(lambda: shard.reconciles("blog")[before:])


async def test_an_acknowledgement_that_never_arrived_is_sent_again(bench: Bench) -> None:
    shard = await bench.start("web-0", duration_s=15)
    await bench.site("blog", "", owner=shard)
    await bench.until(lambda: shard.records("end"))
    await bench.plane.faults.add(
        Fault(what="error", user="web-0", verb="patch", resource="websites.example.com", count=2, code=500)
    )
    await bench.label(WEBSITES, "blog", drain="")
    await bench.until(lambda: bench.is_free(WEBSITES, "blog"))


async def test_a_child_left_behind_is_passed_on_when_asked_for(bench: Bench) -> None:
    shard, other = await bench.start("web-0"), await bench.start("web-1")
    site = await bench.site("blog", "", owner=other)
    await bench.configmap("blog", controller=site, owner=shard.name)
    await bench.label(CONFIGMAPS, "blog", drain=other.name)
    await bench.until(lambda: bench.owner(CONFIGMAPS, "blog"), equals=other.name)


async def test_a_handoff_that_fails_is_tried_again_with_patience(bench: Bench) -> None:
    shard, other = await bench.start("web-0", duration_s=15), await bench.start("web-1", duration_s=15)
    site = await bench.site("blog", "", owner=other)
    await bench.configmap("blog", controller=site, owner=shard.name)
    await bench.plane.faults.add(
        Fault(what="error", user="web-0", verb="patch", resource="configmaps", code=500, for_s=2)
    )
    await bench.label(CONFIGMAPS, "blog", drain=other.name)
    await bench.until(lambda: bench.owner(CONFIGMAPS, "blog"), equals=other.name)
    assert 3 <= len(shard.logged("handoff not finished")) <= 15


async def test_a_replica_that_may_not_list_ends_and_gives_its_lease_back(bench: Bench) -> None:
    for verb in ("list", "watch"):
        await bench.plane.faults.add(
            Fault(what="error", user="web-0", verb=verb, resource="configmaps", code=403)
        )
    shard = await bench.start("web-0", wait=False)
    assert await shard.ended(within_s=15) == 1
    shard.name = shard.records("life")[-1]["shard"]
    assert await bench.holder(shard) == ""


async def test_an_error_is_tried_again_and_a_permanent_one_is_not(bench: Bench) -> None:
    shard = await bench.start("web-0")
    await bench.site("flaky", "raise", owner=shard)
    await bench.site("hopeless", "permanent", owner=shard)
    await bench.until(lambda: len(shard.reconciles("flaky")) > 3)
    await bench.until(lambda: bench.condition("hopeless"), equals="False")
    seen = len(shard.reconciles("hopeless"))
    await asyncio.sleep(0.5)
    assert len(shard.reconciles("hopeless")) == seen <= 2
    await bench.edit("hopeless", "ready")
    await bench.until(lambda: bench.condition("hopeless"), equals="True")


async def test_a_task_that_another_cancelled_is_an_error_of_the_reconcile_that_waited_for_it(
    bench: Bench, tmp_path: Path
) -> None:
    """It ends no worker, and its object is tried again."""
    shard = await bench.start("web-0", flags=("--workers", "1"))
    gate = tmp_path / "gate"
    await bench.site("blog", f"cancelled {gate}\nready", owner=shard)
    await bench.until(lambda: len(shard.reconciles("blog")) > 2)
    await bench.site("docs", "ready", owner=shard)
    await bench.until(lambda: bench.condition("docs"), equals="True")
    gate.touch()
    await bench.until(lambda: bench.condition("blog"), equals="True")


async def test_an_edit_during_a_reconcile_that_fails_for_good_is_reconciled(
    bench: Bench, tmp_path: Path
) -> None:
    shard = await bench.start("web-0")
    gate = tmp_path / "gate"
    await bench.site("blog", f"await {gate}\npermanent", owner=shard)
    await bench.until(lambda: bool(shard.reconciles("blog")))
    await bench.edit("blog", "ready")
    gate.touch()  # its status is written onto the edited version
    await bench.until(lambda: bench.condition("blog"), equals="True")


async def test_a_reconcile_in_a_thread_writes_its_page_and_then_its_condition(bench: Bench) -> None:
    shard = await bench.start("web-0", attribute="blocking")
    await bench.site("blog", "publish hello", owner=shard)
    await bench.until(lambda: bench.page("blog"), equals="hello")
    await bench.until(lambda: bench.condition("blog"), equals="True")  # written after the page


async def test_a_reconcile_in_a_thread_keeps_its_key_busy_beyond_its_timeout(bench: Bench) -> None:
    shard = await bench.start("web-0", attribute="blocking", duration_s=15)
    await bench.site("slow", "sleep 5", owner=shard)
    await bench.until(lambda: shard.reconciles("slow"))
    await bench.label(WEBSITES, "slow", drain="")
    await asyncio.sleep(4.3)
    assert await bench.owner(WEBSITES, "slow") == shard.name
    await bench.until(lambda: bench.is_free(WEBSITES, "slow"))


async def test_a_blocked_loop_ends_the_process_with_its_stacks(bench: Bench) -> None:
    shard = await bench.start("web-0", duration_s=60, flags=("--progress-deadline", "2"))
    await bench.site("blog", "block 60", owner=shard)
    assert await shard.ended(within_s=25) == 1
    assert "time.sleep" in shard.log.read_text() or "acting.py" in shard.log.read_text()


async def test_objects_being_deleted_are_reconciled_too(bench: Bench) -> None:
    shard = await bench.start("web-0")
    await bench.site("blog", "", owner=shard)
    await bench.until(lambda: shard.reconciles("blog"))
    await bench.merge(WEBSITES, "blog", metadata={"finalizers": ["example.com/test"]})
    await bench.delete(WEBSITES, "blog")
    before = len(shard.reconciles("blog"))
    await bench.edit("blog", "ready")
    await bench.until(lambda: len(shard.reconciles("blog")) > before)


async def test_a_finalizer_is_put_on_runs_once_and_is_taken_off(bench: Bench) -> None:
    shard = await bench.start("web-0", attribute="finalized")
    await bench.site("blog", "ready", owner=shard)
    await bench.until(lambda: bench.condition("blog"), equals="True")
    assert (await bench.find(WEBSITES, "blog"))["metadata"]["finalizers"] == ["example.com/page"]
    await bench.delete(WEBSITES, "blog")
    await bench.until(lambda: bench.is_deleted("blog"))
    finalized = bench.writes("web-0", resource="configmaps", verb="create", code=201)
    assert [write.name for write in finalized] == ["blog-gone"]


@pytest.mark.parametrize("mode", ["single", "leader-elected"])
async def test_the_same_controller_runs_without_a_ring(bench: Bench, mode: str) -> None:
    shard = await bench.start("web-0", mode=mode)
    await bench.site("blog", "publish hello\nready")
    await bench.until(lambda: bench.condition("blog"), equals="True")
    child = await bench.find(CONFIGMAPS, "blog")
    assert child["data"]["page"] == "hello"
    assert child["metadata"].get("labels", {}) == {}
    assert await shard.terminate() == 0


async def test_of_leader_elected_replicas_one_works_and_the_other_follows_it(bench: Bench) -> None:
    leader = await bench.start("web-0", mode="leader-elected")
    standby = await bench.start("web-1", mode="leader-elected", wait=False)
    await bench.until(lambda: standby.logged("waiting"))
    await bench.site("blog", "publish hello", labels={})
    await bench.until(lambda: bench.page("blog"))
    assert standby.records("begin") == []
    assert await leader.terminate() == 0
    await bench.until(lambda: standby.reconciles("blog"))


async def test_an_api_server_that_was_away_for_long_finds_the_same_shard_again(bench: Bench) -> None:
    shard = await bench.start("web-0")
    await bench.site("blog", "publish hello", owner=shard)
    await bench.until(lambda: bench.page("blog"))
    await bench.plane.restart(away_s=7)
    await bench.edit("blog", "publish again")
    await bench.until(lambda: bench.page("blog"), equals="again", within_s=20)
    assert shard.process.returncode is None
    assert await bench.holder(shard) == shard.name


# -- small observations


def lost_label(bench: Bench, write: Any) -> bool:
    before, after = write.labels_before or {}, write.labels_after or {}
    return KEYS.shard in before and KEYS.shard not in after


async def foreign_lease(bench: Bench, name: str, holder: str) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {KEYS.ring_label: KEYS.ring}},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 3},
    }
    await bench.client.create(LEASES, lease, namespace=NAMESPACE, type=Lease)
