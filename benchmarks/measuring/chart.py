"""Templates of the chart, rendered by Helm: a benchmark measures what an installation has."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from devcluster.real.binaries import ensure_binaries, helm_recipe
from ringleader.assets import asset

SHARDER: Final = {"serviceAccount": {"create": False, "name": "sharder"}}
"""Values of the sharder: its account is `sharder` in the release's namespace."""


def rendered(values: Mapping[str, Any], *, namespace: str, templates: Sequence[str]) -> list[dict[str, Any]]:
    """Documents that *templates* (names without `.yaml`) make of *values*. Raises: BinariesMissing."""
    helm = ensure_binaries(["helm"], helm_recipe())["helm"]
    with tempfile.TemporaryDirectory() as home:
        file = Path(home, "values.yaml")
        file.write_text(json.dumps(values))
        command = [str(helm), "template", "bench", str(asset("manifests", "chart"))]
        command += [f"--namespace={namespace}", f"--values={file}"]
        command += [f"--show-only=templates/{name}.yaml" for name in templates]
        done = subprocess.run(
            command,
            env={"HOME": home, "KUBECONFIG": "/dev/null"},
            capture_output=True,
            text=True,
            check=True,
        )
    return [document for document in yaml.safe_load_all(done.stdout) if document]
