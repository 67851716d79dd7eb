"""Event handlers of one shard with its caches and its queue, without informers and workers."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import shard_controller as sc
from kubeio.decoding import object_from
from kubeio.models import ObjectKey
from kubeio.shard.lease_validity import LeaseValidity
from kubeio.watches.store import Change
from shard_controller.declare.request import Request
from shard_controller.objects.caches import Caches, ReadOnlyCache, ResourceCache
from shard_controller.reconcile.event_handlers import EventHandlers
from shard_controller.reconcile.reconcile_queue import ReconcileQueue
from shard_controller.shard.ownership import ShardOwnership
from tests.kubeio.virtual import LoopClock
from tests.shard_controller.objects import CONFIGMAPS, KEYS, ME, SECRETS, WEBSITES, reference

SITES = sc.Resource("websites.example.com/v1", dict)
PAGES = sc.Resource("configmaps/v1", dict)
KEYS_OF_SITES = sc.Resource("secrets/v1", dict)
BLOG = Request("websites.example.com", ObjectKey("ns", "blog"))
never = sc.Predicate(lambda _old, _new: False)


class Harness:
    """The event handlers of the shard `ME`, its caches and its queue, without informers and workers."""

    def __init__(
        self,
        *,
        when: Any = None,
        owned_when: Any = None,
        watches: Iterable[sc.Watch[Any]] = (),
        is_listing: bool = False,
    ) -> None:
        clock = LoopClock()
        self.queue = ReconcileQueue(clock=clock, rng=random.Random(1))
        self.sites = ResourceCache(WEBSITES, remembers=True)
        self.pages = ResourceCache(CONFIGMAPS, remembers=True)
        self.watched = [ReadOnlyCache(watch, SECRETS) for watch in watches]
        caches = Caches(self.sites, [self.pages], self.watched, {PAGES.text: self.pages})
        controller = sc.Controller(
            SITES, owns=[sc.Owned(PAGES, when=owned_when)], watches=tuple(watches), when=when
        )
        validity = LeaseValidity(duration_s=15, sent_at=clock.now())
        ownership = ShardOwnership(KEYS, ME, validity=validity, clock=clock)
        self.handlers = EventHandlers(controller, caches, ownership, self.queue)
        if not is_listing:
            self.handlers.caches_full()
        self._versions = 0

    def site(self, name: str = "blog", *, status: Any = None, **fields: Any) -> None:
        """The watch shows a Website."""
        self._show(self.sites, {**self._body(name, **fields), "status": status})

    def page(self, name: str = "blog", *, controller: str = "blog", **fields: Any) -> None:
        """The watch shows a ConfigMap that *controller* controls."""
        self._show(self.pages, self._body(name, ownerReferences=[reference(controller)], **fields))

    def secret(self, name: str, namespace: str = "ns", **fields: Any) -> None:
        """The watch shows a Secret, which nobody of the ring controls."""
        self._show(self.watched[0], self._body(name, namespace=namespace, **fields))

    def gone(self, kind: ResourceCache, name: str) -> None:
        """The watch shows that an object left."""
        key = ObjectKey("ns", name)
        known = kind.store.remove(key)
        assert known is not None
        self._notify(kind, Change(key, known.meta, None, known.meta.resource_version))

    def await_version(self, version: int) -> None:
        """A read has shown *version* of the Website blog."""
        known = self.sites.store.meta(BLOG.key)
        assert known is not None
        self.queue.await_version(BLOG, version, known=int(known.resource_version))

    def _body(self, name: str, *, namespace: str = "ns", **fields: Any) -> dict[str, Any]:
        self._versions += 1
        metadata = {
            "uid": f"uid-{name}",
            "generation": 1,
            "labels": {KEYS.shard: ME},
            **fields,
            "name": name,
            "namespace": namespace,
            "resourceVersion": str(self._versions),
        }
        return {"metadata": metadata}

    def _show(self, kind: ResourceCache, body: dict[str, Any]) -> None:
        change = kind.store.learn(object_from(json.dumps(body).encode()))
        assert change is not None
        self._notify(kind, change)

    def _notify(self, kind: ResourceCache, change: Change) -> None:
        if isinstance(kind, ReadOnlyCache):
            self.handlers.watched_changed(kind, change)
        else:
            self.handlers.changed(kind, change)

    async def woken(self) -> list[str]:
        """Names of what has been woken since the last question."""
        names = []
        while len(self.queue):
            task = await self.queue.get()
            self.queue.done(task)
            names.append(task.key.name)
        return names


async def known(**options: Any) -> Harness:
    """A harness whose site is known and was enqueued."""
    harness = Harness(**options)
    harness.site()
    assert await harness.woken() == ["blog"]
    return harness
