"""Whether an object's controller has seen its last change: `status.observedGeneration` against `metadata.generation`.

Pure. The only part of an object besides its metadata that is looked at.
"""

from __future__ import annotations

import msgspec

from kubeio.decoding import decode_pruned
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
        return not self._is_going and (self.generation or 0) < self.metadata.generation

    @property
    def is_settled(self) -> bool:
        """Whether its controller says that it has observed the last change."""
        return not self._is_going and self.generation is not None and not self.is_behind

    @property
    def _is_going(self) -> bool:
        return self.metadata.deletion_timestamp is not None


_decode = msgspec.json.Decoder(Observed).decode


def observed(raw: bytes) -> Observed | None:
    """The object in *raw*, however deep it is nested; None if its kind means something else by `status`."""
    try:
        return decode_pruned(_decode, raw)
    except msgspec.ValidationError:
        return None
