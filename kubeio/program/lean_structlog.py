"""Import of structlog without the packages that it imports where they are installed, and that no process here needs.

rich (tracebacks in colour) and greenlet (gevent) cost 0.1 s at start and 6 MB. A process that imports them itself,
before or afterwards, gets them.
"""

from __future__ import annotations

import sys
from typing import Final

OPTIONAL: Final = ("rich", "greenlet")


def _import() -> None:
    hidden = [name for name in OPTIONAL if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment] # None: the import fails as if it were not installed
    try:
        import structlog  # noqa: F401
    finally:
        for name in hidden:
            del sys.modules[name]


_import()
