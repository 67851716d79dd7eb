"""What all tests share: a control plane, no event loop but those that tests ask for, and how tests go to workers."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Generator

import hypothesis
import pytest
import pytest_asyncio

from devcluster.embedded import EmbeddedPlane, embedded_plane
from tests import distribution, leaks
from tests.sharder.io.environment import SharderEnvironment, open_environment


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedPlane]:
    """One embedded control plane of a worker, for all tests that want a new one: `new_plane` wipes it."""
    async with embedded_plane(tmp_path_factory.mktemp("plane"), faults=True) as plane:
        yield plane


@pytest.fixture
async def new_plane(shared_plane: EmbeddedPlane) -> EmbeddedPlane:
    """An embedded control plane without objects, definitions, faults and logged writes."""
    await shared_plane.wipe()
    return shared_plane


@pytest.fixture
async def env(new_plane: EmbeddedPlane) -> AsyncIterator[SharderEnvironment]:
    """A control plane that knows rings and Websites, and Leases written by hand."""
    async with open_environment(new_plane) as env:
        yield env


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="Keep how long the groups took.")


def pytest_configure(config: pytest.Config) -> None:
    """No event loop but those that tests ask for.

    Before Python 3.14 pytest-asyncio asks for the current loop once, which creates one that nobody closes: the
    first async test after a plain one would fail for a ResourceWarning.
    """
    asyncio.set_event_loop(None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # `make test &` in a script ignores it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # until all is collected, most of which lives to the end: a third of the time that collecting takes
    leaks.watch()
    hypothesis.settings.register_profile("any machine", deadline=None)  # a busy one pauses a test for seconds
    hypothesis.settings.load_profile("any machine")
    if config.getoption("--record") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(), "recorder of durations")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None]:
    """Fail the test whose event loop ends while tasks of it still run."""
    yield
    if left := leaks.taken():
        pytest.fail(f"tasks were left behind: {', '.join(left)}", pytrace=False)


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what needs no server and starts no process: `make check` runs it."""
    if distribution.is_unit(item):
        item.add_marker("unit")


@pytest.hookimpl(trylast=True)  # after pytest's own order of fixtures
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker group by group, the longest first, the same in all."""
    if not hasattr(config, "workerinput"):
        return
    groups = {item.nodeid: distribution.group_of(item.nodeid) for item in items}
    rank = distribution.longest_first(groups.values(), distribution.recorded())
    items.sort(key=lambda item: rank[groups[item.nodeid]])


def pytest_collection_finish() -> None:
    """Leave the 6,000 tests out of every later collection of garbage."""
    gc.freeze()
    gc.enable()


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
        distribution.save(self._durations)
