"""Declaration of a controller: its resource, its reconcile function, and the mode it runs in.

Pure: nothing starts here; `app` runs a controller. The package re-exports everything public.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from kubeio.errors import InputError
from shard_controller.api.context import Context
from shard_controller.api.signatures import check_function, name_of
from shard_controller.api.sync_context import SyncContext
from shard_controller.declare.predicates import PredicateFunction, check_predicate
from shard_controller.declare.resource import Resource
from shard_controller.declare.results import Result
from shard_controller.declare.watches import Owned, Watch

M = TypeVar("M")
_FINALIZER = re.compile(r"\A[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?\Z")
Finalizer = Callable[[Context[M]], Awaitable[None]]
SyncFinalizer = Callable[[SyncContext[M]], None]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays after failures of one object: *base_s*, doubled with each failure in a row, at most *max_s*.

    Each is shortened by a random part of at most a fifth, so that what failed together does not come back together.
    """

    base_s: float = 0.005
    max_s: float = 1000.0

    def __post_init__(self) -> None:
        if not 0 < self.base_s <= self.max_s < math.inf:
            raise InputError(
                "backoff",
                f"base_s={self.base_s!r}, max_s={self.max_s!r}",
                "cannot be used",
                "use seconds above 0, max_s at least base_s",
            )


class Controller(Generic[M]):
    """Reconciles the objects of one resource after changes of these, of objects that they control, and of watched ones.

    *owns*: resources of controlled objects. *watches*: other resources, whose changes enqueue objects. *when*: which
    changes of the objects themselves count (`Predicate` says what always does). *workers*: reconciles at the same
    time. *timeout_s*: an async reconcile is cancelled after it; one in a thread cannot be, it keeps its key busy
    and is counted, and after twice the time the process ends.

    *resync_s*: every object is reconciled once in that time, changed or not, evenly spread, and behind everything
    else. *backoff*: delays after failures.
    """

    def __init__(
        self,
        resource: Resource[M],
        *,
        owns: Sequence[Resource[Any] | Owned[Any]] = (),
        watches: Sequence[Watch[Any]] = (),
        when: PredicateFunction | None = None,
        workers: int = 8,
        timeout_s: float = 30.0,
        resync_s: float | None = None,
        backoff: Backoff = Backoff(),
        name: str = "",
    ) -> None:
        if workers < 1:
            raise InputError("workers", workers, "is too small", "use 1 or more")
        if not timeout_s > 0:
            raise InputError("timeout_s", timeout_s, "is too small", "use a number of seconds above 0")
        if resync_s is not None and not 0 < resync_s < math.inf:
            raise InputError("resync_s", resync_s, "is no period", "use seconds above 0, or leave it out")
        self.resource = resource
        self.owned = tuple(each if isinstance(each, Owned) else Owned(each) for each in owns)
        self.watches = tuple(watches)
        _check_once("owns", [each.resource for each in self.owned])
        _check_once("watches", [each.resource for each in self.watches])
        self.when = check_predicate("when", when) if when is not None else None
        self.workers = workers
        self.timeout_s = timeout_s
        self.resync_s = resync_s
        self.backoff = backoff
        self.name = name or resource.text.partition(".")[0].partition("/")[0]
        self._reconciler: Callable[[Any], Any] | None = None
        self.finalizers: dict[str, Callable[[Any], Any]] = {}

    @overload
    def reconcile(self, function: AsyncReconciler[M]) -> AsyncReconciler[M]: ...
    @overload
    def reconcile(self, function: SyncReconciler[M]) -> SyncReconciler[M]: ...
    def reconcile(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Decorator: *function* reconciles one object. `async def` gets a `Context`, `def` a `SyncContext` in a thread.

        Raises: InputError if it takes anything but one argument or is annotated with another context or model, or if
        there is a reconciler already.
        """
        check_function("@reconcile", function, self.resource, controller=self.name)
        if self._reconciler is not None:
            raise InputError(
                "@reconcile",
                name_of(function),
                f"is the second reconciler of {self.name}",
                "keep one of them",
            )
        self._reconciler = function
        return function

    def finalizer(self, name: str) -> Finalizers[M]:
        """Decorator: the function runs before an object goes; *name* (`example.com/cdn`) is put on every object.

        `async def` gets a `Context`, `def` a `SyncContext` in a thread. While a controller has finalizers, its
        reconciler does not see objects that are being deleted. Raises: InputError if *name* cannot be a finalizer
        or is declared twice.
        """
        if not _FINALIZER.match(name) or name in self.finalizers:
            raise InputError(
                "@finalizer", name, "cannot be used (again)", "use DOMAIN/NAME, such as example.com/cdn"
            )
        return Finalizers(self, name)

    def declare_finalizer(self, name: str, function: Callable[[Any], Any]) -> None:
        """Register *function* as the finalizer *name*. Raises: InputError if its signature is wrong."""
        check_function("@finalizer", function, self.resource, controller=self.name)
        self.finalizers[name] = function

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
    def owns(self) -> tuple[Resource[Any], ...]:
        """Resources of controlled objects."""
        return tuple(each.resource for each in self.owned)


class Finalizers(Generic[M]):
    """The decorator that `Controller.finalizer` gives."""

    def __init__(self, controller: Controller[M], name: str) -> None:
        self._controller = controller
        self._name = name

    @overload
    def __call__(self, function: Finalizer[M]) -> Finalizer[M]: ...
    @overload
    def __call__(self, function: SyncFinalizer[M]) -> SyncFinalizer[M]: ...
    def __call__(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        self._controller.declare_finalizer(self._name, function)
        return function


def _check_once(field: str, resources: Sequence[Resource[Any]]) -> None:
    seen: set[str] = set()
    for resource in resources:
        if resource.text in seen:
            raise InputError(field, resource.text, "is there twice", "keep one of them")
        seen.add(resource.text)
