"""`list`: a line for each object, in every form, and broken lines of standard input told by their number."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from devcluster.embedded import embedded_plane
from kubeio.rest.discovery import Discovery
from ring import HashRing, object_key
from ringleader.cluster.objects import PAGE, object_pages
from ringleader.cluster.placement import Row
from ringleader.cluster.reader import ClusterReader
from ringleader.list.command import Selection, read_rows
from ringleader.list.lines import BrokenLine, NamedObject, parse_lines
from tests.sharder.io.environment import (
    CONFIGMAPS,
    KEYS,
    SECRETS,
    TREE,
    WEBSITES,
    SharderEnvironment,
    open_environment,
)
from tests.warm_python import warm_python

A, B = "a-00000001", "b-00000001"


async def run(env: SharderEnvironment, *words: str, stdin: str = "") -> tuple[int, str, str]:
    """The command as a process of its own."""
    done = await asyncio.to_thread(
        subprocess.run,
        [warm_python(), "-m", "ringleader", "list", *words],
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, "KUBECONFIG": str(env.plane.kubeconfig)},
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


async def some(env: SharderEnvironment) -> None:
    """Two members and three sites: one at its place, one on its way, one new."""
    await env.ring()
    await env.shard("a", duration_s=15)
    await env.shard("b", duration_s=15)
    placed = HashRing(["a", "b"]).owner(object_key("example.com", "default", "one"))
    await env.site("one", labels={KEYS.shard: f"{placed}-00000001"})
    await env.site("two", labels={KEYS.shard: A, KEYS.drain: B})
    await env.namespace("sites", {})
    await env.site("three", namespace="sites")


async def test_every_object_has_a_line_in_every_form(env: SharderEnvironment) -> None:
    await some(env)
    code, out, err = await run(env, "-A", "-o", "csv")
    assert (code, err) == (0, "")
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(out))}
    assert set(rows) == {"one", "two", "three"}
    assert (rows["one"]["placed"], rows["one"]["owner"]) == ("true", rows["one"]["desired"])
    assert (rows["two"]["placed"], rows["two"]["drain"]) == ("false", B)
    assert (rows["three"]["owner"], rows["three"]["state"]) == ("", "unowned")
    key = object_key("example.com", "sites", "three")
    found = HashRing(["a", "b"]).explain(key)
    assert (rows["three"]["key"], rows["three"]["member"]) == (key, found.owner)
    assert (rows["three"]["hash"], rows["three"]["token"]) == (f"{found.hash:016x}", f"{found.token:016x}")

    code, out, _ = await run(env, "-o", "json", "-n", "sites")
    assert [each["name"] for each in json.loads(out)["objects"]] == ["three"]
    code, out, _ = await run(env, "-A", "-o", "yaml")
    assert {each["name"] for each in yaml.safe_load(out)["objects"]} == set(rows)
    code, out, _ = await run(env, "-A", "-o", "name")
    assert sorted(out.split("\n")) == sorted(["", "", A, rows["one"]["owner"]])
    code, out, _ = await run(env, "-A")
    assert [line.split()[0] for line in out.splitlines()] == [
        "OBJECT",
        "websites.example.com/default/one",
        "websites.example.com/default/two",
        "websites.example.com/sites/three",
    ]


async def test_no_object_is_an_empty_document(env: SharderEnvironment) -> None:
    await env.ring()
    for form in ("json", "yaml"):
        _, out, _ = await run(env, "-A", "-o", form)
        assert yaml.safe_load(out) == {"objects": []}


async def test_an_empty_namespace_is_named_for_people_only(env: SharderEnvironment) -> None:
    await some(env)
    code, out, err = await run(env, "-n", "nowhere")
    assert (code, out.split()) == (0, ["OBJECT", "OWNER", "DESIRED", "DRAIN"])
    assert err == "note: no distributed object in namespace nowhere; -A lists every namespace\n"
    assert (await run(env, "-n", "nowhere", "-o", "csv"))[2] == ""
    assert (await run(env, "-n", "sites"))[2] == ""


async def test_a_resource_that_is_not_served_is_left_out_and_the_others_are_listed(
    env: SharderEnvironment,
) -> None:
    await some(env)
    sites, gone = {"group": "example.com", "resource": "websites"}, {"group": "gone.io", "resource": "things"}
    await env.ring(resources=[sites, gone])
    code, out, err = await run(env, "-A", "-o", "csv")
    assert (code, len(out.splitlines())) == (0, 4)
    assert err.startswith("note: ring websites: things.gone.io is not served and left out; ")


async def test_one_object_is_no_kind(env: SharderEnvironment) -> None:
    await some(env)
    code, _, err = await run(env, "website/one")
    assert (code, "ringleader describe website/one" in err) == (2, True)
    assert (await run(env, "websites.example.com/v1"))[0] == 0


async def rows_of(env: SharderEnvironment, *, with_dependents: bool, kind: str | None = None) -> list[Row]:
    reader = ClusterReader(env.client, timeout_s=10)
    wanted = Selection(kind, with_dependents=with_dependents)
    pages = read_rows(reader, Discovery(env.client), await reader.snapshot(), wanted)
    return [row async for rows in pages for row in rows]


async def test_more_objects_than_one_page_all_have_a_row(env: SharderEnvironment) -> None:
    await env.ring()
    await env.shard("a", duration_s=15)
    count = PAGE + 5
    body = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"page-{n}"}} for n in range(count)
    ]
    await env.ring(resources=[{"resource": "configmaps"}])
    for begin in range(0, count, 50):
        await asyncio.gather(
            *(
                env.client.create(CONFIGMAPS, each, namespace="default", type=bytes)
                for each in body[begin : begin + 50]
            )
        )
    names = [row.name for row in await rows_of(env, with_dependents=False)]
    assert len(names) == len(set(names)) == count


async def test_a_list_whose_version_expires_goes_on_with_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy server a list of many objects outlives the history."""
    monkeypatch.setattr("ringleader.cluster.objects.PAGE", 2)
    names: list[str] = []
    progress: list[tuple[int, int | None]] = []

    def advance(done: int, left: int | None = None) -> None:
        progress.append((done, left))

    async with embedded_plane(tmp_path, history=2) as plane, open_environment(plane) as env:
        await env.sites(7)
        async for page in object_pages(env.client, [WEBSITES], advance=advance, timeout_s=10):
            names += [each.meta.name for each in page.objects]
            if len(names) == 2:
                await env.sites(8, first=60)
    assert names == [
        *(f"site-{number}" for number in range(7)),
        *(f"site-{number}" for number in range(60, 68)),
    ]
    assert (progress[0], progress[-1][1]) == ((2, 5), 0)


