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
from kubeio.resource import CRDS, EVENTS
from shard_controller.process.app import serve
from shard_controller.process.settings import Settings
from tests.shard_controller.bench import NAMESPACE, Bench, Shard
from tests.shard_controller.objects import CONFIGMAPS, SECRETS, WEBSITES

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "programs" / "wider.py"
PAGES = sc.Resource("configmaps/v1", dict)


async def started(bench: Bench, attribute: str, **options: Any) -> Shard:
    return await bench.start("web-0", program=f"{PROGRAM}:{attribute}", **options)


# -- watched resources


async def test_a_watched_object_wakes_what_it_names_and_is_read_from_the_cache(bench: Bench) -> None:
    shard = await started(bench, "watching")
    await bench.site("blog", "front", owner=shard)
    await bench.until(lambda: bench.page("blog"), equals="none of 0")
    await secret(bench, "front", page="aGk=", sites="blog")
    await bench.until(lambda: bench.page("blog"), equals="aGk= of 1")
    await secret(bench, "front", page="Ynll", sites="blog")
    await bench.until(lambda: bench.page("blog"), equals="Ynll of 1")
    await secret(bench, "front", page="Y2lhbw==", sites="")
    await bench.until(lambda: bench.page("blog"), equals="Y2lhbw== of 1")
    await secret(bench, "front", page="Y2lhbw==", sites="blog")
    await bench.delete(SECRETS, "front")
    await bench.until(lambda: bench.page("blog"), equals="none of 0")


async def test_a_watched_object_is_never_written_to_and_wakes_nothing_of_other_shards(bench: Bench) -> None:
    shard = await started(bench, "watching")
    await bench.site("blog", "front", owner=shard)
    await bench.site("theirs", "front", owner="web-1-00000000")
    await secret(bench, "front", page="aGk=", sites="blog theirs")
    await bench.until(lambda: bench.page("blog"), equals="aGk= of 1")
    await bench.label(WEBSITES, "blog", drain="")
    await bench.until(lambda: bench.is_free(WEBSITES, "blog"))
    assert bench.writes("web-0", resource="secrets") == []
    assert shard.reconciles("theirs") == []


async def test_a_map_that_raises_is_logged_with_its_object_and_the_others_go_on(bench: Bench) -> None:
    shard = await started(bench, "watching")
    await bench.site("blog", "front", owner=shard)
    await secret(bench, "bad", page="", sites="blog")
    await secret(bench, "front", page="aGk=", sites="blog")
    await bench.until(lambda: bench.page("blog"), equals="aGk= of 2")
    await bench.until(lambda: shard.logged("map function failed: nothing enqueued"))
    assert shard.logged("map function failed: nothing enqueued")[0]["object"] == "secrets default/bad"


async def test_a_watch_sees_what_its_selector_and_its_namespaces_choose(bench: Bench) -> None:
    shard = await started(bench, "choosy")
    await bench.site("blog", "front", owner=shard)
    await secret(bench, "hidden", page="", sites="blog")
    await secret(bench, "front", page="aGk=", sites="blog", labels={"kind": "page"})
    await bench.until(lambda: bench.page("blog"), equals="aGk= of 1")


# -- predicates


async def test_a_change_that_the_predicate_does_not_want_is_not_reconciled(bench: Bench) -> None:
    shard = await started(bench, "picky")
    await bench.site("blog", "one", owner=shard)
    await bench.until(lambda: bench.status("blog", "observedGeneration"), equals=1)
    await asyncio.sleep(0.3)
    before = len(shard.reconciles("blog"))
    assert before == 1, "the status is our own write, and no change of the generation"
    await bench.merge(WEBSITES, "blog", metadata={"annotations": {"note": "x"}})
    await asyncio.sleep(0.3)
    assert len(shard.reconciles("blog")) == before
    await bench.edit("blog", "two")
    await bench.until(lambda: bench.status("blog", "observedGeneration"), equals=2)


