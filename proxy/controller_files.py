"""Files and environment by which a controller finds the relay, and nothing else: the mount of a pod, and a kubeconfig.

Owns their names and form. No credential but the loopback token is in them.
"""

from __future__ import annotations

import base64
import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from kubeio.errors import InputError
from proxy.loopback import HOST

KUBECONFIG: Final = "kubeconfig"
_CA, _TOKEN, _NAMESPACE = "ca.crt", "token", "namespace"


@contextlib.contextmanager
def controller_folder(given: Path | None) -> Iterator[Path]:
    """The folder *given*, or else one that goes with the block.

    Raises: InputError if it cannot be made or written to.
    """
    if given is not None:
        try:
            given.mkdir(parents=True, exist_ok=True, mode=0o700)
            is_writable = os.access(given, os.W_OK)
        except OSError:
            is_writable = False
        if not is_writable:
            remedy = "name a folder that this user may write to"
            raise InputError("--controller-files", str(given), "cannot be written to", remedy)
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="ringleader-proxy-") as name:
        yield Path(name)


def write_files(folder: Path, *, port: int, ca: bytes, token: str, namespace: str) -> None:
    """Write `ca.crt`, `token` and `namespace`, as a pod's service account has them, and `kubeconfig` into *folder*.

    Each takes its place whole, readable by this user only. Raises: OSError.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    cluster = {
        "server": f"https://{HOST}:{port}",
        "certificate-authority-data": base64.b64encode(ca).decode(),
    }
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "proxy",
        "clusters": [{"name": "proxy", "cluster": cluster}],
        "users": [{"name": "controller", "user": {"token": token}}],
        "contexts": [
            {"name": "proxy", "context": {"cluster": "proxy", "user": "controller", "namespace": namespace}}
        ],
    }
    _write(folder / _CA, ca)
    _write(folder / _TOKEN, token.encode())
    _write(folder / _NAMESPACE, namespace.encode())
    _write(folder / KUBECONFIG, msgspec.json.encode(kubeconfig))


def environment(own: Mapping[str, str], folder: Path, *, port: int) -> dict[str, str]:
    """The environment of a controller: *own*, ours, with the relay as the cluster and its `kubeconfig`.

    In-cluster configuration finds the files of *folder* where it is mounted as the pod's service account.
    """
    return {
        **own,
        "KUBECONFIG": str(folder / KUBECONFIG),
        "KUBERNETES_SERVICE_HOST": HOST,
        "KUBERNETES_SERVICE_PORT": str(port),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(port),
    }


def _write(path: Path, content: bytes) -> None:
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    scratch.replace(path)
