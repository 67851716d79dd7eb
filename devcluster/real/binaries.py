"""Finds the programs of a real control plane, and builds the missing ones once from pinned Go modules.

Looks into KUBEBUILDER_ASSETS, PATH and the user's cache folder, in this order. Owns the cache folder and its
lock: two builds never run at once, and a binary appears there only when it is complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from devcluster.real.build_progress import BuildProgress, SilentProgress
from devcluster.real.recipes import VERSION_VARIABLE, Recipe, cache_folder, helm_recipe, kubernetes_recipe

__all__ = [
    "BinariesMissing",
    "check_available",
    "ensure_binaries",
    "find_binaries",
    "helm_recipe",
    "kubernetes_recipe",
]

SERVERS = ("etcd", "kube-apiserver", "kube-controller-manager")
_ENVTEST = ("etcd", "kube-apiserver", "kubectl")
"""What the archives of setup-envtest (sigs.k8s.io/controller-runtime/tools/setup-envtest) hold."""
_TIED = Path(__file__).parent.with_name("tied.py")
_SCRATCH = ".building-"
_TAIL_LINES = 6


class BinariesMissing(Exception):
    """The programs of a real control plane are not there: *reason* and *remedy* are for the user."""

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{reason}; {remedy}")


def find_binaries(names: Sequence[str], recipe: Recipe) -> dict[str, Path]:
    """Paths of *names*, all of them, without building anything.

    Raises: BinariesMissing naming those that are nowhere.
    """
    found = {name: path for name in names if (path := _find(name, recipe)) is not None}
    missing = [name for name in names if name not in found]
    if missing:
        where = "the cache" if recipe.is_chosen else "KUBEBUILDER_ASSETS, PATH and the cache"
        raise BinariesMissing(
            f"no {', '.join(missing)} ({recipe.name} {recipe.version}) in {where}",
            f"{_ready_set(missing, recipe)}`{Path(sys.executable).name} -m devcluster.real build` builds them once"
            f" (about five minutes, needs Go {_dotted(recipe.go_needed)} or newer), or {_ready_made(missing, recipe)}",
        )
    return found


def ensure_binaries(
    names: Sequence[str], recipe: Recipe, *, progress: BuildProgress | None = None
) -> dict[str, Path]:
    """Paths of *names*; what is nowhere is built into the cache first: minutes, blocking.

    Raises: BinariesMissing if Go is missing or too old, or the build fails.
    """
    with contextlib.suppress(BinariesMissing):
        return find_binaries(names, recipe)
    progress = progress or SilentProgress()
    folder = cache_folder() / f"{recipe.folder_stem}-{_go_version(recipe)}"
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(folder.name + ".lock"), on_wait=progress.waiting):
        for left_over in folder.glob(f"{_SCRATCH}*"):  # of a build that was killed
            shutil.rmtree(left_over, ignore_errors=True)
        missing = [name for name in names if _find(name, recipe) is None]
        for number, name in enumerate(missing, start=1):
            with progress.building(name, number=number, of=len(missing)):
                _build(recipe, name, folder, tick=progress.tick)
    return find_binaries(names, recipe)


def check_available(names: Sequence[str], recipe: Recipe) -> None:
    """Raises: BinariesMissing unless all of *names* are there or can be built here; builds nothing."""
    with contextlib.suppress(BinariesMissing):
        find_binaries(names, recipe)
        return
    _go_version(recipe)
    if recipe.headers and not _has_headers(recipe.headers):
        raise BinariesMissing(
            f"no {', '.join(names)}, and no {recipe.headers} to build it with",
            f"install {', '.join(names)}, or the packages pkg-config and {recipe.headers}-dev",
        )


def _has_headers(module: str) -> bool:
    try:
        return subprocess.run(["pkg-config", "--exists", module], timeout=60, check=False).returncode == 0
    except OSError:
        return False


def _find(name: str, recipe: Recipe) -> Path | None:
    for folder in _ready_made_folders(recipe):
        if folder and (path := shutil.which(name, path=folder)):
            return Path(path).resolve()
    built = cache_folder().glob(f"{recipe.folder_stem}-*/{name}")
    return next((path for path in sorted(built, reverse=True) if os.access(path, os.X_OK)), None)


def _ready_made_folders(recipe: Recipe) -> Sequence[str | None]:
    if recipe.is_chosen:
        return ()
    if recipe.folders is not None:
        return recipe.folders
    return os.environ.get("KUBEBUILDER_ASSETS"), os.environ.get("PATH")


def _build(recipe: Recipe, name: str, folder: Path, *, tick: Callable[[], None]) -> None:
    """Build *name* beside the others of *folder*; it takes its place by a rename."""
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=folder) as scratch:
        module = Path(scratch, "module")
        shutil.copytree(recipe.module, module)
        result, log = Path(scratch, name), Path(scratch, "log")
        command = ["build", "-tags", recipe.tags, "-ldflags", recipe.linker_flags]
        command += ["-o", str(result), recipe.packages[name]]
        with log.open("wb") as output:
            process = subprocess.Popen(
                _go(*command), cwd=module, env=_go_environment(recipe), stdout=output, stderr=output
            )
            try:
                status = _wait(process, tick)
            finally:
                process.kill()
                process.wait()
        if status != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
            raise BinariesMissing(
                f"building {name} ({recipe.name} {recipe.version}) failed:\n{tail}\n",
                "see that the Go module proxy can be reached and that 4 GB are free, then try again;"
                f" or {_ready_made([name], recipe)}",
            )
        result.replace(folder / name)


def _wait(process: subprocess.Popen[bytes], tick: Callable[[], None]) -> int:
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=1.0)
        tick()


def _go(*arguments: str) -> list[str]:
    """The go command with *arguments*, tied to our life and polite to the machine's other work."""
    go, nice = shutil.which("go"), shutil.which("nice")
    if go is None:
        raise FileNotFoundError("go")
    polite = [nice, "-n", "10"] if nice else []
    return [sys.executable, "-I", "-S", str(_TIED), str(os.getpid()), *polite, go, *arguments]