async def test_a_handoff_takes_place_whatever_the_predicate_says(bench: Bench) -> None:
    shard = await started(bench, "picky")
    await bench.site("blog", "one", owner=shard)
    await bench.until(lambda: bench.status("blog", "observedGeneration"), equals=1)
    await bench.label(WEBSITES, "blog", drain="")
    await bench.until(lambda: bench.is_free(WEBSITES, "blog"))
    before = len(shard.reconciles("blog"))
    await bench.label(WEBSITES, "blog", shard=shard.name)
    await bench.until(lambda: len(shard.reconciles("blog")) > before)


async def test_a_refused_write_is_made_up_for_whatever_the_predicate_says(bench: Bench) -> None:
    """Somebody else writes what the predicate does not want, while the reconcile is under way."""
    shard = await started(bench, "picky", mode="single")
    await bench.site("blog", "slowly")
    await bench.until(lambda: shard.reconciles("blog"))
    await bench.merge(WEBSITES, "blog", metadata={"annotations": {"note": "x"}})
    await bench.until(lambda: bench.status("blog", "observedGeneration"), equals=1)
    assert shard.outcomes()[:1] == ["lost"]


# -- events, permanent errors, status


async def test_an_event_is_written_and_repetitions_are_counted(bench: Bench) -> None:
    shard = await started(bench, "telling")
    await bench.site("blog", "one", owner=shard)
    await bench.until(lambda: events(bench, "Looked"))
    reported = (await events(bench, "Looked"))[0]
    assert reported["type"] == "Normal"
    assert reported["note"] == "at one"
    assert reported["regarding"]["name"] == "blog"
    assert reported["reportingController"] == "ringleader.dev/telling"
    assert reported["reportingInstance"] == shard.name


async def test_without_the_right_to_write_events_there_is_one_warning_and_the_work_goes_on(
    bench: Bench,
) -> None:
    await bench.plane.faults.add(
        Fault(what="error", user="web-0", resource="events.events.k8s.io", verb="create", code=403)
    )
    shard = await started(bench, "telling")
    for name in ("blog", "shop", "wiki"):
        await bench.site(name, name, owner=shard)
    await bench.until(lambda: bench.condition("wiki"), equals="True")
    await bench.until(lambda: shard.logged("events cannot be written"))
    await asyncio.sleep(0.5)
    assert len(shard.logged("events cannot be written")) == 1
    assert shard.logged("events cannot be written")[0]["level"] == "warning"
    assert shard.outcomes().count("done") >= 3


async def test_a_permanent_error_is_a_condition_and_an_event_and_is_not_tried_again(bench: Bench) -> None:
    shard = await started(bench, "telling")
    await bench.site("blog", "fine", owner=shard)
    await bench.until(lambda: bench.condition("blog"), equals="True")
    await bench.edit("blog", "hopeless")
    await bench.until(lambda: bench.condition("blog", "Stalled"), equals="True")
    found = {entry["type"]: entry for entry in await bench.status("blog", "conditions")}
    for kind, status in (("Stalled", "True"), ("Ready", "False")):
        reported = found[kind]
        assert (reported["status"], reported["reason"], reported["message"]) == (
            status,
            "Hopeless",
            "there is no hope",
        )
    await bench.until(lambda: events(bench, "Hopeless"))
    assert (await events(bench, "Hopeless"))[0]["type"] == "Warning"
    tries = len(shard.logged("reconcile failed for good"))
    await asyncio.sleep(0.5)
    assert len(shard.logged("reconcile failed for good")) == tries == 1
    await bench.edit("blog", "fine again")
    await bench.until(lambda: bench.condition("blog"), equals="True")
    assert await bench.condition("blog", "Stalled") == ""


async def test_a_resource_without_a_status_is_reported_at_start_and_in_the_error(bench: Bench) -> None:
    crd = yaml.safe_load((ROOT / "examples/website/crd.yaml").read_text())
    del crd["spec"]["versions"][0]["subresources"]
    await bench.client.patch(CRDS, "websites.example.com", MergePatch({"spec": crd["spec"]}), type=dict)
    shard = await started(bench, "telling")
    assert "subresources: {status: {}}" in shard.logged("no status subresource")[0]["remedy"]
    await bench.site("blog", "one", owner=shard)
    await bench.until(lambda: shard.logged("reconcile failed"))
    failed = shard.logged("reconcile failed")[0]["error"]
    assert "websites.example.com has no status subresource; add `subresources: {status: {}}`" in failed
    await bench.until(lambda: len(shard.reconciles("blog")) > 2)


