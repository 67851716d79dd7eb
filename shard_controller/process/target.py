"""Finds the controller that a command line names: `path/to/file.py:websites` or `package.module:websites`.

Every way in which that can fail becomes one InputError.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from kubeio.errors import InputError
from kubeio.suggestions import closest, did_you_mean
from shard_controller.api.controller import Controller

_FIELD = "CONTROLLER"
RENAME = "give one of them another: sc.Controller(..., name=...)"


def load_controller(text: str) -> Controller[Any]:
    """The controller that *text* names; it has a reconciler. Raises: InputError."""
    where, colon, attribute = text.rpartition(":")
    if not colon or not where or not attribute.isidentifier() or ("/" in where and not where.endswith(".py")):
        raise InputError(
            _FIELD,
            text,
            "is not FILE.py:NAME or MODULE:NAME",
            "write e.g. controller.py:websites or app.main:websites",
        )
    module = _module_from_file(Path(where), text) if where.endswith(".py") else _module(where, text)
    found = getattr(module, attribute, None)
    if isinstance(found, Controller):
        _ = found.reconciler
        _check_names(found, vars(module))
        return found
    names = [name for name, value in vars(module).items() if isinstance(value, Controller)]
    problem = "is not a Controller" if hasattr(module, attribute) else f"names nothing in {where}"
    raise InputError(_FIELD, text, problem, _nearest(attribute, names))


def _check_names(chosen: Controller[Any], defined: Mapping[str, object]) -> None:
    """Refuses a namesake beside *chosen*: as replicas they would share a Lease, metrics and a field manager."""
    for attribute, value in defined.items():
        if isinstance(value, Controller) and value is not chosen and value.name == chosen.name:
            raise InputError(
                "name", chosen.name, f"is the name of two controllers, also of {attribute}", RENAME
            )


def _module_from_file(path: Path, text: str) -> ModuleType:
    if not path.is_file():
        raise InputError(
            _FIELD, text, f"names a file that does not exist ({path})", "give the path of a file"
        )
    path = path.resolve()
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(_FIELD, text, "is not a Python file", "give a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # whatever a user's file raises
        raise _cannot_import(text, error) from error
    return module


def _module(name: str, text: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # whatever a user's module raises
        raise _cannot_import(text, error) from error


def _cannot_import(text: str, error: BaseException) -> InputError:
    shown = f"cannot be imported ({type(error).__name__}: {error})"
    return InputError(_FIELD, text, shown, "correct the file, or run it with python to see the whole error")


def _nearest(attribute: str, names: list[str]) -> str:
    if not names:
        return "define one: websites = sc.Controller(sc.Resource(...))"
    return did_you_mean(closest(attribute, names, most=1, cutoff=0.6)) or f"the file has {', '.join(names)}"
