"""The measured program on the `kubernetes` package: its SharedInformer with a handler that does nothing.

Started by the benchmark as `python -m benchmarks.runtime.with_kubernetes KUBECONFIG NAMESPACE OBJECTS REPORT`.
The informer expects lists with `.items` and `.metadata`; custom resources come as maps, so they are wrapped.
"""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace
from typing import Any

import kubernetes.client
import kubernetes.config
import kubernetes.informer

from benchmarks.runtime.tally import Report, Tally


def main() -> None:
    kubeconfig, namespace, objects, report = sys.argv[1:]
    untyped: Any = kubernetes
    untyped.config.load_kube_config(kubeconfig)
    api = untyped.client.CustomObjectsApi()
    tally = Tally(Report(report), objects=int(objects))

    def list_websites(namespace: str, **flags: Any) -> Any:
        answer = api.list_namespaced_custom_object("example.com", "v1", namespace, "websites", **flags)
        if flags.get("watch"):
            return answer
        version = answer["metadata"]["resourceVersion"]
        return SimpleNamespace(items=answer["items"], metadata=SimpleNamespace(resource_version=version))

    informer = untyped.informer.SharedInformer(list_websites, namespace=namespace)
    informer.add_event_handler(untyped.informer.ADDED, lambda _: tally.one())
    informer.start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
