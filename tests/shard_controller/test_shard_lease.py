"""Names that live once: fresh names, take-over of a released Lease, quick succession."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from kubeio.errors import InputError
from kubeio.models import Lease, LeaseSpec, Meta
from kubeio.protocol import RingKeys, is_shard_name
from kubeio.shard import process_proof
from kubeio.shard.lease_acquisition import LeaseTemplate, check_lease_member, fresh_name
from kubeio.shard.process_proof import (
    MARK,
    Identity,
    LinuxProcesses,
    decode,
    proves_end,
    this_pod,
    this_process,
)
from tests.shard_controller.objects import Processes

KEYS = RingKeys("websites")
ME = Identity("boot-1", "ns-1", 200, 5000)
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


OLD = Identity("boot-1", "ns-1", 100, 4000)


def ended(old: Identity = OLD, *, mine: Identity = ME, **processes: Any) -> bool:
    return proves_end(old, shard="x", mine=mine, processes=Processes(**processes))


def template(**changes: Any) -> LeaseTemplate:
    named = {"keys": KEYS, "member": "web-0", "duration_s": 15, "hold": True, "identity": ME, **changes}
    return LeaseTemplate(**named)


def lease(holder: str = "web-0-0000000a", *, marks: dict[str, str] | None = None) -> Lease:
    annotations = {**template().annotations(), **(marks or {})}
    return Lease(
        metadata=Meta(name="web-0-0000000a", namespace="ns", annotations=annotations),
        spec=LeaseSpec(holder_identity=holder, lease_duration_seconds=15),
    )


@settings(deadline=None)
@given(st.from_regex(r"\A[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?){0,3}\Z"))
def test_a_fresh_name_is_a_lease_name_and_a_label_value(member: str) -> None:
    name = fresh_name(check_lease_member(member), random.Random(1))
    assert is_shard_name(name)
    assert not any(part.startswith("-") or part.endswith("-") for part in name.split("."))
    assert len(name) <= 63


@pytest.mark.parametrize("member", ["a", "web-0", "m" * 54, "m" * 253])
def test_a_name_can_be_of_one_length_for_every_member(member: str) -> None:
    name = fresh_name(member, random.Random(1), length=63)
    assert len(name) == 63
    assert name.startswith(f"{member[:54]}-")
    assert name[-8:] == fresh_name(member, random.Random(1))[-8:]


@pytest.mark.parametrize("member", ["", "Web", "-a", "a-", "a_b", "a.-b", "ä", "x" * 254])
def test_a_member_that_no_lease_can_be_named_after_is_refused(member: str) -> None:
    with pytest.raises(InputError, match="--member"):
        check_lease_member(member)


def test_every_life_has_another_name() -> None:
    rng = random.Random(7)
    assert len({fresh_name("web-0", rng) for _ in range(1000)}) == 1000


@pytest.mark.parametrize(
    ("changes", "key", "says"),
    [
        ({"field_manager": "publisher"}, KEYS.field_manager, "publisher"),
        ({"pod": "shop/shop-abc-1"}, KEYS.pod, "shop/shop-abc-1"),
        (
            {"resources": ("websites.example.com", "configmaps")},
            KEYS.resources,
            "configmaps,websites.example.com",
        ),
    ],
)
def test_a_lease_says_as_whom_and_where_its_shard_runs_and_what_it_watches(
    changes: dict[str, Any], key: str, says: str
) -> None:
    assert key not in template().annotations()
    assert template(**changes).annotations()[key] == says
    assert template().annotations()[KEYS.duration] == "15"


def test_the_pod_is_named_by_its_namespace_and_its_member_or_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    monkeypatch.delenv("POD_NAME", raising=False)
    assert this_pod("web-0") == ""
    monkeypatch.setenv("POD_NAMESPACE", "shop")
    assert this_pod("web-0") == "shop/web-0"
    monkeypatch.setenv("POD_NAME", "shop-abc-1")
    assert this_pod("web-0") == "shop/shop-abc-1"


def test_only_a_lease_that_its_own_holder_released_is_worn_again() -> None:
    assert template().is_free(lease(""))
    for other in (
        lease("web-0-0000000a"),
        lease("sharder-1"),
        lease("", marks={KEYS.contested: "true"}),
        lease("", marks={KEYS.released_by: "web-0-0000000b"}),
    ):
        assert not template().is_free(other)
    assert not template(member="web-1").is_free(lease(""))


def test_a_name_of_another_length_is_not_worn_again() -> None:
    assert template(name_length=14).is_free(lease(""))
    assert not template(name_length=63).is_free(lease(""))


def test_another_pid_namespace_of_the_same_container_proves_the_end() -> None:
    old = Identity("boot-0", "ns-0", 1, 10, pod="uid-1/main")
    assert ended(old, mine=Identity("boot-1", "ns-1", 1, 10, pod="uid-1/main"), has_children=True)
    assert not ended(old, mine=Identity("boot-1", "ns-1", 1, 10, "uid-2/main"))
    assert not ended(old, mine=Identity("boot-1", "ns-0", 1, 10, "uid-1/main"))


def test_two_containers_of_one_pod_prove_nothing_of_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_UID", "uid-1")
    monkeypatch.delenv("CONTAINER_NAME", raising=False)
    assert this_process().pod == ""
    monkeypatch.setenv("CONTAINER_NAME", "main")
    assert this_process().pod == "uid-1/main"


@pytest.mark.parametrize("unknown", ["old", "mine", "both"])
def test_a_pid_namespace_that_is_not_known_proves_nothing(unknown: str) -> None:
    old = Identity("boot-1", "" if unknown != "mine" else "ns-0", 100, 4000, pod="uid-1/main")
    mine = Identity("boot-1", "" if unknown != "old" else "ns-1", 200, 5000, pod="uid-1/main")
    assert not ended(old, mine=mine)


@pytest.mark.parametrize(
    ("options", "hides"),
    [
        ("rw,nosuid", False),
        ("rw,hidepid=0", False),
        ("rw,hidepid=off", False),
        ("rw,hidepid=1", True),
        ("rw,hidepid=2,gid=4", True),
        ("rw,hidepid=invisible", True),
        ("rw,hidepid=ptraceable", True),
    ],
)
def test_the_mount_of_proc_says_whether_processes_are_hidden(
    options: str, hides: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "self").mkdir()
    mounts = (
        f"proc /proc proc rw 0 0\nproc {tmp_path} proc {options} 0 0\nsysfs /sys sysfs rw,hidepid=2 0 0\n"
    )
    (tmp_path / "self" / "mounts").write_text(mounts)
    monkeypatch.setattr(process_proof, "PROC", tmp_path)
    assert LinuxProcesses().hides_some() is hides


def test_a_proc_that_cannot_be_judged_proves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process_proof, "PROC", tmp_path)
    assert LinuxProcesses().hides_some()


def test_a_missing_process_of_the_same_boot_proves_the_end_unless_it_left_children() -> None:
    assert ended()
    assert not ended(has_children=True)
    assert not ended(running=(100, 4000))
    assert not ended(hides=True), "what is not shown may run"
    assert not ended(mine=Identity("boot-2", "ns-1", 200, 1))


def test_a_lease_that_the_sharder_holds_is_never_released_for_anyone() -> None:
    assert template().is_provably_dead(lease(), Processes())
    assert not template().is_provably_dead(lease("sharder-1"), Processes())
    assert not template().is_provably_dead(lease(""), Processes())


def test_the_annotation_of_a_process_can_be_read_back() -> None:
    assert decode(ME.encode(), pod="") == ME
    assert decode("something else", pod="") is None


@linux_only
def test_a_running_process_is_seen_and_a_zombie_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
    table = LinuxProcesses()
    assert table.is_running(child.pid, started)
    assert not table.is_running(child.pid, started + 1)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, not reaped
    assert not table.is_running(child.pid, started)
    child.wait()
    assert child.stdin is not None
    child.stdin.close()


@linux_only
def test_a_child_that_outlives_its_shard_is_found_by_its_environment() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={**os.environ, MARK: "web-0-feedbeef"}
    )
    assert LinuxProcesses().has_children_of("web-0-feedbeef")
    assert child.stdin is not None
    child.communicate(b"\n")
    assert not LinuxProcesses().has_children_of("web-0-feedbeef")


@linux_only
def test_this_process_knows_itself() -> None:
    me = this_process()
    assert me.pid == os.getpid()
    assert LinuxProcesses().is_running(me.pid, me.started)


@pytest.mark.parametrize(("duration_s", "most_s", "found"), [(15, 60, 15.0), (30, 60, 30.0), (60, 60, 30.0)])
def test_a_process_works_no_longer_than_half_of_what_a_contest_waits(
    duration_s: int, most_s: float, found: float
) -> None:
    """Nothing may run when the contest is over, and what does not heed its end runs for two durations."""
    assert template(duration_s=duration_s, max_duration_s=most_s).validity_s == found
