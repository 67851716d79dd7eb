"""Problems of a ring's Leases, for the people who read the ring's status. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharder.errors import FieldProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sharder.membership.shards import Shard
    from sharder.ringspec.spec import RingSpec


def lease_problems(
    shards: Iterable[Shard],
    *,
    misnamed: Mapping[str, tuple[FieldProblem, ...]],
    refused: Mapping[str, FieldProblem],
    spec: RingSpec,
) -> tuple[FieldProblem, ...]:
    """Problems with what Leases say, then tombstones that are *refused*, then kinds that a shard does not watch.

    *misnamed* are problems of Leases whose names cannot be shards'.
    """
    by_name = dict(misnamed)
    unwatched: dict[str, FieldProblem] = {}
    lacks: dict[frozenset[str], list[str]] = {}
    for shard in shards:
        if shard.facts.problems:
            by_name[shard.name] = shard.facts.problems
        resources = shard.facts.resources
        if resources is None or not shard.may_be_member:
            continue
        if resources not in lacks:
            lacks[resources] = _lacks(resources, spec)
        if lacks[resources]:
            unwatched[shard.name] = _unwatched(shard.name, resources, lacks[resources], spec)
    said = [problem for _, problems in sorted(by_name.items()) for problem in problems]
    return (*said, *_in_order(refused), *_in_order(unwatched))


def _in_order(problems: Mapping[str, FieldProblem]) -> list[FieldProblem]:
    return [problems[name] for name in sorted(problems)]


def _lacks(resources: frozenset[str], spec: RingSpec) -> list[str]:
    """Controlled kinds that a shard does not watch although it works what controls them: added meanwhile."""
    worked = [entry for entry in spec.resources if str(entry.main) in resources]
    return sorted({str(kind) for entry in worked for kind in entry.controlled} - resources)


def _unwatched(name: str, resources: frozenset[str], lacks: list[str], spec: RingSpec) -> FieldProblem:
    return FieldProblem(
        f"leases/{name}.metadata.annotations[{spec.keys.resources}]",
        ",".join(sorted(resources)),
        f"lacks {', '.join(lacks)}: its shard does not watch them, so they are not given to it",
        "roll the replicas: they learn at their start what the ring controls",
    )
