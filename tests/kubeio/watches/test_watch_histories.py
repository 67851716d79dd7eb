"""Whatever happens to objects, streams and history: at every quiet point the store equals the server."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeio.errors import Expired, KubeError, ServerFailure, TooManyRequests
from kubeio.models import Meta, ObjectKey
from kubeio.versions import number
from kubeio.watches.informer import Informer
from kubeio.watches.lister_watcher import ListerWatcher
from kubeio.watches.reflector import Reflector
from kubeio.watches.storage import PLAIN, StoredForm
from kubeio.watches.store import Change, Store
from tests.kubeio.virtual import LoopClock, rng, run_virtually
from tests.kubeio.watches.fake_server import WEBSITES, FakeServer

NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
REFUSALS: dict[str, KubeError] = {
    "refuse": ServerFailure("any", status=500),
    "expire": Expired("any", status=410),
    "busy": TooManyRequests("any", status=429, retry_after_s=2),
}
FAULTS = [
    "compact",
    "cut_streams",
    "freeze_streams",
    "torn",
    "repeat",
    "down",
    "up",
    "stale",
    "restart",
    *REFUSALS,
]
FORMS = {
    "plain": PLAIN,
    "compressed": StoredForm(strips=True, compress_from_objects=3, compress_from_bytes=10**6),
}
STEP = st.one_of(
    st.tuples(st.just("put"), NAMES),
    st.tuples(st.just("put"), NAMES),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.sampled_from(FAULTS), st.just("")),
    st.tuples(st.just("wait"), st.sampled_from(["0.004", "0.02", "1", "100"])),
    st.tuples(st.just("quiet"), st.just("")),
)


class Mirror:
    """What somebody who hears only the changes believes; every change must fit what it believed before."""

    def __init__(self) -> None:
        self.versions: dict[ObjectKey, str] = {}

    def hear(self, change: Change) -> None:
        assert self._version(change.old) == self.versions.get(change.key), "a change was not reported"
        if change.new is None:
            del self.versions[change.key]
        else:
            reported = change.new.resource_version
            assert number(reported) > number(self.versions.get(change.key, "0")), "it went back in time"
            self.versions[change.key] = reported

    @staticmethod
    def _version(meta: Meta | None) -> str | None:
        return None if meta is None else meta.resource_version


def act(server: FakeServer, what: str, name: str) -> None:
    match what:
        case "put":
            server.put(name, spec=server.version, owner="uid-parent" if server.version % 2 else "")
        case "remove":
            if ObjectKey("default", name) in server.objects:
                server.remove(name)
        case "torn":
            server.torn_line = True
        case "repeat":
            server.repeats_line = True
        case "down":
            server.is_down = True
            server.cut_streams()
        case "up":
            server.is_down = False
        case "stale":
            server.stale_list_at = 101
        case "compact" | "cut_streams" | "freeze_streams":
            getattr(server, what)()
        case error:
            server.refuse.append(REFUSALS[error])


def third(raw: bytes) -> list[str]:
    """The values of an index: they change with most changes."""
    return [str(json.loads(raw)["spec"]["value"] % 3)]


async def live_through(steps: list[tuple[str, str]], *, has_watch_list: bool, form: StoredForm) -> None:
    server = FakeServer(has_watch_list=has_watch_list)
    mirror = Mirror()
    store = Store(form, indexes={"third": third})

    def follow() -> asyncio.Task[None]:
        """A session of its own, on what is known already."""
        source = Reflector(
            ListerWatcher(server.client, WEBSITES),
            page_size=2,
            clock=LoopClock(),
            rng=rng(),
        )
        informer = Informer(source, store=store, on_change=mirror.hear)
        return group.create_task(informer.run())

    server.put("a")
    async with asyncio.TaskGroup() as group:
        running = follow()
        await asyncio.sleep(0.1)
        for what, detail in [*steps, ("quiet", "")]:
            if what == "wait":
                await asyncio.sleep(float(detail))
            elif what == "restart":
                running.cancel()
                await asyncio.wait([running])
                running = follow()
            elif what == "quiet":
                server.is_down = False
                server.stale_list_at = None
                server.refuse.clear()
                await asyncio.sleep(200)
                check(store, mirror, server)
            else:
                act(server, what, detail)
        running.cancel()
    assert server.open_streams == 0


def check(store: Store, mirror: Mirror, server: FakeServer) -> None:
    """Everything that can be read of *store* is what *server* has."""
    assert {key: store.raw(key) for key in store} == server.snapshot()
    assert set(mirror.versions) == set(server.objects)
    owned = {key for key, raw in server.objects.items() if b"uid-parent" in raw}
    assert store.children("uid-parent") == owned
    for value in "012":
        indexed = {key for key, raw in server.objects.items() if third(raw) == [value]}
        assert store.by_index("third", value) == indexed


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=100, deadline=None)
@given(st.lists(STEP, max_size=30), st.booleans())
def test_store_equals_the_server_at_every_quiet_point_of_any_history(
    form: str, steps: list[tuple[str, str]], has_watch_list: bool
) -> None:
    run_virtually(live_through(steps, has_watch_list=has_watch_list, form=FORMS[form]))
