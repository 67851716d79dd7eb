"""Faults between clients and any control plane: `Fault` describes one, the proxy of `fault_proxy` injects it."""

from __future__ import annotations

from devcluster.faults.fault import Fault
from devcluster.faults.fault_client import FaultClient, fault_proxy

__all__ = ["Fault", "FaultClient", "fault_proxy"]
