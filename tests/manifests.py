"""Documents in YAML that many tests send: each is read once, since a CustomResourceDefinition takes 25 ms of CPU."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def manifest(path: Path) -> dict[str, Any]:
    """The document in the file *path*, shared by all: to be sent, not changed."""
    document: dict[str, Any] = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    return document
