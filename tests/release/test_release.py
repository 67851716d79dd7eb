"""`make release`: what it refuses, and that two of one commit are equal to the byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from hashlib import sha256
from pathlib import Path

import pytest

from devcluster.image.wheels import locked_requirements
from devcluster.real import BinariesMissing, helm_recipe
from devcluster.real.binaries import find_binaries
from kubeio.errors import InputError
from scripts.provenance import provenance_of
from scripts.release import ROOT, check_version, committed, export
from scripts.sbom import licence_of

PERMISSIVE = ("Apache-2.0", "BSD", "ISC", "MIT", "PSF-2.0")
WEAK_COPYLEFT = {"certifi": "MPL-2.0"}
"""Certificates, not linked code; taken as they come."""


def _git(folder: Path, *arguments: str) -> None:
    author = ["-c", "user.name=tests", "-c", "user.email=tests@localhost"]
    subprocess.run(["git", "-C", folder, *author, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit."""
    (tmp_path / "kept").write_text("1")
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", "kept")
    _git(tmp_path, "commit", "-qm", "one")
    return tmp_path


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two releases of the commit checked out, each built in a clone of its own."""
    try:
        find_binaries(["helm"], helm_recipe())
    except BinariesMissing as missing:
        pytest.skip(str(missing))
    version = next(line for line in (ROOT / "pyproject.toml").read_text().splitlines() if "version" in line)
    first, second = (_released(tmp_path_factory.mktemp(name), version.split('"')[1]) for name in ("a", "bb"))
    return first, second


def _released(folder: Path, version: str) -> Path:
    clone = folder / "clone"
    subprocess.run(["git", "clone", "-q", "--local", ROOT, clone], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, clone / "scripts/release.py", version],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return clone / "dist"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_releases_of_one_commit_are_equal_and_complete(releases: tuple[Path, Path]) -> None:
    first, second = releases
    sums = (first / "SHA256SUMS").read_text()
    assert sums == (second / "SHA256SUMS").read_text()
    named = {line.split("  ")[1]: line.split("  ")[0] for line in sums.splitlines()}
    there = {path.relative_to(first).as_posix() for path in first.rglob("*") if path.is_file()}
    assert set(named) == there - {"SHA256SUMS"}
    for name, digest in named.items():
        assert sha256((first / name).read_bytes()).hexdigest() == digest
    subjects = json.loads((first / "provenance.json").read_text())["subject"]
    assert {subject["name"] for subject in subjects} == set(named) - {"provenance.json"}
    endings = (".whl", ".tar.gz", ".tgz", "-image.tar", ".cdx.json", "controllerrings.yaml", "rules.yaml")
    assert all(any(name.endswith(ending) for name in named) for ending in endings), named


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_artifacts_hold_what_they_say(releases: tuple[Path, Path]) -> None:
    folder = releases[0]
    with tarfile.open(next(folder.glob("*.tgz"))) as chart:
        packed = chart.getnames()
        assert any(name.endswith("ringleader.dev_controllerrings.yaml") for name in packed)
        assert all(member.isfile() for member in chart)  # no link leads out of the chart
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        assert "ringleader/assets/manifests/crds/ringleader.dev_controllerrings.yaml" in wheel.namelist()
    bill = json.loads(next(folder.glob("*.cdx.json")).read_text())
    names = {component["name"] for component in bill["components"]}
    assert set(locked_requirements("ringleader", ("admission",))) <= names
    assert {"libc6", "libssl3", "python3"} <= names


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_python_package_of_the_image_has_a_permissive_licence(releases: tuple[Path, Path]) -> None:
    bill = json.loads(next(releases[0].glob("*.cdx.json")).read_text())
    for component in bill["components"]:
        if component["purl"].startswith("pkg:pypi/"):
            text = json.dumps(component["licenses"])
            allowed = (*PERMISSIVE, WEAK_COPYLEFT.get(component["name"], "Apache-2.0"))
            assert any(licence in text for licence in allowed), (component["name"], text)
            assert "GPL" not in text, component["name"]


def test_another_version_than_that_of_the_files_is_refused_by_field() -> None:
    with pytest.raises(InputError, match=r"pyproject.toml: version: .* is not 9.9.9"):
        check_version("9.9.9", ROOT)


def test_the_chart_and_the_package_have_one_version() -> None:
    version = next(line for line in (ROOT / "pyproject.toml").read_text().splitlines() if "version" in line)
    check_version(version.split('"')[1], ROOT)


def test_a_checkout_with_changes_is_refused_and_an_export_is_the_commit(
    checkout: Path, tmp_path: Path
) -> None:
    assert len(committed(checkout)) == 40
    (checkout / "kept").write_text("2")
    with pytest.raises(InputError, match=r"checkout: 'kept' is not committed \(1 in all\)"):
        committed(checkout)
    export(checkout, tmp_path / "export")
    assert (tmp_path / "export/kept").read_text() == "1"


def test_provenance_names_the_commit_the_subjects_and_the_lock() -> None:
    text = provenance_of(
        {"b": "2" * 64, "a": "1" * 64},
        version="1.0.0",
        commit="c" * 40,
        materials={"LICENSE": ROOT / "LICENSE"},
    )
    statement = json.loads(text)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert [subject["name"] for subject in statement["subject"]] == ["a", "b"]
    build = statement["predicate"]["buildDefinition"]
    assert build["externalParameters"] == {"version": "1.0.0"}
    assert build["resolvedDependencies"][0]["digest"] == {"gitCommit": "c" * 40}
    assert (
        build["resolvedDependencies"][1]["digest"]["sha256"]
        == sha256((ROOT / "LICENSE").read_bytes()).hexdigest()
    )


@pytest.mark.parametrize(
    ("headers", "licence"),
    [
        ({"License-Expression": "MIT OR Apache-2.0", "License": "x"}, "MIT OR Apache-2.0"),
        ({"Classifier": "License :: OSI Approved :: BSD License"}, "BSD-3-Clause"),
        ({"License": "3-Clause BSD\nlong text"}, "3-Clause BSD"),
        ({}, "unknown"),
    ],
)
def test_a_licence_is_an_expression_where_the_metadata_tells(headers: dict[str, str], licence: str) -> None:
    metadata = Message()
    for name, value in headers.items():
        metadata[name] = value
    assert licence_of(metadata) == licence


def test_the_image_has_locked_packages_alone_and_none_of_the_tools() -> None:
    needed = locked_requirements("ringleader", ("admission",))
    assert {"cryptography", "kubernetes", "msgspec"} <= set(needed)
    assert not {"pytest", "mypy", "locust", "zensical"} & set(needed)
    assert all("--hash=sha256:" in text for text in needed.values())
