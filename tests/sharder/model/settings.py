"""Which settings are explored, under names for people; and for each rule one in which its absence breaks something."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tests.sharder.model.world import NONE, Setting

_NEXT_LIFE: Final = ("a-1", "a-2", "b-1")
"""The second life is the next one of the first one's member."""


def _of(**faults: int) -> Setting:
    return Setting(faults)


def _succession(**faults: int) -> Setting:
    return Setting(faults, lives=_NEXT_LIFE, present=1)


def _worn(**faults: int) -> Setting:
    return Setting(faults, wears_again=True)


def _unanswered(**faults: int) -> Setting:
    return Setting(faults, has_unanswered=True)


def _unowned(**faults: int) -> Setting:
    return Setting(faults, owner=NONE)


def _forged(**faults: int) -> Setting:
    """The label names a life whose CREATE is on its way."""
    return Setting(faults, owner="c-1")


SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(
    {
        "no fault": _of(),
        "a crash": _of(crash=1),
        "a partition": _of(cut=1),
        "a suspension": _of(suspend=1),
        "a Lease deleted by hand, sharders fail over in the contest": _of(delete=1),
        "an owner forced by policy": _of(force=1),
        "two lost answers, a stale list": _of(lose_answer=2, stale_list=1),
        "the object created anew, a lost answer": _of(recreate=1, lose_answer=1),
        "the target of a handoff dies, a lost answer": _of(crash=1, lose_answer=1),
        "a crash, a stale list": _of(crash=1, stale_list=1),
        "a partition, a lost answer": _of(cut=1, lose_answer=1),
        "a suspension, a lost answer": _of(suspend=1, lose_answer=1),
        "a suspension, a stale list": _of(suspend=1, stale_list=1),
        "the object created anew, a crash": _of(recreate=1, crash=1),
        "the object created anew, a suspension": _of(recreate=1, suspend=1),
        "a Lease deleted by hand, a lost answer": _of(delete=1, lose_answer=1),
        "a Lease deleted by hand, then its tombstone": _of(delete=2),
        "a Lease deleted by hand, a suspension": _of(delete=1, suspend=1),
        "an owner forced by policy, a suspension": _of(force=1, suspend=1),
        "a write whose answer was lost, a crash": _unanswered(crash=1),
        "two crashes": _of(crash=2),
        "a crash, a suspension": _of(crash=1, suspend=1),
        "quick succession after a crash, a suspension": _succession(crash=1, suspend=1),
        "quick succession after a crash, a lost answer": _succession(crash=1, lose_answer=1),
        "a Lease worn again after a stop, a partition": _worn(stop=1, cut=1),
        "a Lease worn again after a stop, a lost answer": _worn(stop=1, lose_answer=1),
        "the ring given up": _of(release=1),
        "the ring given up, the owner dies": _of(release=1, crash=1),
        "the ring given up, a lost answer": _of(release=1, lose_answer=1),
        "a Lease whose duration is edited": _of(edit=1),
        "a Lease whose duration is edited, a suspension": _of(edit=1, suspend=1),
        "a birth that is not heard of": _of(lose_birth=1),
        "a birth that is not heard of, a crash": _of(lose_birth=1, crash=1),
        "a life whose caches never become full": _of(never_full=1),
        "a namespace deselected, an unowned object": _unowned(deselect=1),
        "a namespace deselected, the owner dies": _of(deselect=1, crash=1),
        "a resource removed, a sharder ends": _unowned(remove=1, end_sharder=1),
        "a label forged, the CREATE of its name on its way": _forged(),
        "the ring given up, a label forged": _forged(release=1),
        "the ring given up, a Lease deleted by hand": _of(release=1, delete=1),
    }
)

BREAKING: Final[Mapping[str, Setting]] = MappingProxyType(
    {
        "contested_waits": _of(delete=1),
        "take_waits_for_silence": _of(),
        "names_live_once": _of(crash=1),
        "assign_is_conditional": _of(crash=1),
        "assign_has_evidence": _of(suspend=1),
        "acknowledgement_is_conditional": _of(),
        "acknowledgement_has_evidence": _of(suspend=1),
        "drain_ends_work_first": _of(),
        "nothing_older_counts": _of(stale_list=1),
        "writes_are_fenced": _of(suspend=1),
        "writes_test_the_uid": _of(recreate=1),
        "writes_test_the_turn": _unanswered(crash=1),
        "requests_test_the_uid": _of(recreate=1),
        "release_waits_for_answers": _worn(stop=1, cut=1),
        "succession_is_proven": _succession(suspend=1),
        "given_up_by_the_owner": _of(release=1),
        "given_back_after_the_last_life": _of(release=1, crash=1),
        "edited_take_is_contested": _of(edit=1),
        "birth_adopts_what_it_holds": _of(lose_birth=1),
        "deselected_is_touched": _unowned(deselect=1),
        "unshown_name_waits": _of(release=1, delete=1),
        "unshown_wait_begins_with_the_deletion": _forged(release=1),
        "given_back_on_evidence": _forged(release=1),
    }
)
"""For each of these rules: without it, this setting has a run that breaks something."""

STRANDING: Final[Mapping[str, Setting]] = MappingProxyType({"place_waits_for_full_caches": _of(never_full=1)})
"""For each of these rules: without it, this setting has a run after which the object is never worked on again."""

HOLES: Final[Mapping[str, Setting]] = MappingProxyType(
    {
        "a sharder ends between the change of a namespace and its touch": _unowned(deselect=1, end_sharder=1),
        "a second sharder sees the touched object before it sees the change": _unowned(deselect=1, lag=1),
    }
)
"""What is known to break, with every rule (docs/protocol.md, section 10)."""

BEHIND_THE_TURN: Final = frozenset({"assign_has_evidence", "acknowledgement_has_evidence"})
"""Rules that keep late writes out where no turn is tested: their sharder gave the objects none."""
