"""Faults of chaos. `simulation` uses the same names.

A fault is a coroutine that strikes, waits until it is over, and undoes what has to be undone. To add one, write it
in a module of this folder with `@fault`: its first line is printed by `--list`.
"""

from tests.fleet.chaos.faults import processes, requests, servers, writers
from tests.fleet.chaos.faults.table import FAULTS, ChaosFault

__all__ = ["FAULTS", "ChaosFault", "processes", "requests", "servers", "writers"]
