"""A ring in a file: read, read again when it changes, and worked; no ControllerRing, no cluster rights.

An edit that cannot be worked is logged, and the last good version goes on. `sharder.rings.store` keeps the ring's
memory, `sharder.rings.controller` does the work.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from kubeio.clock import micro_time
from kubeio.errors import Forbidden, InputError, KubeError, Unauthorized
from kubeio.models import Meta
from kubeio.program.failures import failure
from kubeio.program.yaml_file import parse_document, read_file
from sharder.errors import FieldProblem, RingRefused
from sharder.rings.controller import RingController
from sharder.rings.store import FileRingStore, Ring
from sharder.ringspec.parsing import immutable_changes, parse_ring, worked_as
from sharder.ringspec.scope import Scope

if TYPE_CHECKING:
    from pathlib import Path

    from sharder.ringspec.spec import RingSpec
    from sharder.sharder_context import SharderContext

log = structlog.get_logger("sharder")

FLAG: Final = "--ring-file"
READ_EVERY_S: Final = 1.0


class RingFile:
    """The file at *path*: the last version of it that can be worked."""

    def __init__(self, path: Path, *, scope: Scope) -> None:
        """Raises InputError if the file cannot be read or its ring cannot be worked."""
        self.scope: Final = scope
        self._path = path
        self._content: bytes | None = read_file(FLAG, path)
        self.document, self.spec = self._parse(self._content)

    def reload(self) -> bool:
        """Read the file again; true if there is a new version. Raises InputError once for each unusable one."""
        try:
            content = read_file(FLAG, self._path)
        except InputError:
            if self._content is None:
                return False
            self._content = None
            raise
        if content == self._content:
            return False
        self._content = content
        document, spec = self._parse(content)
        if spec.name != self.spec.name:
            raise self._error(
                FieldProblem(
                    "metadata.name",
                    spec.name,
                    f"was {self.spec.name!r}: it is another ring",
                    "start a sharder of its own for it",
                )
            )
        if problems := immutable_changes(worked_as(self.spec), spec):
            raise self._error(*problems)
        self.document, self.spec = document, spec
        return True

    def _parse(self, content: bytes) -> tuple[dict[str, object], RingSpec]:
        document = parse_document(FLAG, self._path, content)
        try:
            spec = parse_ring(document)
        except RingRefused as refused:
            raise self._error(*refused.problems) from None
        if self.scope.names and spec.namespace_selector is not None:
            raise self._error(
                FieldProblem(
                    "spec.namespaceSelector",
                    "",
                    "needs the right to list all namespaces",
                    "leave it out: --namespaces says which belong to the ring",
                )
            )
        return document, spec

    def _error(self, *problems: FieldProblem) -> InputError:
        first, *others = problems
        more = "".join(f"; {problem}" for problem in others)
        return InputError(
            f"{FLAG} {self._path}: {first.field}", first.value, first.problem, first.remedy + more
        )


class FileRing:
    """Works the one ring of *file* until cancelled, or with *release* until all of it is given up."""

    def __init__(self, context: SharderContext, file: RingFile, *, release: bool) -> None:
        self._context = context
        self._file = file
        self._names = file.scope.names
        self._deleted_at = micro_time(context.clock.wall()) if release else None
        self._generation = 1
        self._store = FileRingStore(context.client, self._ring(), namespace=file.spec.lease_namespace)
        self._controller: RingController | None = None
        self._led = asyncio.Event()
        self.synced = asyncio.Event()
        self.ended = asyncio.Event()
        """The ring is given up: nothing is left to do."""

    def lead(self) -> None:
        """This sharder acts from now on."""
        self._led.set()

    def why_not_alive(self) -> str | None:
        """Problem that a restart would cure; None if there is none."""
        return self._controller.why_not_alive() if self._controller is not None else None

    async def run(self) -> None:
        while not self._store.is_left:
            ring = await self._remembered()
            await self._work(ring, Scope(self._names, former=self._former(ring)))
        self.ended.set()

    async def _work(self, ring: Ring, scope: Scope) -> None:
        """Work *ring* until it is given up, or a leader before this one recorded a namespace that *scope* lacks."""
        async with asyncio.TaskGroup() as tasks:
            controller = self._controller = RingController(
                self._context, ring, store=self._store, scope=scope
            )
            running = tasks.create_task(controller.run(), name=f"ring {self._file.spec.name}")
            self.synced.set()
            while not self._store.is_left:
                await self._wait()
                if self._led.is_set():
                    if not {*self._former(await self._remembered())} <= {*scope.former}:
                        break
                    self._led.clear()
                    await self._remember(scope)
                    controller.change(await self._remembered())  # what the last leader wrote down
                    controller.lead()
                if self._has_changed():
                    self._generation += 1
                    self._store.ring = self._ring()
                    controller.change(await self._remembered())
            running.cancel()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(READ_EVERY_S):
                await self._led.wait()
        except TimeoutError:
            return

    def _has_changed(self) -> bool:
        refused = self._context.metrics.ring_file_refused.labels(ring=self._file.spec.name)
        try:
            changed = self._file.reload()
        except InputError as error:
            refused.set(1)
            log.error("ring file cannot be used; the last good version goes on", error=str(error))
            return False
        if changed:
            refused.set(0)
            log.info("ring file changed", ring=self._file.spec.name)
        return changed

    def _ring(self) -> Ring:
        """Spec of the ring in the file, with metadata of our own: a file from `kubectl get -o yaml` holds more."""
        spec = self._file.spec
        metadata = Meta(name=spec.name, generation=self._generation, deletion_timestamp=self._deleted_at)
        return Ring(metadata, self._file.document.get("spec"))

    def _former(self, ring: Ring) -> tuple[str, ...]:
        """Namespaces that were worked once and are not named any more."""
        before = ring.status.get("namespaces")
        if not self._names or not isinstance(before, list):
            return ()
        return tuple(sorted({str(name) for name in before} - {*self._names}))

    async def _remember(self, scope: Scope) -> None:
        """Write down where labels may be before the first one is written."""
        while True:
            try:
                await self._store.merge_status({"namespaces": [*scope.names, *scope.former]})
            except KubeError as error:
                log.warning("ring's record could not be written", error=failure(error).message)
                await asyncio.sleep(READ_EVERY_S)
            else:
                return

    async def _remembered(self) -> Ring:
        """The file's ring with its record. Raises: Forbidden, Unauthorized at the start."""
        while True:
            try:
                return await self._store.read()
            except KubeError as error:
                if isinstance(error, Forbidden | Unauthorized) and not self.synced.is_set():
                    raise  # the right has to be there from the beginning
                log.warning("ring's record could not be read", error=failure(error).message)
                await asyncio.sleep(READ_EVERY_S)
