"""Whom the client trusts, what it shows, and which name it expects."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kubeio.access.credentials import FixedCredentials
from kubeio.errors import InputError, Unreachable
from kubeio.http.endpoint import Credential, KeyPair, Trust
from tests.kubeio.http.wire_server import Conversation, Tls, WireServer


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def pair_of(certificate: trustme.LeafCert) -> KeyPair:
    chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
    return KeyPair(chain, certificate.private_key_pem.bytes())


async def show_peer(conversation: Conversation) -> None:
    """Answer with the common name of the client's certificate and the name that it asked for by SNI."""
    while True:
        await conversation.request()
        peer = conversation.writer.get_extra_info("peercert") or {}
        names = [value for kind, value in peer.get("subjectAltName", ()) if kind == "DNS"]
        protocol = conversation.writer.get_extra_info("ssl_object").selected_alpn_protocol()
        await conversation.answer({"peer": names, "alpn": protocol, "connection": conversation.number})


async def get(server: WireServer, **cluster: object) -> bytes:
    async with server.client(cluster=server.cluster(**cluster)) as client:  # type: ignore[arg-type]  # per test
        return (await client.request("GET", "/a", timeout_s=5)).body


async def test_server_signed_by_another_ca_is_refused(server: WireServer) -> None:
    other_ca = Trust(ca=trustme.CA().cert_pem.bytes())
    with pytest.raises(Unreachable, match="certificate is not accepted") as caught:
        await get(server, trust=other_ca)
    assert not caught.value.maybe_done
    assert server.requests == []


async def test_server_is_refused_by_the_system_when_no_ca_is_given(server: WireServer) -> None:
    with pytest.raises(Unreachable, match="certificate is not accepted"):
        await get(server, trust=Trust())


async def test_insecure_accepts_any_server(server: WireServer) -> None:
    assert await get(server, trust=Trust(is_insecure=True))


async def test_server_with_another_name_is_refused_unless_that_name_is_expected(tls: Tls) -> None:
    async with WireServer(tls, tls.server_context("kubernetes.example")) as server:
        with pytest.raises(Unreachable, match="certificate is not accepted"):
            await get(server)
        assert await get(server, trust=Trust(ca=tls.ca_pem, server_name="kubernetes.example"))


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
async def test_ipv6_address_is_a_server_like_any_other(tls: Tls) -> None:
    async with WireServer(tls, host="::1") as server:
        assert await get(server)
        assert server.requests[0].headers["host"] == f"[::1]:{server.port}"


async def test_alpn_offers_http_1_1(tls: Tls) -> None:
    context = tls.server_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with WireServer(tls, context, script=show_peer) as server:
        assert b'"alpn": "http/1.1"' in await get(server)


async def test_client_certificate_is_shown(tls: Tls) -> None:
    pair = pair_of(tls.authority.issue_cert("alice"))
    async with WireServer(tls, tls.server_context(client_ca=True), script=show_peer) as server:
        credentials = FixedCredentials(Credential("", pair))
        assert b'"peer": ["alice"]' in await get(server, credentials=credentials)
        assert "authorization" not in server.requests[0].headers


async def test_missing_client_certificate_ends_in_a_clear_failure(tls: Tls) -> None:
    async with WireServer(tls, tls.server_context(client_ca=True)) as server:
        with pytest.raises(Unreachable):
            await get(server)


async def test_renewed_certificate_is_used_on_new_connections_only(tls: Tls) -> None:
    class Switching(FixedCredentials):
        pair = pair_of(tls.authority.issue_cert("first"))

        def current(self) -> Credential:
            return Credential("", self.pair)

    credentials = Switching(Credential())
    async with (
        WireServer(tls, tls.server_context(client_ca=True), script=show_peer) as server,
        server.client(cluster=server.cluster(credentials=credentials)) as client,
    ):
        for _ in range(2):
            body = (await client.request("GET", "/a")).body
            assert b'"peer": ["first"]' in body
            assert b'"connection": 1' in body
        credentials.pair = pair_of(tls.authority.issue_cert("second"))
        for _ in range(2):
            body = (await client.request("GET", "/a")).body
            assert b'"peer": ["second"]' in body
            assert b'"connection": 2' in body


