"""Where the programs of a real control plane come from, and what a person is told when they come from nowhere.

A small `go` stands in for Go: it writes what it is asked to build, slowly or wrongly as a test wants.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from devcluster.real.binaries import BinariesMissing, check_available, ensure_binaries, find_binaries
from devcluster.real.build_progress import SilentProgress
from devcluster.real.recipes import VERSION_VARIABLE, Recipe, helm_recipe, kubernetes_recipe, node_recipes
from kubeio.errors import InputError

NAMES = ("etcd", "kube-apiserver")


class Machine:
    """Folders for PATH, KUBEBUILDER_ASSETS and the cache; nothing in them but what a test puts there."""

    def __init__(self, root: Path) -> None:
        self.path = root / "path"
        self.assets = root / "assets"
        self.cache = root / "cache"
        self.calls = root / "calls"
        for folder in (self.path, self.assets, self.cache):
            folder.mkdir()

    def put(self, folder: Path, *names: str, script: str = "exit 0") -> None:
        for name in names:
            program = folder / name
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)

    def put_go(
        self, version: str = "go1.99.0", *, build: str = 'echo "built $name" > "$out"; chmod +x "$out"'
    ) -> None:
        script = f"""
            if [ "$1" = env ]; then echo {version}; exit 0; fi
            while [ "$1" != -o ]; do shift; done
            out=$2; name=$(basename "$out")
            echo "$name $(pwd)" >> {self.calls}
            {build}
        """
        self.put(self.path, "go", script=textwrap.dedent(script))

    @property
    def built(self) -> list[str]:
        """Names that `go` was asked to build, in order."""
        return (
            [line.split()[0] for line in self.calls.read_text().splitlines()] if self.calls.exists() else []
        )


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{machine.path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(machine.cache))
    for variable in ("KUBEBUILDER_ASSETS", VERSION_VARIABLE, "GOTOOLCHAIN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("shutil.which", _which_without_the_systems_go)
    return machine


def _which_without_the_systems_go(name: str, path: str | None = None) -> str | None:
    """Like `shutil.which`, on a machine where /usr/bin has neither Go nor servers."""
    folders = (path or os.environ["PATH"]).split(":")
    own = [folder for folder in folders if not folder.startswith(("/usr", "/bin")) or name == "nice"]
    found = (Path(folder, name) for folder in own)
    return next((str(one) for one in found if os.access(one, os.X_OK)), None)


@pytest.fixture
def recipe(machine: Machine) -> Recipe:
    return kubernetes_recipe()


def test_assets_come_before_path_and_path_before_the_cache(
    machine: Machine, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = machine.cache / "ringleader" / f"{recipe.folder_stem}-go1.26.0"
    built.mkdir(parents=True)
    machine.put(built, *NAMES)
    assert find_binaries(["etcd"], recipe)["etcd"] == built / "etcd"
    machine.put(machine.path, "etcd")
    assert find_binaries(["etcd"], recipe)["etcd"] == machine.path / "etcd"
    machine.put(machine.assets, "etcd")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(machine.assets))
    found = find_binaries(NAMES, recipe)
    assert found == {"etcd": machine.assets / "etcd", "kube-apiserver": built / "kube-apiserver"}


def test_what_is_missing_is_named_with_a_remedy(machine: Machine, recipe: Recipe) -> None:
    machine.put(machine.path, "etcd")
    with pytest.raises(BinariesMissing) as caught:
        find_binaries(NAMES, recipe)
    assert caught.value.reason.startswith("no kube-apiserver (kubernetes 1.36.3)")
    assert "devcluster.real build" in caught.value.remedy
    assert "KUBEBUILDER_ASSETS" in caught.value.remedy


def test_the_first_remedy_is_a_ready_made_set_where_there_is_one(machine: Machine) -> None:
    with pytest.raises(BinariesMissing) as caught:
        find_binaries(["etcd", "kube-controller-manager"], kubernetes_recipe())
    ready = '`export KUBEBUILDER_ASSETS="$(setup-envtest use 1.36.x -p path)"` downloads etcd ready-made, in seconds; `'
    assert caught.value.remedy.startswith(ready)
    with pytest.raises(BinariesMissing) as caught:
        find_binaries(["etcd"], kubernetes_recipe("1.35"))
    assert "setup-envtest" not in caught.value.remedy  # the version that was asked for, no other


def test_version_that_a_person_chose_is_never_taken_from_path(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.put(machine.path, *NAMES)
    monkeypatch.setenv(VERSION_VARIABLE, "1.36.3")
    with pytest.raises(BinariesMissing, match="in the cache"):
        find_binaries(NAMES, kubernetes_recipe())


def test_version_that_is_not_pinned_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VERSION_VARIABLE, "1.12.0")
    with pytest.raises(
        InputError, match=r"RINGLEADER_KUBERNETES_VERSION: '1\.12\.0'.*use one of 1\.34\..*1\.36\.3"
    ):
        kubernetes_recipe()


@pytest.mark.parametrize("minor", ["1.34", "1.35", "1.36"])
def test_a_minor_version_is_the_newest_of_it_that_is_pinned(minor: str) -> None:
    recipe = kubernetes_recipe(minor)
    assert recipe.version.startswith(f"{minor}.")
    assert recipe == kubernetes_recipe(f"v{recipe.version}")
    assert f"k8s.io/kubernetes v{recipe.version}\n" in (recipe.module / "go.mod").read_text()
    part = recipe.version.removeprefix("1.")
    assert f"k8s.io/apiserver => k8s.io/apiserver v0.{part}\n" in (recipe.module / "go.mod").read_text()


@pytest.mark.parametrize("version", ["1", "1.3", "1.36.", "36"])
def test_half_a_version_is_bad_input(version: str) -> None:
    with pytest.raises(InputError, match="is not a pinned Kubernetes version"):
        kubernetes_recipe(version)


@pytest.mark.parametrize(
    "recipe",
    [*map(kubernetes_recipe, ("1.34", "1.35", "1.36")), helm_recipe()],
    ids=lambda one: f"{one.name} {one.version}",
)
def test_recipe_pins_every_module_that_it_builds_from(recipe: Recipe) -> None:
    assert recipe.go_needed >= (1, 24)
    sums = (recipe.module / "go.sum").read_text().splitlines()
    pinned = {line.split()[0] for line in sums if "/go.mod " not in line}
    for package in recipe.packages.values():
        assert any(package == module or package.startswith(module + "/") for module in pinned), package


def test_missing_binaries_are_built_once(machine: Machine, recipe: Recipe) -> None:
    machine.put_go()
    found = ensure_binaries(NAMES, recipe)
    assert machine.built == list(NAMES)
    assert found["etcd"].read_text() == "built etcd\n"
    assert found["etcd"].parent.name == f"{recipe.folder_stem}-go1.99.0"
    assert ensure_binaries(NAMES, recipe) == found
    assert machine.built == list(NAMES)


def test_only_what_is_missing_is_built(machine: Machine, recipe: Recipe) -> None:
    machine.put(machine.path, "etcd")
    machine.put_go()
    ensure_binaries(NAMES, recipe)
    assert machine.built == ["kube-apiserver"]


def test_build_works_on_a_copy_of_the_module(machine: Machine, recipe: Recipe) -> None:
    machine.put_go(build='cp go.sum "$out"; echo "changed" >> go.mod; chmod +x "$out"')
    before = (recipe.module / "go.mod").read_bytes()
    found = ensure_binaries(["etcd"], recipe)
    assert found["etcd"].read_bytes() == (recipe.module / "go.sum").read_bytes()
    assert (recipe.module / "go.mod").read_bytes() == before


def test_a_library_without_headers_is_missing_before_anything_is_built(machine: Machine) -> None:
    (runc,) = (recipe for recipe in node_recipes() if "runc" in recipe.packages)
    machine.put_go()
    machine.put(machine.path, "pkg-config", script='exit "$([ "$2" = libseccomp ] && echo 1 || echo 0)"')
    with pytest.raises(BinariesMissing) as caught:
        check_available(["runc"], runc)
    assert str(caught.value) == (
        "no runc, and no libseccomp to build it with;"
        " install runc, or the packages pkg-config and libseccomp-dev"
    )
    machine.put(machine.path, "pkg-config")
    check_available(["runc"], runc)
    machine.put(machine.path, "pkg-config", script="exit 1")
    machine.put(machine.path, "runc")
    check_available(["runc"], runc)
    assert machine.built == []


def test_without_go_the_remedy_is_to_install_it(
    machine: Machine, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(machine.path))
    with pytest.raises(BinariesMissing) as caught:
        ensure_binaries(NAMES, recipe)
    assert "Go to build it with is not there" in caught.value.reason
    assert "install Go 1.26 or newer" in caught.value.remedy
    with pytest.raises(BinariesMissing) as beforehand:
        check_available(["etcd"], recipe)
    assert str(beforehand.value) == str(caught.value)


def test_old_go_is_named_with_its_version(machine: Machine, recipe: Recipe) -> None:
    machine.put_go("go1.22.1")
    with pytest.raises(BinariesMissing, match=r"go1\.22\.1 is too old.*install Go 1\.26"):
        ensure_binaries(NAMES, recipe)
    assert machine.built == []


def test_failed_build_tells_gos_last_words_and_leaves_nothing(machine: Machine, recipe: Recipe) -> None:
    machine.put_go(build='echo half > "$out"; echo "dial tcp: no route to host" >&2; exit 1')
    with pytest.raises(
        BinariesMissing, match=r"building etcd .* failed:\ndial tcp: no route to host"
    ) as caught:
        ensure_binaries(NAMES, recipe)
    assert "module proxy" in caught.value.remedy
    (folder,) = (path for path in (machine.cache / "ringleader").iterdir() if path.is_dir())
    assert list(folder.iterdir()) == []


def test_what_was_built_before_a_failure_is_kept(machine: Machine, recipe: Recipe) -> None:
    machine.put_go(build='[ $name = etcd ] || exit 1; echo etcd > "$out"; chmod +x "$out"')
    with pytest.raises(BinariesMissing, match="building kube-apiserver"):
        ensure_binaries(NAMES, recipe)
    machine.put_go()
    ensure_binaries(NAMES, recipe)
    assert machine.built == ["etcd", "kube-apiserver", "kube-apiserver"]


class Waited(SilentProgress):
    def __init__(self) -> None:
        self.waits = 0

    def waiting(self) -> None:
        self.waits += 1


def test_two_builds_at_once_build_once(machine: Machine, recipe: Recipe) -> None:
    machine.put_go(build='sleep 0.5; echo x > "$out"; chmod +x "$out"')
    told = [Waited(), Waited()]
    builds = [
        threading.Thread(target=ensure_binaries, args=(NAMES, recipe), kwargs={"progress": one})
        for one in told
    ]
    for build in builds:
        build.start()
    for build in builds:
        build.join(timeout=30)
    assert machine.built == list(NAMES)
    assert sorted(one.waits for one in told) == [0, 1]


def test_left_overs_of_a_killed_build_are_removed(machine: Machine, recipe: Recipe) -> None:
    folder = machine.cache / "ringleader" / f"{recipe.folder_stem}-go1.99.0"
    (folder / ".building-dead").mkdir(parents=True)
    machine.put_go()
    ensure_binaries(["etcd"], recipe)
    assert [path.name for path in folder.iterdir()] == ["etcd"]


def build(machine: Machine, *names: str) -> subprocess.CompletedProcess[str]:
    """`python -m devcluster.real build NAMES` on *machine*."""
    path = f"{machine.path}:/usr/bin:/bin"
    environment = {"PATH": path, "XDG_CACHE_HOME": str(machine.cache), "HOME": "/nowhere"}
    command = [sys.executable, "-m", "devcluster.real", "build", *names]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_command_tells_progress_in_plain_lines_when_piped(machine: Machine) -> None:
    machine.put_go()
    began = time.monotonic()
    done = build(machine, "etcd", "kube-controller-manager")
    took_s = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    first, second = re.findall(r" in (\d+) s$", done.stderr, re.MULTILINE)
    assert int(first) + int(second) <= took_s + 1, "each is rounded"
    assert done.stderr.splitlines() == [
        "building etcd (1 of 2)",
        f"built etcd (1 of 2) in {first} s",
        "building kube-controller-manager (2 of 2)",
        f"built kube-controller-manager (2 of 2) in {second} s",
    ]
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["etcd", "kube-controller-manager"]


@pytest.mark.parametrize(
    ("name", "code", "words"), [("minikube", 2, "use one of etcd, "), ("etcd", 1, "is too old")]
)
def test_command_ends_with_one_line_and_a_code(machine: Machine, name: str, code: int, words: str) -> None:
    machine.put_go("go1.20")
    done = build(machine, name)
    assert done.returncode == code
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
