"""What users declare: a controller, its reconcile function, and the mode it runs in.

Pure: nothing starts here. `run` hands over to `app`. Everything public is re-exported by the package.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from kubeio.errors import InputError
from shard_controller.context import Context, SyncContext
from shard_controller.declared import Resource
from shard_controller.results import Result

M = TypeVar("M")
_FINALIZER = re.compile(r"\A[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?\Z")
Finalizer = Callable[[Context[M]], Awaitable[None]]
AsyncReconciler = Callable[[Context[M]], Awaitable[Result]]
SyncReconciler = Callable[[SyncContext[M]], Result]


@dataclass(frozen=True, slots=True)
class Sharded:
    """Many replicas work at once, each on the objects that the ring gives it."""

    ring: str


@dataclass(frozen=True, slots=True)
class LeaderElected:
    """One replica works, the others wait for the Lease *name*."""

    name: str


@dataclass(frozen=True, slots=True)
class Single:
    """Exactly one replica is started; nothing makes sure of it."""


Mode = Sharded | LeaderElected | Single


class Controller(Generic[M]):
    """Reconciles the objects of one resource, and is woken by changes of the objects that they control.

    *owns*: resources of controlled objects. *workers*: reconciles at the same time. *timeout_s*: an async
    reconcile is cancelled after it; one in a thread cannot be, it keeps its key busy and is counted.
    """

    def __init__(
        self,
        resource: Resource[M],
        *,
        owns: Sequence[Resource[Any]] = (),
        workers: int = 8,
        timeout_s: float = 30.0,
        name: str = "",
    ) -> None:
        if workers < 1:
            raise InputError("workers", workers, "is too small", "use 1 or more")
        if not timeout_s > 0:
            raise InputError("timeout_s", timeout_s, "is too small", "use a number of seconds above 0")
        self.resource = resource
        self.owns = tuple(owns)
        self.workers = workers
        self.timeout_s = timeout_s
        self.name = name or resource.text.partition(".")[0].partition("/")[0]
        self._reconciler: Callable[[Any], Any] | None = None
        self._is_async = True
        self.finalizers: dict[str, Callable[[Any], Awaitable[None]]] = {}

    @overload
    def reconcile(self, function: AsyncReconciler[M]) -> AsyncReconciler[M]: ...
    @overload
    def reconcile(self, function: SyncReconciler[M]) -> SyncReconciler[M]: ...
    def reconcile(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Decorator: *function* reconciles one object. `async def` gets a `Context`, `def` a `SyncContext` in a thread.

        Raises: InputError if it takes anything but one argument, or if there is a reconciler already.
        """
        _check_signature(function, self.name)
        if self._reconciler is not None:
            raise InputError(
                "@reconcile", _name(function), f"is the second reconciler of {self.name}", "keep one of them"
            )
        self._reconciler = function
        self._is_async = inspect.iscoroutinefunction(function)
        return function

    def finalizer(self, name: str) -> Callable[[Finalizer[M]], Finalizer[M]]:
        """Decorator: the async function runs before an object goes; *name* (`example.com/cdn`) is put on every object.

        While a controller has finalizers, its reconciler does not see objects that are being deleted.
        Raises: InputError if *name* cannot be a finalizer or is declared twice.
        """
        if not _FINALIZER.match(name) or name in self.finalizers:
            raise InputError(
                "@finalizer", name, "cannot be used (again)", "use DOMAIN/NAME, such as example.com/cdn"
            )

        def declare(function: Finalizer[M]) -> Finalizer[M]:
            _check_signature(function, self.name)
            if not inspect.iscoroutinefunction(function):
                raise InputError("@finalizer", _name(function), "is not async", "write `async def`")
            self.finalizers[name] = function
            return function

        return declare

    @property
    def reconciler(self) -> Callable[[Any], Any]:
        """The decorated function. Raises: InputError if there is none."""
        if self._reconciler is None:
            raise InputError(
                "controller",
                self.name,
                "has no reconciler",
                f"decorate one: @{self.name}.reconcile on `async def f(ctx: sc.Context[Model]) -> sc.Result`",
            )
        return self._reconciler

    @property
    def is_async(self) -> bool:
        return self._is_async


def run(controller: Controller[Any], *, mode: Mode | None = None, **settings: Any) -> int:
    """Run *controller* until SIGTERM; the exit code. *settings* are the fields of `config.Settings`.

    Call it as `sys.exit(sc.run(websites, mode=sc.Sharded("websites")))`.
    """
    from shard_controller import app, config  # at the end: they import this module

    return app.run(controller, mode or Single(), config.Settings(**settings))


def _check_signature(function: Callable[..., object], controller: str) -> None:
    right = f"@{controller}.reconcile needs `async def f(ctx: sc.Context[Model]) -> sc.Result`"
    try:
        inspect.signature(function).bind(object())
    except TypeError:
        shown = f"{_name(function)}{inspect.signature(function)}"
        raise InputError("@reconcile", shown, "does not take exactly one argument", right) from None


def _name(function: Callable[..., object]) -> str:
    return getattr(function, "__qualname__", repr(function))
