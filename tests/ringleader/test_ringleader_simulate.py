"""`ringleader simulate`: members and changes as people write them, what moves, what it costs; nothing is written."""

from __future__ import annotations

import asyncio
import json
import os
import time
import tracemalloc
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeio.errors import InputError
from ring import HashRing
from ringleader.__main__ import main
from ringleader.cluster.ring import Ring, ring_of
from ringleader.inspect.simulate.change import apply_change, in_order, last_names, next_names, parse_members
from ringleader.inspect.simulate.command import duration, parse_rate, simulated, summary
from ringleader.inspect.simulate.object_keys import invented_keys, keys_of_file, parse_objects
from ringleader.inspect.simulate.simulation import Batch, Rate, Simulation, Tally, conclude
from ringleader.inspect.simulate.simulation_input import (
    InputFlags,
    Members,
    SimulationInput,
    chosen_ring,
    measured_rate,
)
from tests.ring.changes import changed, moved_keys
from tests.sharder.io.environment import CONFIGMAPS, KEYS, SECRETS, TREE, WEBSITES, SharderEnvironment
from tests.warm_python import warm_python

PODS = {"web-0": 1.0, "web-1": 1.0, "web-2": 1.0}


def outcome(
    before: dict[str, float], *words: str, batches: list[Batch], rate: Rate | None = None
) -> Simulation:
    change = apply_change(before, words)
    tally = Tally({"": HashRing(change.before)}, {"": HashRing(change.after)})
    for batch in batches:
        tally.add(batch)
    return conclude("websites", change, tally, rate=rate)


# ---- members and changes, as they are written -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("3", {"member-0": 1.0, "member-1": 1.0, "member-2": 1.0}),
        ("web-0", {"web-0": 1.0}),
        ("web-0, web-1=2,b=0.5", {"web-0": 1.0, "web-1": 2.0, "b": 0.5}),
    ],
)
def test_members_are_a_number_or_names_with_weights(text: str, members: dict[str, float]) -> None:
    assert parse_members(text) == members


@pytest.mark.parametrize(
    "text", ["0", "-3", "10001", "", "a,,b", "a,a", "a=x", "a=-1", "a=nan", "a=0", "+2", "a b"]
)
def test_members_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--members"):
        parse_members(text)


