"""An API server in memory: for demos, tests and load tests on a laptop. `embedded_plane` starts one."""

from devcluster.embedded.plane import EmbeddedPlane, embedded_plane
from devcluster.faults import Fault
from devcluster.orders import PlaneFailure

__all__ = ["EmbeddedPlane", "Fault", "PlaneFailure", "embedded_plane"]
