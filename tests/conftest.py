"""What all tests share."""

from __future__ import annotations

import asyncio


def pytest_configure() -> None:
    """No event loop but those that tests ask for.

    Before Python 3.14 pytest-asyncio asks for the current loop once, which creates one that nobody closes: the
    first async test after a plain one would fail for a ResourceWarning.
    """
    asyncio.set_event_loop(None)
