"""Provenance of a release: an in-toto statement with a SLSA v1 predicate. Nothing in it is signed.

Owns the statement's content. Sources: in-toto attestation framework v1, SLSA provenance v1.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

BUILD_TYPE: Final = "urn:ringleader:make-release:v1"
"""Parameters: `version`. The steps are those of scripts/release.py at the commit."""
_STATEMENT: Final = "https://in-toto.io/Statement/v1"
_PREDICATE: Final = "https://slsa.dev/provenance/v1"


def provenance_of(
    subjects: Mapping[str, str], *, version: str, commit: str, materials: Mapping[str, Path]
) -> str:
    """The statement about *subjects* (SHA-256 by file name), built from *commit* and from *materials*, as JSON.

    Equal releases give equal texts: no time and no machine is in it.
    """
    dependencies = [{"uri": "git+ringleader", "digest": {"gitCommit": commit}}]
    dependencies += [
        {"uri": f"file:{name}", "digest": {"sha256": sha256(path)}}
        for name, path in sorted(materials.items())
    ]
    statement = {
        "_type": _STATEMENT,
        "subject": [
            {"name": name, "digest": {"sha256": digest}} for name, digest in sorted(subjects.items())
        ],
        "predicateType": _PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"version": version},
                "resolvedDependencies": dependencies,
            },
            "runDetails": {"builder": {"id": BUILD_TYPE}},
        },
    }
    return json.dumps(statement, indent=1) + "\n"


def sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
