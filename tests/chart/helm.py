"""The real `helm`, with state of its own: rendering, installing, removing. No template is compared as text."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "manifests" / "chart"
Doc = dict[str, Any]
HOOK = "helm.sh/hook"


class HelmFailed(Exception):
    """Helm refused, and said why."""


@dataclass(frozen=True, slots=True)
class Helm:
    """Helm with *binary*, acting with *kubeconfig* if there is one, on one *chart*; its files are in *directory*."""

    binary: Path
    directory: Path
    kubeconfig: Path | None = None
    chart: Path = CHART

    async def lint(self, values: Doc) -> str:
        return await self._run(["lint", "--strict", str(self.chart), "-f", self._values(values)])

    async def template(
        self, *values: Doc, namespace: str = "ringleader-system", crds: bool = False
    ) -> list[Doc]:
        """Every object of the release `ringleader`, with *crds* the definitions too; those of `helm test` left out."""
        text = await self.template_text(*values, namespace=namespace, crds=crds)
        return [doc for doc in yaml.safe_load_all(text) if doc and HOOK not in _annotations(doc)]

    async def hooks(self, values: Doc, *, namespace: str = "ringleader-system") -> list[Doc]:
        """Every object that Helm makes at some event, such as `helm test`."""
        docs = yaml.safe_load_all(await self.template_text(values, namespace=namespace))
        return [doc for doc in docs if doc and HOOK in _annotations(doc)]

    async def template_text(
        self,
        *values: Doc,
        namespace: str = "ringleader-system",
        crds: bool = False,
        hooks: bool = True,
    ) -> str:
        """What `helm template` prints; of *values* later ones win."""
        files = [word for one in values for word in ("-f", self._values(one))]
        words = ["template", "ringleader", str(self.chart), "-n", namespace, *files]
        return await self._run([*words, *["--include-crds"] * crds, *["--no-hooks"] * (not hooks)])

    async def package(self) -> Path:
        """The chart as an archive."""
        said = await self._run(["package", str(self.chart), "-d", str(self.directory)])
        return Path(said.strip().rpartition(" ")[2])

    async def install(self, release: str, values: Doc, *, namespace: str) -> str:
        """Install; what Helm prints, with the notes."""
        arguments = ["install", release, str(self.chart), "-n", namespace, "--create-namespace"]
        return await self._run([*arguments, "-f", self._values(values)])

    async def upgrade(self, release: str, values: Doc, *, namespace: str, flags: Sequence[str] = ()) -> str:
        return await self._run(
            ["upgrade", release, str(self.chart), "-n", namespace, "-f", self._values(values), *flags]
        )

    async def test(self, release: str, *, namespace: str) -> str:
        """Run the release's tests, and wait for their pods."""
        return await self._run(["test", release, "-n", namespace, "--timeout", "2m"])

    async def rollback(self, release: str, *, namespace: str) -> str:
        """Back to the revision before."""
        return await self._run(["rollback", release, "-n", namespace])

    async def uninstall(self, release: str, *, namespace: str) -> str:
        return await self._run(["uninstall", release, "-n", namespace])

    def _values(self, values: Doc) -> str:
        path = self.directory / f"values-{len(list(self.directory.glob('values-*')))}.yaml"
        path.write_text(json.dumps(values))
        return str(path)

    async def _run(self, arguments: Sequence[str]) -> str:
        homes = {
            f"HELM_{kind}_HOME": str(self.directory / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")
        }
        kubeconfig = str(self.kubeconfig) if self.kubeconfig else os.devnull
        process = await asyncio.create_subprocess_exec(
            str(self.binary),
            *arguments,
            env={"PATH": os.environ["PATH"], "HOME": str(self.directory), "KUBECONFIG": kubeconfig, **homes},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        if process.returncode != 0:
            raise HelmFailed(f"helm {arguments[0]}: {out.decode()}{err.decode()}")
        return out.decode()


def _annotations(doc: Doc) -> Doc:
    found: Doc = doc["metadata"].get("annotations", {})
    return found
