"""Contract: the definition of ControllerRing; a server that evaluates its rules in CEL refuses what they forbid.

The control plane in memory stores the rules, warns that it evaluates none, and lets such a ring in: the sharder refuses
it then, as tests/bad_input shows. Each ring here is a dry run, or is deleted by its test.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from devcluster.embedded import EmbeddedPlane
from devcluster.plane import ControlPlane
from ringleader.assets import ring_crd
from tests.contract.api import Answer, Api
from tests.contract.definitions import DEFINITIONS, define
from tests.manifests import manifest

pytestmark = pytest.mark.asyncio(loop_scope="session")

RINGS = "/apis/ringleader.dev/v1alpha1/controllerrings"
CASES: dict[str, dict[str, Any]] = manifest(Path(__file__).parents[1] / "bad_input" / "cases.yaml")["rings"]
REFUSED = [name for name, case in CASES.items() if "rules" in case or "schema" in case]
STATED = "rules in CEL (x-kubernetes-validations) are stored and not evaluated by this control plane"
Doc = dict[str, Any]


def ring(name: str, **spec: object) -> Doc:
    good = {"leaseNamespace": "sites", "resources": [{"group": "example.com", "resource": "websites"}]}
    changed = {field: value for field, value in {**good, **spec}.items() if value is not None}
    return {
        "apiVersion": "ringleader.dev/v1alpha1",
        "kind": "ControllerRing",
        "metadata": {"name": name},
        "spec": changed,
    }


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def rings(api: Api) -> str:
    """Path of the rings, whose definition is served."""
    await define(api, yaml.safe_load(ring_crd().read_text()))
    return RINGS


@pytest_asyncio.fixture(loop_scope="session")
async def worked(api: Api, rings: str) -> AsyncIterator[str]:
    """Path of a stored ring."""
    (await api.post(rings, ring("stored"))).check(201)
    yield f"{rings}/stored"
    (await api.delete(f"{rings}/stored")).check(200)


def refused(answer: Answer, plane: ControlPlane, patterns: list[str]) -> None:
    """*answer* says all *patterns*, from a server that evaluates rules; another one lets the ring in."""
    if isinstance(plane, EmbeddedPlane):
        assert answer.status < 300, answer.text
        return
    answer.check(422, reason="Invalid")
    for pattern in patterns:
        assert re.search(pattern, answer.message), f"{pattern!r} is not in {answer.message}"


async def test_a_server_without_cel_says_so_to_whoever_writes_the_definition(
    api: Api, rings: str, plane: ControlPlane
) -> None:
    name = "controllerrings.ringleader.dev"
    answer = await api.merge(f"{DEFINITIONS}/{name}", {"metadata": {"annotations": {"touched": "1"}}})
    warning = answer.check(200).headers.get("Warning", "")
    expected = f'299 - "{name}: {STATED}"' if isinstance(plane, EmbeddedPlane) else ""
    assert warning == expected


@pytest.mark.parametrize("name", REFUSED)
async def test_a_bad_spec_is_refused_with_its_field_and_the_remedy(
    name: str, api: Api, rings: str, plane: ControlPlane
) -> None:
    case = CASES[name]
    answer = await api.post(rings, ring(name, **case["spec"]), dryRun="All")
    if "schema" in case:
        answer.check(422, reason="Invalid")
        for pattern in case["schema"]:
            assert re.search(pattern, answer.message), f"{pattern!r} is not in {answer.message}"
    else:
        refused(answer, plane, case["rules"])


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"key": "Label", "keyLabel": "example.com/team"},
        {"labelDomain": "alpha.sharding.timebertt.dev"},
        {"labelDomain": "notkubernetes.io"},
        {"resources": [{"resource": "websites"}, {"group": "example.com", "resource": "websites"}]},
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}},
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}},
    ],
    ids=str,
)
async def test_a_good_spec_is_taken(api: Api, rings: str, spec: Doc) -> None:
    (await api.post(rings, ring("good", **spec), dryRun="All")).check(201)


@pytest.mark.parametrize(
    ("change", "patterns"),
    [
        (
            {"leaseNamespace": "elsewhere"},
            [r"spec\.leaseNamespace", "was sites and is immutable: make a new ring, and delete this one"],
        ),
        (
            {"labelDomain": "example.com"},
            [r"spec\.labelDomain", r"was ringleader\.dev and is immutable: make a new ring"],
        ),
        ({"key": "Label"}, [r"spec\.keyLabel", "key: Label needs keyLabel"]),
    ],
    ids=["leaseNamespace", "labelDomain", "key"],
)
async def test_a_forbidden_edit_is_refused_with_the_value_that_was(
    api: Api, worked: str, plane: ControlPlane, change: Doc, patterns: list[str]
) -> None:
    refused(await api.merge(worked, {"spec": change}, dryRun="All"), plane, patterns)


async def test_every_other_field_may_be_edited_and_the_domain_left_out(api: Api, worked: str) -> None:
    change = {"key": "Label", "keyLabel": "team", "holdSeconds": 5, "paused": True, "labelDomain": None}
    edited = (await api.merge(worked, {"spec": change})).check(200)
    assert edited.body["spec"]["labelDomain"] == "ringleader.dev"
    back = {"key": "Object", "keyLabel": None}
    (await api.merge(worked, {"spec": back})).check(200)
