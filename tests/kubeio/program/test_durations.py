"""Durations of command lines."""

from __future__ import annotations

import pytest

from kubeio.errors import InputError
from kubeio.program.durations import parse_duration, parse_whole_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("30s", 30), ("1m30s", 90), ("1h", 3600), ("0.5s", 0.5), ("250ms", 0.25), ("1s500ms", 1.5)],
)
def test_gos_form_is_read_and_a_bare_number_is_seconds(text: str, seconds: float) -> None:
    assert parse_duration("--timeout", text) == seconds


@pytest.mark.parametrize("text", ["", "5y", "0", "0s", "-3s", "s", "h", "ms", "1s1h"])
def test_anything_else_is_refused_by_the_flags_name(text: str) -> None:
    with pytest.raises(InputError, match="--timeout"):
        parse_duration("--timeout", text)


def test_zero_can_be_allowed() -> None:
    assert parse_duration("--blocked-loop", "0", may_be_zero=True) == 0


def test_a_lease_lasts_whole_seconds() -> None:
    assert parse_whole_seconds("--lease-duration", "1m") == 60
    with pytest.raises(InputError, match="whole seconds"):
        parse_whole_seconds("--lease-duration", "1500ms")
