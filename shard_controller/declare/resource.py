"""Declaration of a resource: its name, the model of its objects, and the form in which the cache keeps them. Pure.

Exported as `shard_controller.Resource`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, Generic, Literal, TypeVar, get_args

from kubeio.errors import InputError
from kubeio.watches.storage import AUTO, COMPRESSED, RAW, StoredForm
from shard_controller.declare import models

M = TypeVar("M")

Stored = Literal["auto", "raw", "compressed", "metadata"]

_FORMS: Final[Mapping[str, StoredForm]] = {
    "auto": AUTO,
    "raw": RAW,
    "compressed": COMPRESSED,
    "metadata": RAW,
}


class Resource(Generic[M]):
    """A resource as people write it, such as `websites.example.com/v1` or `configmaps/v1`, and its model.

    *model* is a msgspec Struct, dataclass or pydantic model with the fields that are needed, or dict.
    The name is looked up on the server when the process starts.

    *stored*: how the cache keeps objects, always without managedFields. `raw`: their JSON. `compressed`: a fifth to
    a tenth of it, once there are 1,000 objects or 4 MiB; a read then costs more, see docs/adr/0010.
    `auto`: compressed from 10,000 objects or 16 MiB on, if that saves half. `metadata`: only their metadata is asked
    for and kept; *model* must need no more.

    *transform* gets the JSON of each object and gives the JSON to keep, without what is not needed. It must leave
    the metadata but annotations as it is, and must not drop what this controller writes. The ring's annotation stays.

    *indexes*: functions from a model to the values under which `by_index` finds the object.

    Raises: InputError if the model cannot be decoded, or does not go with *stored*.
    """

    __slots__ = ("_decode", "indexes", "model", "stored", "text", "transform")

    def __init__(
        self,
        text: str,
        model: type[M],
        *,
        stored: Stored = "raw",
        transform: Callable[[bytes], bytes] | None = None,
        indexes: Mapping[str, Callable[[M], Iterable[str]]] | None = None,
    ) -> None:
        if stored not in get_args(Stored):
            raise InputError("stored", stored, "is unknown", f"use one of {', '.join(get_args(Stored))}")
        needed = models.fields_beyond_metadata(model) if stored == "metadata" else []
        if needed:
            raise InputError(
                "stored",
                stored,
                f"does not give {text} the field {needed[0]} that {model.__name__} needs",
                "give the field a default, or use another form",
            )
        self.text = text
        self.model = model
        self.stored: Stored = stored
        self.transform = transform
        self.indexes = MappingProxyType(dict(indexes or {}))
        self._decode = models.decoder(model)

    def decode(self, raw: bytes) -> M:
        """The model of the object whose JSON is *raw*, made anew: the caller's own.

        Raises: msgspec.ValidationError, which names the object and the field that does not fit, and no value.
        """
        return self._decode(raw)

    @property
    def is_metadata_only(self) -> bool:
        """Whether the server is asked for nothing but metadata."""
        return self.stored == "metadata"

    def __repr__(self) -> str:
        return f"Resource({self.text!r}, {getattr(self.model, '__name__', self.model)})"


def form_of(resource: Resource[M], *, keeps: frozenset[str] = frozenset()) -> StoredForm:
    """Form in which a store keeps objects of *resource*; a transform cannot remove the annotations *keeps*."""
    return dataclasses.replace(_FORMS[resource.stored], transform=resource.transform, keeps=keeps)


def index_functions_of(resource: Resource[M]) -> dict[str, Callable[[bytes], Iterable[str]]]:
    """The indexes of *resource* as functions of JSON."""
    return {name: _over_json(resource, function) for name, function in resource.indexes.items()}


def _over_json(
    resource: Resource[M], function: Callable[[M], Iterable[str]]
) -> Callable[[bytes], Iterable[str]]:
    return lambda raw: function(resource.decode(raw))
