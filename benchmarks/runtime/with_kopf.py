"""The measured program on kopf: a handler of events that does nothing.

Started by the benchmark as `python -m benchmarks.runtime.with_kopf KUBECONFIG NAMESPACE OBJECTS REPORT`. Of
kopf's handlers this is the cheapest: it writes nothing to the objects. Its login is the one that loads the least.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import kopf

from benchmarks.runtime.tally import Report, Tally


def declare(tally: Tally) -> None:
    """Register the handlers."""

    @kopf.on.login()
    def log_in(**about: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_kubeconfig(**about)

    @kopf.on.startup()
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False

    @kopf.on.event("example.com", "v1", "websites")
    async def count(body: kopf.Body, **_: Any) -> None:
        tally.one()


def main() -> None:
    kubeconfig, namespace, objects, report = sys.argv[1:]
    os.environ["KUBECONFIG"] = kubeconfig
    declare(Tally(Report(report), objects=int(objects)))
    kopf.run(standalone=True, namespaces=[namespace])


if __name__ == "__main__":
    main()
