"""The example's controller on kopf, as its tutorial writes operators: a function in a thread, the kubernetes package.

Started by the fleet in the place of a replica (`python -m loadtest.capacity.with_kopf run ...`); takes of a replica's
flags what it needs. kopf has neither shards nor leader election: one process has all objects.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import kopf
from kubernetes import client, config

from kubeio.clock import SystemClock
from ringleader.testing.commands import CONFIGMAPS, WAIT_MS, WEBSITES
from shard_controller.observe.journal import FileJournal


def declare(kubeconfig: str, *, workers: int) -> None:
    """Register the handlers. *workers*: threads."""

    @kopf.on.login()
    def log_in(**about: Any) -> kopf.ConnectionInfo | None:
        config.load_kube_config(kubeconfig)  # type: ignore[no-untyped-call] # for the client of the handlers
        return kopf.login_with_kubeconfig(**about)

    @kopf.on.startup()
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.execution.max_workers = workers

    @kopf.on.create(WEBSITES.group, WEBSITES.version, WEBSITES.plural)
    @kopf.on.update(WEBSITES.group, WEBSITES.version, WEBSITES.plural)
    def publish(body: kopf.Body, meta: kopf.Meta, patch: kopf.Patch, **_: Any) -> None:
        generation = int(meta["generation"])
        if body.status.get("observedGeneration") != generation:
            time.sleep(float(os.environ.get(WAIT_MS, "0")) / 1000)
            put_config_map(body)
            patch.status["configMap"] = meta["name"]
            patch.status["observedGeneration"] = generation


def put_config_map(body: kopf.Body) -> None:
    """Have the ConfigMap with the page."""
    core, name, namespace = client.CoreV1Api(), str(body.meta.name), str(body.meta.namespace)
    config_map: dict[str, Any] = {
        "apiVersion": CONFIGMAPS.api_version,
        "kind": CONFIGMAPS.kind,
        "metadata": {"name": name},
        "data": {"index.html": str(body.spec.get("html", ""))},
    }
    kopf.adopt(config_map, owner=body)
    try:
        core.patch_namespaced_config_map(name, namespace, config_map)
    except client.ApiException as error:
        if error.status != 404:
            raise
        core.create_namespaced_config_map(namespace, config_map)  # type: ignore[arg-type] # takes documents


def main() -> None:
    flags = argparse.ArgumentParser()
    flags.add_argument("--kubeconfig", required=True)
    flags.add_argument("--namespace", required=True)
    flags.add_argument("--member", required=True)
    flags.add_argument("--workers", type=int, required=True)
    flags.add_argument("--journal", type=Path, required=True)
    asked, _ = flags.parse_known_args()
    os.environ["KUBECONFIG"] = asked.kubeconfig
    declare(asked.kubeconfig, workers=asked.workers)
    FileJournal(asked.journal, shard=asked.member, clock=SystemClock()).life(member=asked.member)
    kopf.run(standalone=True, namespaces=[asked.namespace])


if __name__ == "__main__":
    main()
