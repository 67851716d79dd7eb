"""What a user declares: a resource and the model of its objects. Pure; exported as `shard_controller.Resource`."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

M = TypeVar("M")


class Resource(Generic[M]):
    """A resource as people write it, such as `websites.example.com/v1` or `configmaps/v1`, and its model.

    *model* is whatever msgspec decodes: a Struct or dataclass with the fields that are needed, or dict.
    The name is looked up on the server when the process starts.
    """

    __slots__ = ("_decoder", "model", "text")

    def __init__(self, text: str, model: type[M]) -> None:
        self.text = text
        self.model = model
        self._decoder = msgspec.json.Decoder(model)

    def decode(self, raw: bytes) -> M:
        """The model of the object whose JSON is *raw*. Raises: msgspec.ValidationError."""
        return self._decoder.decode(raw)

    def __repr__(self) -> str:
        return f"Resource({self.text!r}, {self.model.__name__})"
