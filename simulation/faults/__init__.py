"""Faults of the simulation. Each kind is a function of a `Strike`; its name is the function's.

A run enables a random subset of the kinds. A fault has randomness of its own, so that a list with some of them left out
strikes with the others as before. Those of `moments` are drawn apart: one more of them changes few runs.
"""

from __future__ import annotations

from simulation.faults import admission, moments, processes, requests, rings, servers, writers
from simulation.faults.plan import Fault, Faults, draw, draw_moments
from simulation.faults.strike import KINDS, MOMENTS, Strike

__all__ = [
    "KINDS",
    "MOMENTS",
    "Fault",
    "Faults",
    "Strike",
    "admission",
    "draw",
    "draw_moments",
    "moments",
    "processes",
    "requests",
    "rings",
    "servers",
    "writers",
]
