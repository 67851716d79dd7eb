"""`status.observedGeneration` against `metadata.generation`, of objects as an API server gives them."""

from __future__ import annotations

import pytest

from kubeio.observed import observed

DEEP = b"[" * 5000 + b"]" * 5000


def object_with(*, spec: bytes = b"{}", status: bytes = b"{}", metadata: bytes = b'"generation":3') -> bytes:
    return b'{"metadata":{"name":"blog","namespace":"sites",%s},"spec":%s,"status":%s}' % (
        metadata,
        spec,
        status,
    )


@pytest.mark.parametrize(
    ("status", "is_settled", "is_behind"),
    [
        (b'{"observedGeneration":3}', True, False),
        (b'{"observedGeneration":2}', False, True),
        (b"{}", False, True),
    ],
)
def test_the_last_change_was_seen_or_not(status: bytes, is_settled: bool, is_behind: bool) -> None:
    found = observed(object_with(status=status))
    assert found is not None
    assert (found.is_settled, found.is_behind) == (is_settled, is_behind)


def test_what_is_being_deleted_is_neither() -> None:
    going = b'"generation":3,"deletionTimestamp":"2026-11-23T08:00:00Z"'
    found = observed(object_with(metadata=going, status=b'{"observedGeneration":3}'))
    assert found is not None
    assert not found.is_settled
    assert not found.is_behind


def test_a_deep_object_is_read_too() -> None:
    found = observed(object_with(spec=DEEP, status=b'{"observedGeneration":3,"history":%s}' % DEEP))
    assert found is not None
    assert found.is_settled


@pytest.mark.parametrize("status", [b'"Running"', b'{"observedGeneration":"three"}'])
def test_a_kind_with_another_status_says_nothing(status: bytes) -> None:
    assert observed(object_with(status=status)) is None
