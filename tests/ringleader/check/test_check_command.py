"""`ringleader check` as it is typed: forms of output, exit codes, what a server that goes away leaves."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

import yaml

from devcluster.embedded import EmbeddedPlane
from devcluster.faults import Fault
from tests.ringleader.check.environment import KEYS, WEBSITES, CheckEnvironment
from tests.sharder.io.environment import backdate
from tests.warm_python import warm_python

ACCOUNTS = ("--sharder-account", "system/sharder", "--shard-account", "sites/websites")


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


async def check(env: CheckEnvironment, *flags: str) -> Ended:
    process = await asyncio.create_subprocess_exec(
        *(warm_python(), "-P", "-m", "ringleader", "check", "--recheck-after", "1.2s", *flags),
        *("--kubeconfig", str(env.plane.kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return Ended(process.returncode or 0, out.decode(), err.decode())


async def test_a_healthy_plane_ends_with_0_and_a_line_for_every_check(env: CheckEnvironment) -> None:
    ended = await check(env, *ACCOUNTS)
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == "nothing is wrong: 20 of 21 checks of 1 ring; 1 could not be made"
    assert lines[2].split() == ["CHECK", "STATE", "FOUND"]
    assert [line.split("  ")[0] for line in lines[3:6]] == ["owners", "names", "members"]
    (rights,) = [line for line in lines[3:] if " OK " not in line]
    assert "not checked   this API server lets every account do everything" in rights
    assert "\x1b" not in ended.out, "colours, although nobody looks"


async def test_what_could_not_be_checked_is_no_failure_but_is_told(env: CheckEnvironment) -> None:
    ended = await check(env)
    assert ended.code == 0
    assert ended.out.startswith("nothing is wrong: 19 of 21 checks of 1 ring; 2 could not be made\n")
    (rights,) = [line for line in ended.out.splitlines() if line.startswith("rights ")]
    assert "not checked" in rights
    assert "name it: --shard-account NAMESPACE/NAME" in rights


async def test_something_wrong_ends_with_1_and_is_told_first_with_what_to_do(env: CheckEnvironment) -> None:
    await env.label("site-003", {KEYS.shard: "ghost-00000009"})
    ended = await check(env, *ACCOUNTS)
    assert ended.code == 1
    first, seen, do, *_ = ended.out.splitlines()
    assert first.startswith(
        "error: website/site-003 -n sites is not reconciled: its label names ghost-00000009, but Lease"
    )
    assert seen == "  evidence  ring websites: 1 of 12 websites.example.com name ghost-00000009"
    assert do.startswith("  do        ")


async def test_a_warning_ends_with_1_too(env: CheckEnvironment) -> None:
    await env.join("three-00000003", skew_s=300)
    ended = await check(env, *ACCOUNTS)
    assert (ended.code, ended.out.partition(":")[0]) == (1, "warning")


async def test_errors_come_before_warnings(env: CheckEnvironment) -> None:
    await env.join("three-00000003", skew_s=300)
    await env.label("site-003", {KEYS.shard: "ghost-00000009"})
    told = [line for line in (await check(env, *ACCOUNTS)).out.splitlines() if ": " in line[:9]]
    assert [line.partition(":")[0] for line in told] == ["error", "warning"]


async def test_the_documents_say_the_same(env: CheckEnvironment) -> None:
    await env.label("site-003", {KEYS.shard: "ghost-00000009"})
    await backdate(env.client, WEBSITES, "site-003", namespace="sites")
    as_json, as_yaml, names = [await check(env, *ACCOUNTS, "-o", form) for form in ("json", "yaml", "name")]
    assert [ended.code for ended in (as_json, as_yaml, names)] == [1, 1, 1]
    report = json.loads(as_json.out)
    assert report == yaml.safe_load(as_yaml.out)
    assert (report["level"], report["rings"]) == ("error", ["websites"])
    first = report["findings"][0]
    assert (first["level"], first["check"], first["ring"]) == ("error", "names", "websites")
    assert first["object"] == "website/site-003 -n sites"
    assert first["evidence"]
    assert first["remedy"]
    assert names.out == "website/site-003 -n sites\n"


async def test_wide_says_what_each_check_looks_for(env: CheckEnvironment) -> None:
    ended = await check(env, *ACCOUNTS, "-o", "wide")
    assert "LOOKS FOR" in ended.out
    assert "objects without a living owner" in ended.out


async def test_a_server_that_goes_away_meanwhile_is_one_line(env: CheckEnvironment) -> None:
    assert isinstance(env.plane, EmbeddedPlane)
    await env.plane.faults.add(Fault(what="lose_answer", verb="get", resource="websites.example.com"))
    await env.label("site-003", {KEYS.shard: "ghost-00000009"})
    ended = await check(env, *ACCOUNTS)
    assert ended.code == 1
    assert len(ended.err.splitlines()) == 1, ended.err
    assert "no answer" in ended.err
    assert "Traceback" not in ended.err


async def test_a_failing_list_leaves_a_gap_and_the_rest_is_judged(env: CheckEnvironment) -> None:
    assert isinstance(env.plane, EmbeddedPlane)
    await env.plane.faults.add(Fault(what="error", verb="list", resource="configmaps", code=500))
    await env.label("site-003", {KEYS.shard: "ghost-00000009"})
    ended = await check(env, *ACCOUNTS)
    assert ended.code == 1
    assert ended.out.startswith("error: website/site-003 -n sites is not reconciled: its label names ghost")
    (owners,) = [line for line in ended.out.splitlines() if line.startswith("owners ")]
    assert "not checked" in owners
    assert "configmaps" in owners
