"""`ringleader fence RING`: prints the policies of one ring, for `kubectl apply`."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kubeio.errors import InputError, NotFound
from kubeio.labels import is_dns_subdomain
from kubeio.shard.ring import RingView, read_ring, ring_from_file
from ringleader.fence.documents import Identity, fence_documents
from ringleader.options import ConnectionOptions, connected

if TYPE_CHECKING:
    from kubeio.rest.client import Client

_POLICIES: Final = "/apis/admissionregistration.k8s.io/v1"


class _Named(msgspec.Struct):
    name: str


class _ResourceList(msgspec.Struct):
    resources: list[_Named] = []


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


def run_fence(
    where: ConnectionOptions,
    name: str,
    *,
    ring_file: Path | None,
    identity: Identity,
    accounts: Sequence[str],
) -> int:
    """The command. With *ring_file* no server is asked."""
    usernames = [username_of(account) for account in accounts]
    if identity is Identity.POD and not usernames:
        raise InputError(
            "--account",
            None,
            "is needed with --identity pod: tokens of the sharder and of others name pods, too",
            "name the ServiceAccount of the ring's shards, NAMESPACE/NAME",
        )
    if identity is Identity.LIFE and usernames:
        raise InputError(
            "--account", accounts[0], "is for --identity pod", "leave it out: a life is named by the request"
        )
    view = (
        ring_from_file(ring_file, name)
        if ring_file
        else connected(where, lambda client, _: _read(client, name))
    )
    text = fence_documents(view.keys, view.spec.resources, identity=identity, accounts=usernames)
    sys.stdout.write(text)
    return 0


def username_of(account: str) -> str:
    """The username of the ServiceAccount *account*, `NAMESPACE/NAME`. Raises: InputError."""
    namespace, _, name = account.partition("/")
    if not (is_dns_subdomain(namespace) and is_dns_subdomain(name)):
        raise InputError("--account", account, "is no ServiceAccount", "write NAMESPACE/NAME")
    return f"system:serviceaccount:{namespace}:{name}"


async def _read(client: Client, name: str) -> RingView:
    await require_policies(client)
    return await read_ring(client, name)


async def require_policies(client: Client) -> None:
    """Raises: InputError unless the server has ValidatingAdmissionPolicies."""
    try:
        answer = await client.request("GET", _POLICIES)
        served = {each.name for each in msgspec.json.decode(answer.body, type=_ResourceList).resources}
    except NotFound:
        served = set()
    if "validatingadmissionpolicies" in served:
        return
    version = msgspec.json.decode((await client.request("GET", "/version")).body, type=_Version).git_version
    found = re.match(r"v\d+\.\d+[^ ]*", version)
    raise InputError(
        "server",
        found.group() if found else version,
        "has no ValidatingAdmissionPolicy, of which the fence is made",
        "use Kubernetes 1.30 or newer; until then the tests in the patches of native shards are the fence",
    )
