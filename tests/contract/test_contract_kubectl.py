"""Contract: kubectl works: what people type first against a control plane."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import yaml

from devcluster.plane import ControlPlane
from devcluster.real import BinariesMissing, kubernetes_recipe
from devcluster.real.binaries import find_binaries
from tests.contract.api import Api
from tests.contract.definitions import site

pytestmark = pytest.mark.asyncio(loop_scope="session")

Kubectl = Callable[..., Awaitable[str]]


def find_kubectl() -> str:
    if path := shutil.which("kubectl"):
        return path
    return str(find_binaries(["kubectl"], kubernetes_recipe())["kubectl"])


@pytest.fixture
def kubectl(plane: ControlPlane, api: Api, namespace: str, tmp_path: Path) -> Kubectl:
    """Runs kubectl in a fresh namespace; gives its output, fails with its complaint."""
    try:
        program = find_kubectl()
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")

    async def run(*arguments: str, stdin: object = None) -> str:
        flags = ["--kubeconfig", str(plane.kubeconfig), "--namespace", namespace]
        process = await asyncio.create_subprocess_exec(
            program,
            *flags,
            f"--cache-dir={tmp_path}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        fed = None if stdin is None else yaml.safe_dump(stdin).encode()
        out, err = await asyncio.wait_for(process.communicate(fed), 60)
        assert process.returncode == 0, f"kubectl {' '.join(arguments)}: {err.decode()}"
        return out.decode()

    return run


async def test_objects_come_change_and_go(kubectl: Kubectl) -> None:
    assert await kubectl("create", "-f", "-", stdin=site("a")) == "website.example.com/a created\n"
    table = (await kubectl("get", "websites")).splitlines()
    assert table[0].split() == ["NAME", "HTML", "AGE"]
    assert table[1].startswith("a ")
    assert await kubectl("get", "site/a", "-o", "jsonpath={.spec.theme}") == "plain"
    assert await kubectl("label", "website", "a", "x=1") == "website.example.com/a labeled\n"
    assert await kubectl("get", "site", "-l", "x=1", "-o", "name") == "website.example.com/a\n"
    assert "patched" in await kubectl(
        "patch", "site/a", "--type=merge", "-p", json.dumps({"spec": {"html": "new"}})
    )
    assert "patched" in await kubectl(
        "patch", "site/a", "--subresource=status", "--type=merge", "-p", '{"status":{"message":"fine"}}'
    )
    assert await kubectl("get", "site/a", "-o", "jsonpath={.spec.html} {.status.message}") == "new fine"
    deleted = await kubectl("delete", "site/a", "--timeout=20s")
    assert deleted.startswith('website.example.com "a" deleted')
    assert await kubectl("get", "websites") == ""


async def test_apply_is_idempotent_and_changes_what_is_changed(kubectl: Kubectl) -> None:
    assert "created" in await kubectl("apply", "-f", "-", stdin=site("a"))
    assert "unchanged" in await kubectl("apply", "-f", "-", stdin=site("a"))
    assert "configured" in await kubectl("apply", "-f", "-", stdin=site("a", replicas=3))
    assert await kubectl("get", "site/a", "-o", "jsonpath={.spec.replicas}") == "3"


async def test_core_resources_have_their_tables(kubectl: Kubectl, namespace: str) -> None:
    await kubectl("create", "configmap", "c", "--from-literal=k=v", "--from-literal=l=w")
    await kubectl("create", "secret", "generic", "s", "--from-literal=k=v")
    assert (await kubectl("get", "cm", "c", "--no-headers")).split()[:2] == ["c", "2"]
    assert (await kubectl("get", "secret", "s", "--no-headers")).split()[:3] == ["s", "Opaque", "1"]
    assert (await kubectl("get", "ns", namespace, "--no-headers")).split()[:2] == [namespace, "Active"]
    assert await kubectl("get", "leases") == ""


async def test_wait_sees_what_a_controller_reports(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=site("a"))
    waiting = asyncio.ensure_future(
        kubectl("wait", "site/a", "--for=jsonpath={.status.message}=done", "--timeout=20s")
    )
    await asyncio.sleep(0.3)
    await kubectl(
        "patch", "site/a", "--subresource=status", "--type=merge", "-p", '{"status":{"message":"done"}}'
    )
    assert "condition met" in await waiting


async def test_resources_are_listed_with_short_names_and_scope(kubectl: Kubectl) -> None:
    lines = (await kubectl("api-resources", "--api-group=example.com", "--no-headers")).splitlines()
    found = {line.split()[0]: line.split()[1:] for line in lines}
    assert found["websites"] == ["site", "example.com/v1", "true", "Website"]
    assert found["gadgets"] == ["example.com/v1", "false", "Gadget"]


async def test_refusal_of_the_schema_reaches_the_person(kubectl: Kubectl) -> None:
    with pytest.raises(AssertionError, match=r"spec\.theme: Unsupported value: \"red\""):
        await kubectl("create", "--validate=false", "-f", "-", stdin=site("a", theme="red"))


async def test_event_written_in_one_group_is_read_in_the_other(
    kubectl: Kubectl, api: Api, namespace: str
) -> None:
    event = {
        "metadata": {"name": "e1"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "ringleader.dev/sharder",
        "reportingInstance": "sharder-0",
        "action": "Assign",
        "reason": "Assigned",
        "type": "Normal",
        "note": "assigned to s1",
        "regarding": {"kind": "Website", "namespace": namespace, "name": "a"},
    }
    (await api.post(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", event)).check(201)
    core = (await api.get(f"/api/v1/namespaces/{namespace}/events/e1")).check(200).body
    assert (core["message"], core["involvedObject"]["name"]) == ("assigned to s1", "a")
    assert core["reason"] == "Assigned"
    assert "assigned to s1" in await kubectl("get", "events")
