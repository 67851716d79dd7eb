"""Predicates: conditions that select the changes which enqueue an object; users combine them. Pure.

A predicate compares two versions of an object. `event_handlers` decides which changes bypass every predicate.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from kubeio.errors import InputError
from kubeio.models import Meta, ObjectKey
from shard_controller.declare.resource import Resource

T = TypeVar("T")


class Snapshot(Generic[T]):
    """One version of one object, as the cache has or had it: `meta` is its metadata, `object` the model."""

    __slots__ = ("_raw", "_resource", "meta")

    def __init__(self, meta: Meta, raw: bytes, resource: Resource[T]) -> None:
        self.meta = meta
        self._raw = raw
        self._resource = resource

    @property
    def name(self) -> str:
        return self.meta.name

    @property
    def namespace(self) -> str:
        """Empty for a cluster-scoped object."""
        return self.meta.namespace

    @property
    def key(self) -> ObjectKey:
        return self.meta.key

    @property
    def object(self) -> T:
        """The model; decoded with every access. Raises: msgspec.ValidationError."""
        return self._resource.decode(self._raw)


PredicateFunction = Callable[[Snapshot[Any], Snapshot[Any]], bool]


class Predicate:
    """A condition on a change of an object, from its *old* to its *new* version; combined with `|` and `&`.

    It saves reconciles and never hides what the runtime needs. An object that comes into the selection (created,
    handed over, in the first list) or leaves it, a change of the ring's labels, of `deletionTimestamp` or of
    the finalizers, and the version that a refused write waits for enqueue the object whatever a predicate says.
    One that raises counts as true and is logged.

    Example: `sc.generation_changed | sc.Predicate(lambda old, new: old.meta.labels != new.meta.labels)`.
    """

    def __init__(self, function: PredicateFunction) -> None:
        self._function = check_predicate("Predicate", function)
        self.__doc__ = function.__doc__

    def __call__(self, old: Snapshot[Any], new: Snapshot[Any]) -> bool:
        return bool(self._function(old, new))

    def __repr__(self) -> str:
        return f"Predicate({getattr(self._function, '__name__', self._function)!s})"

    def __or__(self, other: PredicateFunction) -> Predicate:
        second = check_predicate("|", other)
        return Predicate(lambda old, new: self(old, new) or second(old, new))

    def __and__(self, other: PredicateFunction) -> Predicate:
        second = check_predicate("&", other)
        return Predicate(lambda old, new: self(old, new) and second(old, new))

    def __ror__(self, other: PredicateFunction) -> Predicate:
        return Predicate(other) | self

    def __rand__(self, other: PredicateFunction) -> Predicate:
        return Predicate(other) & self


def check_predicate(field: str, function: PredicateFunction) -> PredicateFunction:
    """*function*, if it can be asked about two versions. Raises: InputError naming *field*."""
    right = "write `def changed(old: sc.Snapshot[Model], new: sc.Snapshot[Model]) -> bool`"
    if not callable(function):
        raise InputError(field, function, "is not a function", right)
    if inspect.iscoroutinefunction(function):  # its coroutine would always be true
        raise InputError(field, function.__qualname__, "is async", right)
    try:
        inspect.signature(function).bind(object(), object())
    except TypeError:
        shown = f"{getattr(function, '__qualname__', function)}{inspect.signature(function)}"
        raise InputError(field, shown, "does not take exactly two arguments", right) from None
    return function


@Predicate
def generation_changed(old: Snapshot[Any], new: Snapshot[Any]) -> bool:
    """The spec changed. Kinds that do not count generations (ConfigMaps, Secrets) change with every version."""
    return old.meta.generation != new.meta.generation or new.meta.generation == 0


@Predicate
def labels_changed(old: Snapshot[Any], new: Snapshot[Any]) -> bool:
    """The labels differ."""
    return old.meta.labels != new.meta.labels


@Predicate
def annotations_changed(old: Snapshot[Any], new: Snapshot[Any]) -> bool:
    """The annotations differ."""
    return old.meta.annotations != new.meta.annotations
