"""The documentation site: it builds, every link of its pages leads somewhere, and search knows the pages."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from scripts.site import GROUPS, ROOT, build, page_text, pages_of

PAGES = {"docs/a/one.md": "a/one.md", "docs/two.md": "two.md", "README.md": "index.md"}


class Page(HTMLParser):
    """Identifiers and references of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.references: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            if value and ((tag, name) == ("a", "href") or (tag, name) == ("img", "src")):
                self.references.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "out"
    assert build(ROOT, out) == 0
    return out


def test_every_link_and_picture_of_the_site_is_there(site: Path) -> None:
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(pages) > 30
    broken = []
    for path, page in pages.items():
        for reference in page.references:
            parts = urlsplit(reference)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            is_there = target.exists() and (
                not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].anchors
            )
            if not is_there and parts.fragment not in ("__comments",):
                broken.append(f"{path.relative_to(site)}: {reference}")
    assert not broken, "\n".join(broken[:20])


def test_search_finds_pages_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    index = json.loads((site / "search.json").read_text())
    texts = json.dumps(index)
    assert "ControllerRing" in texts
    assert "drainTimeoutSeconds" in texts
    loaded = [
        tag
        for tag in ('<script src="http', '<link rel="stylesheet" href="http')
        for page in site.rglob("*.html")
        if tag in page.read_text()
    ]
    assert not loaded


def test_a_broken_link_or_anchor_ends_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# A\n\n[two](docs/two.md#none)\n")
    (tmp_path / "docs/two.md").write_text("# Two\n\n[gone](gone.md)\n")
    assert build(tmp_path, tmp_path / "out") == 1
    assert not (tmp_path / "out").exists()


def test_every_document_of_the_navigation_exists() -> None:
    there = set(pages_of(ROOT).values())
    assert not [page for group in GROUPS.values() for page in group if page not in there]


@pytest.mark.parametrize(
    ("source", "written", "expected"),
    [
        ("docs/a/one.md", "[x](../two.md#y)", "[x](../two.md#y)"),
        ("docs/a/one.md", "[x](../../README.md)", "[x](../index.md)"),
        ("README.md", "[x](docs/two.md)", "[x](two.md)"),
        ("docs/two.md", "[the lock](../requirements.lock)", "the lock (`requirements.lock`)"),
        ("docs/two.md", "[`ring`](../ring)", "ring"),
        ("docs/two.md", "[x](https://example.com) [y](#z)", "[x](https://example.com) [y](#z)"),
        ("README.md", "```sh\n[x](docs/two.md)\n```", "```sh\n[x](docs/two.md)\n```"),
    ],
)
def test_links_lead_to_pages_and_paths_of_the_repository_are_named(
    source: str, written: str, expected: str
) -> None:
    shown = page_text(written, source, PAGES, ROOT)
    assert shown.replace("`ring`", "ring") == expected
