"""X.509 for servers of ours: an authority of its own, a serving certificate, and what one of them says.

The only module that imports `cryptography`, and only a process that serves with it imports this one: 9 MB. Pure
but for randomness; instants are passed in. Certificates are valid from an hour before they are made: the API
server's clock may be behind ours.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubeio.http.endpoint import KeyPair

if TYPE_CHECKING:
    from collections.abc import Collection

BACKDATED: Final = timedelta(hours=1)
_MAX_COMMON_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """Names and dates of a certificate.

    *made_at*: the instant at which a `KeyPair` of ours is made. Its validity begins earlier (`BACKDATED`).
    """

    names: frozenset[str]
    made_at: datetime
    not_after: datetime

    def left(self, now: datetime) -> float:
        """The part of its life that is left: 1 when it is made, 0 or less when it has ended."""
        life = max(self.not_after - self.made_at, timedelta(seconds=1))
        return (self.not_after - now) / life


def make_authority(purpose: str, *, now: datetime, lifetime: timedelta) -> KeyPair:
    """A new authority for *purpose*; no two have the same name."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    subject = _name(f"ringleader {purpose} {serial:x}")
    certificate = (
        _builder(subject, subject, key.public_key(), serial=serial, now=now, until=now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def make_serving(
    authority: KeyPair, *, names: Collection[str], now: datetime, lifetime: timedelta
) -> KeyPair:
    """A certificate of *authority* for a server reached as one of *names* (DNS names and addresses)."""
    signer = x509.load_pem_x509_certificate(authority.certificate)
    signing_key = load_pem_private_key(authority.key, password=None)
    if not isinstance(signing_key, ec.EllipticCurvePrivateKey):
        raise TypeError("an authority of ours signs with a key on an elliptic curve")
    key = ec.generate_private_key(ec.SECP256R1())
    until = min(now + lifetime, signer.not_valid_after_utc)
    serial = x509.random_serial_number()
    certificate = (
        _builder(_name(min(names)), signer.subject, key.public_key(), serial=serial, now=now, until=until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(name) for name in sorted(names)]), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False
        )
        .sign(signing_key, hashes.SHA256())
    )
    return _pair(certificate, key)


def read_certificate(pem: bytes) -> CertificateFacts:
    """Parse certificate *pem*. Raises ValueError if it is no certificate."""
    certificate = x509.load_pem_x509_certificate(pem)
    return CertificateFacts(
        _names(certificate), certificate.not_valid_before_utc + BACKDATED, certificate.not_valid_after_utc
    )


def split_bundle(pem: bytes) -> tuple[bytes, ...]:
    """The certificates of a bundle, each as PEM. Raises ValueError if it holds something else, or nothing."""
    return tuple(found.public_bytes(Encoding.PEM) for found in x509.load_pem_x509_certificates(pem))


def is_signed_by(pem: bytes, authority: bytes) -> bool:
    """Whether certificate *pem* was signed by the key of *authority*. Raises ValueError on what is no PEM."""
    certificate = x509.load_pem_x509_certificate(pem)
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def is_key_of(pair: KeyPair) -> bool:
    """Whether the key of *pair* is its certificate's. Raises ValueError on what is no PEM."""
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    key = load_pem_private_key(pair.key, password=None)
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return certificate.public_key().public_bytes(*form) == key.public_key().public_bytes(*form)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    *,
    serial: int,
    now: datetime,
    until: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(now - BACKDATED)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:_MAX_COMMON_NAME])])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names(certificate: x509.Certificate) -> frozenset[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    addresses = (str(address) for address in names.get_values_for_type(x509.IPAddress))
    return frozenset((*names.get_values_for_type(x509.DNSName), *addresses))


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
