"""The sharder: puts every object of a ring's resources onto its replicas, and keeps it so."""

from typing import Final

DISTRIBUTION: Final = "ringleader"
"""Origin of this package; also distinguishes it from the foreign `sharder` on PyPI."""
