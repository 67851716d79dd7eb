"""`where --all` and `where -f`: a line for each object, in every form, and broken lines told by their number."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeio.errors import InputError
from kubeio.rest.discovery import Discovery
from ring import HashRing, object_key
from ringleader.inspect.cluster.placing import Row
from ringleader.inspect.cluster.reading import PAGE, read_rings
from ringleader.inspect.where.command import Asked, check
from ringleader.inspect.where.many import ring_rows
from ringleader.inspect.where.targets import Broken, Wanted, read_targets
from tests.sharder.io.ground import CONFIGMAPS, KEYS, SECRETS, WEBSITES, Ground
from tests.sharder.io.test_sharder_placing import TREE
from tests.warm_python import warm_python

A, B = "a-00000001", "b-00000001"


async def run(ground: Ground, *words: str, stdin: str = "") -> tuple[int, str, str]:
    """The command as a process of its own."""
    done = await asyncio.to_thread(
        subprocess.run,
        [warm_python(), "-m", "ringleader", "where", *words],
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, "KUBECONFIG": str(ground.plane.kubeconfig)},
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


async def some(ground: Ground) -> None:
    """Two members and three sites: one at its place, one on its way, one new."""
    await ground.ring()
    await ground.shard("a", duration_s=15)
    await ground.shard("b", duration_s=15)
    placed = HashRing(["a", "b"]).owner(object_key("example.com", "default", "one"))
    await ground.site("one", labels={KEYS.shard: f"{placed}-00000001"})
    await ground.site("two", labels={KEYS.shard: A, KEYS.drain: B})
    await ground.namespace("sites", {})
    await ground.site("three", namespace="sites")


async def test_every_object_has_a_line_in_every_form(ground: Ground) -> None:
    await some(ground)
    code, out, err = await run(ground, "--all", "-o", "csv")
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

    code, out, _ = await run(ground, "--all", "-o", "json", "-n", "sites")
    assert [each["name"] for each in json.loads(out)["objects"]] == ["three"]
    code, out, _ = await run(ground, "--all", "-o", "yaml")
    assert {each["name"] for each in yaml.safe_load(out)["objects"]} == set(rows)
    code, out, _ = await run(ground, "--all", "-o", "name")
    assert sorted(out.split("\n")) == sorted(["", "", A, rows["one"]["owner"]])
    code, out, _ = await run(ground, "--all")
    assert [line.split()[0] for line in out.splitlines()] == [
        "OBJECT",
        "websites.example.com/default/one",
        "websites.example.com/default/two",
        "websites.example.com/sites/three",
    ]


async def test_no_object_is_an_empty_document(ground: Ground) -> None:
    await ground.ring()
    for form in ("json", "yaml"):
        _, out, _ = await run(ground, "--all", "-o", form)
        assert yaml.safe_load(out) == {"objects": []}


async def rows_of(ground: Ground, *, controlled: bool) -> list[Row]:
    (ring,) = await read_rings(ground.client, timeout_s=10)
    found: list[Row] = []
    async for rows in ring_rows(
        ground.client, Discovery(ground.client), ring, namespace="", controlled=controlled, timeout_s=10
    ):
        found += rows
    return found


async def test_more_objects_than_one_page_all_have_a_row(ground: Ground) -> None:
    await ground.ring()
    await ground.shard("a", duration_s=15)
    count = PAGE + 5
    body = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"page-{n}"}} for n in range(count)
    ]
    await ground.ring(resources=[{"resource": "configmaps"}])
    for begin in range(0, count, 50):
        await asyncio.gather(
            *(
                ground.client.create(CONFIGMAPS, each, namespace="default", type=bytes)
                for each in body[begin : begin + 50]
            )
        )
    names = [row.name for row in await rows_of(ground, controlled=False)]
    assert len(names) == len(set(names)) == count


async def test_what_is_controlled_has_the_key_of_its_root_and_what_nobody_controls_no_row(
    ground: Ground,
) -> None:
    await ground.ring(key="Owner", resources=[TREE])
    await ground.shard("a", duration_s=15)
    site = await ground.make(WEBSITES, "one")
    page = await ground.make(CONFIGMAPS, "page", above=(WEBSITES, site))
    await ground.make(SECRETS, "secret", above=(CONFIGMAPS, page))
    await ground.make(SECRETS, "loose")
    assert [row.name for row in await rows_of(ground, controlled=False)] == ["one"]
    found = {row.name: row.key for row in await rows_of(ground, controlled=True)}
    assert found == dict.fromkeys(("one", "page", "secret"), "example.com_default_one")


async def test_a_file_is_answered_line_by_line_and_what_is_wrong_named(
    ground: Ground, tmp_path: Path
) -> None:
    await some(ground)
    file = tmp_path / "objects"
    file.write_text("website/one\n# a remark\n\nblog\nwebsite/sites/three  # there\nwebsite/gone\nsecret/x\n")
    code, out, err = await run(ground, "-f", str(file), "-o", "csv")
    assert [row["name"] for row in csv.DictReader(io.StringIO(out))] == ["one", "three"]
    assert code == 2
    told = err.splitlines()
    assert "line 4: 'blog' does not name one object; write KIND/NAME" in told[0]
    assert "line 6: 'website/gone' websites.example.com/default/gone does not exist" in told[1]
    assert "line 7: 'secret/x' KIND: 'secrets' does not belong to any ring" in told[2]
    assert len(told) == 3
    code, out, _ = await run(ground, "-f", "-", "-o", "name", stdin="website/two\n")
    assert (code, out) == (0, f"{A}\n")


def test_manifests_are_read_and_a_broken_document_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(
        "apiVersion: example.com/v1\nkind: Website\nmetadata: {name: one, namespace: sites}\n"
        "---\na: [b\n---\nkind: Website\n---\n"
        "kind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: two}}\n"
    )
    found = read_targets(str(file))
    named = [(each.kind, each.namespace, each.name) for each in found if isinstance(each, Wanted)]
    assert named == [("Website.example.com/v1", "sites", "one"), ("Secret", "", "two")]
    broken = [each for each in found if isinstance(each, Broken)]
    assert [each.line for each in broken] == [5, 7]
    assert "is no YAML" in str(broken[0])
    assert "wants apiVersion, kind and metadata.name" in str(broken[1])


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "names no object"), (b"\xff\xfe", "is no text"), (b"# x\n", "names no object")],
)
def test_a_file_without_objects_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "objects"
    file.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_targets(str(file))
    with pytest.raises(InputError, match="cannot be read"):
        read_targets(str(tmp_path / "gone"))


ASKED = Asked(None, None, False, False, None, False, None)


@pytest.mark.parametrize(
    ("changes", "form", "words"),
    [
        ({}, "", "give one of KIND/NAME, -f FILE and --all"),
        ({"target": "a/b", "everything": True}, "", "is not the only question"),
        ({"target": "a/b"}, "csv", "is for many objects"),
        ({"target": "a/b", "controlled": True}, "", "goes with --all only"),
        ({"file": "x", "all_namespaces": True}, "", "goes with --all only"),
        ({"everything": True, "all_namespaces": True, "namespace": "x"}, "", "contradicts -A"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(changes: dict[str, Any], form: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        check(ASKED._replace(**changes), form)
