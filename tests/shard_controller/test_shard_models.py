"""Models of every kind, what is said of objects that do not fit them, and how a resource may be declared."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

import shard_controller as sc
from kubeio.errors import InputError

SITE = {
    "apiVersion": "example.com/v1",
    "kind": "Website",
    "metadata": {"name": "blog", "namespace": "team", "labels": {"app": "web"}},
    "spec": {"htmlText": "hi", "replicaCount": 3, "mode": "open", "more": 1},
}


class StructSpec(msgspec.Struct, rename="camel"):
    html_text: str
    replicas: int = msgspec.field(name="replicaCount", default=1)
    mode: Literal["open", "shut"] = "open"


class StructSite(msgspec.Struct):
    spec: StructSpec


@dataclasses.dataclass
class DataSpec:
    htmlText: str  # noqa: N815 - dataclasses have the names of the API
    replicaCount: int = 1  # noqa: N815
    mode: Literal["open", "shut"] = "open"


@dataclasses.dataclass
class DataSite:
    spec: DataSpec


class PydanticSpec(pydantic.BaseModel):
    html_text: str = pydantic.Field(alias="htmlText")
    replicas: int = pydantic.Field(alias="replicaCount", default=1)
    mode: Literal["open", "shut"] = "open"

    @pydantic.field_validator("html_text")
    @classmethod
    def is_no_riddle(cls, value: str) -> str:
        if value == "riddle":
            raise ValueError(f"{value} is refused")
        if value == "crash":
            raise LookupError(f"{value} is not to be found")
        return value


class PydanticSite(pydantic.BaseModel):
    spec: PydanticSpec


class TypedSpec(TypedDict):
    htmlText: str
    mode: Literal["open", "shut"]


class TypedSite(TypedDict):
    spec: TypedSpec


class Careful(msgspec.Struct):
    spec: dict[str, Any]

    def __post_init__(self) -> None:
        if self.spec["htmlText"] == "riddle":
            raise ValueError("riddle is refused")
        if self.spec["htmlText"] == "crash":
            raise LookupError("crash is not to be found")


MODELS: list[Any] = [StructSite, DataSite, PydanticSite, TypedSite]


def raw(**spec: object) -> bytes:
    return json.dumps({**SITE, "spec": {**SITE["spec"], **spec}}).encode()  # type: ignore[dict-item]


def problem(model: Any, **spec: object) -> str:
    with pytest.raises(msgspec.ValidationError) as caught:
        sc.Resource("websites/v1", model).decode(raw(**spec))
    assert caught.value.__cause__ is None, "the cause would show the value"
    assert caught.value.__context__ is None
    return str(caught.value)


@pytest.mark.parametrize(
    ("model", "name"), [(StructSite, "html_text"), (PydanticSite, "html_text"), (DataSite, "htmlText")]
)
def test_renamed_and_aliased_fields_are_those_of_the_api(model: Any, name: str) -> None:
    assert getattr(sc.Resource("websites/v1", model).decode(raw()).spec, name) == "hi"


def test_a_typed_dict_is_a_model_too() -> None:
    assert sc.Resource("websites/v1", TypedSite).decode(raw())["spec"]["htmlText"] == "hi"


@pytest.mark.parametrize("model", [*MODELS, dict])
def test_a_model_is_the_readers_own(model: Any) -> None:
    resource = sc.Resource("websites/v1", model)
    same = raw()
    first, second = resource.decode(same), resource.decode(same)
    assert first == second
    assert first is not second


@pytest.mark.parametrize("model", MODELS)
def test_an_object_that_does_not_fit_is_named_with_its_field(model: Any) -> None:
    reported = problem(model, htmlText=["not", "text"])
    assert reported.startswith("team/blog: ")
    assert "$.spec.htmlText" in reported


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("bad", [{"mode": "SECRET"}, {"htmlText": {"a": "SECRET"}}, {"htmlText": ["SECRET"]}])
def test_a_problem_never_shows_the_value(model: Any, bad: dict[str, object]) -> None:
    assert "SECRET" not in problem(model, **bad)


@pytest.mark.parametrize("model", [PydanticSite, Careful])
@pytest.mark.parametrize("value", ["riddle", "crash"])
def test_what_a_models_own_code_raises_is_an_object_that_does_not_fit(model: Any, value: str) -> None:
    reported = problem(model, htmlText=value)
    assert reported.startswith("team/blog: ")
    assert value not in reported


def test_every_problem_of_a_pydantic_model_is_named() -> None:
    reported = problem(PydanticSite, htmlText=5, mode="ajar", replicaCount="many")
    for place in ("$.spec.htmlText", "$.spec.mode", "$.spec.replicaCount"):
        assert place in reported


def test_what_is_no_object_at_all_does_not_fit() -> None:
    with pytest.raises(msgspec.ValidationError):
        sc.Resource("websites/v1", StructSite).decode(b'{"metadata":')


def test_pydantic_is_imported_by_its_user_only() -> None:
    code = "import sys, shard_controller.process.app; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- declarations


@pytest.mark.parametrize("model", [int, object, "Website", 5, list[int]])
def test_what_no_object_can_be_decoded_as_is_refused(model: Any) -> None:
    with pytest.raises(
        InputError, match=r"model: .* use a msgspec\.Struct, a dataclass, a pydantic\.BaseModel"
    ):
        sc.Resource("websites/v1", model)


def test_an_unknown_stored_form_is_refused() -> None:
    with pytest.raises(
        InputError, match="stored: 'zip' is unknown; use one of auto, raw, compressed, metadata"
    ):
        sc.Resource("websites/v1", dict, stored="zip")  # type: ignore[arg-type]  # a user without mypy


@pytest.mark.parametrize("model", MODELS)
def test_a_model_that_needs_more_than_metadata_does_not_go_with_metadata(model: Any) -> None:
    with pytest.raises(InputError, match=r"stored: 'metadata' does not give websites/v1 the field spec"):
        sc.Resource("websites/v1", model, stored="metadata")


class MetaOnly(msgspec.Struct):
    metadata: dict[str, Any]
    spec: dict[str, Any] | None = None


class PydanticMeta(pydantic.BaseModel):
    api_version: str = pydantic.Field(alias="apiVersion")
    metadata: dict[str, Any]


@pytest.mark.parametrize("model", [MetaOnly, PydanticMeta, dict])
def test_a_model_that_needs_metadata_alone_goes_with_metadata(model: Any) -> None:
    assert sc.Resource("websites/v1", model, stored="metadata").is_metadata_only
