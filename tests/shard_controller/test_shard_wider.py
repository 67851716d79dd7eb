"""Watches, predicates, events, processes and endless functions: real shard processes on the embedded control plane."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import shard_controller as sc
from devcluster.embedded import Fault
from kubeio.errors import InputError
from kubeio.patch import MergePatch
from kubeio.resource import CRDS, EVENTS, ApiResource
from shard_controller.process.app import serve
from shard_controller.process.settings import Settings

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "programs" / "wider.py"
WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
CONFIGMAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
SECRETS = ApiResource("", "v1", "secrets", "Secret")
NS = "default"
Bench = Any  # tests/shard_controller/conftest.py: fixtures cannot be imported


async def started(bench: Bench, attribute: str, **options: Any) -> Any:
    return await bench.start("web-0", program=f"{PROGRAM}:{attribute}", **options)


# -- watched resources


async def test_a_watched_object_wakes_what_it_names_and_is_read_from_the_cache(bench: Bench) -> None:
    shard = await started(bench, "watching")
    await bench.site("blog", "front", owner=shard)
    await bench.until(lambda: page_is(bench, "blog", "none of 0"))
    await secret(bench, "front", page="aGk=", sites="blog")
    await bench.until(lambda: page_is(bench, "blog", "aGk= of 1"))
    await secret(bench, "front", page="Ynll", sites="blog")
    await bench.until(lambda: page_is(bench, "blog", "Ynll of 1"))
    await secret(bench, "front", page="Y2lhbw==", sites="")
    await bench.until(lambda: page_is(bench, "blog", "Y2lhbw== of 1"))
    await secret(bench, "front", page="Y2lhbw==", sites="blog")
    await bench.client.delete(SECRETS, "front", namespace=NS)
    await bench.until(lambda: page_is(bench, "blog", "none of 0"))


async def test_a_watched_object_is_never_written_to_and_wakes_nothing_of_other_shards(bench: Bench) -> None:
    shard = await started(bench, "watching")
    await bench.site("blog", "front", owner=shard)
    await bench.site("theirs", "front", owner="web-1-00000000")
    await secret(bench, "front", page="aGk=", sites="blog theirs")
    await bench.until(lambda: page_is(bench, "blog", "aGk= of 1"))
    await bench.label(WEBSITES, "blog", drain="")
    await bench.until(lambda: is_free(bench, "blog"))
    assert bench.writes("web-0", resource="secrets") == []
    assert shard.reconciles("theirs") == []


async def test_a_map_that_raises_is_told_with_its_object_and_the_others_go_on(bench: Bench) -> None:
    shard = await started(bench, "watching")
    await bench.site("blog", "front", owner=shard)
    await secret(bench, "bad", page="", sites="blog")
    await secret(bench, "front", page="aGk=", sites="blog")
    await bench.until(lambda: page_is(bench, "blog", "aGk= of 2"))
    assert shard.logged("map function failed: nothing enqueued")[0]["object"] == "secrets default/bad"


async def test_a_watch_sees_what_its_selector_and_its_namespaces_choose(bench: Bench) -> None:
    shard = await started(bench, "choosy")
    await bench.site("blog", "front", owner=shard)
    await secret(bench, "hidden", page="", sites="blog")
    await secret(bench, "front", page="aGk=", sites="blog", labels={"kind": "page"})
    await bench.until(lambda: page_is(bench, "blog", "aGk= of 1"))


# -- predicates


async def test_a_change_that_the_predicate_does_not_want_is_not_reconciled(bench: Bench) -> None:
    shard = await started(bench, "picky")
    await bench.site("blog", "one", owner=shard)
    await bench.until(lambda: observed(bench, "blog", 1))
    await asyncio.sleep(0.3)
    before = len(shard.reconciles("blog"))
    assert before == 1, "the status is our own write, and no change of the generation"
    note = MergePatch({"metadata": {"annotations": {"note": "x"}}})
    await bench.client.patch(WEBSITES, "blog", note, namespace=NS, type=dict)
    await asyncio.sleep(0.3)
    assert len(shard.reconciles("blog")) == before
    await bench.edit("blog", "two")
    await bench.until(lambda: observed(bench, "blog", 2))


async def test_a_handoff_takes_place_whatever_the_predicate_says(bench: Bench) -> None:
    shard = await started(bench, "picky")
    await bench.site("blog", "one", owner=shard)
    await bench.until(lambda: observed(bench, "blog", 1))
    await bench.label(WEBSITES, "blog", drain="")
    await bench.until(lambda: is_free(bench, "blog"))
    before = len(shard.reconciles("blog"))
    await bench.label(WEBSITES, "blog", shard=shard.name)
    await bench.until(lambda: value(len(shard.reconciles("blog")) > before))


async def test_a_refused_write_is_made_up_for_whatever_the_predicate_says(bench: Bench) -> None:
    """Somebody else writes what the predicate does not want, while the reconcile is under way."""
    shard = await started(bench, "picky", mode="single")
    await bench.site("blog", "slowly")
    await bench.until(lambda: value(shard.reconciles("blog")))
    note = MergePatch({"metadata": {"annotations": {"note": "x"}}})
    await bench.client.patch(WEBSITES, "blog", note, namespace=NS, type=dict)
    await bench.until(lambda: observed(bench, "blog", 1))
    assert [record["outcome"] for record in shard.records("end")][:1] == ["lost"]


# -- events, permanent errors, status


async def test_an_event_tells_people_and_repetitions_are_counted(bench: Bench) -> None:
    shard = await started(bench, "telling")
    await bench.site("blog", "one", owner=shard)
    await bench.until(lambda: value_of(events(bench, "Looked")))
    told = (await events(bench, "Looked"))[0]
    assert told["type"] == "Normal"
    assert told["note"] == "at one"
    assert told["regarding"]["name"] == "blog"
    assert told["reportingController"] == "ringleader.dev/telling"
    assert told["reportingInstance"] == shard.name


async def test_without_the_right_to_write_events_there_is_one_warning_and_the_work_goes_on(
    bench: Bench,
) -> None:
    await bench.plane.faults.add(
        Fault(what="error", user="web-0", resource="events.events.k8s.io", verb="create", code=403)
    )
    shard = await started(bench, "telling")
    for name in ("blog", "shop", "wiki"):
        await bench.site(name, name, owner=shard)
    await bench.until(lambda: condition_is(bench, "wiki", "Ready", "True"))
    await bench.until(lambda: value(shard.logged("events cannot be written")))
    await asyncio.sleep(0.5)
    assert len(shard.logged("events cannot be written")) == 1
    assert shard.logged("events cannot be written")[0]["level"] == "warning"
    assert [record["outcome"] for record in shard.records("end")].count("done") >= 3


async def test_a_permanent_error_is_a_condition_and_an_event_and_is_not_tried_again(bench: Bench) -> None:
    shard = await started(bench, "telling")
    await bench.site("blog", "fine", owner=shard)
    await bench.until(lambda: condition_is(bench, "blog", "Ready", "True"))
    await bench.edit("blog", "hopeless")
    await bench.until(lambda: condition_is(bench, "blog", "Stalled", "True"))
    found = {entry["type"]: entry for entry in await conditions(bench, "blog")}
    for kind, status in (("Stalled", "True"), ("Ready", "False")):
        assert found[kind]["status"] == status
        assert found[kind]["reason"] == "Hopeless"
        assert found[kind]["message"] == "there is no hope"
    await bench.until(lambda: value_of(events(bench, "Hopeless")))
    assert (await events(bench, "Hopeless"))[0]["type"] == "Warning"
    tries = len(shard.logged("reconcile failed for good"))
    await asyncio.sleep(0.5)
    assert len(shard.logged("reconcile failed for good")) == tries == 1
    await bench.edit("blog", "fine again")
    await bench.until(lambda: condition_is(bench, "blog", "Ready", "True"))
    assert "Stalled" not in [entry["type"] for entry in await conditions(bench, "blog")]


async def test_a_resource_without_a_status_is_told_at_start_and_in_the_error(bench: Bench) -> None:
    crd = yaml.safe_load((ROOT / "examples/website/crd.yaml").read_text())
    del crd["spec"]["versions"][0]["subresources"]
    await bench.client.patch(CRDS, "websites.example.com", MergePatch({"spec": crd["spec"]}), type=dict)
    shard = await started(bench, "telling")
    assert "subresources: {status: {}}" in shard.logged("no status subresource")[0]["remedy"]
    await bench.site("blog", "one", owner=shard)
    await bench.until(lambda: value(shard.logged("reconcile failed")))
    failed = shard.logged("reconcile failed")[0]["error"]
    assert "websites.example.com has no status subresource; add `subresources: {status: {}}`" in failed
    await bench.until(lambda: value(len(shard.reconciles("blog")) > 2))


# -- processes and threads


async def test_a_pure_function_is_computed_in_a_pool_of_the_program_s_own(bench: Bench) -> None:
    shard = await started(bench, "computing")
    await bench.site("blog", "2 10", owner=shard)
    await bench.until(lambda: answer_is(bench, "blog", "1024"))
    assert await shard.terminate() == 0


@pytest.mark.parametrize("attribute", ["endless", "stubborn"])
async def test_a_function_that_cannot_be_stopped_ends_the_process_with_its_stacks(
    bench: Bench, attribute: str
) -> None:
    shard = await started(bench, attribute, duration_s=15)
    await bench.site("blog", "endless", owner=shard)
    await bench.until(lambda: value(shard.reconciles("blog")))
    await bench.label(WEBSITES, "blog", drain="")
    assert await shard.ended(within_s=10) == 4
    assert await bench.owner(WEBSITES, "blog") == shard.name, "no drain is acknowledged meanwhile"
    assert "cannot be stopped" in shard.logged("process ends")[0]["reason"]
    assert "wider.py" in shard.log.read_text()


async def test_at_sigterm_a_thread_that_does_not_end_is_not_waited_for_without_end(bench: Bench) -> None:
    shard = await started(bench, "endless", duration_s=15)
    await bench.site("blog", "endless", owner=shard)
    await bench.until(lambda: value(shard.reconciles("blog")))
    shard.signal(signal.SIGTERM)
    assert await shard.ended(within_s=10) == 4


async def test_a_thread_that_was_told_to_end_writes_nothing_more(bench: Bench) -> None:
    shard = await started(bench, "endless", duration_s=15)
    await bench.site("blog", "polite", owner=shard)
    await bench.until(lambda: value(shard.records("end")))
    assert shard.records("end")[0]["outcome"] == "error"
    assert bench.writes("web-0", resource="websites.example.com") == []


async def test_a_blocking_finalizer_runs_in_a_thread_with_everything_that_a_context_has(bench: Bench) -> None:
    shard = await started(bench, "tidy")
    await bench.site("blog", "", owner=shard)
    await bench.until(lambda: value_of(events(bench, "Kept")))
    await bench.client.delete(WEBSITES, "blog", namespace=NS)
    await bench.until(lambda: is_deleted(bench, "blog"))
    assert (await bench.find(CONFIGMAPS, "blog-gone"))["data"] == {"total": "6"}


async def test_a_conflict_outside_the_ring_is_tried_again_quietly(bench: Bench) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared", "namespace": NS}}
    await bench.client.create(CONFIGMAPS, body, namespace=NS, type=dict)
    shard = await started(bench, "outside")
    await bench.site("blog", "conflict", owner=shard)
    await bench.until(lambda: value(len(shard.reconciles("blog")) > 2))
    assert shard.records("end")[0]["outcome"] == "requeue"
    assert shard.logged("reconcile failed") == []


async def test_what_is_missing_outside_the_ring_is_an_error_like_others(bench: Bench) -> None:
    shard = await started(bench, "outside")
    await bench.site("blog", "missing", owner=shard)
    await bench.until(lambda: value(len(shard.reconciles("blog")) > 2))
    assert shard.records("end")[0]["outcome"] == "error"
    assert "nobody-has-it" in shard.logged("reconcile failed")[0]["error"]


async def test_a_second_controller_of_the_name_is_refused_in_the_same_process(bench: Bench) -> None:
    def sites() -> sc.Controller[Any]:
        declared: sc.Controller[Any] = sc.Controller(sc.Resource("websites.example.com/v1", dict))

        @declared.reconcile
        async def look(ctx: sc.Context[Any]) -> sc.Result:
            return sc.Done()

        return declared

    settings = Settings(kubeconfig=str(bench.plane.kubeconfig))
    first = asyncio.create_task(serve(sites(), sc.Single(), settings))
    try:
        await asyncio.sleep(0)
        with pytest.raises(
            InputError, match="'websites' is the name of a controller that runs in this process"
        ):
            await serve(sites(), sc.Single(), settings)
    finally:
        first.cancel()
        await asyncio.wait({first})


@pytest.mark.parametrize("mode", ["sharded", "single", "leader-elected"])
async def test_an_example_runs_unmodified_in_every_mode(bench: Bench, mode: str) -> None:
    shard = await bench.start("web-0", program="examples/website/controller.py:websites", mode=mode)
    await bench.site("blog", "<h1>Hello</h1>", owner=shard if mode == "sharded" else "")
    await bench.until(lambda: condition_is(bench, "blog", "Ready", "True"))
    page = (await bench.find(CONFIGMAPS, "blog"))["data"]["index.html"]
    assert "<h1>Hello</h1>" in page
    assert await shard.terminate() == 0


async def test_the_example_waits_for_changes_only_if_it_is_told_so(bench: Bench) -> None:
    """`ringleader loadtest capacity` relies on it: what a replica only takes over costs no call to the outside."""
    waits = {"WEBSITE_WAIT_MS": "3000", "WEBSITE_WAIT_FOR": "changes"}
    shard = await bench.start("web-0", program="examples/website/controller.py:websites", env=waits)
    await bench.site("blog", "<h1>Hello</h1>", owner=shard)
    await bench.until(lambda: recorded(shard, "end"), within_s=15)
    assert shard.records("end")[0]["t"] - shard.reconciles("blog")[0]["t"] >= 3.0
    empty = MergePatch({"data": {"index.html": ""}})
    began = time.monotonic()
    await bench.client.patch(CONFIGMAPS, "blog", empty, namespace="default", type=dict)
    await bench.until(lambda: has_page(bench, "blog"), within_s=15)
    assert time.monotonic() - began < 2.0


async def test_the_example_waits_for_updates_only_if_it_is_told_so(bench: Bench) -> None:
    """`ringleader loadtest capacity` relies on it: objects are prepared without a wait, and measured with it."""
    waits = {"WEBSITE_WAIT_MS": "3000", "WEBSITE_WAIT_FOR": "updates"}
    shard = await bench.start("web-0", program="examples/website/controller.py:websites", env=waits)
    began = time.monotonic()
    await bench.site("blog", "<h1>Hello</h1>", owner=shard)
    await bench.until(lambda: condition_is(bench, "blog", "Ready", "True"), within_s=15)
    assert time.monotonic() - began < 2.0
    began = time.monotonic()
    changed = MergePatch({"spec": {"html": "<h1>Bye</h1>"}})
    await bench.client.patch(WEBSITES, "blog", changed, namespace="default", type=dict)
    await bench.until(lambda: has_text(bench, "blog", "Bye"), within_s=15)
    assert time.monotonic() - began >= 3.0


async def has_text(bench: Bench, name: str, text: str) -> bool:
    return text in (await bench.find(CONFIGMAPS, name))["data"]["index.html"]


async def recorded(shard: Any, kind: str) -> bool:
    return bool(shard.records(kind))


async def has_page(bench: Bench, name: str) -> bool:
    return bool((await bench.find(CONFIGMAPS, name))["data"]["index.html"])


# -- rhythm


async def test_every_object_is_reconciled_again_in_every_period(bench: Bench) -> None:
    shard = await started(bench, "often")
    await bench.site("blog", "", owner=shard)
    await bench.until(lambda: value(len(shard.reconciles("blog")) > 4))


async def test_a_resync_does_not_try_again_what_failed_for_good(bench: Bench) -> None:
    shard = await started(bench, "often")
    await bench.site("blog", "hopeless", owner=shard)
    await bench.until(lambda: value(shard.logged("reconcile failed for good")))
    await asyncio.sleep(2)
    assert len(shard.logged("reconcile failed for good")) == 1


async def test_failures_are_tried_again_as_the_back_off_says(bench: Bench) -> None:
    shard = await started(bench, "patient")
    await bench.site("blog", "", owner=shard)
    await bench.until(lambda: value(len(shard.reconciles("blog")) > 3))
    times = [record["t"] for record in shard.reconciles("blog")]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert all(gap >= 0.39 for gap in gaps), gaps


async def test_an_object_may_be_deleted_by_its_own_reconcile(bench: Bench) -> None:
    shard = await started(bench, "own")
    await bench.site("blog", "finished", owner=shard)
    await bench.until(lambda: is_deleted(bench, "blog"))


# -- small observations


async def value(found: object) -> object:
    return found


async def value_of(found: Any) -> object:
    return await found


async def is_free(bench: Bench, name: str) -> bool:
    labels = await bench.labels(WEBSITES, name)
    return bench.keys.shard not in labels and bench.keys.drain not in labels


async def is_deleted(bench: Bench, name: str) -> bool:
    return await bench.find(WEBSITES, name) is None


async def page_is(bench: Bench, name: str, text: str) -> bool:
    return bool(await bench.page(name) == text)


async def status(bench: Bench, name: str) -> dict[str, Any]:
    return dict((await bench.find(WEBSITES, name) or {}).get("status", {}))


async def observed(bench: Bench, name: str, generation: int) -> bool:
    return bool((await status(bench, name)).get("observedGeneration") == generation)


async def answer_is(bench: Bench, name: str, text: str) -> bool:
    return bool((await status(bench, name)).get("configMap") == text)


async def conditions(bench: Bench, name: str) -> list[dict[str, Any]]:
    return list((await status(bench, name)).get("conditions", []))


async def condition_is(bench: Bench, name: str, kind: str, wanted: str) -> bool:
    return any(c["type"] == kind and c["status"] == wanted for c in await conditions(bench, name))


async def events(bench: Bench, reason: str) -> list[dict[str, Any]]:
    page = await bench.client.list_as(EVENTS, type=dict, namespace=NS)
    return [event for event in page["items"] if event["reason"] == reason]


async def secret(
    bench: Bench, name: str, *, page: str, sites: str, labels: dict[str, str] | None = None
) -> None:
    """Create or change a Secret that names sites."""
    change = {"metadata": {"annotations": {"sites": sites}}, "data": {"page": page}}
    if await bench.find(SECRETS, name) is None:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": NS,
                "annotations": {"sites": sites},
                "labels": labels or {},
            },
            "data": {"page": page},
        }
        await bench.client.create(SECRETS, body, namespace=NS, type=dict)
    else:
        await bench.client.patch(SECRETS, name, MergePatch(change), namespace=NS, type=dict)
