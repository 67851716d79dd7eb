"""`ringleader migrate kopf`: what kopf leaves on objects goes, and nothing else; every write tests what was read."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import kopf
import pytest
import yaml

from devcluster.embedded import EmbeddedPlane, Fault
from kubeio.access.cluster import load_cluster
from kubeio.errors import InputError, NotFound
from kubeio.models import HasMeta, Meta
from kubeio.patch import MergePatch
from kubeio.resource import CRDS, NAMESPACES, ApiResource
from kubeio.rest.client import Client
from ringleader.migrate.kopf import Ending, Order, change
from ringleader.migrate.kopf_marks import FINALIZERS, PREFIX, marks_of, patch_of, swapped
from tests.warm_python import warm_python

ROOT = Path(__file__).parents[2]
WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
NS = "default"
KOPFS = "kopf.zalando.org/KopfFinalizerMarker"
LAST = "kopf.zalando.org/last-handled-configuration"
PROGRESS = '{"started":"2026-11-01T00:00:00","retries":1,"success":false,"failure":false}'

OPERATOR = """
import kopf

@kopf.on.startup()
def quiet(settings, **_):
    settings.posting.enabled = False

@kopf.on.create("example.com", "v1", "websites")
@kopf.on.update("example.com", "v1", "websites")
def show(spec, **_):
    if spec["html"] == "stuck":
        raise kopf.TemporaryError("as told", delay=600)

@kopf.on.delete("example.com", "v1", "websites")
def forget(**_):
    pass
