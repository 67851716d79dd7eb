"""Write a Kubernetes controller in Python, sharded or not: `import shard_controller as sc`.

This module is what users import; everything else may change.
"""

import kubeio.program.lean_structlog  # noqa: F401 - before the first import of structlog
from kubeio.models import Meta
from kubeio.models import ObjectKey as Key
from kubeio.shard.errors import ShardError
from shard_controller.api.conditions import Conditions
from shard_controller.api.context import Context
from shard_controller.api.controller import Backoff, Controller, LeaderElected, Mode, Sharded, Single
from shard_controller.api.sync_context import SyncContext
from shard_controller.declare.errors import (
    Elsewhere,
    NotOurs,
    PermanentError,
    Refused,
)
from shard_controller.declare.predicates import (
    Predicate,
    Snapshot,
    annotations_changed,
    generation_changed,
    labels_changed,
)
from shard_controller.declare.resource import Resource
from shard_controller.declare.results import Done, RequeueAfter, Result
from shard_controller.declare.watches import Owned, Watch
from shard_controller.process.run import run

__all__ = [
    "Backoff",
    "Conditions",
    "Context",
    "Controller",
    "Done",
    "Elsewhere",
    "Key",
    "LeaderElected",
    "Meta",
    "Mode",
    "NotOurs",
    "Owned",
    "PermanentError",
    "Predicate",
    "Refused",
    "RequeueAfter",
    "Resource",
    "Result",
    "ShardError",
    "Sharded",
    "Single",
    "Snapshot",
    "SyncContext",
    "Watch",
    "annotations_changed",
    "generation_changed",
    "labels_changed",
    "run",
]
