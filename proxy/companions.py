"""Companions: objects that belong to an object of the ring by their name alone, such as Endpoints to a Service.

A controller that does not see an object cleans its companion up, by name, and looks for such companions at each start.
So a write to a companion passes only if its object is visible, or gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kubeio.errors import InputError, KubeError, NotFound
from kubeio.models import HasMeta, Meta, ObjectKey
from kubeio.protocol import RingKeys
from kubeio.rest.client import Client
from kubeio.rest.discovery import Discovery
from proxy.director import Write
from proxy.gate import Gate
from proxy.kinds import TreeKind
from proxy.refusals import Refusal

_FLAG: Final = "--companions"


async def find_companions(
    discovery: Discovery, pairs: Iterable[str], kinds: Sequence[TreeKind]
) -> dict[str, TreeKind]:
    """The kind that each kind of companion belongs to, for *pairs* like `endpoints=services`.

    Raises: InputError, KubeError.
    """
    found: dict[str, TreeKind] = {}
    for pair in pairs:
        name, _, of = pair.partition("=")
        kind = next((each for each in kinds if each.name == of), None)
        if not name or kind is None:
            known = ", ".join(each.name for each in kinds)
            raise InputError(_FLAG, pair, "names no resource of the ring", f"write A=B, B one of {known}")
        companion = (await discovery.resolve(name)).group_resource
        if companion in {each.name for each in kinds}:
            raise InputError(_FLAG, pair, f"{companion} is of the ring itself", "leave it out")
        found[companion] = kind
    return found


class Companions:
    """Decides about writes to the companions of *shard*'s objects. *kinds*: as `find_companions` gives them."""

    def __init__(
        self, kinds: Mapping[str, TreeKind], gate: Gate, client: Client, *, keys: RingKeys, shard: str
    ) -> None:
        self._kinds: Final = kinds
        self._gate: Final = gate
        self._client: Final = client
        self._keys: Final = keys
        self._shard: Final = shard

    def has(self, resource: str) -> bool:
        """Whether objects of *resource* are companions."""
        return resource in self._kinds

    async def admit(self, write: Write) -> Refusal | None:
        """Why *write*, to a companion, may not pass. A delete of another shard's is told that it is gone already."""
        info = write.info
        if info.verb == "deletecollection":
            return Refusal(403, f"ringleader: deletecollection of {info.resource} is not passed on")
        name = info.name or (write.body.name if write.body is not None else "")
        kind, key = self._kinds[info.group_resource], ObjectKey(info.namespace, name)
        if not name or self._gate.find(kind.name, key) is not None:
            return self._gate.admit_any() if not name else await self._gate.admit(kind.name, key)
        try:
            found = await self._read(kind, key)
        except KubeError as error:
            return Refusal(503, f"ringleader: {kind.name} {key} cannot be read: {error}")
        if found is None:
            return self._gate.admit_any()
        if found.labels.get(self._keys.shard) == self._shard:
            return await self._gate.admit(kind.name, key)
        about = f"ringleader: {info.resource} {key} belongs to an object that this controller does not see"
        return Refusal(404 if info.verb == "delete" else 409, about)

    async def _read(self, kind: TreeKind, key: ObjectKey) -> Meta | None:
        """The object of that name, by a consistent read; None if there is none."""
        try:
            found = await self._client.get(
                kind.resource, key.name, namespace=key.namespace, type=HasMeta, metadata_only=True
            )
        except NotFound:
            return None
        return found.metadata
