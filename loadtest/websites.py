"""What a person does with Websites, as a locust user: create, update, delete, at a rate.

Run by `python -m loadtest`, or by locust itself against any cluster, also distributed over machines:

    KUBECONFIG=... locust -f loadtest/websites.py --headless --users 16 --run-time 60s

The rate comes from the environment: LOADTEST_RATE operations per second in all, over LOADTEST_USERS users.
"""

from __future__ import annotations

import base64
import itertools
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import yaml
from locust import FastHttpUser, constant_throughput, task

NAMESPACE = os.environ.get("LOADTEST_NAMESPACE", "default")
RATE = float(os.environ.get("LOADTEST_RATE", "20"))
USERS = int(os.environ.get("LOADTEST_USERS", "16"))
SIZE = int(os.environ.get("LOADTEST_BYTES", "512"))
_numbers = itertools.count()
_prefix = os.environ.get("LOADTEST_PREFIX", f"load-{os.getpid()}")


def _credentials() -> tuple[str, str | None, str | None, str | None]:
    """Server, CA file, token, client certificate file of the current context of the first kubeconfig.

    Only what the development clusters use: locust's own process has no business with exec plugins; for those put
    a token into a kubeconfig of the load's own account.
    """
    path = Path(os.environ.get("KUBECONFIG", "~/.kube/config").split(os.pathsep)[0]).expanduser()
    config = yaml.safe_load(path.read_text())
    context = next(c["context"] for c in config["contexts"] if c["name"] == config["current-context"])
    cluster = next(c["cluster"] for c in config["clusters"] if c["name"] == context["cluster"])
    user = next(u["user"] for u in config["users"] if u["name"] == context["user"])
    ca = _file(cluster, "certificate-authority", path.parent)
    certificate, key = (_file(user, f"client-{part}", path.parent) for part in ("certificate", "key"))
    pair = None
    if certificate and key:
        pair = _write(Path(certificate).read_bytes() + b"\n" + Path(key).read_bytes())
    return cluster["server"], ca, user.get("token"), pair


def _file(section: dict[str, Any], name: str, base: Path) -> str | None:
    if f"{name}-data" in section:
        return _write(base64.b64decode(section[f"{name}-data"]))
    return str(base / section[name]) if name in section else None


def _write(data: bytes) -> str:
    with tempfile.NamedTemporaryFile(
        delete=False, prefix="loadtest-"
    ) as file:  # lives as long as the process
        file.write(data)
    return file.name


SERVER, CA, TOKEN, PAIR = _credentials()


class WebsiteUser(FastHttpUser):
    """Six updates and two creations for each deletion; deletes only what it created."""

    host = SERVER
    wait_time = constant_throughput(RATE / USERS)
    default_headers = {"Authorization": f"Bearer {TOKEN}"} if TOKEN else {}
    connection_timeout = 10.0
    network_timeout = 30.0

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self._mine: list[str] = []
        self._round = 0

    @staticmethod
    def ssl_context_factory() -> Any:
        from ssl import create_default_context

        tls = create_default_context(cafile=CA)
        if PAIR:
            tls.load_cert_chain(PAIR)
        return tls

    @property
    def _collection(self) -> str:
        return f"/apis/example.com/v1/namespaces/{NAMESPACE}/websites"

    def on_start(self) -> None:
        self._create()

    @task(2)
    def create(self) -> None:
        self._create()

    @task(6)
    def update(self) -> None:
        if not self._mine:
            return
        name = random.choice(self._mine)  # noqa: S311 - load, no secret
        self._round += 1
        self.client.patch(
            f"{self._collection}/{name}",
            json={"spec": {"html": self._page(name)}},
            headers={"Content-Type": "application/merge-patch+json"},
            name="update",
        )

    @task(1)
    def delete(self) -> None:
        if len(self._mine) > 1:
            name = self._mine.pop(0)
            self.client.delete(f"{self._collection}/{name}", name="delete")

    def _create(self) -> None:
        name = f"{_prefix}-{next(_numbers)}"
        document = {
            "apiVersion": "example.com/v1",
            "kind": "Website",
            "metadata": {"name": name},
            "spec": {"html": self._page(name)},
        }
        answer = self.client.post(self._collection, json=document, name="create")
        if answer.status_code == 201:
            self._mine.append(name)

    def _page(self, name: str) -> str:
        return f"{name} {self._round} " + "x" * SIZE
