"""Resources, names and objects that the tests of this folder share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubeio.protocol import RingKeys
from kubeio.resource import ApiResource

WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
CONFIGMAPS = ApiResource("", "v1", "configmaps", "ConfigMap")
SECRETS = ApiResource("", "v1", "secrets", "Secret")
KEYS = RingKeys("sites")
ME, OTHER = "web-0-0000000a", "web-1-0000000b"


def reference(name: str, uid: str = "", *, of: ApiResource = WEBSITES) -> dict[str, Any]:
    """An ownerReference to the controller *name*."""
    return {
        "apiVersion": of.api_version,
        "kind": of.kind,
        "name": name,
        "uid": uid or f"uid-{name}",
        "controller": True,
    }


@dataclass(frozen=True)
class Processes:
    """A machine on which nothing but us runs, unless told otherwise."""

    running: tuple[int, int] | None = None
    has_children: bool = False
    hides: bool = False

    def is_running(self, pid: int, started: int) -> bool:
        return (pid, started) == self.running

    def has_children_of(self, life: str) -> bool:
        return self.has_children

    def hides_some(self) -> bool:
        return self.hides
