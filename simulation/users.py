"""Users of the cluster: they create, change and delete objects, each at once, and never wait."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from devcluster.embedded.status import Refusal
from simulation.fleet import Fleet
from simulation.scale import GROUP, SITES

_PATH: Final = f"/apis/example.com/v1/namespaces/{SITES}/websites"
_GROUPS: Final = 20
_MERGE: Final = "application/merge-patch+json"


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
        self._again()

    def stop(self) -> None:
        self._is_over = True

    def forget(self) -> None:
        """Objects are others now: look which there are."""
        self.names.clear()
        with suppress(Refusal):  # not served, in that backup
            items = self._fleet.store.request("GET", _PATH)["items"]
            self.names.extend(sorted(item["metadata"]["name"] for item in items))

    def create_one(self) -> None:
        """One object more, if its resource is served and its namespace is there."""
        with suppress(Refusal):
            self.create()

    def create(self) -> None:
        name = f"site-{self._made}"
        self._made += 1
        self._fleet.store.request(
            "POST",
            _PATH,
            {
                "apiVersion": "example.com/v1",
                "kind": "Website",
                "metadata": {"name": name, "labels": {GROUP: str(self._made % _GROUPS)}},
                "spec": {"html": "0"},
            },
        )
        self.names.append(name)

    def _again(self) -> None:
        self._world.after(self._rng.expovariate(self._fleet.scale.updates_per_s), self._change)

    def _change(self) -> None:
        if self._is_over:
            return
        draw = self._rng.random()
        with suppress(Refusal):  # it may be gone, or its namespace may be
            if draw < 0.05 or not self.names:
                self.create()
            elif draw < 0.1:
                name = self.names.pop(self._rng.randrange(len(self.names)))
                self._fleet.store.request("DELETE", f"{_PATH}/{name}")
                if self._rng.random() < 0.3:
                    self._recreate(name)
            else:
                name = self._rng.choice(self.names)
                body = {"spec": {"html": str(self._rng.randrange(10**6))}}
                self._fleet.store.request("PATCH", f"{_PATH}/{name}", body, content_type=_MERGE)
        self._again()

    def _recreate(self, name: str) -> None:
        """The same name, another object."""
        doc = {
            "apiVersion": "example.com/v1",
            "kind": "Website",
            "metadata": {"name": name},
            "spec": {"html": "1"},
        }
        self._fleet.store.request("POST", _PATH, doc)
        self.names.append(name)
