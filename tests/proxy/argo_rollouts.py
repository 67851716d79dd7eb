"""Argo Rollouts' own controller for the tests, at a pinned version: its program, its definitions, its ring.

`python -m tests.proxy.argo_rollouts` builds it into the user's cache: six minutes on two cores.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from devcluster.real import BinariesMissing
from devcluster.real.binaries import ensure_binaries, find_binaries
from devcluster.real.recipes import Recipe
from kubeio.resource import ApiResource
from ringleader.testing.unmodified.rings import ProxiedRing
from ringleader.testing.unmodified.templates import deployment

VERSION: Final = "1.9.0"
"""Go 1.26.8 builds it: 1.9.3 and 1.10.2 ask for 1.26.10."""
PROGRAM: Final = "rollouts-controller"
LOCK: Final = "argo-rollouts-controller-lock"
_MODULE: Final = "github.com/argoproj/argo-rollouts"
RECIPE: Final = Recipe(
    name="argo-rollouts",
    version=VERSION,
    module=Path(__file__).with_name("gomod-rollouts"),
    packages={PROGRAM: f"{_MODULE}/cmd/{PROGRAM}"},
    linker_flags=f"-s -w -X {_MODULE}/utils/version.version=v{VERSION}",
    folders=(),
)
ROLLOUTS: Final = ApiResource("argoproj.io", "v1alpha1", "rollouts", "Rollout")
ANALYSIS_RUNS: Final = ApiResource("argoproj.io", "v1alpha1", "analysisruns", "AnalysisRun")
ANALYSIS_TEMPLATES: Final = ApiResource("argoproj.io", "v1alpha1", "analysistemplates", "AnalysisTemplate")
CONTROLLED: Final = (
    ("rollouts.argoproj.io", ("analysisruns.argoproj.io", "replicasets.apps")),
    ("analysisruns.argoproj.io", ("jobs.batch",)),
)
LEAVES: Final = ("jobs.batch", "replicasets.apps")


def find_program() -> Path:
    """Raises: BinariesMissing if it was not built yet."""
    try:
        return find_binaries([PROGRAM], RECIPE)[PROGRAM]
    except BinariesMissing as missing:
        raise BinariesMissing(
            missing.reason, "`make rollouts` builds it once (six minutes, needs Go)"
        ) from None


def command(program: Path, *, qps: int = 200) -> list[str]:
    """Any two free ports: several run on one machine."""
    ports = ("--metricsPort=0", "--healthzPort=0")
    return [str(program), "--kubeconfig={kubeconfig}", *ports, f"--qps={qps}", f"--burst={2 * qps}"]


def ring(program: Path) -> ProxiedRing:
    own = tuple(command(program))
    return ProxiedRing("rollouts", (ROLLOUTS,), (), CONTROLLED, LEAVES, program=own, locks=(LOCK,))


def definitions() -> list[dict[str, Any]]:
    """Its CustomResourceDefinitions, from the module that the program is built of."""
    found = subprocess.run(
        ["go", "mod", "download", "-json", f"{_MODULE}@v{VERSION}"],
        cwd=RECIPE.module,
        capture_output=True,
        check=True,
        timeout=60,
    )
    folder = Path(json.loads(found.stdout)["Dir"], "manifests", "crds")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 3 MB
    return [yaml.load(path.read_text(), Loader=loader) for path in sorted(folder.glob("*-crd.yaml"))]


def rollout(name: str, *, replicas: int, analysis: str = "") -> dict[str, Any]:
    """A canary in two steps, as a Deployment is rolled; *analysis*: the template of an analysis between them."""
    document = deployment(name, replicas=replicas)
    between = (
        {"analysis": {"templates": [{"templateName": analysis}]}} if analysis else {"pause": {"duration": 1}}
    )
    document["spec"]["strategy"] = {
        "canary": {"maxSurge": 1, "maxUnavailable": 0, "steps": [{"setWeight": 50}, between]}
    }
    return document | {"apiVersion": ROLLOUTS.api_version, "kind": ROLLOUTS.kind}


def analysis_template(name: str) -> dict[str, Any]:
    """An analysis by one Job."""
    pod = {"containers": [{"name": "main", "image": "none"}], "restartPolicy": "Never"}
    job = {"spec": {"backoffLimit": 0, "template": {"spec": pod}}}
    return {
        "apiVersion": ANALYSIS_TEMPLATES.api_version,
        "kind": ANALYSIS_TEMPLATES.kind,
        "metadata": {"name": name},
        "spec": {"metrics": [{"name": "job", "provider": {"job": job}}]},
    }


if __name__ == "__main__":
    try:
        print(ensure_binaries([PROGRAM], RECIPE)[PROGRAM])
    except BinariesMissing as missing:
        sys.exit(f"error: {missing}")
