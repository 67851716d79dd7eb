"""An API server in memory: for demos, tests and load tests on a laptop. `embedded_plane` starts one."""

from devcluster.children import PlaneFailed
from devcluster.embedded.plane import EmbeddedPlane, embedded_plane
from devcluster.faults import Fault

__all__ = ["EmbeddedPlane", "Fault", "PlaneFailed", "embedded_plane"]
