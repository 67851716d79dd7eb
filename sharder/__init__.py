"""The sharder: puts every object of a ring's resources onto its replicas, and keeps it so."""

from typing import Final

DISTRIBUTION: Final = "ringleader"
"""Where this package comes from; also tells it from the foreign `sharder` on PyPI."""
