"""What the requests of a shard name beside its account: the life that works, the shard that gives up, or nothing."""

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
    """Reads, Events, `ctx.unfenced`: the account alone."""
    life: Client
    """Writes of reconciles: policies refuse them on what another life owns."""
    shard: Client
    """Acknowledgements and claims: policies let a shard pass on what it owns, and ask for the rest."""


def unnamed(client: Client) -> Identities:
    """No request names anything: the fence are the tests in patches alone."""
    return Identities(client, client, client)


def named(client: Client, account: User, *, keys: RingKeys, shard: str) -> Identities:
    """Requests name *shard* as *account*, the one that *client* acts as."""
    return Identities(
        client,
        acting_as(account, client, extra=keys.life_extra, value=shard),
        acting_as(account, client, extra=keys.shard_extra, value=shard),
    )