async def test_what_is_controlled_has_the_key_of_its_root_and_what_nobody_controls_no_row(
    env: SharderEnvironment,
) -> None:
    await env.ring(key="Owner", resources=[TREE])
    await env.shard("a", duration_s=15)
    site = await env.make(WEBSITES, "one")
    page = await env.make(CONFIGMAPS, "page", above=(WEBSITES, site))
    await env.make(SECRETS, "secret", above=(CONFIGMAPS, page))
    await env.make(SECRETS, "loose")
    assert [row.name for row in await rows_of(env, with_dependents=False)] == ["one"]
    found = {row.name: row.key for row in await rows_of(env, with_dependents=True)}
    assert found == dict.fromkeys(("one", "page", "secret"), "example.com_default_one")
    assert [row.name for row in await rows_of(env, with_dependents=False, kind="secret")] == ["secret"]


async def test_standard_input_is_answered_line_by_line_and_what_is_wrong_named(
    env: SharderEnvironment,
) -> None:
    await some(env)
    named = "website/one\n# a remark\n\nblog\nwebsite/sites/three  # there\nwebsite/gone\nsecret/x\n"
    code, out, err = await run(env, "-", "-o", "csv", stdin=named)
    assert [row["name"] for row in csv.DictReader(io.StringIO(out))] == ["one", "three"]
    assert code == 2
    told = err.splitlines()
    assert "line 4: 'blog' does not name one object; write KIND/NAME" in told[0]
    assert "line 6: 'website/gone' websites.example.com/default/gone does not exist" in told[1]
    assert "line 7: 'secret/x' KIND: 'secrets' does not belong to any ring" in told[2]
    assert len(told) == 3
    code, out, _ = await run(env, "-", "-o", "name", stdin="website.example.com/two\n")
    assert (code, out) == (0, f"{A}\n")


async def test_a_namespace_is_that_of_the_kubeconfig_unless_another_or_all_are_asked_for(
    env: SharderEnvironment,
) -> None:
    await some(env)
    listed = {
        words: (await run(env, *words, "-o", "csv"))[1] for words in ((), ("-n", "sites"), ("website", "-A"))
    }
    names = {
        words: {row["name"] for row in csv.DictReader(io.StringIO(out))} for words, out in listed.items()
    }
    assert names == {
        (): {"one", "two"},
        ("-n", "sites"): {"three"},
        ("website", "-A"): {"one", "two", "three"},
    }


async def test_an_owner_that_does_not_watch_the_kind_does_not_place_it(env: SharderEnvironment) -> None:
    await env.ring()
    await env.shard("a", works="websites.example.com")
    mine = {KEYS.shard: A}
    await env.page(await env.site("one", labels=mine), labels=mine)
    placed = {row.resource: row.is_placed for row in await rows_of(env, with_dependents=True)}
    assert placed == {"websites.example.com": True, "configmaps": False}


def test_a_line_names_kind_and_name_and_perhaps_a_namespace() -> None:
    found = list(parse_lines("a/b\na/n/b # x\na\n a / b\n/x\na/b/c/d\n"))
    named = [(each.kind, each.namespace, each.name) for each in found if isinstance(each, NamedObject)]
    assert named == [("a", "", "b"), ("a", "n", "b")]
    assert [each.line for each in found if isinstance(each, BrokenLine)] == [3, 4, 5, 6]
