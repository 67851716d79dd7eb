"""Write a Kubernetes controller in Python, sharded or not: `import shard_controller as sc`.

This module is what users import; everything else may change.
"""

from kubeio.models import Meta
from kubeio.models import ObjectKey as Key
from shard_controller.api import Backoff, Controller, LeaderElected, Mode, Sharded, Single, run
from shard_controller.blocking import SyncContext
from shard_controller.conditions import Conditions
from shard_controller.context import Context
from shard_controller.declared import Resource
from shard_controller.errors import Elsewhere, NotOurs, PermanentError, Refused, ShardError
from shard_controller.predicates import (
    Predicate,
    Snapshot,
    annotations_changed,
    generation_changed,
    labels_changed,
)
from shard_controller.results import Done, RequeueAfter, Result
from shard_controller.watched import Owned, Watch

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
