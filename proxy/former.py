"""What a controller before the ring may have worked: such objects may control others, a new one does not."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import structlog

from kubeio.clock import Clock
from kubeio.errors import KubeError, NotFound
from kubeio.leases.lease import Leases
from kubeio.models import HasMeta
from kubeio.protocol import activated_holder
from kubeio.resource import NAMESPACES
from kubeio.rest.client import Client
from kubeio.shard.ring import RingView

log = structlog.get_logger("proxy")

NEVER: Final = "9999-12-31T23:59:59Z"
_CLOCKS_DIFFER_S: Final = 60
"""The Lease says by the sharder's clock when the ring took over, an object by the API server's when it was created."""


class FormerController:
    """The controller that worked the objects of *view*'s ring before it, as far as it is known by *client*."""

    def __init__(self, client: Client, view: RingView, *, clock: Clock) -> None:
        self._client: Final = client
        self._view: Final = view
        self._clock: Final = clock
        self._gone_at: datetime | None = None
        """Since when its namespace was found gone each time."""

    async def worked_until(self) -> str:
        """The creation time, as objects have it, up to which an object may have been worked before the ring was.

        Without `spec.activation` it had ended when the ring was created. With it the ring took over with its Lease.
        While that is not so, or cannot be read, every object may have been worked. A Lease whose namespace is gone has
        no holder. One that was deleted alone may have one, which does not know yet.
        """
        activation = self._view.spec.activation
        if activation is None:
            return self._view.metadata.creation_timestamp or NEVER
        former, gone_at, self._gone_at = activation.lease, self._gone_at, None
        try:
            lease = await Leases(self._client, former.namespace).get(former.name)
        except KubeError as error:
            if await _is_gone(self._client, former.namespace):
                self._gone_at = gone_at or self._clock.wall()
                return _later(self._gone_at)
            log.warning(
                "former controller's Lease cannot be read: each new object waits for a restart",
                lease=f"{former.namespace}/{former.name}",
                error=str(error),
                remedy="let the account get that Lease, and its namespace",
            )
            return NEVER
        activated = activated_holder(self._view.metadata.name)
        if lease.spec.holder_identity != activated or not lease.spec.acquire_time:
            return NEVER
        return _later(datetime.fromisoformat(lease.spec.acquire_time))


async def _is_gone(client: Client, namespace: str) -> bool:
    try:
        await client.get(NAMESPACES, namespace, type=HasMeta, metadata_only=True)
    except NotFound:
        return True
    except KubeError:
        return False
    return False


def _later(time: datetime) -> str:
    """*time*, and by how much clocks differ."""
    return f"{time + timedelta(seconds=_CLOCKS_DIFFER_S):%Y-%m-%dT%H:%M:%SZ}"
