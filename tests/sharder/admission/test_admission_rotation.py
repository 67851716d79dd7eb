"""The webhook's keys over time: at every moment what is served is trusted by every API server. Pure."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest

from kubeio.http.endpoint import KeyPair
from kubeio.program.certificates import (
    is_signed_by,
    make_authority,
    make_serving,
    read_certificate,
    split_bundle,
)
from sharder.admission.certificate_manager import WebhookTrust
from sharder.admission.certificate_set import (
    AUTHORITY_KEY,
    BUNDLE,
    SERVING,
    SERVING_KEY,
    CertificateSet,
    Step,
    carry_out,
    plan_rotation,
    read_certificate_set,
)
from sharder.admission.settings import Lifetimes

NOW = datetime(2026, 11, 21, tzinfo=UTC)
HOST = "ringleader-webhook.ringleader-system.svc"
NAMES = (HOST,)
DAY = timedelta(days=1)
YEAR = Lifetimes()


def fresh(now: datetime = NOW) -> CertificateSet:
    return carry_out(Step.FRESH, None, now=now, names=NAMES, lifetimes=YEAR)


def step(
    certificate_set: CertificateSet | None, now: datetime, *, is_trusted: bool = True, host: str = HOST
) -> Step:
    return plan_rotation(certificate_set, now=now, names=(host,), is_trusted=is_trusted, lifetimes=YEAR)


def done(step_: Step, certificate_set: CertificateSet, now: datetime) -> CertificateSet:
    return carry_out(step_, certificate_set, now=now, names=NAMES, lifetimes=YEAR)


def test_without_keys_there_are_new_ones_and_then_nothing_to_do() -> None:
    assert step(None, NOW) is Step.FRESH
    certificate_set = fresh()
    assert step(certificate_set, NOW) is Step.NONE
    assert is_signed_by(certificate_set.serving.certificate, certificate_set.bundle)
    assert read_certificate(certificate_set.serving.certificate).names == {HOST}


def test_an_address_is_named_as_one() -> None:
    authority = make_authority("webhook", now=NOW, lifetime=DAY)
    pair = make_serving(authority, names=("127.0.0.1", "::1", "localhost"), now=NOW, lifetime=DAY)
    assert read_certificate(pair.certificate).names == {"127.0.0.1", "::1", "localhost"}


def test_a_serving_certificate_is_renewed_when_a_third_of_its_life_is_left() -> None:
    certificate_set = fresh()
    assert step(certificate_set, NOW + 39 * DAY) is Step.NONE
    assert step(certificate_set, NOW + 41 * DAY, is_trusted=False) is Step.RENEW_SERVING
    renewed = done(Step.RENEW_SERVING, certificate_set, NOW + 41 * DAY)
    assert renewed.bundle == certificate_set.bundle, "the API server has nothing to learn"
    assert step(renewed, NOW + 41 * DAY) is Step.NONE


def test_a_certificate_for_another_address_is_renewed_at_once() -> None:
    assert step(fresh(), NOW, host="10.0.0.1", is_trusted=False) is Step.RENEW_SERVING


def test_no_certificate_outlives_the_authority_that_signed_it() -> None:
    authority = make_authority("webhook", now=NOW, lifetime=10 * DAY)
    pair = make_serving(authority, names=NAMES, now=NOW, lifetime=60 * DAY)
    assert read_certificate(pair.certificate).not_after == NOW + 10 * DAY


def test_an_authority_is_replaced_in_three_steps_each_when_the_one_before_is_known_everywhere() -> None:
    certificate_set = done(Step.RENEW_SERVING, fresh(), NOW + 240 * DAY)
    now = NOW + 244 * DAY
    assert step(certificate_set, now) is Step.ADD_AUTHORITY
    both = done(Step.ADD_AUTHORITY, certificate_set, now)
    assert both.serving == certificate_set.serving
    assert both.authorities[0] == certificate_set.authorities[0]

    assert step(both, now, is_trusted=False) is Step.NONE, "not before every API server trusts it"
    assert step(both, now, is_trusted=True) is Step.RENEW_SERVING
    signed = done(Step.RENEW_SERVING, both, now)
    assert is_signed_by(signed.serving.certificate, signed.authorities[-1])
    assert signed.bundle == both.bundle

    assert step(signed, now + timedelta(seconds=599)) is Step.NONE, "others still serve the old one"
    assert step(signed, now + timedelta(seconds=601)) is Step.DROP_AUTHORITIES
    alone = done(Step.DROP_AUTHORITIES, signed, now)
    assert alone.authorities == signed.authorities[-1:]
    assert step(alone, now + timedelta(seconds=601)) is Step.NONE


def test_a_new_authority_signs_before_the_old_certificate_ends_even_if_it_is_not_known_everywhere() -> None:
    certificate_set = done(Step.RENEW_SERVING, fresh(), NOW + 240 * DAY)
    both = done(Step.ADD_AUTHORITY, certificate_set, NOW + 250 * DAY)
    assert step(both, NOW + 285 * DAY, is_trusted=False) is Step.NONE
    assert step(both, NOW + 295 * DAY, is_trusted=False) is Step.RENEW_SERVING


def test_an_authority_that_has_ended_is_followed_by_new_keys() -> None:
    assert step(fresh(), NOW + 366 * DAY) is Step.FRESH


def test_a_keyring_survives_its_secret() -> None:
    certificate_set = done(Step.ADD_AUTHORITY, fresh(), NOW)
    assert read_certificate_set(certificate_set.data()) == certificate_set


@pytest.mark.parametrize("key", [BUNDLE, AUTHORITY_KEY, SERVING, SERVING_KEY])
@pytest.mark.parametrize("value", [None, b"", b"nonsense", "other"])
def test_a_secret_that_was_edited_by_hand_holds_no_keys(key: str, value: bytes | str | None) -> None:
    data = fresh().data()
    if value is None:
        del data[key]
    else:
        data[key] = fresh().data()[key] if isinstance(value, str) else value
    assert read_certificate_set(data) is None


def test_an_empty_secret_holds_no_keys() -> None:
    assert read_certificate_set({}) is None


@pytest.mark.parametrize("seed", range(3))
def test_over_three_years_what_is_served_is_always_trusted_and_never_ended(seed: int) -> None:
    """API servers and sharders learn of each write after a while of their own, below the time allowed for it."""
    rng = random.Random(seed)
    now, end = NOW, NOW + 1100 * DAY
    certificate_set = fresh(now)
    bundles = [(now, certificate_set.bundle)]
    serving = [(now, certificate_set.serving)]
    trust = WebhookTrust(spread_s=YEAR.spread_s)
    trust.expect("r")
    taken = 0
    while now < end:
        at = now.timestamp()
        trust.confirm("r", certificate_set.bundle, at=at)
        taking = step(certificate_set, now, is_trusted=trust.is_everywhere(certificate_set.bundle, at=at))
        if taking is not Step.NONE:
            taken += 1
            certificate_set = done(taking, certificate_set, now)
            bundles.append((now, certificate_set.bundle))
            serving.append((now, certificate_set.serving))
        lag = timedelta(seconds=rng.uniform(0, YEAR.spread_s - 60))
        seen_by_the_slowest = [bundle for since, bundle in bundles if since <= now - lag] or [bundles[0][1]]
        served_by_the_slowest = [pair for since, pair in serving if since <= now - lag] or [serving[0][1]]
        for pair in (served_by_the_slowest[-1], serving[-1][1]):
            for bundle in (seen_by_the_slowest[-1], bundles[-1][1]):
                assert is_trusted_by(pair, bundle), f"{now}: {taking}"
            assert read_certificate(pair.certificate).not_after > now
        bundles, serving = bundles[-4:], serving[-4:]
        # closely while something changes, else day by day
        now += (
            timedelta(seconds=45) if taking is not Step.NONE or len(certificate_set.authorities) > 1 else DAY
        )
    assert taken > 30


@cache
def is_trusted_by(pair: KeyPair, bundle: bytes) -> bool:
    return any(is_signed_by(pair.certificate, authority) for authority in split_bundle(bundle))


# -- who knows what


def test_a_bundle_is_everywhere_when_every_configuration_has_had_it_long_enough() -> None:
    trust = WebhookTrust(spread_s=10)
    trust.expect("a")
    trust.expect("b")
    trust.confirm("a", b"new", at=0)
    assert not trust.is_everywhere(b"new", at=100), "b has not confirmed any"
    trust.confirm("b", b"new", at=100)
    assert not trust.is_everywhere(b"new", at=109)
    assert trust.is_everywhere(b"new", at=110)
    assert not trust.is_everywhere(b"newer", at=110)


def test_saying_it_again_does_not_start_anew_and_another_bundle_does() -> None:
    trust = WebhookTrust(spread_s=10)
    trust.confirm("a", b"one", at=0)
    trust.confirm("a", b"one", at=9)
    assert trust.is_everywhere(b"one", at=10)
    trust.confirm("a", b"two", at=20)
    assert not trust.is_everywhere(b"two", at=29)


def test_a_ring_that_is_no_longer_assigned_at_admission_is_not_waited_for() -> None:
    trust = WebhookTrust(spread_s=10)
    trust.confirm("stays", b"new", at=0)
    trust.expect("gone")
    assert not trust.is_everywhere(b"new", at=10)
    trust.forget("gone")
    assert trust.is_everywhere(b"new", at=10)


def test_a_bundle_is_not_everywhere_while_no_configuration_is_known() -> None:
    assert not WebhookTrust(spread_s=10).is_everywhere(b"new", at=100), "a leader that just started"
