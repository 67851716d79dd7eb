"""The CRD and the code say the same: names, defaults, and what is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from kubeio.protocol import CONTROLLER_RINGS
from sharder.ringspec.parsing import parse_ring
from sharder.schema import PACKAGED, packaged_schema
from sharder.schema import SCHEMA as NUMBER
from tests.sharder.pure.ring_documents import ring

FILE = Path(__file__).parents[3] / "manifests" / "crds" / "ringleader.dev_controllerrings.yaml"
CRD: dict[str, Any] = yaml.safe_load(FILE.read_text())
VERSION: dict[str, Any] = CRD["spec"]["versions"][0]
SCHEMA: dict[str, Any] = VERSION["schema"]["openAPIV3Schema"]

FIRST_DEFAULTS = frozenset(
    [
        "labelDomain",
        "algorithm",
        "virtualNodes",
        "imbalancePercent",
        "key",
        "holdSeconds",
        "settleSeconds",
        "minMembers",
        "startDelaySeconds",
        "maxLeaseDurationSeconds",
        "maxInFlight",
        "maxInFlightPerOwner",
        "drainTimeoutSeconds",
        "drainPolicy",
        "assignAtAdmission",
        "auditIntervalSeconds",
        "paused",
    ]
)
"""Fields of version 0.1.0 that the API server fills in."""


DIGESTS = {
    1: "53e0828b97b13f9e6f3cbbb1acdffbec6834bfb02b6069a6fe981da3eb58e996",
    2: "27dfe5ad0e42ea7a7058d2f2d567fdcd1b3325b744b3e182556307cd380ca2b9",
    3: "e870e4297bd3294ecce994e7b4712b19693cd8a1c2f89d35eba6121b87e6b408",
}
"""Digest of the packaged spec by schema number: what was released is never edited here."""


def as_json_schema(node: Any) -> Any:
    """The structural schema as JSON Schema: exclusiveMinimum is a number there, unknown fields are refused."""
    if isinstance(node, list):
        return [as_json_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {key: as_json_schema(value) for key, value in node.items() if not key.startswith("x-")}
    if made.pop("exclusiveMinimum", False) is True:
        made["exclusiveMinimum"] = made.pop("minimum")
    if isinstance(made.get("properties"), dict) and "type" in made and "metadata" not in made["properties"]:
        made["additionalProperties"] = False
    return made


VALIDATOR = jsonschema_rs.validator_for(as_json_schema(SCHEMA))


def defaults_of(node: dict[str, Any]) -> dict[str, Any]:
    return {name: child["default"] for name, child in node["properties"].items() if "default" in child}


def test_the_crd_is_the_resource_that_the_code_asks_for() -> None:
    names = CRD["spec"]["names"]
    assert (CRD["spec"]["group"], VERSION["name"], names["plural"], names["kind"]) == (
        CONTROLLER_RINGS.group,
        CONTROLLER_RINGS.version,
        CONTROLLER_RINGS.plural,
        CONTROLLER_RINGS.kind,
    )
    assert CRD["metadata"]["name"] == f"{names['plural']}.{CRD['spec']['group']}"
    assert CRD["spec"]["scope"] == "Cluster"
    assert VERSION["subresources"] == {"status": {}}


def test_defaults_of_the_schema_are_the_defaults_of_the_code() -> None:
    assert parse_ring(ring(**defaults_of(SCHEMA["properties"]["spec"]))) == parse_ring(ring())


def test_no_field_that_came_after_the_first_release_has_a_default() -> None:
    """A CRD stays when the sharder is rolled back, and a sharder refuses fields that it does not know (ADR 47)."""
    assert set(defaults_of(SCHEMA["properties"]["spec"])) <= FIRST_DEFAULTS


def test_the_schema_knows_every_field_of_the_spec_and_the_code_knows_no_fewer() -> None:
    bare = parse_ring(ring())
    assert bare
    fields = SCHEMA["properties"]["spec"]["properties"]
    with pytest.raises(Exception, match="known here") as refused:
        parse_ring(ring(zzz=1))
    (problem,) = refused.value.problems  # type: ignore[attr-defined]  # RingRefused, matched by its text
    known = problem.remedy.removeprefix("known here: ").split(", ")
    assert sorted(known) == sorted(fields)


def test_every_field_is_described() -> None:
    def undescribed(node: dict[str, Any], path: str) -> list[str]:
        found = []
        for name, child in node.get("properties", {}).items():
            if "description" not in child:
                found.append(f"{path}.{name}")
            inner = child.get("items") or child.get("additionalProperties") or child
            found += undescribed(inner if isinstance(inner, dict) else child, f"{path}.{name}")
        return found

    assert undescribed(SCHEMA["properties"]["spec"], "spec") == []


@pytest.mark.parametrize(
    "spec",
    [
        {"imbalancePercent": 0},
        {"imbalancePercent": 2.5},
        {"holdSeconds": 0.5},
        {"virtualNodes": 0},
        {"virtualNodes": "many"},
        {"virtualNodes": 1.5},
        {"labelDomain": "Not A Domain"},
        {"leaseNamespace": ""},
        {"leaseNamespace": None},
        {"resources": []},
        {"resources": [{"resource": "Websites"}]},
        {"drainPolicy": "Maybe"},
        {"minMembers": 0},
        {"members": {"m": {"weight": 0}}},
        {"unknown": 1},
        {"activation": {}},
    ],
)
def test_what_the_schema_refuses_the_code_refuses_as_well(spec: dict[str, Any]) -> None:
    document = ring(**spec)
    assert not VALIDATOR.is_valid(document)
    with pytest.raises(Exception, match="is refused"):
        parse_ring(document)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"imbalancePercent": 10},
        {"members": {"m": {"weight": 2}}},
        {"settleSeconds": 0.5},
        {"paused": True},
    ],
)
def test_what_the_code_works_the_schema_accepts(spec: dict[str, Any]) -> None:
    document = ring(**spec)
    assert VALIDATOR.is_valid(document)
    assert parse_ring(document)


def test_the_schema_number_rises_with_every_change_of_the_schema() -> None:
    assert PACKAGED.resolve() == FILE
    digest = hashlib.sha256(json.dumps(CRD["spec"], sort_keys=True).encode()).hexdigest()
    assert (packaged_schema(), digest) == list(DIGESTS.items())[-1], (
        f"the ControllerRing resource changed: raise the annotation {NUMBER} and add a line to DIGESTS"
    )
    assert list(DIGESTS) == list(range(1, len(DIGESTS) + 1))
