"""The relay's own side of loopback: a certificate authority and a token that live as long as this process.

In-cluster configuration insists on TLS, and over plain HTTP no client sends its token. Anybody on the machine may reach
the port; the token is what lets the controller in.
"""

from __future__ import annotations

import hmac
import multiprocessing
import secrets
import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from typing import Final

from kubeio.http.endpoint import KeyPair
from kubeio.http.tls import load_key_pair

HOST: Final = "127.0.0.1"
_NAMES: Final = (HOST, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_LIFETIME: Final = timedelta(days=3650)
"""Longer than any process: nothing is renewed."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """What the relay shows. *ca*: PEM of the authority that signed *serving*."""

    ca: bytes
    serving: KeyPair


def make_certificates(now: datetime) -> Certificates:
    """New ones, valid from *now*, a wall instant."""
    from kubeio.program.certificates import make_authority, make_serving  # 9 MB

    authority = make_authority("proxy", now=now, lifetime=_LIFETIME)
    serving = make_serving(authority, names=_NAMES, now=now, lifetime=_LIFETIME)
    return Certificates(authority.certificate, serving)


def make_certificates_in_child(now: datetime) -> Certificates:
    """As `make_certificates`, by a child process: this one never loads what they are made with.

    Call it before the first thread is started. Raises: ChildProcessError.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send_certificates, args=(sender, now), daemon=True)
    with receiver:
        with sender:
            child.start()
        try:
            made = receiver.recv()
        except EOFError:
            made = None
        child.join()
    if not isinstance(made, Certificates):
        raise ChildProcessError(f"no certificate was made: the child process ended with {child.exitcode}")
    return made


def _send_certificates(sender: Connection, now: datetime) -> None:
    sender.send(make_certificates(now))


class Loopback:
    """What the relay shows and what it asks for: *certificates*, and a token that is new at each start."""

    def __init__(self, certificates: Certificates) -> None:
        self.ca: Final = certificates.ca
        """PEM of the authority by which the controller knows the relay."""
        self.token: Final = secrets.token_urlsafe(32)
        """What the controller must send."""
        self._expected = f"Bearer {self.token}".encode()
        self.tls: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self.tls.set_alpn_protocols(["http/1.1"])
        load_key_pair(self.tls, certificates.serving)

    def admits(self, authorization: bytes) -> bool:
        """Whether a request with this value of its Authorization header is the controller's."""
        return hmac.compare_digest(authorization, self._expected)
