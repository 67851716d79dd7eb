"""What the spec of an object names."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.learn.references import named_kinds

KINDS = {"Issuer": "issuers.example.com", "Website": "websites.example.com"}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"issuerRef": {"name": "ca"}}, {"issuers.example.com": "spec.issuerRef: ca"}),
        ({"ref": {"kind": "Issuer", "name": "ca"}}, {"issuers.example.com": "spec.ref: ca"}),
        ({"tls": [{"issuerName": "ca"}]}, {"issuers.example.com": "spec.tls.issuerName: ca"}),
        ({"issuers": [{"issuer": "ca"}]}, {"issuers.example.com": "spec.issuers.issuer: ca"}),
        ({"dependsOn": [{"name": "b"}]}, {"websites.example.com": "spec.dependsOn: b"}),
        ({"dependsOn": ["b"]}, {"websites.example.com": "spec.dependsOn: b"}),
        ({"issuerRef": {"kind": "ClusterIssuer", "name": "ca"}}, {}),
        ({"issuerRef": {"name": ""}, "name": "issuer", "text": "ca"}, {}),
        ({"issuerRef": {"name": 7, "kind": ["Issuer"]}}, {}),
        (None, {}),
    ],
)
def test_kinds_are_named_by_kind_or_key(spec: Any, found: dict[str, str]) -> None:
    assert named_kinds({"spec": spec}, KINDS, own="websites.example.com") == found
