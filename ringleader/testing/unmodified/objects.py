"""What the judges read of an object, decoded from what the API server stored. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

VERSION: Final = "version"
"""Label of a pod template: which of its workload's templates it is, from 0 on. ReplicaSets and pods carry it too."""
FAILURES: Final = "failures"
"""Label of a Job's pod template: how many of its pods fail."""


class Owner(msgspec.Struct, frozen=True):
    kind: str
    name: str
    uid: str
    controller: bool = False


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    uid: str
    namespace: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[Owner] = []
    deletion_timestamp: str | None = None
    finalizers: list[str] = []

    @property
    def controller(self) -> Owner | None:
        return next((owner for owner in self.owner_references if owner.controller), None)


class Template(msgspec.Struct, frozen=True):
    class _Metadata(msgspec.Struct, frozen=True):
        labels: dict[str, str] = {}

    metadata: _Metadata = _Metadata()


class Spec(msgspec.Struct, frozen=True):
    replicas: int = 1
    completions: int = 1
    template: Template = Template()


class Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class Status(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    observed_generation: int = 0
    available_replicas: int = 0
    updated_replicas: int = 0
    collision_count: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: list[Condition] = []
    uncounted_terminated_pods: dict[str, Any] = {}

    def has(self, condition: str) -> bool:
        """Whether *condition* is true."""
        return any(each.type == condition and each.status == "True" for each in self.conditions)


class Workload(msgspec.Struct, frozen=True):
    """An object of any kind; what its kind does not have is empty."""

    metadata: Metadata
    spec: Spec = Spec()
    status: Status = Status()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def version(self) -> int:
        """Number of its template; of a pod or a ReplicaSet, of the template that it was made from."""
        own = self.metadata.labels.get(VERSION)
        return int(own or self.spec.template.metadata.labels.get(VERSION, "0"))

    @property
    def is_ending(self) -> bool:
        return self.metadata.deletion_timestamp is not None


decode_workload: Final = msgspec.json.Decoder(Workload, strict=False).decode
"""A Rollout's observedGeneration is a string of digits."""
