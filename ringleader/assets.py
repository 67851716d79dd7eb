"""Where the manifests and examples are: beside the packages in a source checkout, inside the wheel elsewhere.

Owns no file; callers get a path that exists or an error that says what is missing.
"""

from __future__ import annotations

from pathlib import Path

from kubeio.errors import InputError

_PACKAGE = Path(__file__).resolve().parent


def asset(*parts: str) -> Path:
    """The file or folder `manifests/...` or `examples/...`, wherever this installation keeps it.

    Raises: InputError if this installation lacks it.
    """
    for root in (_PACKAGE / "assets", _PACKAGE.parent):
        path = root.joinpath(*parts)
        if path.exists():
            return path
    raise InputError(
        "installation",
        "/".join(parts),
        "is missing",
        "install the wheel anew (pip install --force-reinstall ringleader) or run from a whole source checkout",
    )


def ring_crd() -> Path:
    """The CustomResourceDefinition of ControllerRing."""
    return asset("manifests", "crds", "ringleader.dev_controllerrings.yaml")


def website_crd() -> Path:
    """The CustomResourceDefinition of the example's Website."""
    return asset("examples", "website", "crd.yaml")


def website_controller() -> Path:
    """The example's controller, which fleets run unless they are given another."""
    return asset("examples", "website", "controller.py")