# -- processes and threads


async def test_a_pure_function_is_computed_in_a_pool_of_the_program_s_own(bench: Bench) -> None:
    shard = await started(bench, "computing")
    await bench.site("blog", "2 10", owner=shard)
    await bench.until(lambda: bench.status("blog", "configMap"), equals="1024")
    assert await shard.terminate() == 0


@pytest.mark.parametrize("attribute", ["endless", "stubborn"])
async def test_a_function_that_cannot_be_stopped_ends_the_process_with_its_stacks(
    bench: Bench, attribute: str
) -> None:
    shard = await started(bench, attribute, duration_s=15)
    await bench.site("blog", "endless", owner=shard)
    await bench.until(lambda: shard.reconciles("blog"))
    await bench.label(WEBSITES, "blog", drain="")
    assert await shard.ended(within_s=10) == 4
    assert await bench.owner(WEBSITES, "blog") == shard.name, "no drain is acknowledged meanwhile"
    assert "cannot be stopped" in shard.logged("process ends")[0]["reason"]
    assert "wider.py" in shard.log.read_text()


async def test_at_sigterm_a_thread_that_does_not_end_is_not_waited_for_without_end(bench: Bench) -> None:
    shard = await started(bench, "endless", duration_s=15)
    await bench.site("blog", "endless", owner=shard)
    await bench.until(lambda: shard.reconciles("blog"))
    shard.signal(signal.SIGTERM)
    assert await shard.ended(within_s=10) == 4


async def test_a_cancelled_thread_writes_nothing_more(bench: Bench) -> None:
    shard = await started(bench, "endless", duration_s=15)
    await bench.site("blog", "polite", owner=shard)
    await bench.until(lambda: shard.records("end"))
    assert shard.records("end")[0]["outcome"] == "error"
    assert bench.writes("web-0", resource="websites.example.com") == []


async def test_a_blocking_finalizer_runs_in_a_thread_with_everything_that_a_context_has(bench: Bench) -> None:
    shard = await started(bench, "tidy")
    await bench.site("blog", "", owner=shard)
    await bench.until(lambda: events(bench, "Kept"))
    await bench.delete(WEBSITES, "blog")
    await bench.until(lambda: bench.is_deleted("blog"))
    assert (await bench.find(CONFIGMAPS, "blog-gone"))["data"] == {"total": "6"}


async def test_a_conflict_outside_the_ring_is_tried_again_quietly(bench: Bench) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared", "namespace": NAMESPACE}}
    await bench.client.create(CONFIGMAPS, body, namespace=NAMESPACE, type=dict)
    shard = await started(bench, "outside")
    await bench.site("blog", "conflict", owner=shard)
    await bench.until(lambda: len(shard.reconciles("blog")) > 2)
    assert shard.records("end")[0]["outcome"] == "requeue"
    assert shard.logged("reconcile failed") == []


async def test_what_is_missing_outside_the_ring_is_an_error_like_others(bench: Bench) -> None:
    shard = await started(bench, "outside")
    await bench.site("blog", "missing", owner=shard)
    await bench.until(lambda: len(shard.reconciles("blog")) > 2)
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


@pytest.mark.parametrize("then_raises", [False, True])
async def test_a_reconcile_that_is_cancelled_with_its_controller_may_still_create(
    bench: Bench, then_raises: bool
) -> None:
    """It may raise something else instead of its cancellation, too: the worker ends all the same."""
    runs = asyncio.Event()
    sites: sc.Controller[Any] = sc.Controller(sc.Resource("websites.example.com/v1", dict), owns=[PAGES])

    @sites.reconcile
    async def last_word(ctx: sc.Context[Any]) -> sc.Result:
        if runs.is_set():
            await asyncio.Event().wait()
        runs.set()
        try:
            await asyncio.Event().wait()
        finally:
            await ctx.apply(PAGES, ctx.name, {"data": {"page": "bye"}})
            if then_raises:
                raise ValueError("cancelled")
        return sc.Done()

    await bench.site("blog", "")
    controller = asyncio.create_task(
        serve(sites, sc.Single(), Settings(kubeconfig=str(bench.plane.kubeconfig)))
    )
    await runs.wait()
    for _ in range(2):  # the first asks it to stop
        controller.cancel()
        await asyncio.sleep(0)
    await asyncio.wait({controller}, timeout=10)
    assert controller.done()
    assert await bench.page("blog") == "bye"


