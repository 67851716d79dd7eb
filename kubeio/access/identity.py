"""Identity of a kubeconfig's user: the source of its credentials, and its impersonation headers.

Owns every check of a `user` entry. Reads the files that the entry names; runs no plugin.
"""

from __future__ import annotations

import base64

from kubeio.access.credentials import FileCredentials, FixedCredentials, PluginCredentials
from kubeio.access.kubeconfig import ConfigEntry
from kubeio.access.plugins import ExecPlugin, OidcProvider
from kubeio.clock import Clock
from kubeio.http.endpoint import Credential, Credentials, KeyPair


def impersonation_of(user: ConfigEntry) -> tuple[tuple[str, str], ...]:
    """Headers of impersonation. Raises InputError."""
    headers: list[tuple[str, str]] = []
    name, uid, groups = user.text("as"), user.text("as-uid"), user.texts("as-groups")
    extra = user.entry("as-user-extra")
    if not name and (uid or groups or extra is not None):
        raise user.error(
            "as", "", "is missing beside as-uid, as-groups or as-user-extra", "name the user to act as"
        )
    if name:
        headers.append(("Impersonate-User", name))
    if uid:
        headers.append(("Impersonate-Uid", uid))
    headers.extend(("Impersonate-Group", group) for group in groups)
    if extra is not None:
        for key in extra.fields:
            headers.extend((header_of_extra(key), value) for value in extra.texts(key))
    for header, value in headers:
        if "\r" in value or "\n" in value or not value.isascii():
            raise user.error("as", value, f"cannot be sent in the header {header}", "use printable ASCII")
    return tuple(headers)


def header_of_extra(key: str) -> str:
    """Header that impersonates the extra *key*; what a header's name may not hold is encoded as in client-go."""
    legal = set("!#$&'*+-.^_`|~")
    return "Impersonate-Extra-" + "".join(
        c if c in legal or (c.isascii() and c.isalnum()) else "".join(f"%{byte:02X}" for byte in c.encode())
        for c in key
    )


def credentials_of(user: ConfigEntry, *, cluster: ConfigEntry, clock: Clock) -> Credentials:
    """The one source that *user* names; a client certificate may stand beside a token. Raises InputError."""
    _refuse_several(user)
    exec_section = user.entry("exec")
    if exec_section is not None and not user.text("token") and not user.text("tokenFile"):
        info = _cluster_info(cluster) if exec_section.flag("provideClusterInfo") else {}
        plugin = ExecPlugin(exec_section, cluster=info, clock=clock)
        return PluginCredentials(plugin.fetch, clock, f"exec plugin {exec_section.text('command')}")
    provider = user.entry("auth-provider")
    if provider is not None:
        if provider.text("name") != "oidc":
            raise provider.error(
                "name",
                provider.text("name"),
                "is no longer a part of Kubernetes",
                "use the provider's exec plugin",
            )
        oidc = OidcProvider(provider, clock=clock)
        return PluginCredentials(oidc.fetch, clock, "auth-provider oidc")
    if user.text("tokenFile"):
        return token_file(user, "tokenFile", clock=clock)
    return _fixed(user, clock)


def _fixed(user: ConfigEntry, clock: Clock) -> Credentials:
    authorization = _authorization(user)
    certificate_file, key_file = user.path("client-certificate"), user.path("client-key")
    uses_files = (
        certificate_file is not None
        and key_file is not None
        and not user.text("client-certificate-data")
        and not user.text("client-key-data")
    )

    def read() -> Credential:
        return Credential(authorization, _key_pair(user))

    if uses_files and certificate_file is not None and key_file is not None:
        return FileCredentials([certificate_file, key_file], read, clock)
    return FixedCredentials(read())


def _authorization(user: ConfigEntry) -> str:
    if user.text("token"):
        return f"Bearer {_printable(user, 'token', user.text('token'))}"
    if user.text("username"):
        pair = f"{user.text('username')}:{user.text('password')}"
        return "Basic " + base64.b64encode(pair.encode()).decode()
    return ""


def token_file(where: ConfigEntry, name: str, *, clock: Clock) -> Credentials:
    """The token in the file that *where* names at *name*, and whatever certificate *where* has. Raises InputError."""
    path = where.file.parent / where.text(name)

    def read() -> Credential:
        token = (where.file_bytes(name) or b"").decode("utf-8", "replace").strip()
        if not token:
            raise where.error(name, str(path), "is empty", "put a token into it")
        return Credential(f"Bearer {_printable(where, name, token)}", _key_pair(where))

    return FileCredentials([path], read, clock)


def _printable(where: ConfigEntry, name: str, token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise where.error(
            name, f"<{len(token)} characters>", "is no token", "it has no blanks and only ASCII"
        )
    return token


def _key_pair(user: ConfigEntry) -> KeyPair | None:
    certificate = user.data("client-certificate-data") or user.file_bytes("client-certificate")
    key = user.data("client-key-data") or user.file_bytes("client-key")
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing = "client-certificate" if certificate is None else "client-key"
        raise user.error(
            missing, "", "is missing beside the other half of the pair", f"give {missing} or {missing}-data"
        )
    if b"-----BEGIN" not in certificate or b"-----BEGIN" not in key:
        wrong = "client-certificate" if b"-----BEGIN" not in certificate else "client-key"
        raise user.error(
            wrong, f"<{len(certificate)} bytes>", "is not PEM", "use the file that begins with -----BEGIN"
        )
    return KeyPair(certificate, key)


def _refuse_several(user: ConfigEntry) -> None:
    methods = [
        name
        for name, is_there in (
            ("token", bool(user.text("token") or user.text("tokenFile"))),
            ("username", bool(user.text("username"))),
            ("exec", user.entry("exec") is not None),
            ("auth-provider", user.entry("auth-provider") is not None),
        )
        if is_there
    ]
    if len(methods) > 1 and methods != ["token", "exec"]:
        raise user.error(
            methods[0], "<set>", f"stands beside {' and '.join(methods[1:])}", "keep one way to authenticate"
        )


def _cluster_info(cluster: ConfigEntry) -> dict[str, object]:
    """Cluster information for a plugin with provideClusterInfo: files as data, never as paths."""
    info: dict[str, object] = {
        name: cluster.fields[name]
        for name in ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "extensions")
        if cluster.fields.get(name)
    }
    ca = cluster.data("certificate-authority-data") or cluster.file_bytes("certificate-authority")
    if ca:
        info["certificate-authority-data"] = base64.b64encode(ca).decode()
    return info
