"""The report as one HTML page without anything outside it: the verdict first, then the evidence. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from loadtest.inputs.slo import shown_as

_STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}svg{max-width:100%;height:auto}
table{border-collapse:collapse;width:100%}td,th{padding:.3rem .6rem;border-bottom:1px solid #ddd;text-align:left}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.passed{color:#00663f}.failed{color:#a40000;font-weight:600}.absent{color:#555}
.box{padding:.8rem 1rem;border-left:.4rem solid;background:#f6f6f6}
pre{white-space:pre-wrap;background:#f6f6f6;padding:.8rem}
"""


def page(report: Mapping[str, Any], picture: str) -> str:
    """The whole page of the document *report*."""
    passed = report["passed"]
    verdict = "The service level was held." if passed else "The service level was NOT held."
    title = f"Load test {report['scenario']}: {'passed' if passed else 'failed'}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="box {"passed" if passed else "failed"}">{verdict} {escape(_asked(report))}</p>',
        "<h2>Verdict</h2>",
        _verdict(report["verdict"]),
        "<h2>Over time</h2>",
        picture,
        *_section("What happened to the fleet", _actions(report["actions"])),
        *_section("Notices", _list([*report["notices"], *report["findings"]])),
        *_section("Waits, as an independent watch saw them", _rows(report["waits"])),
        *_section("Requests of the load, as locust counted them", _rows(report["requests"])),
        *_section("The API server, as it counted itself", _api(report)),
        *_section("Processes", _processes(report["processes"])),
        "<h2>How it was measured</h2>",
        _facts(report),
        f"<pre>{escape(report['command'])}</pre>",
    ]
    head = f"<meta charset=utf-8><title>{escape(title)}</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def _asked(report: Mapping[str, Any]) -> str:
    return (
        f"{report['objects']:,} objects, up to {report['peak_rate_per_s']:g} operations per second for"
        f" {report['duration_s']:g} s on {report['target']}."
    )


def _verdict(lines: Sequence[Mapping[str, Any]]) -> str:
    words = {True: ("passed", "passed"), False: ("failed", "FAILED"), None: ("absent", "not measured")}
    rows = []
    for line in lines:
        style, word = words[line["passed"]]
        sign = "at least" if line["name"] == "achieved" else "at most"
        value = shown_as(line["value"], line["unit"])
        rows.append(
            f"<tr><td>{escape(line['title'])}</td><td class=n>{value}</td>"
            f"<td class=n>{sign} {shown_as(line['limit'], line['unit'])}</td><td class=n>{line['count']:,}</td>"
            f'<td class="{style}">{word}</td><td>{escape(line.get("note", ""))}</td></tr>'
        )
    head = "<tr><th>Line<th class=n>Measured<th class=n>Limit<th class=n>Observations<th>Verdict<th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _actions(actions: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [f"{each['began_s']:.0f} s", f"{each['ended_s']:.0f} s", each["action"], each["text"]]
        for each in actions
    ]
    return _table(("begin", "end", "action", "what was done"), rows) if rows else ""


def _rows(rows: Mapping[str, Mapping[str, float]]) -> str:
    if not rows:
        return ""
    names = list(next(iter(rows.values())))
    shown = [[name, *(_cell(key, row[key]) for key in names)] for name, row in rows.items()]
    return _table(("", *(name.removesuffix("_s") for name in names)), shown, numbers_from=1)


def _cell(name: str, value: float) -> str:
    return shown_as(value, "s") if name.endswith("_s") else f"{value:,.0f}"


def _api(report: Mapping[str, Any]) -> str:
    if report["api_server"]:
        codes = ", ".join(f"{code}: {count:,}" for code, count in report["api_server_codes"].items() if count)
        return _rows(report["api_server"]) + f"<p>Answers by status: {escape(codes)}.</p>"
    return f"<p>Not measured: {escape(report['api_server_reason'])}.</p>"


def _processes(processes: Sequence[Mapping[str, Any]]) -> str:
    rows = [[each["name"], f"{each['peak_mb']:,.0f} MB", f"{each['cores']:.2f}"] for each in processes]
    return _table(("process", "peak memory", "cores used"), rows, numbers_from=1) if rows else ""


def _facts(report: Mapping[str, Any]) -> str:
    facts = {
        "target": report["target"],
        "run": report["run"],
        "resource": report["resource"],
        "created before the load": f"{report['objects']:,} in {report['prefill_s']:g} s",
        "all assigned, ready": f"{report['first_assigned_s']} s, {report['first_ready_s']} s after the start",
        "settled after the load": f"{report['settled_s']:g} s",
        "objects that changed their member": f"{report['moved']:,}",
        **{f"machine: {key}": value for key, value in report["machine"].items()},
        **{f"version: {key}": value for key, value in report["versions"].items()},
    }
    return _table(("", ""), [[key, str(value)] for key, value in facts.items()])


def _section(title: str, content: str) -> Iterable[str]:
    return (f"<h2>{escape(title)}</h2>", content) if content else ()


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}' for line in lines)}</ul>" if lines else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers_from: int = 99) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if index >= numbers_from else ''}>{escape(text)}</{tag}>"
            for index, text in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', head)}</tr>{body}</table>"
