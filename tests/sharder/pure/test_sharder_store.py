"""Rings as they are stored: decoded once, and tolerant of what another implementation or an edit left there."""

from __future__ import annotations

import msgspec
import pytest

from kubeio.models import GroupResource
from sharder.rings.store import Ring
from sharder.ringspec.spec import RingResource

WEBSITES = RingResource(
    GroupResource("example.com", "websites"), (GroupResource("", "configmaps"), GroupResource("", "secrets"))
)
ENTRY = {
    "group": "example.com",
    "resource": "websites",
    "controlledResources": [{"resource": "configmaps"}, {"resource": "secrets"}],
}


def read(**document: object) -> Ring:
    return msgspec.json.decode(msgspec.json.encode({"metadata": {"name": "websites"}, **document}), type=Ring)


def test_a_new_ring_has_no_status() -> None:
    ring = read(spec={"resources": [ENTRY]})
    assert (ring.name, ring.sharder, ring.worked, ring.is_deleted) == ("websites", "", (), False)
    assert ring.resources == (WEBSITES,)


def test_the_status_names_the_implementation_and_what_is_distributed() -> None:
    ring = read(status={"sharder": "example.org/other", "worked": [ENTRY], "namespaces": ["a"]})
    assert (ring.sharder, ring.worked) == ("example.org/other", (WEBSITES,))


def test_a_deletion_timestamp_shows_that_a_ring_is_deleted() -> None:
    assert read(metadata={"name": "websites", "deletionTimestamp": "2026-11-23T10:00:00Z"}).is_deleted


@pytest.mark.parametrize("other", [None, 3, "text", [3], {"a": 1}, [{"group": "example.com"}]], ids=str)
def test_a_list_of_another_form_names_no_resource(other: object) -> None:
    assert read(spec={"resources": other}, status={"worked": other}).worked == ()
    assert read(spec={"resources": other}).resources == ()
    assert read(spec=other).resources == ()
