"""Faults between clients and any control plane: `Fault` says what, the proxy of `fault_proxy` carries it out."""

from __future__ import annotations

from devcluster.faults.fault import Fault
from devcluster.faults.fault_client import FaultClient, fault_proxy

__all__ = ["Fault", "FaultClient", "fault_proxy"]
