"""Keys and certificates of a real control plane: the serving certificate, client certificates by which the
API server knows an account, and the key pair of service-account tokens. Pure but for randomness and the clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import trustme
from cryptography import x509
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

_LIFETIME = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key with its certificate, or with its public key, all PEM."""

    private_pem: bytes
    public_pem: bytes


class Authority:
    """A certificate authority that lives as long as the process that made it."""

    def __init__(self) -> None:
        self._ca = trustme.CA()
        self._key = load_pem_private_key(self._ca.private_key_pem.bytes(), password=None)
        self._certificate = x509.load_pem_x509_certificate(self.certificate_pem)

    @property
    def certificate_pem(self) -> bytes:
        return self._ca.cert_pem.bytes()

    def serving(self, *names: str) -> KeyPair:
        """A server's certificate for *names* (DNS names and addresses)."""
        leaf = self._ca.issue_cert(*names, common_name="kube-apiserver")
        chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
        return KeyPair(leaf.private_key_pem.bytes(), chain)

    def client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """A client certificate: its common name is the user, each organization a group.

        By hand, because trustme knows one organization only.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        now = datetime.now(UTC)
        assert isinstance(self._key, ec.EllipticCurvePrivateKey)  # noqa: S101 - what trustme makes by default
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(subject))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + _LIFETIME)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return KeyPair(_private_pem(key), certificate.public_bytes(Encoding.PEM))


def token_signing_pair() -> KeyPair:
    """The key pair by which the API server signs and checks service-account tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return KeyPair(_private_pem(key), public)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
