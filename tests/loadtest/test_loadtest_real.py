"""The load test on a real kube-apiserver: a whole run, and what its authorizer refuses."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from devcluster.real import BinariesMissing, ensure_binaries, kubernetes_recipe, real_plane
from devcluster.real.binaries import SERVERS
from kubeio.resource import Resource
from ringleader.testing.commands import WEBSITES, FleetSpec
from ringleader.testing.fleet import open_fleet

pytestmark = [pytest.mark.fleet, pytest.mark.real, pytest.mark.timeout(400)]
RBAC: Final = "rbac.authorization.k8s.io"
ROLES = Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = Resource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
RULES: list[dict[str, Any]] = [
    {"apiGroups": ["ringleader.dev"], "resources": ["controllerrings"], "verbs": ["list"]},
    {"apiGroups": ["example.com"], "resources": ["websites"], "verbs": ["list", "watch", "create"]},
]


@pytest.fixture(autouse=True)
def _servers() -> None:
    try:
        ensure_binaries(SERVERS, kubernetes_recipe())
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


async def loadtest(folder: Path, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "ringleader", "loadtest", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, said = await process.communicate()
    return process.returncode or 0, out.decode(), said.decode()


async def test_a_run_on_a_real_control_plane_reads_its_own_metrics_too(tmp_path: Path) -> None:
    slo = tmp_path / "slo.yaml"
    slo.write_text("assigned: 60s\nready: 60s\nfailures: 0.1%\noverlaps: 0\nforeignWrites: 0\nunowned: 0\n")
    arguments = ["--objects", "200", "--rate", "10", "--duration", "20s", "--slo", "slo.yaml", "-o", "json"]
    code, out, said = await loadtest(tmp_path, "join", "--plane", "real", *arguments)
    assert code == 0, said
    report = json.loads(out)
    assert report["api_server"]["PATCH"]["requests"] > 200
    assert report["api_server_codes"]["201"] > 10
    assert report["moved"] > 0


async def test_missing_rights_are_named_with_the_rule_before_anything_is_created(tmp_path: Path) -> None:
    async with (
        real_plane(tmp_path / "plane", controller_manager=False) as plane,
        open_fleet(plane, tmp_path / "fleet", spec=FleetSpec()) as fleet,
    ):
        await fleet.create_ring()
        role = {"metadata": {"name": "ada"}, "rules": RULES}
        reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "ada"}
        subject = {"apiGroup": RBAC, "kind": "User", "name": "ada"}
        await fleet.client.create(ROLES, role)
        binding = {"metadata": {"name": "ada"}, "roleRef": reference, "subjects": [subject]}
        await fleet.client.create(BINDINGS, binding)
        kubeconfig = await plane.kubeconfig_for("ada", admin=False)
        code, _, said = await loadtest(
            tmp_path, "steady", "--kubeconfig", str(kubeconfig), "-n", fleet.spec.namespace
        )
        assert code == 1
        assert said == (
            "error: ada may not patch, delete websites.example.com in namespace sites; this rule in a Role in"
            ' namespace sites bound to it grants that: {"apiGroups": ["example.com"], "resources":'
            ' ["websites"], "verbs": ["patch", "delete"]}\n'
        )
        assert await fleet.client.list_all(WEBSITES) == []