def _go_environment(recipe: Recipe) -> dict[str, str]:
    fixed = {
        "GOFLAGS": "-mod=readonly -trimpath",
        "GOWORK": "off",
        "CGO_ENABLED": str(int(bool(recipe.headers))),
    }
    return {"GOTOOLCHAIN": "local"} | dict(os.environ) | fixed


def _go_version(recipe: Recipe) -> str:
    """The version of the installed Go: `go1.26.8`."""
    try:
        answer = subprocess.run(
            ["go", "env", "GOVERSION"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env=_go_environment(recipe),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BinariesMissing(
            f"{recipe.name} {recipe.version} is not built yet, and Go to build it with is not there",
            f"{_ready_set(list(recipe.packages), recipe)}install Go {_dotted(recipe.go_needed)} or newer, or"
            f" {_ready_made(list(recipe.packages), recipe)}",
        ) from error
    version = answer.stdout.split()[0]
    found = re.match(r"go(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) < recipe.go_needed:
        raise BinariesMissing(
            f"{recipe.name} {recipe.version} is not built yet, and {version} is too old to build it",
            f"{_ready_set(list(recipe.packages), recipe)}install Go {_dotted(recipe.go_needed)} or newer"
            " (or set GOTOOLCHAIN=auto), or"
            f" {_ready_made(list(recipe.packages), recipe)}",
        )
    return version


def _ready_set(missing: Sequence[str], recipe: Recipe) -> str:
    """The quickest way to those of *missing* that envtest's archives have; a chosen version is built."""
    ready = [name for name in missing if name in _ENVTEST]
    if recipe.is_chosen or not ready:
        return ""
    minor = recipe.version.rpartition(".")[0]
    command = f'export KUBEBUILDER_ASSETS="$(setup-envtest use {minor}.x -p path)"'
    return f"`{command}` downloads {', '.join(ready)} ready-made, in seconds; "


def _ready_made(names: Sequence[str], recipe: Recipe) -> str:
    """The way round a build."""
    free = f"unset {VERSION_VARIABLE} and " if recipe.is_chosen and recipe.name == "kubernetes" else ""
    return f"{free}put {', '.join(names)} on PATH or into the folder that KUBEBUILDER_ASSETS names"


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


@contextlib.contextmanager
def _locked(path: Path, *, on_wait: Callable[[], None]) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
