"""Snapshots of etcd: saved from a running one, restored into the folder of one that does not run.

Owns the order to etcd and to etcdutl; `RealPlane` ends and starts the servers around a restore.
"""

from __future__ import annotations

import base64
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import msgspec

from devcluster.children import PlaneFailed
from devcluster.real.binaries import find_binaries
from devcluster.real.recipes import etcdutl_recipe

BUMP: Final = 1_000_000_000
"""Revisions that a restore skips, as in docs/operate.md: more than any history since the snapshot has."""
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of etcd at *revision*, in a file of etcd's own format."""

    path: Path
    revision: int


class _Part(msgspec.Struct):
    blob: str = ""


class _Line(msgspec.Struct):
    result: _Part


class _Status(msgspec.Struct):
    revision: int


async def save_snapshot(etcd_url: str, path: Path) -> Snapshot:
    """The state of the etcd at *etcd_url*, saved to *path*. Raises: BinariesMissing, PlaneFailed."""
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    async with (
        aiohttp.ClientSession(timeout=timeout, read_bufsize=1 << 26) as session,
        session.post(f"{etcd_url}/v3/maintenance/snapshot", json={}) as answer,
    ):
        answer.raise_for_status()
        with path.open("wb") as file:
            async for line in answer.content:
                file.write(base64.b64decode(msgspec.json.decode(line, type=_Line).result.blob))
    status = _etcdutl("snapshot", "status", str(path), "--write-out=json")
    return Snapshot(path, msgspec.json.decode(status, type=_Status).revision)


def restore_snapshot(snapshot: Snapshot, data: Path) -> None:
    """Restore *snapshot* into the new folder *data*, as the runbook says. Raises: BinariesMissing, PlaneFailed."""
    raised = ("--bump-revision", str(BUMP), "--mark-compacted")
    _etcdutl("snapshot", "restore", str(snapshot.path), f"--data-dir={data}", *raised)


def _etcdutl(*arguments: str) -> bytes:
    binary = find_binaries(["etcdutl"], etcdutl_recipe())["etcdutl"]
    done = subprocess.run([binary, *arguments], capture_output=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise PlaneFailed(f"etcdutl {' '.join(arguments[:2])} failed: {done.stderr.decode().strip()}")
    return done.stdout
