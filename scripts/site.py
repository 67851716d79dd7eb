"""`python scripts/site.py`: the documentation as a site with search, in `dist/site`, by Zensical.

Owns which documents are pages and where their links lead. A link to a file that is no page becomes the file's path:
a site has no repository beside it. Broken links and anchors end the build.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
OUTSIDE: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "examples/website/README.md": "examples/website.md",
    "examples/checksum/README.md": "examples/checksum.md",
}
"""Pages that are not in docs/, and where they are on the site."""
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Start": ("index.md", "concepts.md", "demo.md", "tutorial.md", "writing-a-controller.md", "reference.md"),
    "Coming from": ("coming-from-kopf.md", "coming-from-controller-runtime.md", "unmodified.md"),
    "Operate": (
        *(
            "operate.md",
            "values.md",
            "autoscaling.md",
            "day2.md",
            "support.md",
            "metrics.md",
            "runbooks.md",
            "inspect.md",
            "errors.md",
        ),
        *("debugging.md", "security.md", "threat-model.md", "load-test.md", "benchmarks.md"),
    ),
    "How it works": ("architecture.md", "protocol.md", "ring.md", "membership.md", "sharder.md"),
    "Project": (
        "changelog.md",
        "contributing.md",
        "reporting.md",
        "development.md",
        "testing.md",
        "testing-results.md",
        "adr/README.md",
    ),
}
"""The navigation; other pages are reached by links and by search."""
PICTURES: Final = (".png", ".svg")
_FENCE: Final = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(
    r"\[(?P<text>[^\]\[]*)\]\((?!https?:|mailto:|#)(?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)"
)


def main() -> int:
    """Build the site; 1 if a link or an anchor leads nowhere."""
    parser = argparse.ArgumentParser(prog="site", description="Build the documentation site.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist/site", help="folder of the site; replaced")
    return build(ROOT, parser.parse_args().out)


def build(root: Path, out: Path) -> int:
    """Build the site of the documents in *root* in the folder *out*; the exit code of Zensical."""
    with tempfile.TemporaryDirectory(prefix="ringleader-site-") as scratch:
        folder = Path(scratch)
        pages = pages_of(root)
        for source, page in pages.items():
            target = folder / "docs" / page
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(page_text((root / source).read_text(), source, pages, root))
        for picture in (path for path in (root / "docs").rglob("*") if path.suffix in PICTURES):
            target = folder / picture.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(picture, target)
        (folder / "mkdocs.yml").write_text(yaml.safe_dump(_settings(set(pages.values())), sort_keys=False))
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "mkdocs.yml"]
        done = subprocess.run(command, cwd=folder, env={**os.environ, "NO_COLOR": "1"}, check=False)
        if done.returncode == 0:
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(folder / "site", out)
        return min(done.returncode, 1)


def pages_of(root: Path) -> dict[str, str]:
    """Path of each document in *root* -> path of its page."""
    inside = sorted(path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md"))
    pages = {path: path.removeprefix("docs/") for path in inside}
    return pages | {path: page for path, page in OUTSIDE.items() if (root / path).is_file()}


def page_text(text: str, source: str, pages: Mapping[str, str], root: Path) -> str:
    """*text* of the document *source* with the links of its page; code blocks stay as they are."""
    here = PurePosixPath(pages[source]).parent.as_posix()

    def relinked(match: re.Match[str]) -> str:
        anchor = match["anchor"] or ""
        absolute = os.path.normpath(PurePosixPath(source).parent / match["target"])
        if f"{absolute}/README.md" in pages:
            absolute = f"{absolute}/README.md"
        if absolute in pages:
            return f"[{match['text']}]({os.path.relpath(pages[absolute], here)}{anchor})"
        if absolute.endswith(PICTURES) and (root / absolute).is_file():
            return f"[{match['text']}]({os.path.relpath(absolute.removeprefix('docs/'), here)})"
        if absolute.startswith("docs/") or not (root / absolute).exists():
            return match[0]  # broken: Zensical says so
        path = f"`{absolute}`"
        return (
            path if match["text"].strip("`") in (absolute, match["target"]) else f"{match['text']} ({path})"
        )

    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(relinked, part) for part in parts)


def _settings(pages: set[str]) -> dict[str, object]:
    navigation = [{group: [page for page in listed if page in pages]} for group, listed in GROUPS.items()]
    return {
        "site_name": "Ringleader",
        "site_description": "Active-active Kubernetes controllers",
        "docs_dir": "docs",
        "site_dir": "site",
        "use_directory_urls": True,
        "theme": {"name": "material", "font": False, "features": ["navigation.top", "content.code.copy"]},
        "plugins": ["search"],
        "markdown_extensions": ["tables", "fenced_code", {"toc": {"permalink": True}}, "pymdownx.highlight"],
        "nav": navigation,
    }


if __name__ == "__main__":
    raise SystemExit(main())
