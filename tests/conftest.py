"""What all tests share: no event loop but those that tests ask for, and how tests are dealt out to workers."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

from tests import distribution


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record", action="store_true", help="Keep how long groups took, and which tests were long."
    )
    parser.addoption(
        "--quick", action="store_true", help="Leave out the tests that were long when last recorded."
    )


def pytest_configure(config: pytest.Config) -> None:
    """No event loop but those that tests ask for.

    Before Python 3.14 pytest-asyncio asks for the current loop once, which creates one that nobody closes: the
    first async test after a plain one would fail for a ResourceWarning.
    """
    asyncio.set_event_loop(None)
    if config.getoption("--record") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(), "recorder of durations")


@pytest.hookimpl(trylast=True)  # after pytest's own order of fixtures
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without the long ones, if that is asked for; in a worker group by group, the longest first, the same in all."""
    record = distribution.recorded()
    if config.getoption("--quick"):
        stories = {
            item.path for item in items if item.nodeid in record.long and item.get_closest_marker("story")
        }
        long = {item for item in items if item.nodeid in record.long or item.path in stories}
        config.hook.pytest_deselected(items=list(long))
        items[:] = [item for item in items if item not in long]
    if not hasattr(config, "workerinput"):
        return
    groups = {item.nodeid: distribution.group_of(item.nodeid) for item in items}
    rank = distribution.longest_first(groups.values(), record.groups)
    items.sort(key=lambda item: rank[groups[item.nodeid]])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Whole groups to a worker, in the order of the collection."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return distribution.group_of(nodeid)

    config.option.loadscopereorder = False
    return ByGroup(config, log)


class Recorder:
    """Sums what each test took, all phases, and keeps what is kept of it when the run ends."""

    def __init__(self) -> None:
        self._durations: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._durations[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        distribution.record_of(self._durations).save()
