"""Software bill of materials of an image: what its layers contain, in CycloneDX 1.6, validated by its schema.

Owns how a component is described. Debian packages come from their control data, Python packages from their metadata.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.utils import canonicalize_name

from devcluster.image.base_system import STATUS
from devcluster.image.oci import layers_of

PROGRAM: Final = "ringleader"
_CLASSIFIER: Final = "License :: OSI Approved :: "
_SPDX: Final = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""Classifiers of packages whose metadata has no licence expression."""


def sbom_of(layout: Path, *, epoch: int) -> str:
    """The bill of materials of the image in *layout*, as JSON; equal images give equal texts.

    Raises: ValueError with the schema's words if the result breaks the schema.
    """
    components = {component.bom_ref.value: component for component in _components(layout)}
    program = next(each for each in components.values() if each.name == PROGRAM)
    bom = Bom(
        components=[each for each in components.values() if each is not program],
        metadata=BomMetaData(component=program, timestamp=datetime.fromtimestamp(epoch, UTC)),
        serial_number=uuid5(NAMESPACE_URL, f"{program.purl}?built={epoch}"),
    )
    bom.register_dependency(program, bom.components)
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem is not None:
        raise ValueError(f"the bill of materials breaks the schema of CycloneDX 1.6: {problem}")
    return text


def _components(layout: Path) -> Iterator[Component]:
    for layer in layers_of(layout):
        with tarfile.open(layer) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                if content is None:
                    continue
                if member.name.startswith(f"{STATUS}/"):
                    yield _debian(BytesParser().parse(content))
                elif member.name.endswith(".dist-info/METADATA"):
                    yield _python(BytesParser().parse(content))


def _debian(control: Message) -> Component:
    purl = PackageURL(
        "deb", "debian", control["Package"], control["Version"], {"arch": control["Architecture"]}
    )
    return Component(
        name=control["Package"],
        version=control["Version"],
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=purl.to_string(),
    )


def _python(metadata: Message) -> Component:
    name = canonicalize_name(metadata["Name"])
    purl = PackageURL("pypi", None, name, metadata["Version"])
    return Component(
        name=name,
        version=metadata["Version"],
        type=ComponentType.APPLICATION if name == PROGRAM else ComponentType.LIBRARY,
        purl=purl,
        bom_ref=purl.to_string(),
        licenses=[LicenseFactory().make_from_string(licence_of(metadata))],
    )


def licence_of(metadata: Message) -> str:
    """The licence that a package declares, as an SPDX expression where it can be told."""
    if metadata["License-Expression"]:
        return str(metadata["License-Expression"])
    classifiers = metadata.get_all("Classifier") or []
    found = [each.removeprefix(_CLASSIFIER) for each in classifiers if each.startswith(_CLASSIFIER)]
    if found:
        return " OR ".join(sorted(_SPDX.get(each, each) for each in found))
    return str(metadata["License"] or "unknown").partition("\n")[0]
