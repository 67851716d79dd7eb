"""Values that say which server is called, through which proxy, and with which credentials."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's URL, taken apart."""

    scheme: str
    host: str
    port: int
    base_path: str
    """Prefix of every path, without a slash at its end."""

    @property
    def authority(self) -> str:
        """Value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https"


@dataclass(frozen=True, slots=True)
class Trust:
    """Certificates by which the server is recognised."""

    ca: bytes = b""
    """PEM certificates; empty: the system's."""
    ca_file: Path | None = None
    """File from which *ca* was read; it may be renewed there."""
    server_name: str = ""
    """Name that the certificate must carry; empty: the host."""
    is_insecure: bool = False


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy that takes CONNECT."""

    host: str
    port: int
    authorization: str = ""
    """Value of Proxy-Authorization; empty: none."""

    def __repr__(self) -> str:
        return f"Proxy({self.host}:{self.port})"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate (chain) and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair(...)"


@dataclass(frozen=True, slots=True)
class Credential:
    """Credentials of one request. *authorization* is the value of the Authorization header; empty: none."""

    authorization: str = ""
    certificate: KeyPair | None = None

    def __repr__(self) -> str:
        return f"Credential({self.authorization.partition(' ')[0] or 'no header'}, {self.certificate!r})"


class Credentials(Protocol):
    """A source of credentials for one server."""

    def current(self) -> Credential | None:
        """The credential to use now, without waiting. None: `renewed` must be awaited."""

    async def renewed(self) -> Credential:
        """A usable credential; waits for the renewal that is under way, or starts one.

        Raises: an error of the source's own if it cannot be had.
        """

    def reject(self, credential: Credential) -> None:
        """The server refused *credential*: find another one if this is still the current one."""
