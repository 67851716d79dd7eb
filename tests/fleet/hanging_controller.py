"""A controller whose reconciles hang as a file orders: `controllers/hanging.py`, and how to order it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from ringleader.testing.fleet import Fleet

HANGING = Path(__file__).with_name("controllers") / "hanging.py"


@contextmanager
def hanging(fleet: Fleet, shard: str, *, names: Collection[str] = ()) -> Iterator[None]:
    """During the block reconciles of *shard* (of the objects *names*, if some are given) do not end."""
    orders = Path(fleet.spec.environment["HANG_FILE"])
    draft = orders.with_suffix(".draft")
    draft.write_text(json.dumps({"shard": shard, "names": sorted(names)}))
    draft.replace(orders)
    try:
        yield
    finally:
        orders.unlink()
