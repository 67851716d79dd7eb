"""`python -m ringleader.demo.unfenced`: a replica whose writes test nothing, for `ringleader demo --no-fence`.

The runtime has no such switch. The demo proves something only if it fails for this replica.
"""

from __future__ import annotations

import sys

from kubeio.models import Meta
from kubeio.patch import JsonPatch
from shard_controller.__main__ import main
from shard_controller.shard.ownership import ShardOwnership


def _tests_nothing(self: ShardOwnership, meta: Meta) -> JsonPatch:
    return JsonPatch()


def _writes_all(self: ShardOwnership, meta: Meta) -> bool:
    return True


if __name__ == "__main__":
    ShardOwnership.fence = _tests_nothing  # type: ignore[method-assign]
    ShardOwnership.may_write = _writes_all  # type: ignore[method-assign]
    sys.exit(main())
