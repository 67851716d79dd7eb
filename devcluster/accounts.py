"""Bearer tokens: signed, so that any holder of the key can issue one and the server keeps no list. Pure.

A token names its account; `rbac` knows the rights of an account.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

import msgspec


class Account(msgspec.Struct, frozen=True):
    """An authenticated user and its groups."""

    user: str
    groups: tuple[str, ...] = ()

    @property
    def is_admin(self) -> bool:
        return "system:masters" in self.groups


ADMIN = Account("admin", ("system:masters",))
ANONYMOUS = Account("system:anonymous", ("system:unauthenticated",))


def issue_token(key: bytes, user: str, groups: Sequence[str] = ()) -> str:
    """A bearer token for *user*."""
    body = _encode(msgspec.json.encode(Account(user, tuple(groups))))
    return f"{body}.{_signature(key, body)}"


def read_token(key: bytes, token: str) -> Account | None:
    """The account of *token*, or None if it was not issued with *key*."""
    body, _, signature = token.partition(".")
    if not hmac.compare_digest(signature.encode(), _signature(key, body).encode()):
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=Account)
    except (binascii.Error, msgspec.DecodeError):
        return None


def _signature(key: bytes, body: str) -> str:
    return _encode(hmac.new(key, body.encode(), hashlib.sha256).digest())


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
