"""`ringleader events`: what sharders and replicas told as Kubernetes Events, newest last, as people read logs.

Owns the choice and the lines. Of a ring, of one object, or all that programs of Ringleader wrote.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kubeio.clock import SystemClock
from ringleader.inspect.cluster.dates import seconds_since
from ringleader.inspect.cluster.happenings import ClusterEvent, is_ours, read_happenings
from ringleader.inspect.cluster.reading import named_ring, read_rings
from ringleader.inspect.where.one import parse_target, resolve_kind
from ringleader.options import ConnectionOptions, connected
from ringleader.output import Form, Table, age, print_document, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubeio.access.cluster import Cluster
    from kubeio.rest.client import Client

LOOK_S = 2.0


class Choice(NamedTuple):
    """Which Events: of *ring*, of the object *target*, in *namespace*, only those of *type*; at *most* so many."""

    ring: str | None = None
    target: str | None = None
    namespace: str | None = None
    type: str | None = None
    most: int = 50


class _Question(NamedTuple):
    wanted: Callable[[ClusterEvent], bool]
    namespace: str
    about: str


def run_events(where: ConnectionOptions, choice: Choice, *, is_watching: bool, form: Form | None) -> int:
    """The command; with *is_watching* until Ctrl-C."""

    async def read(client: Client, cluster: Cluster) -> list[ClusterEvent]:
        return await _read(client, await _question(client, cluster, choice, where), choice, where)

    async def watch(client: Client, cluster: Cluster) -> None:
        question = await _question(client, cluster, choice, where)
        seen: set[tuple[object, ...]] = set()
        while True:
            for each in await _read(client, question, choice, where):
                mark = (
                    each.kind,
                    each.namespace,
                    each.name,
                    each.reason,
                    each.note,
                    each.count,
                    each.last_seen,
                )
                if mark not in seen:
                    seen.add(mark)
                    print_line(_line(each))
            sys.stdout.flush()
            await asyncio.sleep(LOOK_S)

    if is_watching:
        try:
            connected(where, watch)
        except KeyboardInterrupt:
            sys.stdout.flush()
        return 0
    _print(connected(where, read), form)
    return 0


async def _question(client: Client, cluster: Cluster, choice: Choice, where: ConnectionOptions) -> _Question:
    """What to ask for. Raises InputError for a ring or a kind that there is not."""
    rings = await read_rings(client, timeout_s=where.timeout_s)
    if choice.target is not None:
        from kubeio.rest.discovery import Discovery

        kind, name = parse_target(choice.target)
        resource = await resolve_kind(Discovery(client), rings, kind)
        space = (choice.namespace or cluster.namespace) if resource.namespaced else "default"
        return _Question(
            lambda seen: seen.name == name and seen.kind == resource.kind and _fits(seen, choice), space, name
        )
    if choice.ring is not None:
        ring = named_ring(rings, choice.ring)
        return _Question(
            lambda seen: seen.kind == "ControllerRing" and seen.name == ring.name and _fits(seen, choice),
            choice.namespace or "",
            ring.name,
        )
    return _Question(lambda seen: is_ours(seen) and _fits(seen, choice), choice.namespace or "", "")


def _fits(seen: ClusterEvent, choice: Choice) -> bool:
    return choice.type is None or seen.type.lower() == choice.type.lower()


async def _read(
    client: Client, question: _Question, choice: Choice, where: ConnectionOptions
) -> list[ClusterEvent]:
    newest = await read_happenings(
        client,
        wanted=question.wanted,
        namespace=question.namespace,
        about=question.about,
        most=choice.most,
        timeout_s=where.timeout_s,
    )
    return newest[::-1]


def _print(found: Sequence[ClusterEvent], form: Form | None) -> None:
    match form:
        case Form.JSON | Form.YAML:
            print_document({"events": list(found)}, form=form)
        case Form.NAME:
            for each in found:
                print_line(_about(each))
        case _ if not found:
            print_line("no event")
        case _:
            print_table(_table(found), form=form)


def _table(found: Sequence[ClusterEvent]) -> Table:
    now = SystemClock().wall()
    rows = [
        [
            age(seconds_since(each.last_seen, now)),
            each.type,
            each.reason,
            _about(each),
            each.reporter,
            str(each.count),
            " ".join(each.note.split()),
        ]
        for each in found
    ]
    return Table(("LAST SEEN", "TYPE", "REASON", "OBJECT", "BY", "COUNT", "NOTE"), rows, wide=("BY", "COUNT"))


def _line(seen: ClusterEvent) -> str:
    times = f" x{seen.count}" if seen.count > 1 else ""
    return f"{seen.last_seen} {seen.type} {seen.reason}{times} {_about(seen)}: {' '.join(seen.note.split())}"


def _about(seen: ClusterEvent) -> str:
    place = f"{seen.namespace}/" if seen.namespace else ""
    return f"{seen.kind.lower()}/{place}{seen.name}"
