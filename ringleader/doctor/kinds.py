"""Check of kinds: main resources that no member works, and objects whose owner does not watch their kind. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ringleader.doctor.checks import Check, Told, error
from ringleader.doctor.objects import lasting, so_many
from ringleader.doctor.seen import Group, RingSeen, Sample, Seen, Tally, Trouble
from ringleader.inspect.cluster.kinds import ROLL, START, give_up, unwatched, unworked


def judge_kinds(seen: Seen) -> Iterator[Told]:
    """Every main resource is worked, and every owner watches what bears its name."""
    for ring in seen.rings:
        if ring.ring.metadata.deletion_timestamp:
            continue
        for tally in ring.tallies:
            if tally.is_main and ring.unworked(tally):
                yield _unworked(ring, tally)
            for name, group in tally.trouble(Trouble.UNWATCHED).items():
                if name in ring.shards and (sample := lasting(group)):
                    yield _unwatched(ring, tally, group, sample)


def _unworked(ring: RingSeen, tally: Tally) -> Told:
    works = {
        life.member: ", ".join(sorted(life.resources or ())) for life in ring.lives() if life.fills_place
    }
    return error(
        f"{unworked(ring.name, tally.resource.group_resource)}: its {tally.objects:,} objects wait",
        ring=ring.name,
        about=f"controllerring/{ring.name}",
        evidence=[f"member {member} works {kinds}" for member, kinds in sorted(works.items())[:3]],
        remedy=START,
    )


def _unwatched(ring: RingSeen, tally: Tally, group: Group, sample: Sample) -> Told:
    name, kind = sample.owner, tally.resource.group_resource
    owner = next(life for life in ring.lives() if life.shard == name)
    is_new_kind = not tally.is_main and any(map(owner.works, ring.mains_of(tally)))
    return error(
        f"{sample.named} is not worked on: {unwatched(name, kind)}",
        ring=ring.name,
        about=sample.named,
        evidence=[
            so_many(group, tally, f"name {name}"),
            f"{ring.lease(name)} says that it works {', '.join(sorted(owner.resources or ()))}",
        ],
        remedy=ROLL if is_new_kind else give_up(owner.member, ring.ring.keys.shard),
    )


CHECK = Check(
    "kinds",
    "kinds that no shard works, owners that do not watch what they own",
    judge_kinds,
    lambda seen: "every main resource has members that work it, and every owner watches what it owns",
    needs=("rings", "leases", "objects"),
)
