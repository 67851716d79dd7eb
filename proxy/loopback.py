"""The relay's own side of loopback: a certificate authority and a token that live as long as this process.

In-cluster configuration insists on TLS, and over plain HTTP no client sends its token. Anybody on the machine may reach
the port; the token is what lets the controller in.
"""

from __future__ import annotations

import hmac
import secrets
import ssl
from datetime import datetime, timedelta
from typing import Final

from kubeio.http.tls import load_key_pair
from kubeio.program.certificates import make_authority, make_serving

HOST: Final = "127.0.0.1"
_NAMES: Final = (HOST, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_LIFETIME: Final = timedelta(days=3650)
"""Longer than any process: nothing is renewed."""


class Loopback:
    """An authority, a serving certificate and a token, new at each start. *now* is a wall instant."""

    def __init__(self, now: datetime) -> None:
        authority = make_authority("proxy", now=now, lifetime=_LIFETIME)
        self.ca: Final = authority.certificate
        """PEM of the authority by which the controller knows the relay."""
        self.token: Final = secrets.token_urlsafe(32)
        """What the controller must send."""
        self._expected = f"Bearer {self.token}".encode()
        self.tls: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self.tls.set_alpn_protocols(["http/1.1"])
        load_key_pair(self.tls, make_serving(authority, names=_NAMES, now=now, lifetime=_LIFETIME))

    def admits(self, authorization: bytes) -> bool:
        """Whether a request with this value of its Authorization header is the controller's."""
        return hmac.compare_digest(authorization, self._expected)
