"""A short-lived process that gets one credential through the `kubernetes` package and prints it as JSON.

Run by `kubeio.access.plugins` as a file of its own (`python -P plugin_child.py FD`), so that the package (20 MB and
0.2 s of import) never burdens the process that asks, and a plugin that hangs is killed with it. Imports nothing
of ours. Reads the request from socket FD until end of file, writes `{"status": ...}` or `{"problem": ...}`.
Standard streams stay those of the parent: a plugin may ask its user for a password.
"""

from __future__ import annotations

import base64
import importlib
import json
import logging
import socket
import ssl
import sys
from typing import Any


def run_exec(request: dict[str, Any]) -> dict[str, Any]:
    """Run an exec plugin; its ExecCredential's status."""
    package: Any = importlib.import_module("kubernetes.config.kube_config")
    cluster = package.ConfigNode("cluster", request["cluster"]) if request["cluster"] else None
    provider = package.ExecProvider(package.ConfigNode("exec", request["exec"]), None, cluster)
    status = provider.run()
    if not isinstance(status, dict):
        raise TypeError("its status is not an object")
    return status


def run_oidc(request: dict[str, Any]) -> dict[str, Any]:
    """Token of an OpenID Connect provider, refreshed when due; with the provider's new settings."""
    package: Any = importlib.import_module("kubernetes.config.kube_config")
    settings = request["config"]
    if not settings.get("idp-certificate-authority-data") and not settings.get("idp-certificate-authority"):
        # Without a CA the package would not verify the provider at all: give it the system's.
        paths = ssl.get_default_verify_paths()
        settings["idp-certificate-authority"] = paths.cafile or paths.openssl_cafile
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://unused"}}],
        "users": [{"name": "u", "user": {"auth-provider": {"name": "oidc", "config": settings}}}],
    }
    configuration = package.Configuration()
    package.KubeConfigLoader(document, config_base_path="").load_and_set(configuration)
    bearer = configuration.api_key.get("BearerToken", "")
    token = bearer.removeprefix("Bearer ")
    if not token:
        raise ValueError("id-token is missing or is no JWT")
    return {"token": token, "config": settings, "expires": _expiry(token)}


def _expiry(token: str) -> float | None:
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    expires = claims.get("exp")
    return float(expires) if expires is not None else None


def main() -> int:
    logging.disable(logging.CRITICAL)
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    with channel, channel.makefile("rwb") as stream:
        request = json.load(stream)
        try:
            answer: dict[str, Any] = {
                "status": (run_exec if request["kind"] == "exec" else run_oidc)(request)
            }
        except Exception as error:  # whatever it is, the parent says it to the user
            answer = {"problem": str(error) or type(error).__name__}
        stream.write(json.dumps(answer).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