"""


# -- what the marks are


def test_the_names_are_those_of_the_kopf_that_is_installed() -> None:
    settings = kopf.OperatorSettings()
    assert settings.persistence.finalizer == FINALIZERS[0]
    diffbase, progress = settings.persistence.diffbase_storage, settings.persistence.progress_storage
    assert isinstance(diffbase, kopf.AnnotationsDiffBaseStorage)
    assert isinstance(progress, kopf.SmartProgressStorage)
    assert diffbase.prefix == PREFIX
    assert list(diffbase.make_keys(diffbase.key)) == [LAST]
    assert set(kopf.ProgressRecord.__annotations__) == set(
        "started stopped delayed purpose retries success failure message subrefs".split()  # noqa: SIM905
    )


def test_under_its_own_prefix_everything_is_kopf_s() -> None:
    found = marks_of(
        Meta(
            finalizers=["example.com/other", KOPFS],
            annotations={
                LAST: "{}",
                "kopf.zalando.org/show": "x",
                "second.kopf.zalando.org/show": "x",
                "example.com/owner": "me",
                "notkopf.zalando.org/x": "y",
            },
        )
    )
    assert found.finalizers == (KOPFS,)
    assert found.annotations == (LAST, "kopf.zalando.org/show", "second.kopf.zalando.org/show")


def test_under_a_marked_prefix_only_what_looks_like_kopf_s_goes() -> None:
    """The prefix is perhaps the domain of the user, who keeps things of his own there."""
    found = marks_of(
        Meta(
            annotations={
                "example.com/kopf-managed": "yes",
                "example.com/last-handled-configuration": "{}",
                "example.com/show.spec": PROGRESS,
                "example.com/touch-dummy": "2026",
                "example.com/owner": "me",
                "example.com/settings": '{"started": 1, "mine": 2}',
                "other.com/last-handled-configuration": "{}",
            }
        )
    )
    assert found.annotations == (
        "example.com/kopf-managed",
        "example.com/last-handled-configuration",
        "example.com/show.spec",
        "example.com/touch-dummy",
    )


def test_a_prefix_and_a_finalizer_that_kopf_s_settings_name_are_taken_at_their_word() -> None:
    found = marks_of(
        Meta(finalizers=["example.com/f"], annotations={"example.com/x": "y"}),
        finalizers=["example.com/f"],
        prefixes=["example.com"],
    )
    assert (found.finalizers, found.annotations) == (("example.com/f",), ("example.com/x",))


def test_an_object_that_kopf_never_saw_has_no_marks() -> None:
    assert not marks_of(Meta(finalizers=["foregroundDeletion"], annotations={"a/b": "c", "d": PROGRESS}))


def test_ours_stand_where_kopf_s_stood_and_only_once() -> None:
    assert swapped(["a/b", KOPFS, "c/d"], [KOPFS], ["x/y"]) == ["a/b", "x/y", "c/d"]
    assert swapped(["x/y", KOPFS], [KOPFS], ["x/y"]) == ["x/y"]
    assert swapped([KOPFS], [KOPFS], []) == []


def test_the_patch_tests_the_version_before_it_changes_anything() -> None:
    one = Meta(name="blog", uid="u", resource_version="7", finalizers=[KOPFS], annotations={LAST: "{}"})
    patch = patch_of(one, marks_of(one), ours=["x/y"])
    assert [(operation.op, operation.path) for operation in patch.operations] == [
        ("test", "/metadata/uid"),
        ("test", "/metadata/resourceVersion"),
        ("replace", "/metadata/finalizers"),
        ("remove", "/metadata/annotations/kopf.zalando.org~1last-handled-configuration"),
    ]


def test_a_finalizer_without_a_domain_is_refused() -> None:
    with pytest.raises(InputError, match="--finalizer: 'cdn' cannot be a finalizer; write DOMAIN/NAME"):
        Order(kind="websites", ours=("cdn",))


# -- on a control plane


class SharderEnvironment:
    """A control plane with Websites."""

    def __init__(self, plane: EmbeddedPlane, client: Client) -> None:
        self.plane = plane
        self.client = client

    async def site(self, name: str, *, html: str = "hi", marked: bool = True, namespace: str = NS) -> Meta:
        metadata: dict[str, Any] = {"name": name, "namespace": namespace}
        if marked:
            metadata |= {"finalizers": [KOPFS], "annotations": {LAST: "{}", "example.com/owner": "me"}}
        body = {
            "apiVersion": "example.com/v1",
            "kind": "Website",
            "metadata": metadata,
            "spec": {"html": html},
        }
        made = await self.client.create(WEBSITES, body, namespace=namespace, type=HasMeta)
        return made.metadata

    async def meta(self, name: str) -> Meta:
        return (await self.client.get(WEBSITES, name, namespace=NS, type=HasMeta)).metadata

    async def until(self, name: str, holds: Any, *, within_s: float = 30) -> Meta:
        async with asyncio.timeout(within_s):
            while not holds(found := await self.meta(name)):  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.1)
        return found

    async def run(self, *words: str) -> tuple[int, str, str]:
        """`ringleader migrate kopf` as a process without a terminal."""
        process = await asyncio.create_subprocess_exec(
            *(warm_python(), "-m", "ringleader", "migrate", "kopf", *words),
            cwd=ROOT,
            env={**os.environ, "KUBECONFIG": str(self.plane.kubeconfig)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()


@pytest.fixture
async def env(new_plane: EmbeddedPlane) -> AsyncIterator[SharderEnvironment]:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(load_cluster(kubeconfig=str(new_plane.kubeconfig))))
        crd = yaml.safe_load((ROOT / "examples/website/crd.yaml").read_text())
        await client.create(CRDS, crd, type=bytes)
        async with asyncio.timeout(10):
            while True:
                try:
                    await client.list_page(WEBSITES)
                except NotFound:
                    await asyncio.sleep(0.05)
                else:
                    break
        yield SharderEnvironment(new_plane, client)


async def test_a_dry_run_tells_what_it_would_change_and_writes_nothing(env: SharderEnvironment) -> None:
    await env.site("blog")
    await env.site("clean", marked=False)
    before = len(env.plane.writes())
    code, out, err = await env.run("website", "--dry-run", "--finalizer", "example.com/cdn")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"default/blog: finalizer {KOPFS} -> example.com/cdn; without {LAST}",
        "1 of 2 websites.example.com would be changed (dry run: nothing was)",
    ]
    assert len(env.plane.writes()) == before


async def test_ours_take_the_place_of_kopf_s_in_one_write_per_object(env: SharderEnvironment) -> None:
    for number in range(40):
        await env.site(f"site-{number}")
    await env.site("clean", marked=False)
    before = len(env.plane.writes())
    code, out, err = await env.run("websites", "--yes", "--finalizer", "example.com/cdn")
    assert (code, err) == (0, "")
    assert out == "websites.example.com: 40 changed\n"
    assert len(env.plane.writes()) - before == 40
    found = await env.meta("site-7")
    assert found.finalizers == ["example.com/cdn"]
    assert found.annotations == {"example.com/owner": "me"}
    code, out, _ = await env.run("websites", "--yes", "--finalizer", "example.com/cdn")
    assert (code, out) == (0, "0 of 41 websites.example.com to be changed\n")


async def test_only_the_namespace_that_is_named_is_changed(env: SharderEnvironment) -> None:
    await env.client.create(NAMESPACES, {"metadata": {"name": "other"}}, type=bytes)
    await env.site("blog")
    await env.site("blog", namespace="other")
    code, out, _ = await env.run("websites", "-n", "other", "--yes")
    assert (code, out) == (0, "websites.example.com: 1 changed\n")
    assert (await env.meta("blog")).finalizers == [KOPFS]


async def test_without_a_terminal_and_without_yes_nothing_is_changed(env: SharderEnvironment) -> None:
    await env.site("blog")
    code, _, err = await env.run("websites")
    assert code == 2
    assert err == (
        "error: --yes is needed: there is no terminal to ask on; "
        "give --yes to change them, or --dry-run to see what would be changed\n"
    )
    assert (await env.meta("blog")).finalizers == [KOPFS]


@pytest.mark.parametrize(("answer", "finalizers", "code"), [("n", [KOPFS], 1), ("y", [], 0)])
async def test_at_a_terminal_a_person_is_asked(
    env: SharderEnvironment, answer: str, finalizers: list[str], code: int
) -> None:
    await env.site("blog")
    person, terminal = os.openpty()
    os.write(person, f"{answer}\n".encode())
    process = await asyncio.create_subprocess_exec(
        *(warm_python(), "-m", "ringleader", "migrate", "kopf", "websites"),
        cwd=ROOT,
        env={**os.environ, "KUBECONFIG": str(env.plane.kubeconfig)},
        stdin=terminal,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    os.close(person)
    os.close(terminal)
    assert process.returncode == code, err.decode()
    assert "1 of 1 websites.example.com to be changed on https://127.0.0.1" in err.decode()
    assert out.decode().strip() == ("websites.example.com: 1 changed" if code == 0 else "nothing was changed")
    assert (await env.meta("blog")).finalizers == finalizers


async def test_what_is_being_deleted_is_left_to_kopf(env: SharderEnvironment) -> None:
    await env.site("blog")
    await env.client.delete(WEBSITES, "blog", namespace=NS)
    code, out, _ = await env.run("websites", "--yes")
    assert code == 1
    assert "1 being deleted are left to kopf" in out
    assert (await env.meta("blog")).finalizers == [KOPFS]
    code, out, _ = await env.run("websites", "--dry-run")
    assert code == 0
    assert "default/blog: is being deleted: left to kopf" in out


async def test_a_change_that_came_between_is_read_again_and_kept(env: SharderEnvironment) -> None:
    listed = await env.site("blog")
    change_of_a_user = MergePatch({"metadata": {"annotations": {"example.com/owner": "you", LAST: "newer"}}})
    await env.client.patch(WEBSITES, "blog", change_of_a_user, namespace=NS, type=bytes)
    ended = await change(env.client, Order(kind="x", ours=("a.b/c",)), WEBSITES, listed, timeout_s=10)
    assert ended is Ending.CHANGED
    found = await env.meta("blog")
    assert (found.finalizers, found.annotations) == (["a.b/c"], {"example.com/owner": "you"})


async def test_the_next_object_of_that_name_is_not_touched(env: SharderEnvironment) -> None:
    listed = await env.site("blog")
    await env.client.patch(
        WEBSITES, "blog", MergePatch({"metadata": {"finalizers": None}}), namespace=NS, type=bytes
    )
    await env.client.delete(WEBSITES, "blog", namespace=NS)
    next_one = await env.site("blog", marked=False)
    ended = await change(env.client, Order(kind="x", ours=("a.b/c",)), WEBSITES, listed, timeout_s=10)
    assert ended is Ending.CLEAN
    assert (await env.meta("blog")).resource_version == next_one.resource_version


async def test_an_object_that_went_meanwhile_is_gone(env: SharderEnvironment) -> None:
    listed = await env.site("blog")
    await env.client.patch(
        WEBSITES, "blog", MergePatch({"metadata": {"finalizers": None}}), namespace=NS, type=bytes
    )
    await env.client.delete(WEBSITES, "blog", namespace=NS)
    ended = await change(env.client, Order(kind="x"), WEBSITES, listed, timeout_s=10)
    assert ended is Ending.GONE


async def test_a_missing_right_ends_it_with_the_rule_that_grants_it(env: SharderEnvironment) -> None:
    for number in range(30):
        await env.site(f"site-{number}")
    denied = 'websites.example.com is forbidden: User "ada" cannot patch resource "websites" in API group "example.com"'
    await env.plane.faults.add(
        Fault(what="error", verb="patch", resource="websites.example.com", code=403, message=denied)
    )
    code, _, err = await env.run("websites", "--yes")
    assert code == 1
    assert len(err.splitlines()) == 1
    await env.plane.faults.clear()


@pytest.mark.fleet
@pytest.mark.timeout(180)
async def test_objects_of_a_real_kopf_operator_become_ours(env: SharderEnvironment, tmp_path: Path) -> None:
    """kopf itself marks the objects; afterwards a kopf that is started again finds nothing of its own."""
    program = tmp_path / "operator_of_kopf.py"
    program.write_text(OPERATOR)
    await env.site("blog", marked=False)
    await env.site("stuck", html="stuck", marked=False)
    log = (tmp_path / "kopf.log").open("wb")
    operator = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kopf", "run", str(program), "-n", NS, "--standalone"),
        env={**os.environ, "KUBECONFIG": str(env.plane.kubeconfig)},
        stdout=log,
        stderr=log,
    )
    try:
        await env.until("blog", lambda found: KOPFS in found.finalizers and LAST in found.annotations)
        stuck = await env.until("stuck", lambda found: "kopf.zalando.org/show" in found.annotations)
    finally:
        operator.send_signal(signal.SIGTERM)
        await asyncio.wait_for(operator.wait(), 30)
        log.close()
    assert KOPFS in stuck.finalizers
    code, out, err = await env.run("websites", "--yes", "--finalizer", "example.com/cdn")
    assert (code, err) == (0, ""), (tmp_path / "kopf.log").read_text()[-3000:]
    assert out == "websites.example.com: 2 changed\n"
    for name in ("blog", "stuck"):
        found = await env.meta(name)
        assert found.finalizers == ["example.com/cdn"]
        assert found.annotations == {}
