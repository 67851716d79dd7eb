"""Declarations besides a controller's own resource: resources of controlled objects, and other watches. Pure.

`Owned` moves with its parent. `Watch` is outside every ring: each replica watches all of it, read-only, and it is
never labelled.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from kubeio.errors import InputError
from kubeio.labels import check_namespace
from kubeio.models import ObjectKey
from shard_controller.declare.predicates import PredicateFunction, Snapshot, check_predicate
from shard_controller.declare.resource import Resource

T = TypeVar("T")
Targets = Iterable[ObjectKey | str]


class Owned(Generic[T]):
    """Objects of *resource* that the reconciled objects control; a change of one that passes *when* enqueues its owner.

    A bare `Resource` in `owns=[...]` means every change.
    """

    def __init__(self, resource: Resource[T], *, when: PredicateFunction | None = None) -> None:
        self.resource = resource
        self.when = check_predicate("when", when) if when is not None else None


class Watch(Generic[T]):
    """Objects of *resource* that others control; a change of one enqueues the objects that *map* names.

    *map* is called with the old and the new version of an object, so that objects which only the old version names are
    enqueued too. It returns `sc.Key(namespace, name)` of objects to reconcile, or names in the namespace of the changed
    object; objects of other shards are ignored. If *map* raises, the error is logged and nothing is enqueued.

    Every replica lists all of it, or what *label_selector* and *namespaces* choose: `ctx.get` and `ctx.list` read it.
    """

    def __init__(
        self,
        resource: Resource[T],
        *,
        map: Callable[[Snapshot[T]], Targets],  # noqa: A002 - what it does
        when: PredicateFunction | None = None,
        label_selector: str = "",
        namespaces: Sequence[str] = (),
    ) -> None:
        self.resource = resource
        self.map = _check_map(resource.text, map)
        self.when = check_predicate("when", when) if when is not None else None
        self.label_selector = label_selector
        if isinstance(namespaces, str):
            raise InputError("namespaces", namespaces, "is not a list", f"write namespaces=[{namespaces!r}]")
        self.namespaces = tuple(dict.fromkeys(check_namespace("namespaces", each) for each in namespaces))


def targets_of(watch: Watch[T], changed: Snapshot[T]) -> set[ObjectKey]:
    """Keys that the watch's `map` returns for *changed*. Raises: TypeError for an answer that is no key; its errors."""
    named = watch.map(changed)
    if isinstance(named, str):
        raise TypeError(f"map returned {named!r}: return a list, [{named!r}]")
    return {_target(each, changed) for each in named}


def _target(named: object, changed: Snapshot[Any]) -> ObjectKey:
    if isinstance(named, ObjectKey):
        return named
    if isinstance(named, str) and named:
        return ObjectKey(changed.namespace, named)
    raise TypeError(f"map named {named!r}: name objects by sc.Key(namespace, name) or by their names")


def _check_map(watched: str, function: Callable[[Snapshot[T]], Targets]) -> Callable[[Snapshot[T]], Targets]:
    right = f"write `def affected(changed: sc.Snapshot[Model]) -> list[sc.Key]` for the watch of {watched}"
    if not callable(function):
        raise InputError("map", function, "is not a function", right)
    if inspect.iscoroutinefunction(function):
        raise InputError("map", function.__qualname__, "is async", right)
    try:
        inspect.signature(function).bind(object())
    except TypeError:
        shown = f"{getattr(function, '__qualname__', function)}{inspect.signature(function)}"
        raise InputError("map", shown, "does not take exactly one argument", right) from None
    return function
