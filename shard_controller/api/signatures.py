"""Check that a user's function takes a context: when it is decorated, not when the first object comes. Pure.

Annotations that cannot be read (names that exist for type checkers only) are left alone.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any, get_args, get_origin

from kubeio.errors import InputError
from shard_controller.api.context import Context
from shard_controller.api.sync_context import SyncContext
from shard_controller.declare.resource import Resource

GENERAL = "async def f(ctx: sc.Context[Model]) -> sc.Result"


def is_async(function: Callable[..., object]) -> bool:
    """Whether a call of *function* gives a coroutine: `async def`, also as the `__call__` of an object."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - the method itself is looked at
    )


def check_function(
    decorator: str, function: Callable[..., object], resource: Resource[Any], *, controller: str
) -> None:
    """Raises: InputError with the right signature if *function* cannot be what *decorator* needs."""
    given = name_of(function)
    if not callable(function):
        raise InputError(decorator, function, "is not a function", f"decorate `{GENERAL}`")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InputError(decorator, given, "yields", f"return a result: `{GENERAL}`")
    try:
        signature = inspect.signature(function)
        signature.bind(object())
    except TypeError:
        shown = f"{given}{inspect.signature(function)}"
        right = f"@{controller}.reconcile needs `{GENERAL}`"
        raise InputError(decorator, shown, "does not take exactly one argument", right) from None
    hints = _hints(function)
    parameter = next(iter(signature.parameters.values()))
    right = f"write `{_right(decorator, function, parameter.name, resource)}`"
    _check_context(decorator, given, hints.get(parameter.name), resource, right, is_async=is_async(function))
    if decorator == "@reconcile" and "return" in hints and hints["return"] is type(None):
        raise InputError(decorator, given, "returns None", f"{right}, and return sc.Done()")


def name_of(function: Callable[..., object]) -> str:
    return getattr(function, "__qualname__", repr(function))


def _check_context(
    decorator: str, given: str, hint: Any, resource: Resource[Any], right: str, *, is_async: bool
) -> None:
    if hint is None or hint is Any:
        return
    kind = get_origin(hint) or hint
    wanted = Context if is_async else SyncContext
    if kind is not wanted:
        if kind in (Context, SyncContext):
            how = "is async" if is_async else "is not async, so it runs in a thread"
            raise InputError(decorator, given, f"{how} and takes a {kind.__name__}", right)
        raise InputError(decorator, given, f"takes a {_shown(hint)}", right)
    models = get_args(hint)
    if models and not _is_model(models[0], resource.model):
        raise InputError(
            decorator,
            given,
            f"takes a {kind.__name__} of {_shown(models[0])}, {resource!r} has another",
            right,
        )


def _is_model(annotated: Any, model: Any) -> bool:
    """Whether a type checker's *annotated* can be *model*: `dict[str, Any]` stands for `dict`."""
    if annotated is Any or isinstance(annotated, typing.TypeVar):
        return True
    plain = get_origin(annotated) or annotated
    if annotated == model or plain is model or plain is (get_origin(model) or model):
        return True
    return isinstance(plain, type) and isinstance(model, type) and issubclass(model, plain)


def _hints(function: Callable[..., object]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    try:
        return typing.get_type_hints(target)
    except Exception:  # a name that only type checkers see, or anything else that an annotation can raise
        return {}


def _right(decorator: str, function: Callable[..., object], argument: str, resource: Resource[Any]) -> str:
    model = _shown(resource.model)
    context = f"sc.Context[{model}]" if is_async(function) else f"sc.SyncContext[{model}]"
    define = "async def" if is_async(function) else "def"
    result = "sc.Result" if decorator == "@reconcile" else "None"
    name = getattr(function, "__name__", "f")
    return f"{define} {name if name.isidentifier() else 'f'}({argument}: {context}) -> {result}"


def _shown(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
