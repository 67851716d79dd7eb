"""A real API server that serves no ValidatingAdmissionPolicy and enforces none, as those before Kubernetes 1.30."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from devcluster.real import BinariesMissing, real_plane
from kubeio.access.cluster import load_cluster
from kubeio.fence import FenceProbe
from kubeio.rest.client import Client
from kubeio.rest.impersonation import read_own_account
from kubeio.shard.fence_wait import problem_of
from ringleader.testing.client import IndependentClient
from tests.fence.fenced import CONFIGMAPS, KEYS, RING, SITES, WEBSITES, prepare, website

pytestmark = pytest.mark.real

_SERVED = "admissionregistration.k8s.io/v1"
WITHOUT_POLICIES = (
    "--disable-admission-plugins=ValidatingAdmissionPolicy,MutatingAdmissionPolicy",
    "--runtime-config="
    f"{_SERVED}/validatingadmissionpolicies=false,{_SERVED}/validatingadmissionpolicybindings=false",
)


async def test_the_fence_is_refused_and_a_shard_that_wants_it_is_open(tmp_path: Path) -> None:
    try:
        async with real_plane(tmp_path, controller_manager=False, apiserver_flags=WITHOUT_POLICIES) as plane:
            async with IndependentClient(plane.kubeconfig) as admin:
                await prepare(admin)
                await admin.create(WEBSITES, website("first"), namespace=SITES)
            async with Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client:
                probe = FenceProbe(KEYS, await read_own_account(client), namespaces=[SITES])
                problem = problem_of(await probe.judge(client, [WEBSITES, CONFIGMAPS]), RING)
            assert problem.startswith(f"ringleader-fence-{RING}"), problem
            assert "lets a write of a foreign life pass" in problem
            code, out, err = await fence(plane.kubeconfig)
            assert (code, out) == (2, "")
            assert "use Kubernetes 1.30 or newer" in err
            assert "Traceback" not in err
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")


async def fence(kubeconfig: Path) -> tuple[int | None, str, str]:
    """What `ringleader fence` ends with and prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "ringleader", "fence", RING, "--kubeconfig", str(kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, out.decode(), err.decode()
