"""Users of the cluster: they create, change and delete objects, each at once, and never wait."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, Final

from devcluster.embedded.status import Refusal
from simulation.fleet import Fleet
from simulation.scale import GROUP, SITES

_PATH: Final = f"/apis/example.com/v1/namespaces/{SITES}/websites"
_PAGES_PATH: Final = f"/apis/example.com/v1/namespaces/{SITES}/pages"
_GROUPS: Final = 20
_MERGE: Final = "application/merge-patch+json"
_EDITED_AT_ONCE: Final = 0.3
"""Part of the new objects that are edited while a replica gets to know them."""
_MOST_MORE: Final = 500
"""With so many objects more than its scale says, a world gets no new ones: hours would make it ever larger."""


class Users:
    """Changes objects of *fleet* at random, `updates_per_s` of its scale, until `stop`."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet: Final = fleet
        self._world: Final = fleet.world
        self._rng: Final = fleet.world.rng("users")
        self._is_over = False
        self._made = 0
        self.names: Final[list[str]] = []

    def start(self) -> None:
        """Create every object within ten seconds, then change them."""
        for _ in range(self._fleet.scale.objects):
            self._world.after(self._rng.uniform(0, 10), self.create)
        for number in range(self._fleet.scale.objects // 4 if self._fleet.scale.pages else 0):
            self._world.after(self._rng.uniform(0, 10), partial(self.create_page, number))
        self._again()

    def stop(self) -> None:
        self._is_over = True

    def forget(self) -> None:
        """Objects are others now: look which there are."""
        self.names.clear()
        with suppress(Refusal):  # not served, in that backup
            items = self._fleet.store.request("GET", _PATH)["items"]
            self.names.extend(sorted(item["metadata"]["name"] for item in items))

    def leave(self, name: str) -> None:
        """Edit this object no more, half of the time."""
        if self._rng.random() < 0.5:
            self.names.remove(name)

    def create_one(self) -> None:
        """One object more, if its resource is served and its namespace is there."""
        with suppress(Refusal):
            self.create()

    def create(self) -> None:
        name = f"site-{self._made}"
        self._made += 1
        self._post(name, "0", labels={GROUP: str(self._made % _GROUPS)})
        if self._rng.random() < _EDITED_AT_ONCE:
            self._world.after(self._rng.uniform(0, 0.1), partial(self._edit, name))

    def create_page(self, number: int) -> None:
        """The page *number*, if it is not there."""
        self._post(f"page-{number}", "0", kind="Page")

    def _change_page(self) -> None:
        name = f"page-{self._rng.randrange(max(1, self._fleet.scale.objects // 4))}"
        body = {"spec": {"html": str(self._rng.randrange(10**6))}}
        with suppress(Refusal):
            self._fleet.store.request("PATCH", f"{_PAGES_PATH}/{name}", body, content_type=_MERGE)

    def _again(self) -> None:
        self._world.after(self._rng.expovariate(self._fleet.scale.updates_per_s), self._change)

    def _change(self) -> None:
        if self._is_over:
            return
        if self._fleet.scale.pages and self._rng.random() < 0.2:
            self._change_page()
        draw = self._rng.random()
        is_full = len(self.names) >= self._fleet.scale.objects + _MOST_MORE
        with suppress(Refusal):  # it may be gone, or its namespace may be
            if not self.names or (draw < 0.1 and not is_full):
                self.create()
            elif draw < 0.2:
                name = self.names.pop(self._rng.randrange(len(self.names)))
                self._fleet.store.request("DELETE", f"{_PATH}/{name}")
                if self._rng.random() < 0.3:
                    self._recreate(name)
            else:
                self._edit(self._rng.choice(self.names))
        self._again()

    def _edit(self, name: str) -> None:
        body = {"spec": {"html": str(self._rng.randrange(10**6))}}
        with suppress(Refusal):  # it may be gone
            self._fleet.store.request("PATCH", f"{_PATH}/{name}", body, content_type=_MERGE)

    def _recreate(self, name: str) -> None:
        """The same name, another object."""
        self._post(name, "1")

    def _post(self, name: str, html: str, *, kind: str = "Website", **metadata: object) -> None:
        doc = {
            "apiVersion": "example.com/v1",
            "kind": kind,
            "metadata": {"name": name, **metadata},
            "spec": {"html": html},
        }
        path = _PATH if kind == "Website" else _PAGES_PATH
        self._fleet.admission.create(path, doc, partial(self._store, path))

    def _store(self, path: str, doc: dict[str, Any]) -> None:
        with suppress(Refusal):  # it may exist by now, or its namespace may be gone
            self._fleet.store.request("POST", path, doc)
            if path == _PATH:
                self.names.append(doc["metadata"]["name"])
