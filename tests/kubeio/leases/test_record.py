"""Fields of a Lease as its holders write them, and what tells that one of them wrote."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kubeio.leases.record import claimed, heartbeat_of, released, renewed
from kubeio.models import LeaseSpec

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=1)
AT, AFTER = "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:01.000000Z"


def test_a_new_lease_has_no_transition() -> None:
    assert claimed(None, "a", wall=NOW, duration_s=15) == LeaseSpec("a", 15, AT, AT, 0)


def test_each_claim_is_a_transition_and_keeps_the_duration_unless_it_names_one() -> None:
    first = claimed(None, "a", wall=NOW, duration_s=15)
    second = claimed(first, "b", wall=LATER)
    assert second == LeaseSpec("b", 15, AFTER, AFTER, 1)
    assert claimed(second, "a", wall=LATER, duration_s=30) == LeaseSpec("a", 30, AFTER, AFTER, 2)
    assert claimed(LeaseSpec(), "a", wall=NOW).lease_transitions == 1


def test_a_renewal_changes_the_time_and_nothing_else() -> None:
    first = claimed(None, "a", wall=NOW, duration_s=15)
    assert renewed(first, wall=LATER) == LeaseSpec("a", 15, AT, AFTER, 0)


def test_every_write_of_a_holder_changes_the_heartbeat_and_other_edits_do_not() -> None:
    first = claimed(None, "a", wall=NOW, duration_s=15)
    others = [renewed(first, wall=LATER), released(first), claimed(first, "a", wall=NOW)]
    assert heartbeat_of(first) not in [heartbeat_of(other) for other in others]
    assert heartbeat_of(claimed(None, "a", wall=NOW, duration_s=60)) == heartbeat_of(first)
