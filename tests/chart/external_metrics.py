"""The External Metrics API as an adapter serves it: numbers of a Prometheus, behind the API server's aggregation layer.

Stands in for prometheus-adapter, whose module is not to be had. An APIService names a Service of the type
ExternalName: the API server goes to `localhost`, where no pod is needed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import trustme
from aiohttp import web

from devcluster.listening import free_ports, server_tls
from kubeio.resource import NAMESPACES, ApiResource
from ringleader.testing.client import IndependentClient
from tests.chart.prometheus import Prometheus

Doc = dict[str, Any]
GROUP: Final = "external.metrics.k8s.io"
ROOT: Final = f"/apis/{GROUP}/v1beta1"
NAMESPACE: Final = "monitoring"
API_SERVICES: Final = ApiResource(
    "apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False
)
SERVICES: Final = ApiResource("", "v1", "services", "Service")


@asynccontextmanager
async def external_metrics(admin: IndependentClient, prometheus: Prometheus) -> AsyncIterator[None]:
    """While the block lasts, the API server that *admin* talks to serves every series of *prometheus*."""

    async def resources(_: web.Request) -> web.Response:
        return web.json_response(
            {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{GROUP}/v1beta1",
                "resources": [],
            }
        )

    async def values(request: web.Request) -> web.Response:
        labels = [pair.split("=", 1) for pair in request.query.get("labelSelector", "").split(",") if pair]
        matchers = ",".join(f'{name}="{value}"' for name, value in labels)
        found = await prometheus.query(f"{request.match_info['metric']}{{{matchers}}}")
        return web.json_response(
            {
                "kind": "ExternalMetricValueList",
                "apiVersion": f"{GROUP}/v1beta1",
                "metadata": {},
                "items": [_item(request.match_info["metric"], sample) for sample in found],
            }
        )

    app = web.Application()
    app.router.add_get(ROOT, resources)
    app.router.add_get(f"{ROOT}/namespaces/{{namespace}}/{{metric}}", values)
    runner = web.AppRunner(app)
    await runner.setup()
    (port,) = free_ports(1)
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=server_tls(trustme.CA())).start()
        await _register(admin, port)
        yield
    finally:
        await runner.cleanup()


def _item(metric: str, sample: Doc) -> Doc:
    at_s, value = sample["value"]
    return {
        "metricName": metric,
        "metricLabels": {name: text for name, text in sample["metric"].items() if name != "__name__"},
        "timestamp": datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "value": value,
    }


async def _register(admin: IndependentClient, port: int) -> None:
    await admin.create_if_absent(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    service: Doc = {
        "metadata": {"name": "adapter"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    await admin.create(SERVICES, service, namespace=NAMESPACE)
    spec: Doc = {
        "group": GROUP,
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"namespace": NAMESPACE, "name": "adapter", "port": port},
    }
    await admin.create(API_SERVICES, {"metadata": {"name": f"v1beta1.{GROUP}"}, "spec": spec})
