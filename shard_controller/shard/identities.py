"""What the requests of a shard name beside its account: the life that works, or nothing (docs/adr/0051)."""

from __future__ import annotations

from dataclasses import dataclass

from kubeio.protocol import RingKeys
from kubeio.rest.client import Client
from kubeio.rest.impersonation import acting_as
from kubeio.rest.reviews import User


@dataclass(frozen=True, slots=True)
class Identities:
    """Clients of one process, over the same connections."""

    plain: Client
    """Reads, Events, `ctx.unfenced`; creates, acknowledgements and claims, by which labels of the ring change: the
    guard knows such a writer by the pod that its token names, and a request that names a life has no pod."""
    life: Client
    """Writes of reconciles to objects that exist: policies refuse them on what another life owns."""


def unnamed(client: Client) -> Identities:
    """No request names anything: the tests in patches alone are the fence."""
    return Identities(client, client)


def named(client: Client, account: User, *, keys: RingKeys, shard: str) -> Identities:
    """Requests name *shard* as *account*, the one that *client* acts as."""
    return Identities(client, acting_as(account, client, extra=keys.life_extra, value=shard))
