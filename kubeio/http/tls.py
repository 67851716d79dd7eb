"""TLS contexts, and key pairs loaded into them without a file where the system allows that."""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator

from kubeio.http.endpoint import KeyPair, Trust


class UnusableKeyPair(ValueError):
    """A certificate and key that OpenSSL does not load; the text says why."""


def client_context(trust: Trust, ca: bytes, identity: KeyPair | None) -> ssl.SSLContext:
    """TLS towards a server known by *ca* (empty: the system's), as *identity*. Raises UnusableKeyPair."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # Python 3.13 refuses CAs without key identifiers by default; many clusters have such a CA.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if trust.is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca:
        # As in kubectl, any certificate in the CA data is an anchor, an intermediate too.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=ca.decode("ascii", "ignore"))
    else:
        context.load_default_certs()
    if identity is not None:
        load_key_pair(context, identity)
    return context


def load_key_pair(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Let *context* present *pair* from the next handshake on. Raises UnusableKeyPair."""
    with _readable(pair.certificate + b"\n" + pair.key) as path:
        try:
            # without the empty password an encrypted key would stop the process and ask the terminal
            context.load_cert_chain(path, password="")
        except (ssl.SSLError, ValueError) as error:
            raise UnusableKeyPair(getattr(error, "reason", None) or str(error)) from None


@contextlib.contextmanager
def _readable(content: bytes) -> Iterator[str]:
    """A name under which OpenSSL can read *content*: in memory where the system can, else a private file."""
    try:
        descriptor = os.memfd_create("key-pair", os.MFD_CLOEXEC)
        path = f"/proc/self/fd/{descriptor}"
        is_file = False
    except (AttributeError, OSError):
        descriptor, path = tempfile.mkstemp()
        is_file = True
    try:
        os.write(descriptor, content)
        yield path
    finally:
        os.close(descriptor)
        if is_file:
            os.unlink(path)  # noqa: PTH108 - the string mkstemp gave
