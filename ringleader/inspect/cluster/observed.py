"""Whether an object's controller has seen its last change: `status.observedGeneration` against `metadata.generation`.

Pure. The only part of an object besides its metadata that is looked at. Called by `explain` and by the doctor.
"""

from __future__ import annotations

import msgspec

from kubeio.models import Meta


class _Status(msgspec.Struct, rename="camel"):
    observed_generation: int | None = None


class Observed(msgspec.Struct):
    """An object with what its status says of its spec."""

    metadata: Meta
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def generation(self) -> int | None:
        """The generation that its controller has observed; None: it does not say."""
        return self.status.observed_generation

    @property
    def is_behind(self) -> bool:
        """Whether its controller has not observed its last change; one that never said so has not."""
        is_going = self.metadata.deletion_timestamp is not None
        return not is_going and (self.generation or 0) < self.metadata.generation


def observed(raw: bytes) -> Observed | None:
    """The object in *raw*; None if its kind means something else by `status`."""
    try:
        return msgspec.json.decode(raw, type=Observed)
    except msgspec.ValidationError:
        return None
