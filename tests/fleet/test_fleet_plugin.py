"""The fixtures as a user's own test takes them: the story of docs/writing-a-controller.md."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import shard_controller as sc
from kubeio.errors import InputError
from ringleader.assets import website_crd
from ringleader.testing import Fleet
from ringleader.testing.declared import place_of
from ringleader.testing.plugin import control_plane, fleet, fleet_spec
from tests.docs.programs import load

__all__ = ["control_plane", "fleet", "fleet_spec"]
pytestmark = pytest.mark.fleet


async def test_the_test_that_the_document_shows_passes(fleet: Fleet, tmp_path: Path) -> None:
    """With nothing but the document's own program and a definition beside it."""
    folder = tmp_path / "project"
    (folder / "manifests").mkdir(parents=True)
    shutil.copy(website_crd(), folder / "manifests")
    document = load("writing-a-controller.md", folder)
    await document.test_site_survives_its_owner(fleet)


def test_a_controller_that_is_no_variable_is_named_with_the_remedy() -> None:
    hidden: sc.Controller[dict[str, object]] = sc.Controller(sc.Resource("sites/v1", dict), name="hidden")

    @hidden.reconcile
    async def act(ctx: sc.Context[dict[str, object]]) -> sc.Result:
        return sc.Done()

    with pytest.raises(InputError, match=r"hidden.*is no variable.*fleet\.start"):
        place_of(hidden)
