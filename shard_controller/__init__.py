"""Write a Kubernetes controller in Python, sharded or not: `import shard_controller as sc`.

This module is what users import; everything else may change.
"""

from shard_controller.api import Controller, LeaderElected, Mode, Sharded, Single, run
from shard_controller.conditions import Conditions
from shard_controller.context import Context, SyncContext
from shard_controller.declared import Resource
from shard_controller.errors import Elsewhere, NotOurs, PermanentError, Refused, ShardError
from shard_controller.results import Done, RequeueAfter, Result

__all__ = [
    "Conditions",
    "Context",
    "Controller",
    "Done",
    "Elsewhere",
    "LeaderElected",
    "Mode",
    "NotOurs",
    "PermanentError",
    "Refused",
    "RequeueAfter",
    "Resource",
    "Result",
    "ShardError",
    "Sharded",
    "Single",
    "SyncContext",
    "run",
]