@pytest.mark.parametrize(
    ("words", "after"),
    [
        (["+2"], {**PODS, "web-3": 1, "web-4": 1}),
        (["-1"], {"web-0": 1, "web-1": 1}),
        (["+b"], {**PODS, "b": 1}),
        (["+b=3"], {**PODS, "b": 3}),
        (["-web-0"], {"web-1": 1, "web-2": 1}),
        (["web-1=2"], {**PODS, "web-1": 2}),
        (["web-1=0"], {**PODS, "web-1": 0}),
        (["-web-2,+2"], {"web-0": 1, "web-1": 1, "web-2": 1, "web-3": 1}),
        (["+1", "-web-0"], {"web-1": 1, "web-2": 1, "web-3": 1}),
    ],
)
def test_a_change_is_done_word_by_word(words: list[str], after: dict[str, float]) -> None:
    assert apply_change(PODS, words).after == after


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("+0", "changes nothing"),
        ("-3", "leaves none of 3 members"),
        ("-9", "leaves none of 3 members"),
        ("+99999", "too many"),
        ("+web-0", "already a member"),
        ("-web-9", "did you mean web-"),
        ("wbe-1=2", "did you mean web-1"),
        ("web-1", "does not say what is to change"),
        ("", "does not name a member"),
        ("-web-0=2", "gives a weight"),
        ("+b=0", "no place"),
        ("web-0=heavy", "no number"),
        ("web-0=0,web-1=0,web-2=0", "leaves no member"),
    ],
)
def test_a_change_that_cannot_be_is_refused(word: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        apply_change(PODS, [word])
    assert refused.value.field == "--change"


def test_newcomers_are_named_as_a_statefulset_names_its_pods() -> None:
    assert next_names(["web-0", "web-2"], 2) == ["web-3", "web-4"]
    assert next_names(["web-0", "web-1", "db"], 1) == ["web-2"]
    assert next_names(["web-7d9f-abcde", "web-7d9f-fghij"], 2) == ["new-1", "new-2"]
    assert next_names(["new-1"], 1) == ["new-2"]


def test_who_goes_first_is_the_highest_ordinal() -> None:
    assert last_names(["web-9", "web-10", "web-2"], 2) == ["web-10", "web-9"]
    assert last_names(["b", "c", "a"], 1) == ["c"]


@given(st.lists(st.text("ab-01290²", min_size=1)))
def test_any_names_can_be_put_in_order(names: list[str]) -> None:
    assert sorted(in_order(names)) == sorted(names)


def test_numbers_in_names_are_counted() -> None:
    assert in_order(["web-10", "web-9", "web-1"]) == ["web-1", "web-9", "web-10"]


# ---- what moves -------------------------------------------------------------------------------------------------


def test_flows_are_what_the_ring_itself_says() -> None:
    keys = [key for batch in invented_keys(5000) for key in batch.keys]
    old = HashRing(PODS)
    new = changed(old, {"web-3": 1, "web-0": 0})
    found = outcome(PODS, "+1", "-web-0", batches=list(invented_keys(5000)))
    expected = Counter(moved_keys(old, new, keys).values())
    assert {(flow.from_member, flow.to_member): flow.objects for flow in found.flows} == expected
    assert found.moved == expected.total()
    owners = Counter(new.owners(keys))
    assert {each.member: each.objects_after for each in found.members if each.objects_after} == owners
    assert all(each.objects_before - each.gives + each.gets == each.objects_after for each in found.members)
    assert sum(each.share_after for each in found.members) == pytest.approx(1)


def test_a_handoff_costs_two_writes_for_an_object_and_one_for_each_that_it_controls() -> None:
    batch = Batch([f"g_n_{i}" for i in range(300)], controlled=[2] * 300)
    found = outcome(PODS, "+1", batches=[batch])
    roots = found.moved - found.moved_controlled
    assert found.moved_controlled == 2 * roots > 0
    assert found.writes == 2 * roots + found.moved_controlled


def test_what_a_member_that_leaves_had_is_assigned_by_one_write_each() -> None:
    batch = Batch([f"g_n_{i}" for i in range(300)], controlled=[1] * 300)
    found = outcome(PODS, "-web-1", batches=[batch])
    taken = sum(flow.objects for flow in found.flows if flow.from_member == "web-1")
    handed = sum(flow.objects - flow.controlled for flow in found.flows if flow.from_member != "web-1")
    assert taken > 0
    assert found.writes == taken + 3 * handed


def test_a_cordoned_member_hands_over_what_it_has() -> None:
    found = outcome(PODS, "web-1=0", batches=list(invented_keys(300)))
    assert found.writes == 2 * found.moved > 0
    assert found.members_after == 2


def test_the_time_is_that_of_the_objects_that_are_handed_over_at_the_rate() -> None:
    batch = Batch([f"g_n_{i}" for i in range(300)], controlled=[2] * 300)
    found = outcome(PODS, "+1", batches=[batch], rate=Rate(10, "given"))
    assert found.seconds == (found.moved - found.moved_controlled) / 10
    assert outcome(PODS, "+1", batches=[batch]).seconds is None


def test_entries_of_the_cluster_are_objects_or_what_they_control() -> None:
    batch = Batch(["g_n_a", "g_n_a", "g_n_b"], roots=[1, 0, 1], controlled=[0, 1, 0])
    found = outcome({"a": 1.0}, "+b", "-a", batches=[batch])
    assert (found.objects, found.controlled, found.moved, found.moved_controlled) == (3, 1, 3, 1)


def test_without_objects_the_hash_space_is_told() -> None:
    found = outcome(PODS, "+1", batches=[Batch([])])
    assert found.moved == found.writes == 0
    assert 0.2 < found.moved_fraction < 0.3
    assert any("there are no objects" in line for line in summary(found))


def test_durations_are_for_people() -> None:
    assert [duration(s) for s in (0.44, 59.6, 200, 7500)] == ["0.4 s", "60 s", "3 min 20 s", "2 h 5 min"]


# ---- rates ------------------------------------------------------------------------------------------------------


def ring(**status: object) -> Ring:
    return ring_of({"metadata": {"name": "websites"}, "status": dict(status)})


def test_the_measured_rate_is_that_of_the_last_rebalance() -> None:
    told = {"time": "2026-11-21T10:00:00Z", "durationSeconds": 20.0, "moved": 1000}
    rate = measured_rate(ring(lastRebalance=told))
    assert rate is not None
    assert rate.objects_per_second == 50
    assert "2026-11-21T10:00:00Z" in rate.source


@pytest.mark.parametrize(
    "told", [None, {}, {"moved": 99, "durationSeconds": 1}, {"moved": 500, "durationSeconds": 0}]
)
def test_without_a_rebalance_worth_the_name_there_is_no_rate(told: object) -> None:
    assert measured_rate(ring(lastRebalance=told)) is None


@pytest.mark.parametrize("text", ["0", "-4", "fast", "nan", "inf", ""])
def test_a_rate_that_moves_nothing_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--rate"):
        parse_rate(text)


def test_a_ring_must_be_named_among_several() -> None:
    websites, shops = ring(), ring_of({"metadata": {"name": "shops"}})
    assert chosen_ring([websites], None) is websites
    with pytest.raises(InputError, match="several; name one of shops, websites"):
        chosen_ring([shops, websites], None)
    with pytest.raises(InputError, match="did you mean websites"):
        chosen_ring([shops, websites], "website")
    with pytest.raises(InputError, match="give --members and --objects"):
        chosen_ring([], None)


# ---- files of keys ----------------------------------------------------------------------------------------------


def test_broken_lines_of_a_file_are_named_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"# keys\n\ng_n_a\nnonsense\ng_n_b,2\n=acme\n_shop_\n__\ng_n_c,x\n\xff_n_d\ng_n_e f\n")
    told: list[str] = []
    (batch,) = keys_of_file(path, report=told.append)
    assert batch.keys == ["g_n_a", "g_n_b", "=acme", "_shop_"]
    assert batch.controlled == [0, 2, 0, 0]
    assert [line.split(":")[0] for line in told] == [f"keys, line {n}" for n in (4, 8, 9, 10, 11)]
    assert all("is left out" in line and "GROUP_NAMESPACE_NAME" in line for line in told)


