"""Credentials from programs: exec plugins and the OpenID Connect auth-provider of a kubeconfig.

Owns the checks before a plugin runs and the reading of what it printed. The run itself is done by the `kubernetes`
package, in a child process (`kubeio.access.plugin_child`). Blocking: it runs in the thread of
`kubeio.access.credentials.PluginCredentials` only.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kubeio.access.credentials import FetchedCredential
from kubeio.access.kubeconfig import ConfigEntry
from kubeio.clock import Clock
from kubeio.errors import InputError
from kubeio.http.endpoint import Credential, KeyPair

PLUGIN_TIMEOUT_S: Final = 60.0
INTERACTIVE_TIMEOUT_S: Final = 300.0
"""A person may have to type or to open a browser."""
_API_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_CHILD: Final = Path(__file__).with_name("plugin_child.py")


class ExecPlugin:
    """The `exec` section of a kubeconfig user, checked; `fetch` runs it."""

    def __init__(self, section: ConfigEntry, *, cluster: Mapping[str, object], clock: Clock) -> None:
        self._section = section
        self._clock = clock
        self._install_hint = section.text("installHint").strip()
        self._api_version = self._checked_api_version()
        self._mode = self._checked_mode()
        self._fields = {
            "apiVersion": self._api_version,
            "command": self._checked_command(),
            "args": section.texts("args"),
            "env": self._checked_env(),
            "provideClusterInfo": section.flag("provideClusterInfo"),
        }
        self._cluster = dict(cluster)

    def fetch(self) -> FetchedCredential:
        """Run the plugin. Blocks. Raises InputError."""
        is_interactive = self._mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
        request = {"kind": "exec", "exec": self._fields, "cluster": self._cluster}
        try:
            status = run_child(request, is_interactive=is_interactive)
        except PluginFailed as error:
            raise self._problem(f"failed: {error}") from None
        return self._read(status)

    def _read(self, status: Mapping[str, Any]) -> FetchedCredential:
        token = status.get("token") or ""
        certificate, key = status.get("clientCertificateData") or "", status.get("clientKeyData") or ""
        if not all(isinstance(value, str) for value in (token, certificate, key)):
            raise self._problem("printed a token or certificate that is not a string")
        if not token and not certificate:
            raise self._problem("printed neither token nor clientCertificateData in its status")
        if bool(certificate) != bool(key):
            raise self._problem("printed only one of clientCertificateData and clientKeyData")
        pair = KeyPair(certificate.encode(), key.encode()) if certificate else None
        credential = Credential(f"Bearer {token}" if token else "", pair)
        return FetchedCredential(credential, self._valid_s(status.get("expirationTimestamp")))

    def _valid_s(self, expires: object) -> float | None:
        if expires is None:
            return None
        try:
            instant = datetime.fromisoformat(str(expires))
        except ValueError:
            raise self._problem(f"printed an expirationTimestamp that is no time: {expires!r}") from None
        if instant.tzinfo is None:
            instant = instant.replace(tzinfo=UTC)
        valid_s = (instant - self._clock.wall()).total_seconds()
        if valid_s <= 0:
            raise self._problem(f"printed a credential that expired {-valid_s:.0f} s ago (at {expires})")
        return valid_s

    def _problem(self, problem: str) -> InputError:
        remedy = f"run it by hand to see what it wants: {self._shown_command()}"
        return self._section.error("command", self._fields["command"], problem, remedy)

    def _shown_command(self) -> str:
        return shlex.join([str(self._fields["command"]), *self._section.texts("args")])

    def _checked_api_version(self) -> str:
        version = self._section.text("apiVersion")
        if version not in _API_VERSIONS:
            raise self._section.error(
                "apiVersion", version, "is not a version of exec credentials", f"write {_API_VERSIONS[0]}"
            )
        return version

    def _checked_mode(self) -> str:
        mode = self._section.text("interactiveMode") or "IfAvailable"
        if mode not in ("Never", "IfAvailable", "Always"):
            raise self._section.error(
                "interactiveMode", mode, "is unknown", "write Never, IfAvailable or Always"
            )
        if mode == "Always" and not (sys.stdin is not None and sys.stdin.isatty()):
            raise self._section.error(
                "interactiveMode", mode, "needs a terminal and there is none", "run this from a terminal"
            )
        return mode

    def _checked_command(self) -> str:
        """Absolute where the kubeconfig names a path (relative ones are relative to it)."""
        command = self._section.text("command")
        if not command:
            raise self._section.error("command", command, "is missing", "name the plugin's program")
        if os.sep in command:
            path = self._section.file.parent.resolve() / command
            found = str(path) if os.access(path, os.X_OK) and path.is_file() else None
        else:
            found = command if shutil.which(command) else None
        if found is None:
            hint = self._install_hint or "install it, or correct the name"
            raise self._section.error("command", command, "is not an executable program here", hint)
        return found

    def _checked_env(self) -> list[dict[str, str]]:
        listed = self._section.fields.get("env") or []
        if not isinstance(listed, list) or not all(
            isinstance(item, dict)
            and isinstance(item.get("name"), str)
            and isinstance(item.get("value"), str)
            for item in listed
        ):
            raise self._section.error(
                "env",
                "<list>",
                "has an entry without name and value",
                "write - name: ... and value: ..., strings",
            )
        return [{"name": item["name"], "value": item["value"]} for item in listed]


class OidcProvider:
    """The `auth-provider: {name: oidc}` section of a kubeconfig user; `fetch` refreshes its token.

    New refresh tokens are kept in memory: the kubeconfig is not written.
    """

    def __init__(self, section: ConfigEntry, *, clock: Clock) -> None:
        self._section = section
        self._clock = clock
        config = section.entry("config")
        if config is None or not config.text("id-token") or not config.text("idp-issuer-url"):
            raise section.error(
                "config",
                "<mapping>",
                "lacks id-token or idp-issuer-url",
                "log in again with your provider's tool",
            )
        self._config = dict(config.fields)

    def fetch(self) -> FetchedCredential:
        """A token that is valid now. Blocks. Raises InputError."""
        try:
            status = run_child({"kind": "oidc", "config": self._config}, is_interactive=False)
        except PluginFailed as error:
            raise self._problem(f"gave no token: {error}") from None
        self._config = status["config"]
        valid_s = None
        if status["expires"] is not None:
            valid_s = status["expires"] - self._clock.wall().timestamp()
            if valid_s <= 0:
                raise self._problem("gave a token that has expired and could not be refreshed")
        return FetchedCredential(Credential(f"Bearer {status['token']}"), valid_s)

    def _problem(self, problem: str) -> InputError:
        issuer = self._config.get("idp-issuer-url")
        return self._section.error(
            "config.idp-issuer-url", issuer, problem, "log in again with your provider's tool"
        )


class PluginFailed(Exception):
    """The child gave no credential; the message says why."""


def run_child(request: Mapping[str, object], *, is_interactive: bool) -> dict[str, Any]:
    """The status that the child process got for *request*. Raises PluginFailed."""
    timeout_s = INTERACTIVE_TIMEOUT_S if is_interactive else PLUGIN_TIMEOUT_S
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = subprocess.Popen(
            [sys.executable, "-P", str(_CHILD), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=None if is_interactive else subprocess.DEVNULL,
            stdout=None if is_interactive else subprocess.DEVNULL,
            stderr=None if is_interactive else subprocess.DEVNULL,
            # a terminal's plugin must stay in the terminal's group; any other must die as a whole
            start_new_session=not is_interactive,
        )
        theirs.close()
        watchdog = threading.Timer(timeout_s, _kill, args=(child, not is_interactive))
        watchdog.daemon = True
        watchdog.start()
        try:
            ours.sendall(json.dumps(request).encode())
            ours.shutdown(socket.SHUT_WR)
            with ours.makefile("rb") as stream:
                text = stream.read()
        except OSError:
            text = b""
        finally:
            code = child.wait()
            watchdog.cancel()
    if not text:
        late = code == -signal.SIGKILL
        raise PluginFailed(f"no answer within {timeout_s:g} s" if late else f"its runner ended with {code}")
    answer = json.loads(text)
    if "problem" in answer:
        raise PluginFailed(answer["problem"])
    status: dict[str, Any] = answer["status"]
    return status


def _kill(child: subprocess.Popen[bytes], whole_group: bool) -> None:
    try:
        if whole_group:
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    except ProcessLookupError:
        pass
