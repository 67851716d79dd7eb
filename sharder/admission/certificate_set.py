"""The webhook's keys over time: the content of the shared Secret, and the change that is due. Pure.

A rotation takes three writes, each safe to stop after: a new authority joins the bundle and signs nothing; once every
configuration that the API server reads has had the new bundle for `spread_s`, it signs a new serving certificate;
once every sharder has had time to load that one, the old authority leaves the bundle. So at no time is a
certificate served that the API server does not trust yet, or no longer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from kubeio.http.endpoint import KeyPair
from kubeio.program.certificates import (
    CertificateFacts,
    is_key_of,
    is_signed_by,
    make_authority,
    make_serving,
    read_certificate,
    split_bundle,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sharder.admission.settings import Lifetimes

BUNDLE: Final = "ca.crt"
AUTHORITY_KEY: Final = "ca.key"
SERVING: Final = "tls.crt"
SERVING_KEY: Final = "tls.key"

DUE: Final = 1 / 3
"""Renewed when this part of its life is left."""
URGENT: Final = 1 / 9
"""A serving certificate with less left is renewed although the new bundle is not everywhere."""


@dataclass(frozen=True, slots=True)
class CertificateSet:
    """*authorities*: those to be trusted, the one that signs last, whose key is *authority_key*."""

    authorities: tuple[bytes, ...]
    authority_key: bytes
    serving: KeyPair

    @property
    def bundle(self) -> bytes:
        """CA bundle for `caBundle`: the authorities' PEM, joined."""
        return b"".join(self.authorities)

    @property
    def signer(self) -> KeyPair:
        return KeyPair(self.authorities[-1], self.authority_key)

    def data(self) -> dict[str, bytes]:
        """The Secret's data."""
        return {
            BUNDLE: self.bundle,
            AUTHORITY_KEY: self.authority_key,
            SERVING: self.serving.certificate,
            SERVING_KEY: self.serving.key,
        }


def read_certificate_set(data: Mapping[str, bytes]) -> CertificateSet | None:
    """The certificate set in a Secret's *data*; None if it has none that can be used."""
    try:
        authorities = split_bundle(data[BUNDLE])
        found = CertificateSet(authorities, data[AUTHORITY_KEY], KeyPair(data[SERVING], data[SERVING_KEY]))
        if is_key_of(found.signer) and is_key_of(found.serving) and _issuer(found) is not None:
            return found
    except (KeyError, ValueError, TypeError):
        pass  # edited by hand, or another kind of key: a new one is made
    return None


class Step(StrEnum):
    """Next change of a certificate set. Changes are made one at a time."""

    FRESH = "fresh"
    ADD_AUTHORITY = "add authority"
    RENEW_SERVING = "renew serving"
    DROP_AUTHORITIES = "drop authorities"
    NONE = "none"


def plan_rotation(
    certificate_set: CertificateSet | None,
    *,
    now: datetime,
    names: Collection[str],
    is_trusted: bool,
    lifetimes: Lifetimes,
) -> Step:
    """The next step. *is_trusted*: every configuration has had the present bundle for `spread_s`."""
    if certificate_set is None:
        return Step.FRESH
    signer = read_certificate(certificate_set.authorities[-1])
    if signer.left(now) <= 0:
        return Step.FRESH
    if signer.left(now) <= DUE:
        return Step.ADD_AUTHORITY
    serving = read_certificate(certificate_set.serving.certificate)
    if _must_renew(certificate_set, serving, now=now, names=names, is_trusted=is_trusted):
        return Step.RENEW_SERVING
    is_spread = now >= serving.made_at + timedelta(seconds=lifetimes.spread_s)
    is_stable = (
        len(certificate_set.authorities) > 1 and _issuer(certificate_set) == certificate_set.authorities[-1]
    )
    return Step.DROP_AUTHORITIES if is_stable and is_spread else Step.NONE


def carry_out(
    step: Step,
    certificate_set: CertificateSet | None,
    *,
    now: datetime,
    names: Collection[str],
    lifetimes: Lifetimes,
) -> CertificateSet:
    """The certificate set after *step*."""
    if certificate_set is None or step is Step.FRESH:
        return _fresh(now=now, names=names, lifetimes=lifetimes)
    match step:
        case Step.ADD_AUTHORITY:
            added = make_authority("webhook", now=now, lifetime=timedelta(seconds=lifetimes.authority_s))
            return replace(
                certificate_set,
                authorities=(*certificate_set.authorities, added.certificate),
                authority_key=added.key,
            )
        case Step.RENEW_SERVING:
            return replace(certificate_set, serving=_serving(certificate_set.signer, now, names, lifetimes))
        case Step.DROP_AUTHORITIES:
            return replace(certificate_set, authorities=certificate_set.authorities[-1:])
        case _:
            return certificate_set


def _fresh(*, now: datetime, names: Collection[str], lifetimes: Lifetimes) -> CertificateSet:
    authority = make_authority("webhook", now=now, lifetime=timedelta(seconds=lifetimes.authority_s))
    return CertificateSet((authority.certificate,), authority.key, _serving(authority, now, names, lifetimes))


def _serving(authority: KeyPair, now: datetime, names: Collection[str], lifetimes: Lifetimes) -> KeyPair:
    return make_serving(authority, names=names, now=now, lifetime=timedelta(seconds=lifetimes.serving_s))


def _must_renew(
    certificate_set: CertificateSet,
    serving: CertificateFacts,
    *,
    now: datetime,
    names: Collection[str],
    is_trusted: bool,
) -> bool:
    if not serving.names >= set(names):
        return True  # no API server could reach it as it is
    left = serving.left(now)
    if _issuer(certificate_set) == certificate_set.authorities[-1]:
        return left <= DUE
    return is_trusted or left <= URGENT


def _issuer(keys: CertificateSet) -> bytes | None:
    """The authority that signed the serving certificate; None if it is not in the bundle."""
    return next((ca for ca in keys.authorities if is_signed_by(keys.serving.certificate, ca)), None)
