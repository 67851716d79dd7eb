"""`ringleader init`: names that fit together, a folder that is left alone if it has something, a project that works."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from devcluster.embedded import embedded_plane
from devcluster.real import BinariesMissing
from devcluster.real.binaries import find_binaries, helm_recipe
from kubeio.access.cluster import load_cluster
from kubeio.errors import InputError, NotFound
from kubeio.resource import CRDS, ApiResource
from kubeio.rest.client import Client
from ringleader.scaffold.command import create_project
from ringleader.scaffold.names import Names, names_of
from tests.chart.helm import Helm

ROOT = Path(__file__).parents[2]


# -- names


@pytest.mark.parametrize(
    ("project", "kind", "plural"),
    [
        ("websites", "Website", "websites"),
        ("website", "Website", "websites"),
        ("cdn-sites", "CdnSite", "cdnsites"),
        ("policies", "Policy", "policies"),
        ("boxes", "Box", "boxes"),
        ("class", "Class", "classes"),
        ("s3-buckets", "S3Bucket", "s3buckets"),
        ("s", "S", "ses"),
        ("keys", "Key", "keys"),
    ],
)
def test_one_name_gives_kind_and_plural(project: str, kind: str, plural: str) -> None:
    assert names_of(project, group="example.com") == Names(project, "example.com", kind, plural)


def test_what_is_given_is_taken() -> None:
    names = names_of("farm", group="acme.io", kind="Sheep", plural="sheep")
    assert (names.kind, names.plural, names.singular) == ("Sheep", "sheep", "sheep")


@pytest.mark.parametrize(
    ("project", "options", "message"),
    [
        ("Websites", {}, r"NAME: 'Websites' cannot be the name of a project; use up to 40 of a-z"),
        ("-x", {}, "NAME: '-x'"),
        ("../x", {}, "NAME: '../x'"),
        ("9lives", {}, "NAME: '9lives'"),
        ("x" * 41, {}, "NAME: "),
        ("websites", {"group": "example"}, r"--group: 'example' is not an API group; .*example\.com"),
        ("websites", {"group": "apps.k8s.io"}, "--group: 'apps.k8s.io' is reserved"),
        ("websites", {"group": "ringleader.dev"}, "--group: 'ringleader.dev' is reserved"),
        ("websites", {"kind": "website"}, "--kind: 'website' is not a kind; .*capital"),
        ("websites", {"kind": "Web-Site"}, "--kind: 'Web-Site'"),
        ("nones", {}, "--kind: 'None'"),
        ("pods", {}, "--kind: 'Pod' is taken"),
        ("websites", {"plural": "Web_Sites"}, "--plural: 'Web_Sites'"),
        ("websites", {"plural": "import"}, "--plural: 'import'"),
    ],
)
def test_a_name_that_cannot_be_used_is_told_with_its_remedy(
    project: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        names_of(project, **{"group": "example.com", **options})


# -- the folder


def test_a_folder_that_has_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(InputError, match=r"DIR: '.*' is not empty; name a folder that is new or empty"):
        create_project(tmp_path, names_of("websites", group="example.com"))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(InputError, match="is not a folder"):
        create_project(tmp_path / "mine", names_of("websites", group="example.com"))


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def test_the_command_says_what_it_made_and_refuses_to_make_it_twice(tmp_path: Path) -> None:
    first = run("ringleader", "init", "websites", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "controller.py" in first.stdout
    assert (tmp_path / "websites" / "controller.py").is_file()
    second = run("ringleader", "init", "websites", cwd=tmp_path)
    assert second.returncode == 2
    assert second.stderr == "error: DIR: 'websites' is not empty; name a folder that is new or empty\n"


# -- the project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "cdn-sites"
    create_project(folder, names_of("cdn-sites", group="acme.io"))
    return folder


def test_no_placeholder_is_left_in_any_file(project: Path) -> None:
    for path in project.rglob("*"):
        if path.is_file():
            text = path.read_text()
            assert "${" not in text.replace("${RINGLEADER}", ""), path
            assert "website" not in text.lower(), f"{path} speaks of the example"


def test_what_is_made_is_formatted_linted_and_typed(project: Path) -> None:
    for words in (
        ["ruff", "format", "--check", "--isolated", "--line-length", "110", "."],
        ["ruff", "check", "--isolated", "--line-length", "110", "--select", "E,F,I,UP,B,ANN", "."],
        ["mypy", "--strict", "--cache-dir", f"{ROOT}/.mypy_cache/scaffold", "controller.py", "tests"],
    ):
        ran = run(*words, cwd=project)
        assert ran.returncode == 0, ran.stdout + ran.stderr


async def test_its_manifests_are_accepted_by_an_api_server(project: Path, tmp_path: Path) -> None:
    async with (
        embedded_plane(tmp_path / "plane") as plane,
        Client(load_cluster(kubeconfig=str(plane.kubeconfig))) as client,
    ):
        crd = yaml.safe_load((project / "manifests" / "crd.yaml").read_text())
        await client.create(CRDS, crd, type=bytes)
        sample = yaml.safe_load((project / "manifests" / "sample.yaml").read_text())
        resource = ApiResource("acme.io", "v1", "cdnsites", "CdnSite")
        async with asyncio.timeout(10):
            while True:
                try:
                    await client.create(resource, sample, namespace="default", type=bytes)
                except NotFound:  # not served yet
                    await asyncio.sleep(0.05)
                else:
                    break


async def test_its_chart_values_render(project: Path, tmp_path: Path) -> None:
    try:
        binary = find_binaries(["helm"], helm_recipe())["helm"]
    except BinariesMissing as missing:
        pytest.skip(f"{missing.reason}; {missing.remedy}")
    values = yaml.safe_load((project / "chart" / "values.yaml").read_text())
    rendered = await Helm(binary, tmp_path).template(values, namespace="cdn-sites")
    sets = [doc for doc in rendered if doc["kind"] == "StatefulSet"]
    assert [doc["metadata"]["name"] for doc in sets] == ["cdn-sites"]
    command = sets[0]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[-1] == "/app/controller.py:cdnsites"
    ring = next(doc for doc in rendered if doc["kind"] == "ControllerRing")
    file = yaml.safe_load((project / "manifests" / "ring.yaml").read_text())
    assert ring["spec"]["resources"] == file["spec"]["resources"]


@pytest.mark.fleet
@pytest.mark.timeout(300)
def test_its_own_tests_pass(project: Path) -> None:
    ran = run("pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert "3 passed" in ran.stdout


@pytest.mark.fleet
@pytest.mark.timeout(300)
def test_its_tests_notice_a_controller_that_does_nothing(project: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(project, broken)
    path = broken / "controller.py"
    path.write_text(path.read_text().replace("message.strip()", '""'))
    ran = run("pytest", "-q", "-x", "-p", "no:cacheprovider", cwd=broken)
    assert ran.returncode == 1, ran.stdout[-4000:]
