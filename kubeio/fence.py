"""Probe of a ring's fence: is a write under a foreign life refused by its policies? (docs/adr/0051)

Owns the probe and the names of the policies. Every write of it is a dry run. Decides nothing about who waits for it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import ipaddress
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from kubeio.access.cluster import Cluster
from kubeio.errors import ApiError, Forbidden, Invalid, NotFound
from kubeio.models import Meta
from kubeio.patch import MergePatch
from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource
from kubeio.rest.client import Client
from kubeio.rest.impersonation import acting_as, read_own_account
from kubeio.rest.reviews import User

POLICIES: Final = ApiResource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
BINDINGS: Final = ApiResource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
_DRY_RUN: Final = {"dryRun": "All"}
_NOBODY: Final = "fence-probe"
"""No shard's name: lives end with eight hex digits."""
_LOOKS: Final = 3
"""Objects that are probed in a row while each is deleted meanwhile."""


def policies_of(ring: str) -> tuple[str, str]:
    """Names of the policies, and of their bindings: about objects with the ring's label, about those without."""
    return f"ringleader-fence-{ring}", f"ringleader-unlabelled-{ring}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one policy does about one kind. *reason* says why it is not `fenced`."""

    kind: str
    policy: str
    found: Literal["fenced", "open", "unknown"]
    reason: str = ""


class MissingRight(Exception):
    """The account may not impersonate itself with a life: no request can name one."""

    def __init__(self, account: str, extra: str, message: str) -> None:
        self.account = account
        self.extra = extra
        super().__init__(f"{account} may not impersonate itself with userextras/{extra}: {message}")


async def each_server(cluster: Cluster) -> list[Cluster]:
    """*cluster* once for each address that its server's name has: more API servers cannot be told apart.

    Raises: OSError if the name has none.
    """
    endpoint = cluster.endpoint
    if cluster.proxy is not None or _is_address(endpoint.host):
        return [cluster]
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(address[4][0]) for address in found))
    if len(addresses) < 2:
        return [cluster]
    trust = dataclasses.replace(cluster.trust, server_name=cluster.trust.server_name or endpoint.host)
    return [
        dataclasses.replace(
            cluster,
            server=f"{cluster.server} at {address}",
            endpoint=dataclasses.replace(endpoint, host=address),
            trust=trust,
        )
        for address in addresses
    ]


class FenceProbe:
    """Probes the fence of the ring of *keys*, as *account*, the one that the clients act as."""

    def __init__(self, keys: RingKeys, account: User, *, namespaces: Sequence[str] = ()) -> None:
        self._keys = keys
        self._account = account
        self._namespaces = tuple(namespaces)
        self._names = policies_of(keys.ring)

    async def check_rights(self, client: Client) -> None:
        """Raises: MissingRight unless requests of *client* can name a life, KubeError."""
        extra = self._keys.life_extra
        try:
            user = await read_own_account(acting_as(self._account, client, extra=extra, value=_NOBODY))
        except Forbidden as error:
            raise MissingRight(self._account.username, extra, error.message) from error
        if user.extra.get(extra) != [_NOBODY]:
            raise MissingRight(self._account.username, extra, "the headers do not reach the API server")

    async def judge(self, client: Client, kinds: Iterable[ApiResource]) -> list[Verdict]:
        """A verdict for each of *kinds* and policies, by the server of *client*. Raises: KubeError without an answer.

        A kind without objects whose minimal object is no valid one cannot be probed: of that, what the policies say
        themselves counts, where the account may read them.
        """
        stranger = acting_as(self._account, client, extra=self._keys.life_extra, value=_NOBODY)
        labelled, bare = self._names
        verdicts = []
        for kind in kinds:
            for policy, selector in ((labelled, self._keys.shard), (bare, f"!{self._keys.shard}")):
                verdicts.append(await self._attempt(client, stranger, kind, policy=policy, selector=selector))
        if all(verdict.found != "unknown" for verdict in verdicts):
            return verdicts
        read = {policy: await self._kinds_of(client, policy) for policy in self._names}
        return [
            _by_reading(each, read[each.policy]) if each.found == "unknown" else each for each in verdicts
        ]

    async def _attempt(
        self, client: Client, stranger: Client, kind: ApiResource, *, policy: str, selector: str
    ) -> Verdict:
        """Whether *policy* refuses a write of *stranger* to an object of *kind* that *selector* selects."""
        name = kind.group_resource
        try:
            for _ in range(_LOOKS):
                found = await self._any_object(client, kind, selector)
                try:
                    if found is not None:
                        await self._patch(stranger, kind, found)
                    elif selector == self._keys.shard:
                        await self._create(stranger, kind)
                    else:
                        return Verdict(name, policy, "unknown", "no object is without the label")
                except NotFound:
                    continue
                return Verdict(name, policy, "open", f"{policy} lets a write of a foreign life pass")
        except Invalid as error:
            if f"'{policy}'" in error.message:
                return Verdict(name, policy, "fenced")
            return Verdict(name, policy, "unknown", error.message)
        except ApiError as error:
            return Verdict(name, policy, "unknown", error.message)
        return Verdict(name, policy, "unknown", "its objects are deleted while they are probed")

    async def _any_object(self, client: Client, kind: ApiResource, selector: str) -> Meta | None:
        for namespace in (self._namespaces if kind.namespaced else ()) or ("",):
            page = await client.list_page(
                kind, namespace=namespace, label_selector=selector, limit=1, metadata_only=True
            )
            if page.objects:
                return page.objects[0].meta
        return None

    async def _patch(self, stranger: Client, kind: ApiResource, found: Meta) -> None:
        await stranger.request(
            "PATCH",
            kind.path(namespace=found.namespace, name=found.name),
            query=_DRY_RUN,
            body=b"{}",
            content_type=MergePatch.content_type,
        )

    async def _create(self, stranger: Client, kind: ApiResource) -> None:
        """A create under another name than the life that the request names."""
        name = "ringleader-fence-probe"
        obj = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "labels": {self._keys.shard: name}},
        }
        namespace = (*self._namespaces, stranger.cluster.namespace)[0] if kind.namespaced else ""
        path = kind.path(namespace=namespace)
        await stranger.request("POST", path, query=_DRY_RUN, body=msgspec.json.encode(obj))

    async def _kinds_of(self, client: Client, name: str) -> set[str] | None:
        """Kinds that the policy *name* names, if it is bound and refuses; None if that cannot be read."""
        try:
            policy = await client.get(POLICIES, name, type=dict[str, Any])
            binding = await client.get(BINDINGS, name, type=dict[str, Any])
        except Forbidden:
            return None
        except NotFound:
            return set()
        if "Deny" not in (binding["spec"].get("validationActions") or ()):
            return set()
        return {
            f"{plural}.{group}" if group else plural
            for rule in (policy["spec"].get("matchConstraints") or {}).get("resourceRules") or ()
            for group in rule.get("apiGroups") or ()
            for plural in rule.get("resources") or ()
        }


def _by_reading(verdict: Verdict, kinds: set[str] | None) -> Verdict:
    """*verdict*, unknown so far, by the *kinds* that its policy names; None: it cannot be read."""
    if kinds is None:
        return verdict
    if verdict.kind in kinds:
        return Verdict(verdict.kind, verdict.policy, "fenced")
    return Verdict(verdict.kind, verdict.policy, "open", f"{verdict.policy} does not name the kind")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
