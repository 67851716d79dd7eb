"""Learn mode as a process before a control plane: a controller with bad habits, an idle one, one that ends."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from devcluster.embedded import EmbeddedPlane
from kubeio.resource import ApiResource
from tests.contract.api import MERGE_PATCH, Api, api_from
from tests.proxy.learn.learning import CONTROLLERS, learn, texts, until

WEBSITES = ApiResource("example.com", "v1", "websites", "Website")
SHOPS = ApiResource("example.com", "v1", "shops", "Shop")
SITES, SHOPS_PATH = (kind.path(namespace="sites") for kind in (WEBSITES, SHOPS))
PAGES = "/api/v1/namespaces/sites/configmaps"
READS_ONLY = """
import asyncio, os, sys
from kubeio.access.cluster import load_cluster
from kubeio.rest.client import Client
from kubeio.resource import ApiResource

async def main():
    async with Client(load_cluster(kubeconfig=os.environ["KUBECONFIG"]), user_agent="copies-labels/2.0") as client:
        for plural, kind in (("websites", "Website"), ("shops", "Shop")):
            await client.list_page(ApiResource("example.com", "v1", plural, kind))
asyncio.run(main())
"""


async def furnish(admin: Api) -> None:
    """Definitions, a namespace, and three Websites with a label of their own."""
    (await admin.post("/api/v1/namespaces", {"metadata": {"name": "sites"}})).check(201)
    for kind in (WEBSITES, SHOPS):
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        names = {"plural": kind.plural, "kind": kind.kind}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        spec: dict[str, Any] = {
            "group": kind.group,
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        }
        definition = {"metadata": {"name": kind.group_resource}, "spec": spec}
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        (await admin.post(definitions, definition)).check(201)

        async def is_served(path: str = kind.path(namespace="sites")) -> bool:
            return (await admin.get(path)).status == 200

        await until(is_served)
    for name in ("a", "b", "c"):
        labels = {"team": f"team-{name}"}
        spec = {"dependsOn": [{"name": "a"}]}
        document = {"apiVersion": "example.com/v1", "kind": "Website", "spec": spec}
        (await admin.post(SITES, document | {"metadata": {"name": name, "labels": labels}})).check(201)


async def test_bad_habits_are_seen_and_earlier_writes_are_found_again(
    new_plane: EmbeddedPlane, tmp_path: Path
) -> None:
    async with api_from(new_plane.kubeconfig) as admin:
        await furnish(admin)

        async def provoke() -> None:
            async def all_made() -> bool:
                return {"a", "b", "c", "all"} <= set((await admin.get(PAGES)).names)

            async def label_is_gone() -> bool:
                return "foreign" not in (await admin.get(f"{SHOPS_PATH}/a")).labels

            async def page_is_gone() -> bool:
                return "b" not in (await admin.get(PAGES)).names

            await until(all_made)
            patch = {"metadata": {"labels": {"foreign": "x"}}}
            (await admin.request("PATCH", f"{SHOPS_PATH}/a", patch, content_type=MERGE_PATCH)).check(200)
            await until(label_is_gone)
            (await admin.delete(f"{SITES}/b")).check(200)
            await until(page_is_gone)

        script = str(CONTROLLERS / "copies_labels.py")
        report = await learn(new_plane.kubeconfig, [sys.executable, script], provoke)
        assert report["verdict"] == "yes, with care"
        assert report["command"][report["command"].index("--companions") + 1].endswith(
            "=websites.example.com"
        )
        assert report["roots"] == ["websites.example.com"]
        assert report["controlled"] == report["leaves"] == ["shops.example.com"]
        (copied,) = texts(report, "E")
        assert "team=team-a of Website a" in copied
        (left,) = texts(report, "C")
        assert "1 were deleted by name" in left
        (dropped,) = texts(report, "F")
        assert "sites/a lost foreign" in dropped
        assert any("finalizers" in text for text in texts(report, "A"))
        (named,) = texts(report, "H")
        assert "websites.example.com name websites.example.com (spec.dependsOn: a)" in named
        assert report["ring"]["spec"]["key"] == "Namespace"

        report = await learn(new_plane.kubeconfig, [sys.executable, "-c", READS_ONLY])
        assert report["roots"] == ["websites.example.com"]
        assert any("control (2 before)" in text for text in texts(report, "A"))
        assert any("it ended by itself" in text for text in texts(report, ""))
        assert report["verdict"] == "unclear"
