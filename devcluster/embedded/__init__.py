"""An API server in memory: for demos, tests and load tests on a laptop. `embedded_plane` starts one."""

from devcluster.embedded.faults import Fault
from devcluster.embedded.plane import EmbeddedPlane, FaultClient, PlaneFailure, embedded_plane

__all__ = ["EmbeddedPlane", "Fault", "FaultClient", "PlaneFailure", "embedded_plane"]
