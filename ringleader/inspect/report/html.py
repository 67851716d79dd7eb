"""The report as one HTML file: no script, no outside resource, everything from the cluster escaped. Pure.

Owns its looks, with `report.css`; the pictures in it are `plots`'.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import yaml

from ring import HashRing, RingError
from ringleader.cluster.picture import RingPicture
from ringleader.cluster.ring import Ring
from ringleader.cluster.shards import HashRings, Shard
from ringleader.inspect.report.doctor import Finding
from ringleader.inspect.report.plots import as_text, ring_plot, shares_plot
from ringleader.output import age
from sharder.membership.hash_rings import mains_by_ring


@dataclass(frozen=True, slots=True)
class RingPart:
    """One ring; *picture* is None if it could not be read, and *problem* says why."""

    ring: Ring
    shards: Sequence[Shard]
    picture: RingPicture | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What the file shows."""

    made_at: str
    server: str
    versions: dict[str, str]
    rings: list[RingPart]
    findings: list[Finding] = field(default_factory=list)


def render(report: Report) -> str:
    """The whole file."""
    parts = [_ring(part) for part in report.rings] or ["<p>There is no ring in this cluster.</p>"]
    style = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Ringleader report, {as_text(report.made_at)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"<header><h1>Ringleader report</h1><p>{as_text(report.made_at)} · {as_text(report.server)}</p></header>\n"
        f"<main>\n{''.join(parts)}{_doctor(report.findings)}{_versions(report.versions)}</main>\n</body>\n</html>\n"
    )


def _ring(part: RingPart) -> str:
    name = f"<h2>Ring {as_text(part.ring.name)}</h2>"
    if part.picture is None:
        unread = f'<p class="bad">Its members and objects could not be read: {as_text(part.problem)}</p>'
        return f"<section>{name}{unread}{_conditions(part.ring)}{_spec(part.ring)}</section>\n"
    return (
        f"<section>{name}{_numbers(part.picture)}{_plots(part)}{_members(part.picture)}"
        f"{_conditions(part.ring)}{_spec(part.ring)}</section>\n"
    )


def _numbers(shown: RingPicture) -> str:
    places = sum(member.ideal > 0 for member in shown.members)
    tiles = [
        ("Members", f"{places:,}"),
        ("Objects", f"{shown.objects:,}"),
        ("Without owner", f"{shown.unowned:,}"),
        ("In flight", f"{shown.in_flight:,}"),
        ("Ready", shown.ready),
        ("Balanced", shown.balanced),
    ]
    rows = "".join(f"<div><dt>{as_text(name)}</dt><dd>{as_text(value)}</dd></div>" for name, value in tiles)
    return f'<dl class="tiles">{rows}</dl>'


def _plots(part: RingPart) -> str:
    """A circle and bars for each ring that main resources have."""
    try:
        by_ring = mains_by_ring(HashRings(part.ring, part.shards).by_main)
    except RingError as error:
        return f'<p class="bad">The ring cannot be drawn: {as_text(str(error))}</p>'
    if part.picture is None:
        return ""
    if len(by_ring) > 1:
        return "".join(_plot(ring, {}, of=f" of {', '.join(mains)}") for ring, mains in by_ring.items())
    counted = {member.member: member.share for member in part.picture.members if member.ideal > 0}
    return "".join(_plot(ring, counted if part.picture.objects else {}) for ring in by_ring)


def _plot(ring: HashRing | None, counted: Mapping[str, float], *, of: str = "") -> str:
    """*of*: whose ring it is, where there are several; objects are then not told by ring."""
    of = as_text(of)
    if ring is None or not len(ring):
        return f"<p>No member is on the ring{of}: there is nothing to draw.</p>"
    dot = ", of the objects (dot)" if counted else ""
    return (
        f'<div class="plots"><figure>{ring_plot(ring)}<figcaption>The ring{of}: outside the hash space, inside what '
        f"each member has of it.</figcaption></figure><figure>{shares_plot(ring, counted)}<figcaption>Share of the "
        f"hash space{of} (bar){dot}, what the weight asks for (thin line) and the bound (thick line).</figcaption>"
        "</figure></div>"
    )


def _members(shown: RingPicture) -> str:
    rows = [
        [
            member.member,
            member.shard,
            member.state,
            age(member.lease_age_seconds),
            f"{member.objects:,}",
            f"{member.share:.1%}",
            f"{member.ideal:.1%}" if member.ideal else "-",
            f"{member.in_flight:,}",
        ]
        for member in shown.members
    ]
    heads = ("Member", "Shard", "State", "Lease renewed", "Objects", "Share", "Ideal", "In flight")
    return f"<h3>Members</h3>{_table(heads, rows)}"


def _conditions(ring: Ring) -> str:
    found = [each for each in ring.status.get("conditions") or [] if isinstance(each, dict)]
    fields = ("type", "status", "reason", "lastTransitionTime", "message")
    rows = [[str(each.get(name, "")) for name in fields] for each in found]
    if not rows:
        return "<h3>Conditions</h3><p>None: no sharder has worked this ring.</p>"
    return f"<h3>Conditions</h3>{_table(('Condition', 'Status', 'Reason', 'Since', 'Message'), rows)}"


def _spec(ring: Ring) -> str:
    text = yaml.safe_dump(_plain(ring), sort_keys=False, allow_unicode=True)
    return f"<details><summary>Its spec, as read</summary><pre>{as_text(text)}</pre></details>"


def _plain(ring: Ring) -> Any:
    return msgspec.to_builtins(ring.spec)


def _doctor(findings: Sequence[Finding]) -> str:
    if not findings:
        text = "<p>Nothing was checked.</p>"
    else:
        rows = [[each.verdict, each.check, each.evidence, each.remedy] for each in findings]
        text = _table(("Verdict", "Check", "Evidence", "Remedy"), rows)
    return f"<section><h2>Doctor</h2>{text}</section>\n"


def _versions(versions: dict[str, str]) -> str:
    return f"<section><h2>Versions</h2>{_table(('What', 'Version'), versions.items())}</section>\n"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f'<th scope="col">{as_text(each)}</th>' for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{as_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
