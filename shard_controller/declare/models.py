"""Models of users: decoders from the JSON of an object to the class that a reconciler is written for. Pure.

msgspec Structs, dataclasses, TypedDicts and dict are decoded by msgspec; pydantic models by themselves: pydantic is
never imported here. Owns the one error for an object that does not fit: it names the field and never the value, which
may be a Secret's.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import msgspec

from kubeio.decoding import UNREADABLE, meta_of
from kubeio.errors import InputError

M = TypeVar("M")

_ENVELOPE: Final = frozenset({"apiVersion", "kind", "metadata"})
_SAFE: Final = (
    "Expected ",
    "Object missing ",
    "Object contains ",
    "Invalid RFC3339",
    "Invalid ISO8601",
    "Invalid UUID",
    "Invalid base64",
    "Invalid decimal",
)
"""Beginnings of msgspec's messages that repeat only names of fields, no values."""
_AT: Final = re.compile(r" - at `[^`]*`\Z")


def decoder(model: type[M]) -> Callable[[bytes], M]:
    """Decoder of JSON as *model*. It raises msgspec.ValidationError, which names object and field but no value.

    Raises: InputError if JSON cannot be decoded as *model*.
    """
    if _is_pydantic(model):
        return _pydantic_decoder(model)
    if not _is_supported(model):
        raise InputError(
            "model",
            getattr(model, "__name__", repr(model)),
            "is no class that an object can be decoded as",
            "use a msgspec.Struct, a dataclass, a pydantic.BaseModel, or dict",
        )
    decode = msgspec.json.Decoder(model).decode

    def fit(raw: bytes) -> M:
        try:
            return decode(raw)
        except Exception as error:  # a model may have code of its own
            problem = _problem(error)
        raise msgspec.ValidationError(f"{_named(raw)}{problem}")  # not `from`: the cause may show a value

    return fit


def fields_beyond_metadata(model: type[Any]) -> list[str]:
    """Fields that *model* needs and that an object's metadata alone does not fill, by their names in JSON."""
    if _is_pydantic(model):
        fields = cast(Any, model).model_fields
        needed = [field.alias or name for name, field in fields.items() if field.is_required()]
    elif isinstance(model, type) and issubclass(model, msgspec.Struct):
        needed = [field.encode_name for field in msgspec.structs.fields(model) if field.required]
    elif dataclasses.is_dataclass(model):
        needed = [
            field.name
            for field in dataclasses.fields(model)
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        ]
    else:
        needed = sorted(getattr(model, "__required_keys__", ()))
    return [name for name in needed if name not in _ENVELOPE]


def _is_pydantic(model: Any) -> bool:
    return inspect.isclass(model) and hasattr(model, "__pydantic_validator__")


def _is_supported(model: Any) -> bool:
    origin = typing.get_origin(model) or model
    return origin is dict or (
        inspect.isclass(origin)
        and (
            issubclass(origin, msgspec.Struct)
            or dataclasses.is_dataclass(origin)
            or typing.is_typeddict(origin)
        )
    )


def _pydantic_decoder(model: type[M]) -> Callable[[bytes], M]:
    validate = cast(Any, model).model_validate_json

    def fit(raw: bytes) -> M:
        try:
            return cast(M, validate(raw))
        except Exception as error:  # a model may have code of its own
            problem = _pydantic_problem(error) if hasattr(error, "errors") else _problem(error)
        raise msgspec.ValidationError(f"{_named(raw)}{problem}")  # not `from`: the cause shows the value

    return fit


def _named(raw: bytes) -> str:
    """Key of the object *raw* as the beginning of a message; empty if *raw* is no object."""
    try:
        return f"{meta_of(raw).key}: "
    except UNREADABLE:
        return ""


def _problem(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "Nested too deep to be decoded"
    if not isinstance(error, UNREADABLE):
        return f"{type(error).__name__} in the model's own code"
    message = str(error)
    if message.startswith(_SAFE):
        return message
    place = _AT.search(message)
    return f"Value refused{place.group() if place else ''}"


def _pydantic_problem(error: Exception) -> str:
    """Place and kind of each problem: pydantic's own messages may repeat values."""
    problems = cast(Any, error).errors(include_url=False, include_context=False, include_input=False)
    problems = [
        f"{str(problem['type']).replace('_', ' ')} - at `$.{'.'.join(str(part) for part in problem['loc'])}`"
        for problem in problems
    ]
    return "; ".join(problems)