async def test_rotated_ca_file_is_read_again(tls: Tls, tmp_path: Path) -> None:
    old = trustme.CA()
    path = tmp_path / "ca.crt"
    path.write_bytes(old.cert_pem.bytes())
    async with WireServer(tls) as server:
        trust = Trust(ca=path.read_bytes(), ca_file=path)
        async with server.client(cluster=server.cluster(trust=trust)) as client:
            with pytest.raises(Unreachable, match="not accepted"):
                await client.request("GET", "/a")
            path.write_bytes(tls.ca_pem)
            assert (await client.request("GET", "/a")).status == 200


async def test_certificate_and_key_that_do_not_fit_are_an_input_error(tls: Tls) -> None:
    one, other = (pair_of(tls.authority.issue_cert(name)) for name in ("one", "other"))
    mixed = FixedCredentials(Credential("", KeyPair(one.certificate, other.key)))
    async with WireServer(tls) as server:
        with pytest.raises(InputError, match="client-certificate"):
            await get(server, credentials=mixed)


async def test_encrypted_key_is_an_input_error_without_a_prompt(tls: Tls) -> None:
    pair = pair_of(tls.authority.issue_cert("one"))
    key = serialization.load_pem_private_key(pair.key, None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    credentials = FixedCredentials(Credential("", KeyPair(pair.certificate, locked)))
    async with WireServer(tls) as server:
        with pytest.raises(InputError, match="plain key"):
            await get(server, credentials=credentials)


async def test_ca_without_key_identifiers_is_accepted(tmp_path: Path) -> None:
    """As OpenSSL's strict mode, the default of Python 3.13, would not."""
    ca_pem, chain = bare_ca_and_leaf()
    (tmp_path / "leaf.pem").write_bytes(chain)
    context = Tls(trustme.CA()).server_context()
    context.load_cert_chain(tmp_path / "leaf.pem")
    async with WireServer(None, context) as server:
        assert await get(server, trust=Trust(ca=ca_pem))


async def test_intermediate_ca_alone_is_an_anchor(tls: Tls) -> None:
    intermediate = tls.authority.create_child_ca()
    async with WireServer(Tls(intermediate)) as server:
        assert await get(server, trust=Trust(ca=intermediate.cert_pem.bytes()))


async def test_plain_http_is_spoken_where_the_url_says_so(plain_server: WireServer) -> None:
    assert await get(plain_server)


async def test_tls_towards_a_plain_server_says_that_tls_failed(plain_server: WireServer) -> None:
    async def chatty(conversation: Conversation) -> None:
        await conversation.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await asyncio.sleep(0.05)

    plain_server.script = chatty
    with pytest.raises(Unreachable, match=r"TLS failed|cannot connect"):
        await get(plain_server, url=plain_server.url.replace("http:", "https:"))


def bare_ca_and_leaf() -> tuple[bytes, bytes]:
    """A CA whose certificate has neither subject nor authority key identifier, and a leaf with its key."""
    now = datetime.datetime.now(datetime.UTC)
    ca_key, leaf_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bare ca")])

    def builder(name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(ca_name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )

    ca = builder(ca_name, ca_key.public_key()).add_extension(x509.BasicConstraints(True, None), critical=True)
    leaf_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "leaf")])
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    leaf = builder(leaf_name, leaf_key.public_key()).add_extension(names, critical=False)
    pem = serialization.Encoding.PEM
    key_pem = leaf_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    ca_pem = ca.sign(ca_key, hashes.SHA256()).public_bytes(pem)
    return ca_pem, leaf.sign(ca_key, hashes.SHA256()).public_bytes(pem) + key_pem