def test_of_many_broken_lines_the_first_are_named_and_the_others_counted(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("g_n_a\n" + "broken\n" * 25)
    told: list[str] = []
    assert [batch.keys for batch in keys_of_file(path, report=told.append)] == [["g_n_a"]]
    assert len(told) == 11
    assert told[-1].startswith("keys: 15 more lines")


def test_a_file_without_any_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("broken\n")
    with pytest.raises(InputError, match="holds no key"):
        list(keys_of_file(path, report=lambda line: None))


@pytest.mark.parametrize("text", ["0", "-5", "999999999999", "no-such-file", "/"])
def test_objects_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--objects"):
        parse_objects(text)


# ---- the command ------------------------------------------------------------------------------------------------


def test_with_members_and_objects_given_it_needs_no_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    assert main(["simulate", "--members", "4", "--objects", "1000", "--change", "+2", "--rate", "100"]) == 0
    printed = capsys.readouterr().out
    assert "member-4 joins, member-5 joins" in printed
    assert "4 before, 6 after" in printed
    assert "at 100 objects per second (given)" in printed


def test_changes_may_begin_with_a_minus_and_be_given_several_times(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given_ = ["--members", "web-0,web-1,web-2", "--objects", "100", "-o", "json"]
    assert main(["simulate", "--change", "-1", "--change", "-web-0", "--change=+b=2", *given_]) == 0
    assert json.loads(capsys.readouterr().out)["change"] == [
        "web-2 leaves",
        "web-0 leaves",
        "b joins with weight 2",
    ]


def test_names_are_the_keys_that_move(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--members", "a,b", "--objects", "50", "--change", "+c", "-o", "name"]) == 0
    keys = [key for batch in invented_keys(50) for key in batch.keys]
    moved = moved_keys(HashRing(["a", "b"]), HashRing(["a", "b", "c"]), keys)
    assert capsys.readouterr().out.split() == list(moved)


def test_virtual_nodes_and_imbalance_are_the_ring_s_unless_given(capsys: pytest.CaptureFixture[str]) -> None:
    given_ = ["simulate", "--members", "3", "--objects", "10", "--change", "+1", "-o", "json"]
    assert main([*given_, "--virtual-nodes", "1", "--imbalance-percent", "100"]) == 0
    shares = [member["shareBefore"] for member in json.loads(capsys.readouterr().out)["members"]][:3]
    expected = HashRing([f"member-{i}" for i in range(3)], virtual_nodes=1, eps=1).shares()
    assert shares == [float(share) for share in expected.values()]
    assert main([*given_, "--virtual-nodes", "0"]) == 2
    assert "--virtual-nodes: 0" in capsys.readouterr().err


def test_a_million_keys_take_no_more_than_three_seconds() -> None:
    flags = InputFlags(members="100", objects="1000000")
    began = time.process_time()
    found = simulated(flags, change=["+1"])
    assert time.process_time() - began <= 3.0
    assert found.objects == 1_000_000
    assert 0.009 < found.moved / found.objects < 0.012


def test_memory_does_not_follow_the_number_of_objects() -> None:
    def peak(objects: int) -> int:
        tracemalloc.start()
        try:
            simulated(InputFlags(members="3", objects=str(objects)), change=["+1"])
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1000)  # what is imported and made once
    assert peak(160_000) - peak(40_000) < 500_000


# ---- on a control plane -----------------------------------------------------------------------------------------


async def ended(env: SharderEnvironment, *words: str) -> tuple[int, str, str]:
    """The command as a person starts it, under an account of its own."""
    kubeconfig = await env.plane.kubeconfig_for("ada")
    process = await asyncio.create_subprocess_exec(
        *(warm_python(), "-m", "ringleader", *words),
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


def writers(env: SharderEnvironment) -> Counter[str]:
    return Counter(write.user for write in env.plane.writes())


async def test_members_and_objects_are_the_cluster_s_and_nothing_is_written(env: SharderEnvironment) -> None:
    await env.ring(virtualNodes=50)
    await env.shard("a")
    await env.shard("b")
    for number in range(20):
        await env.page(await env.site(f"site-{number}"))
    code, out, err = await ended(env, "simulate", "--change", "+c", "-o", "json")
    assert code == 0, err
    found = json.loads(out)
    keys = [f"example.com_default_site-{number}" for number in range(20)]
    old = HashRing(["a", "b"], virtual_nodes=50)
    moved = moved_keys(old, old.with_member("c"), keys)
    assert (found["ring"], found["objects"], found["controlled"]) == ("websites", 40, 20)
    assert (found["moved"], found["movedControlled"]) == (2 * len(moved), len(moved))
    assert found["writes"] == 3 * len(moved) > 0
    assert found["rate"] is None
    assert writers(env)["ada"] == 0
    assert writers(env).total() > 40  # the write log has those of others


async def test_objects_of_namespaces_that_the_ring_does_not_select_are_left_out(
    env: SharderEnvironment,
) -> None:
    await env.namespace("chosen", {"team": "web"})
    await env.ring(namespaceSelector={"matchLabels": {"team": "web"}})
    await env.shard("a")
    await env.site("in", namespace="chosen")
    await env.site("out")
    await env.site("not-yet-released", labels={KEYS.shard: "a-00000001"})
    code, out, err = await ended(env, "simulate", "--change", "+c", "-o", "json")
    assert code == 0, err
    assert json.loads(out)["objects"] == 2


async def test_members_may_be_given_and_objects_be_the_cluster_s(env: SharderEnvironment) -> None:
    await env.ring()
    await env.sites(5)
    code, out, err = await ended(
        env, "simulate", "websites", "--members", "2", "--change", "+1", "-o", "json"
    )
    assert code == 0, err
    assert json.loads(out)["objects"] == 5
    code, _, err = await ended(env, "simulate", "--change", "+1")
    assert (code, err.count("\n")) == (2, 1)
    assert "websites" in err
    assert "has no member with a place" in err


@pytest.mark.parametrize("key", [{"key": "Owner"}, {"key": "Label", "keyLabel": "tenant"}])
async def test_what_is_controlled_moves_with_its_root(
    env: SharderEnvironment, key: dict[str, object]
) -> None:
    await env.ring(resources=[TREE], **key)
    await env.shard("a")
    for name in ("one", "two", "three"):
        site = await env.make(WEBSITES, name, labels={"tenant": "acme"})
        page = await env.make(CONFIGMAPS, name, above=(WEBSITES, site))
        await env.make(SECRETS, name, above=(CONFIGMAPS, page) if key["key"] == "Owner" else (WEBSITES, site))
    await env.make(CONFIGMAPS, "foreign")
    code, out, err = await ended(env, "simulate", "--change", "+b", "--change", "-a", "-o", "json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["moved"], found["movedControlled"]) == (9, 6)
    code, out, _ = await ended(env, "simulate", "--change", "+b", "--change", "-a", "-o", "name")
    acme = (
        {"=acme"} if key["key"] == "Label" else {f"example.com_default_{n}" for n in ("one", "two", "three")}
    )
    assert set(out.split()) == acme


# ---- main resources that different members work ---------------------------------------------------------------

TWO = {"websites": PODS, "databases": {"base-0": 1.0, "base-1": 1.0}}


async def _unread() -> AsyncGenerator[Batch, None]:
    yield Batch([])


def two_rings(*words: str, batches: list[Batch]) -> Simulation:
    """Three members work websites, two others databases; who joins works both."""
    known = {"web-0": "websites", "web-1": "websites", "web-2": "websites"}
    kinds = {name: frozenset({known.get(name, "databases")}) for each in TWO.values() for name in each}
    members = Members({**PODS, **TWO["databases"]}, list(TWO), kinds)
    env = SimulationInput("both", members, 1000, 0.05, None, _unread)
    change = apply_change(members.weights, words)
    tally = Tally(env.rings(change.before), env.rings(change.after))
    for batch in batches:
        tally.add(batch)
    return conclude("both", change, tally, rate=None)


def test_each_main_resource_moves_on_the_ring_of_those_that_work_it() -> None:
    keys = [key for batch in invented_keys(3000) for key in batch.keys]
    batches = [Batch(keys, main="websites"), Batch(keys[:600], main="databases")]
    found = two_rings("+both-0", batches=batches)
    expected: Counter[tuple[str, str]] = Counter()
    for kind, number in (("websites", 3000), ("databases", 600)):
        old = HashRing(TWO[kind])
        expected.update(moved_keys(old, old.with_member("both-0"), keys[:number]).values())
    assert {(flow.from_member, flow.to_member): flow.objects for flow in found.flows} == expected
    assert [(part.resources, part.members_before, part.members_after) for part in found.parts] == [
        (["websites"], 3, 4),
        (["databases"], 2, 3),
    ]
    assert sum(part.moved for part in found.parts) == found.moved == expected.total()
    assert (found.members_before, found.members_after) == (5, 6)
    assert sum(each.share_after for each in found.members) == pytest.approx(1)
    assert found.least_fraction == pytest.approx((3000 / 4 + 600 / 3) / 3600)
    assert "of 600 of databases (2 members before, 3 after)" in "\n".join(summary(found))


def test_main_resources_that_the_same_members_work_are_one_part() -> None:
    ring, bigger = HashRing(PODS), HashRing({**PODS, "web-3": 1})
    tally = Tally({"a": ring, "b": HashRing(PODS)}, {"a": bigger, "b": bigger})
    assert [part.mains for part in tally.parts] == [["a", "b"]]


MAINS = [
    {"group": "example.com", "resource": "websites"},
    {"group": "", "resource": "secrets"},
]


async def two_controllers(env: SharderEnvironment) -> None:
    """Two members work websites, one works secrets; ten objects of each."""
    await env.ring(resources=MAINS, virtualNodes=50)
    for member, works in (
        ("site-0", "websites.example.com"),
        ("site-1", "websites.example.com"),
        ("sum-0", "secrets"),
    ):
        await env.shard(member, works=works)
    await env.sites(10)
    for number in range(10):
        await env.make(SECRETS, f"secret-{number}")


async def test_a_ring_of_two_controllers_is_simulated(env: SharderEnvironment) -> None:
    await two_controllers(env)
    code, out, err = await ended(env, "simulate", "--change", "+both", "-o", "json")
    assert code == 0, err
    found = json.loads(out)
    old = HashRing(["site-0", "site-1"], virtual_nodes=50)
    sites = moved_keys(old, old.with_member("both"), [f"example.com_default_site-{n}" for n in range(10)])
    one = HashRing(["sum-0"], virtual_nodes=50)
    secrets = moved_keys(one, one.with_member("both"), [f"_default_secret-{n}" for n in range(10)])
    assert [(part["resources"], part["objects"], part["moved"]) for part in found["parts"]] == [
        (["websites.example.com"], 10, len(sites)),
        (["secrets"], 10, len(secrets)),
    ]
    assert found["leftOut"] == []


async def test_one_main_resource_is_chosen_with_its_members_and_objects(env: SharderEnvironment) -> None:
    await two_controllers(env)
    code, out, err = await ended(env, "simulate", "--resource", "websites", "--change", "+1", "-o", "json")
    assert code == 0, err
    found = json.loads(out)
    assert found["change"] == ["site-2 joins"]
    assert {each["member"] for each in found["members"]} == {"site-0", "site-1", "site-2"}
    assert (found["objects"], found["leftOut"]) == (10, ["secrets (not asked for)"])
    code, _, err = await ended(env, "simulate", "--resource", "pages", "--change", "+1")
    assert code == 2
    assert "is not a main resource of ring websites; name one of websites.example.com, secrets" in err


async def test_invented_objects_are_of_the_first_main_resource_and_that_is_told(
    env: SharderEnvironment,
) -> None:
    await two_controllers(env)
    code, out, err = await ended(env, "simulate", "--objects", "1000", "--change", "+1")
    assert code == 0, err
    assert "resource websites.example.com\n" in out
    assert "left out secrets (other members work it: --resource chooses)\n" in out
    assert "members  2 before, 3 after" in out


async def test_a_main_resource_that_nobody_works_is_left_out_and_one_is_not_emptied(
    env: SharderEnvironment,
) -> None:
    await env.ring(resources=MAINS)
    await env.shard("site-0", works="websites.example.com")
    await env.shard("site-1", works="websites.example.com")
    await env.sites(3)
    code, out, err = await ended(env, "simulate", "--change", "-site-1", "-o", "json")
    assert code == 0, err
    assert json.loads(out)["leftOut"] == ["secrets (no member works it)"]
    code, _, err = await ended(env, "simulate", "--resource", "secrets", "--change", "+1")
    assert code == 2
    assert "--resource: 'secrets' is worked by no member of ring websites" in err
    await env.shard("sum-0", works="secrets")
    code, _, err = await ended(env, "simulate", "--change", "-sum-0")
    assert code == 2
    assert "leaves no member that works secrets" in err
