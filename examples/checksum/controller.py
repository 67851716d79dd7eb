"""Every Secret gets a ConfigMap `<name>-checksum` with the SHA-256 of each value: core resources, no CRD, no status.

Run one replica:  python -m shard_controller run examples/checksum/controller.py:checksums --ring checksums
The reconciler is a plain function, so it runs in a thread and gets a blocking context.
"""

from __future__ import annotations

import base64
import hashlib
import sys

import msgspec

import shard_controller as sc


class Secret(msgspec.Struct):
    data: dict[str, str] = {}


SECRETS = sc.Resource("secrets/v1", Secret)
CONFIGMAPS = sc.Resource("configmaps/v1", dict)

checksums = sc.Controller(SECRETS, owns=[CONFIGMAPS], workers=4, timeout_s=30, name="checksums")


@checksums.reconcile
def publish(ctx: sc.SyncContext[Secret]) -> sc.Result:
    """Keep a ConfigMap with checksums, so that users compare values without reading them."""
    if ctx.is_deleting:
        return sc.Done()
    sums = {name: checksum(value) for name, value in ctx.object.data.items()}
    ctx.apply(CONFIGMAPS, f"{ctx.name}-checksum", {"data": sums})
    return sc.Done()


def checksum(encoded: str) -> str:
    """SHA-256 of a Secret's value, in hex."""
    return hashlib.sha256(base64.b64decode(encoded)).hexdigest()


if __name__ == "__main__":
    sys.exit(sc.run(checksums, mode=sc.Sharded("checksums")))
