"""Ownership: every interleaving of events, drains, acknowledgements, lost and late answers."""

from __future__ import annotations

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kubeio.clock import ManualClock
from kubeio.models import HasMeta, Meta, Object, ObjectKey
from kubeio.resource import ApiResource
from kubeio.shard.handoff import Directed, KeepOwner, Plain, decide_handoff
from kubeio.shard.lease_validity import LeaseValidity
from shard_controller.objects.caches import ResourceCache
from shard_controller.objects.min_versions import MinVersions
from shard_controller.shard.ownership import ExclusiveOwnership, ShardOwnership
from shard_controller.shard.ownership_decisions import (
    Acknowledge,
    Defer,
    Drop,
    OwnershipDecision,
    OwnershipState,
    Reconcile,
    Reread,
    decide,
    state_of,
)
from tests.shard_controller.objects import KEYS

ME = "shard-a"
OTHER = "shard-b"
KEY = ObjectKey("default", "blog")


class OneObject(RuleBasedStateMachine):
    """A server with one object, a lagging watch of ours, and a network that loses and delays acknowledgements.

    Only we take the label off: others assign while it is off, or hand the object back.
    """

    def __init__(self) -> None:
        super().__init__()
        self.history: list[OwnershipState] = [OwnershipState(1, ME, None)]
        self.shown = 0  # index into history: what our watch has delivered
        self.min_versions = MinVersions()
        self.under_way: list[
            tuple[OwnershipState, OwnershipState]
        ] = []  # acknowledgements in the network: (tested, result)

    @property
    def truth(self) -> OwnershipState:
        return self.history[-1]

    def write(self, shard: str | None, drain: str | None) -> None:
        self.history.append(OwnershipState(self.truth.version + 1, shard, drain))

    def cached(self) -> OwnershipState | None:
        """What the selected watch left in the cache: nothing, once the object left our selection."""
        state = self.history[self.shown]
        return state if state.shard == ME else None

    def decision(self) -> OwnershipDecision:
        """As the guard decides: what the cache shows settles what it can settle."""
        cached = self.cached()
        if cached is not None:
            self.min_versions.shown(KEY, version=cached.version)
        return decide(
            cached,
            shard=ME,
            floor=self.min_versions.floor(KEY),
            unanswered=self.min_versions.is_unanswered(KEY),
            held=True,
        )

    def apply(self, tested: OwnershipState, result: OwnershipState) -> bool:
        if self.truth.version != tested.version:
            return False
        self.write(result.shard, result.drain)
        return True

    @staticmethod
    def outcome(state: OwnershipState) -> OwnershipState:
        assert state.drain is not None
        match decide_handoff(state.drain, shard=ME):
            case KeepOwner():
                return OwnershipState(0, ME, None)
            case Directed(to=to):
                return OwnershipState(0, to, None)
            case Plain():
                return OwnershipState(0, None, None)

    @rule()
    def somebody_edits_it(self) -> None:
        self.write(self.truth.shard, self.truth.drain)

    @precondition(lambda self: self.truth.shard == ME)
    @rule(to=st.sampled_from([OTHER, "", ME]))
    def sharder_drains_it(self, to: str) -> None:
        self.write(ME, to)

    @precondition(lambda self: self.truth.shard != ME)
    @rule()
    def it_comes_back(self) -> None:
        self.write(ME, None)

    @precondition(lambda self: self.shown < len(self.history) - 1)
    @rule(data=st.data())
    def watch_delivers(self, data: st.DataObject) -> None:
        self.shown = data.draw(st.integers(self.shown + 1, len(self.history) - 1))
        if self.cached() is None:
            self.min_versions.gone(KEY)

    @precondition(lambda self: isinstance(self.decision(), Acknowledge))
    @rule(fate=st.sampled_from(["answered", "answer lost", "delayed", "never arrives"]))
    def we_acknowledge(self, fate: str) -> None:
        decision = self.decision()
        assert isinstance(decision, Acknowledge)
        self.send(decision.state, fate)

    def send(self, tested: OwnershipState, fate: str) -> None:
        self.min_versions.acknowledging(KEY, tested=tested.version)
        result = self.outcome(tested)
        if fate == "delayed":
            self.under_way.append((tested, result))
        elif fate != "never arrives" and self.apply(tested, result) and fate == "answered":
            self.min_versions.acknowledged(KEY, version=self.truth.version)

    @precondition(lambda self: self.under_way)
    @rule(was_answered=st.booleans())
    def a_delayed_one_arrives(self, was_answered: bool) -> None:
        tested, result = self.under_way.pop(0)
        if self.apply(tested, result) and was_answered:
            self.min_versions.acknowledged(KEY, version=self.truth.version)

    @precondition(lambda self: isinstance(self.decision(), Reread))
    @rule(fate=st.sampled_from(["answered", "answer lost", "delayed", "never arrives"]))
    def we_read_again(self, fate: str) -> None:
        found = self.truth
        self.min_versions.read(KEY, version=found.version)
        if found.version < self.min_versions.floor(KEY):
            self.send(found, fate)

    @rule()
    def the_stream_passes(self) -> None:
        self.min_versions.forget(self.history[self.shown].version)

    @invariant()
    def we_reconcile_only_what_is_ours(self) -> None:
        if isinstance(self.decision(), Reconcile):
            assert self.truth.shard == ME, (self.history, self.shown)

    @invariant()
    def nothing_is_forgotten_for_good(self) -> None:
        """Were everything delivered now, an object of ours would be worked on, asked about, or given up."""
        shown, self.shown = self.shown, len(self.history) - 1
        decision = self.decision()
        self.shown = shown
        if self.truth.shard == ME:
            assert not isinstance(decision, Drop), (self.history, decision)

    def teardown(self) -> None:
        """In the end, with nothing lost any more, floors are empty and the decision follows the labels."""
        self.under_way.clear()
        for _ in range(3):
            self.shown = len(self.history) - 1
            if self.cached() is None:
                self.min_versions.gone(KEY)
            if isinstance(self.decision(), Reread):
                self.we_read_again("answered")
            elif isinstance(self.decision(), Acknowledge):
                self.we_acknowledge("answered")
        self.shown = len(self.history) - 1
        assert isinstance(self.decision(), Reconcile if self.truth.shard == ME else Drop)
        if self.cached() is None:
            self.min_versions.gone(KEY)
        self.the_stream_passes()
        self.the_stream_passes()
        assert len(self.min_versions) == 0