async def shown(bench: Bench) -> str:
    """The page that the example has published."""
    found = await bench.find(CONFIGMAPS, "blog")
    return str(found["data"]["index.html"]) if found else ""


async def example(bench: Bench, wait_for: str) -> Shard:
    waits = {"WEBSITE_WAIT_MS": "3000", "WEBSITE_WAIT_FOR": wait_for}
    shard = await bench.start("web-0", program="examples/website/controller.py:websites", env=waits)
    await bench.site("blog", "<h1>Hello</h1>", owner=shard)
    return shard


async def test_the_example_waits_for_changes_only_if_asked_to(bench: Bench) -> None:
    """`ringleader loadtest capacity` relies on it: what a replica only takes over costs no call to the outside."""
    shard = await example(bench, "changes")
    await bench.until(lambda: shard.records("end"), within_s=15)
    assert shard.records("end")[0]["t"] - shard.reconciles("blog")[0]["t"] >= 3.0
    began = time.monotonic()
    await bench.merge(CONFIGMAPS, "blog", data={"index.html": ""})
    await bench.until(lambda: shown(bench), within_s=15)
    assert time.monotonic() - began < 2.0


async def test_the_example_waits_for_updates_only_if_asked_to(bench: Bench) -> None:
    """`ringleader loadtest capacity` relies on it: objects are prepared without a wait, and measured with it."""
    shard = await example(bench, "updates")
    await bench.until(lambda: shard.records("end"), within_s=15)
    assert shard.records("end")[0]["t"] - shard.reconciles("blog")[0]["t"] < 2.0
    began = time.monotonic()
    await bench.edit("blog", "<h1>Bye</h1>")
    await bench.until(lambda: shown(bench), equals=(await shown(bench)).replace("Hello", "Bye"), within_s=15)
    assert time.monotonic() - began >= 3.0


# -- rhythm


async def test_every_object_is_reconciled_again_in_every_period(bench: Bench) -> None:
    shard = await started(bench, "often")
    await bench.site("blog", "", owner=shard)
    await bench.until(lambda: len(shard.reconciles("blog")) > 4)


async def test_a_resync_does_not_try_again_what_failed_for_good(bench: Bench) -> None:
    shard = await started(bench, "often")
    await bench.site("blog", "hopeless", owner=shard)
    await bench.until(lambda: shard.logged("reconcile failed for good"))
    await asyncio.sleep(2)
    assert len(shard.logged("reconcile failed for good")) == 1


async def test_failures_are_tried_again_as_the_back_off_says(bench: Bench) -> None:
    shard = await started(bench, "patient")
    await bench.site("blog", "", owner=shard)
    await bench.until(lambda: len(shard.reconciles("blog")) > 3)
    times = [record["t"] for record in shard.reconciles("blog")]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert all(gap >= 0.39 for gap in gaps), gaps


async def test_an_object_may_be_deleted_by_its_own_reconcile(bench: Bench) -> None:
    shard = await started(bench, "own")
    await bench.site("blog", "finished", owner=shard)
    await bench.until(lambda: bench.is_deleted("blog"))


async def secret(
    bench: Bench, name: str, *, page: str, sites: str, labels: dict[str, str] | None = None
) -> None:
    """Create or change a Secret that names sites."""
    if await bench.find(SECRETS, name) is None:
        await bench.secret(name, {}, labels=labels)
    await bench.merge(SECRETS, name, metadata={"annotations": {"sites": sites}}, data={"page": page})


async def events(bench: Bench, reason: str) -> list[dict[str, Any]]:
    page = await bench.client.list_as(EVENTS, type=dict, namespace=NAMESPACE)
    return [event for event in page["items"] if event["reason"] == reason]
