"""Changes of watched resources: the keys that a mapping function names."""

from __future__ import annotations

import re
from typing import Any

import pytest
from structlog.testing import capture_logs

import shard_controller as sc
from kubeio.errors import InputError
from tests.shard_controller.handlers import KEYS_OF_SITES, PAGES, SITES, Harness

# -- watched resources


def sites_of(secret: sc.Snapshot[dict[str, Any]]) -> list[str]:
    return [name for name in secret.meta.annotations.get("sites", "").split(",") if name]


async def test_a_watched_object_wakes_what_its_map_names_before_and_after() -> None:
    harness = Harness(watches=[sc.Watch(KEYS_OF_SITES, map=sites_of)])
    for name in ("blog", "shop", "wiki"):
        harness.site(name)
    await harness.woken()
    harness.secret("cert", annotations={"sites": "blog,shop"})
    assert sorted(await harness.woken()) == ["blog", "shop"]
    harness.secret("cert", annotations={"sites": "shop,wiki"})
    assert sorted(await harness.woken()) == ["blog", "shop", "wiki"]
    harness.gone(harness.watched[0], "cert")
    assert sorted(await harness.woken()) == ["shop", "wiki"]


async def test_a_map_may_name_keys_of_another_namespace() -> None:
    harness = Harness(watches=[sc.Watch(KEYS_OF_SITES, map=lambda _: [sc.Key("ns", "blog")])])
    harness.site()
    await harness.woken()
    harness.secret("cert", namespace="certificates")
    assert await harness.woken() == ["blog"]


async def test_what_this_shard_does_not_have_is_not_woken() -> None:
    harness = Harness(watches=[sc.Watch(KEYS_OF_SITES, map=lambda _: ["theirs", "blog"])])
    harness.site()
    await harness.woken()
    harness.secret("cert")
    assert await harness.woken() == ["blog"]


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        (lambda secret: secret.object["no such field"], "KeyError"),
        (lambda _: "blog", r"return a list, \['blog'\]"),
        (lambda _: [("ns", "blog")], r"sc.Key\(namespace, name\)"),
        (lambda _: None, "TypeError"),
    ],
)
async def test_a_map_that_fails_is_logged_with_its_object_and_the_next_change_works(
    answer: Any, reported: str
) -> None:
    def affected(secret: sc.Snapshot[dict[str, Any]]) -> Any:
        return answer(secret) if secret.name == "bad" else ["blog"]

    harness = Harness(watches=[sc.Watch(KEYS_OF_SITES, map=affected)])
    harness.site()
    await harness.woken()
    with capture_logs() as logs:
        harness.secret("bad")
    assert await harness.woken() == []
    assert logs[0]["object"] == "secrets ns/bad"
    assert re.search(reported, logs[0]["error"])
    harness.secret("good")
    assert await harness.woken() == ["blog"]


async def test_a_watch_has_a_predicate_of_its_own() -> None:
    harness = Harness(watches=[sc.Watch(KEYS_OF_SITES, map=lambda _: ["blog"], when=sc.labels_changed)])
    harness.site()
    harness.secret("cert")
    await harness.woken()
    harness.secret("cert", annotations={"rotated": "yes"})
    assert await harness.woken() == []
    harness.secret("cert", labels={"rotated": "yes"})
    assert await harness.woken() == ["blog"]


async def _later_map(_secret: Any) -> list[str]:
    return []


of_two: Any = lambda _old, _new: []  # noqa: E731 - mypy would see through a def
async_map: Any = _later_map


@pytest.mark.parametrize(
    ("declare", "problem"),
    [
        (lambda: sc.Watch(KEYS_OF_SITES, map=of_two), "exactly one argument"),
        (lambda: sc.Watch(KEYS_OF_SITES, map=async_map), "is async"),
        (lambda: sc.Watch(KEYS_OF_SITES, map=sites_of, namespaces="team"), r"namespaces=\['team'\]"),
        (lambda: sc.Watch(KEYS_OF_SITES, map=sites_of, namespaces=["Team"]), "cannot be a namespace"),
        (
            lambda: sc.Controller(SITES, watches=[sc.Watch(KEYS_OF_SITES, map=sites_of)] * 2),
            "watches: 'secrets/v1' is there twice",
        ),
        (lambda: sc.Controller(SITES, owns=[PAGES, PAGES]), "owns: 'configmaps/v1' is there twice"),
    ],
)
def test_a_watch_that_cannot_work_is_refused(declare: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        declare()
