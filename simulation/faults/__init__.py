"""Faults of the simulation. Each kind is a function of a `Strike`; its name is the function's.

A run enables a random subset of the kinds. A fault has randomness of its own, so that a list with some of them left out
strikes with the others as before.
"""

from __future__ import annotations

from simulation.faults import admission, processes, requests, rings, servers, writers
from simulation.faults.plan import Fault, Faults, draw
from simulation.faults.strike import KINDS, Strike

__all__ = [
    "KINDS",
    "Fault",
    "Faults",
    "Strike",
    "admission",
    "draw",
    "processes",
    "requests",
    "rings",
    "servers",
    "writers",
]
