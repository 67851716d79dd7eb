"""The child process: certificates, tokens and kubeconfig into its directory, then the server, until a signal.

Ends on SIGTERM and SIGINT.
"""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import signal
from pathlib import Path

import structlog
import trustme

from devcluster.accounts import ADMIN, issue_token
from devcluster.embedded.directory import ADDRESS, CA, KEY, KUBECONFIG, WRITES
from devcluster.embedded.server import Server
from devcluster.embedded.writelog import WriteFile
from devcluster.kubeconfig import write_kubeconfig
from devcluster.listening import bound_socket, server_tls

_log = structlog.get_logger("devcluster.embedded")


async def serve(
    directory: Path,
    *,
    host: str,
    port: int,
    bookmark_interval_s: float,
    history_limit: int,
    rbac: bool,
) -> None:
    """Serve from *directory* until a signal."""
    listener = bound_socket(port, host)
    port = listener.getsockname()[1]
    url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    authority = trustme.CA()
    ca_pem = authority.cert_pem.bytes()
    (directory / CA).write_bytes(ca_pem)
    key = secrets.token_bytes(32)
    _write_private(directory / KEY, key)
    log = WriteFile(directory / WRITES)
    server = Server(
        tls=server_tls(authority),
        key=key,
        log=log,
        history_limit=history_limit,
        rbac=rbac,
        bookmark_interval_s=bookmark_interval_s,
        url=url,
        listener=listener,
    )
    await server.start()
    credentials = {"token": issue_token(key, ADMIN.user, ADMIN.groups)}
    write_kubeconfig(
        directory / KUBECONFIG,
        server=url,
        authority_pem=ca_pem,
        user=ADMIN.user,
        credentials=credentials,
    )
    draft = directory / f".{ADDRESS}"
    draft.write_text(url + "\n", encoding="utf-8")
    draft.replace(directory / ADDRESS)
    _log.info("serving", url=url, kubeconfig=str(directory / KUBECONFIG))
    _tame_collector()
    try:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(server.run(), name="server")
            await _signal_to_end()
            running.cancel()
    finally:
        log.close()


def _write_private(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def _tame_collector() -> None:
    """What is loaded now stays; objects are stored untracked, so full collections find nothing worth a pause."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


async def _signal_to_end() -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    await ended.wait()