TestOneObject = OneObject.TestCase
TestOneObject.settings = settings(max_examples=300, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize("version", ["", "opaque-7", "0x1f", "9" * 5000])
def test_versions_that_are_no_numbers_order_nothing_and_end_nothing(version: str) -> None:
    state = state_of(Meta(name="x", resource_version=version, labels={KEYS.shard: ME}), KEYS)
    assert decide(state, shard=ME, floor=0, unanswered=False, held=True) == Reconcile(state)
    assert decide(state, shard=ME, floor=1, unanswered=True, held=True) == Reread()


def decided(
    state: OwnershipState | None, known: MinVersions | None = None, *, held: bool = True
) -> OwnershipDecision:
    """What is to be done about *state*, after the acknowledgements that *known* remembers."""
    known = known or MinVersions()
    return decide(state, shard=ME, floor=known.floor(KEY), unanswered=known.is_unanswered(KEY), held=held)


@pytest.fixture
def known() -> MinVersions:
    return MinVersions()


def test_an_older_state_does_not_count_after_an_acknowledgement(known: MinVersions) -> None:
    known.acknowledging(KEY, tested=7)
    known.acknowledged(KEY, version=9)
    assert decided(OwnershipState(8, ME, None), known) == Drop("superseded")
    back = OwnershipState(12, ME, None)
    assert decided(back, known) == Reconcile(back)


def test_nothing_starts_without_a_lease_not_even_an_acknowledgement() -> None:
    for drain in (None, OTHER, ""):
        assert decided(OwnershipState(3, ME, drain), held=False) == Defer()


def test_an_object_that_was_asked_for_is_given_up_and_not_reconciled() -> None:
    for drain, handoff in ((OTHER, Directed(OTHER)), ("", Plain()), (ME, KeepOwner())):
        state = OwnershipState(3, ME, drain)
        assert decided(state) == Acknowledge(state, handoff)


def test_an_acknowledgement_on_its_way_counts_as_given(known: MinVersions) -> None:
    known.acknowledging(KEY, tested=7)
    assert decided(OwnershipState(7, ME, OTHER), known) == Reread()
    back = OwnershipState(9, ME, None)
    assert decided(back, known) == Reconcile(back)


def test_a_state_that_counts_answers_an_acknowledgement_whose_answer_was_lost(
    known: MinVersions,
) -> None:
    """Else its floor would be remembered for ever."""
    known.acknowledging(KEY, tested=7)
    known.shown(KEY, version=7)
    assert known.is_unanswered(KEY)
    known.shown(KEY, version=8)
    assert not known.is_unanswered(KEY)
    known.forget(9)
    known.forget(9)
    assert len(known) == 0


def test_a_foreign_label_is_dropped_even_with_a_drain_label() -> None:
    assert decided(OwnershipState(3, OTHER, ME)) == Drop("foreign")


def test_a_read_of_the_tested_version_answers_nothing(known: MinVersions) -> None:
    known.acknowledging(KEY, tested=7)
    known.read(KEY, version=7)
    assert known.is_unanswered(KEY)
    known.read(KEY, version=8)
    assert not known.is_unanswered(KEY)
    assert known.floor(KEY) == 8


def test_a_floor_is_forgotten_only_at_the_second_check_beyond_it(known: MinVersions) -> None:
    known.acknowledged(KEY, version=9)
    known.forget(8)
    known.forget(9)
    assert known.floor(KEY) == 9
    known.forget(9)
    assert known.floor(KEY) == 0
    known.gone(KEY)
    assert len(known) == 0, "nothing is remembered of what is not there"


# -- the ownership of a process: decisions over its own min versions

SITES = ApiResource("example.com", "v1", "websites", "Website")


def blog(version: int, **labels: str) -> Meta:
    return Meta(name="blog", namespace="ns", uid="u", resource_version=str(version), labels=labels)


def test_an_acknowledgement_under_way_is_read_again_and_its_answer_ends_the_older_version() -> None:
    clock = ManualClock()
    kind = ResourceCache(SITES)
    ownership = ShardOwnership(
        KEYS, ME, validity=LeaseValidity(duration_s=15, sent_at=clock.now()), clock=clock
    )
    seen = blog(5, **{KEYS.shard: ME, KEYS.drain: OTHER})
    assert isinstance(ownership.decide(kind, seen.key, seen), Acknowledge)
    ownership.acknowledging(kind, seen)
    assert ownership.decide(kind, seen.key, seen) == Reread()
    assert isinstance(ownership.decide_read(kind, seen), Acknowledge), "the same patch is sent again"
    ownership.acknowledged(kind, blog(6, **{KEYS.shard: OTHER}))
    assert ownership.decide(kind, seen.key, seen) == Drop("superseded")
    back = blog(7, **{KEYS.shard: ME})
    assert isinstance(ownership.decide(kind, seen.key, back), Reconcile)
    clock.advance(10)
    assert ownership.decide(kind, seen.key, back) == Defer()
    assert not ownership.start()


def test_without_a_ring_everything_is_ours_but_what_a_read_did_not_find() -> None:
    kind = ResourceCache(SITES)
    ownership = ExclusiveOwnership("a-1")
    meta = blog(5)
    kind.store.learn(Object(meta, msgspec.json.encode(HasMeta(meta))))
    assert isinstance(ownership.decide(kind, meta.key, meta), Reconcile)
    ownership.was_missing(kind, meta.key, shown=meta)
    assert ownership.decide(kind, meta.key, meta) == Drop("superseded")
    assert ownership.decide(kind, meta.key, None) == Drop("absent")
    for _ in range(2):
        ownership.forget(kind, 6)
    assert isinstance(ownership.decide(kind, meta.key, meta), Reconcile)


@pytest.mark.parametrize("was_shown", [True, False])
def test_an_object_made_anew_while_a_404_was_under_way_is_ours(was_shown: bool) -> None:
    """The watch may be faster than the answer, and shows the new object once: nothing would bring it back."""
    clock = ManualClock()
    kind = ResourceCache(SITES)
    validity = LeaseValidity(duration_s=15, sent_at=clock.now())
    ownership = ShardOwnership(KEYS, ME, validity=validity, clock=clock)
    former, anew = blog(5, **{KEYS.shard: ME}), blog(7, **{KEYS.shard: ME})
    kind.store.learn(Object(anew, msgspec.json.encode(HasMeta(anew))))
    ownership.was_missing(kind, anew.key, shown=former if was_shown else None)
    assert isinstance(ownership.decide(kind, anew.key, anew), Reconcile)
    assert kind.meta(anew.key) is not None
