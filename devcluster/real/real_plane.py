"""A real control plane as one object: `real_plane` starts it, the block's end stops it.

Owns the servers, their directory and the accounts. `audit_log` reads the log, `servers` has the command lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path

from devcluster.accounts import ADMIN, issue_token
from devcluster.children import Child, PlaneFailed, start_child
from devcluster.faults import FaultClient, fault_proxy
from devcluster.kubeconfig import certificate_credentials, write_kubeconfig
from devcluster.listening import free_ports
from devcluster.plane import ADMINS, Write
from devcluster.real.administrator import Administrator
from devcluster.real.audit_log import DEFAULT_GROUPS, Attempt, audit_policy, read_attempts, writes_in_order
from devcluster.real.binaries import SERVERS, find_binaries, kubernetes_recipe
from devcluster.real.certificates import Authority, token_signing_pair
from devcluster.real.servers import (
    AUDIT_LOG,
    ETCD_DATA,
    FRONT_PROXY,
    apiserver_command,
    controller_manager_command,
    etcd_command,
    front_proxy_flags,
    scheduler_command,
)

_READY_S = 60.0
_GRACE_S = 1.0
"""For the answers under way; open watches alone would keep it for a minute."""
_ATTEMPTS = 3
_SCHEDULER = "kube-scheduler"
_FIRST_SERVICE = "10.96.0.1"
"""The Service `kubernetes`, by which pods reach the API server."""


@contextlib.asynccontextmanager
async def real_plane(
    directory: Path,
    *,
    audit: bool = False,
    controller_manager: bool = True,
    controllers: Sequence[str] = (),
    audited_groups: Sequence[str] = DEFAULT_GROUPS,
    version: str | None = None,
    apiserver_flags: Sequence[str] = (),
    faults: bool = False,
) -> AsyncIterator[RealPlane]:
    """A running control plane whose files are in *directory*; ended with the block, and with this process.

    kube-apiserver gets *apiserver_flags* after its own; *controllers* run besides those that every plane has. With
    *faults* all clients but the controller manager come through a fault proxy. The processes die with the thread that
    runs this. Nothing is built here: see `ensure_binaries`.

    Raises: BinariesMissing if etcd or kube-apiserver is nowhere; PlaneFailed with the end of a server's log.
    """
    names = SERVERS if controller_manager else SERVERS[:2]
    binaries = find_binaries(names, kubernetes_recipe(version))
    plane = RealPlane(
        directory,
        binaries=binaries,
        audited_groups=audited_groups if audit else None,
        controllers=controllers,
        apiserver_flags=[*front_proxy_flags(directory), *apiserver_flags] if faults else apiserver_flags,
    )
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(plane.stop)
        await plane.start()
        if faults:
            plane.stand_behind(await stack.enter_async_context(plane.fault_proxy()))
        yield plane


class RealPlane:
    """etcd, kube-apiserver and kube-controller-manager on loopback. Keeps the promises of `ControlPlane`.

    With *node_address*, that of this machine on the network of its nodes, they serve nodes, beside kube-scheduler.
    """

    def __init__(
        self,
        directory: Path,
        *,
        binaries: dict[str, Path],
        audited_groups: Sequence[str] | None,
        controllers: Sequence[str] = (),
        apiserver_flags: Sequence[str] = (),
        node_address: str = "",
    ) -> None:
        self._folder = directory
        self._binaries = binaries
        self._audited_groups = audited_groups
        self._controllers = controllers
        self._apiserver_flags = apiserver_flags
        self._node_address = node_address
        self._serving_authority = Authority()
        self._client_authority = Authority()
        self._front_proxy_authority = Authority()
        self._faults: FaultClient | None = None
        self._admin_token = secrets.token_urlsafe(32)
        self._children: dict[str, Child] = {}
        self._port = 0
        self._etcd_port = 0
        self._attempts: list[Attempt] = []
        self._audit_read_bytes = 0

    @property
    def kubeconfig(self) -> Path:
        return self._folder / "admin.kubeconfig"

    @property
    def url(self) -> str:
        return self._faults.url if self._faults else self._direct_url

    @property
    def _direct_url(self) -> str:
        return f"https://{self._node_address or '127.0.0.1'}:{self._port}"

    @property
    def faults(self) -> FaultClient:
        if self._faults is None:
            raise PlaneFailed("the control plane was started without faults")
        return self._faults

    @property
    def etcd_url(self) -> str:
        """`http://127.0.0.1:PORT`: where the state is, for those who measure or damage it."""
        return f"http://127.0.0.1:{self._etcd_port}"

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self._children.values() if child.is_running]

    def rss_bytes(self) -> int:
        return sum(child.rss_bytes() for child in self._children.values())

    def binary(self, name: str) -> Path:
        """Path of a program of this control plane's: `etcd`, `kube-apiserver` ..."""
        return self._binaries[name]

    async def start(self) -> None:
        """Start the servers and wait until the API server is ready."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._write_files()
        for attempt in range(1, _ATTEMPTS + 1):
            self._port, self._etcd_port = free_ports(2)
            try:
                await self._start_etcd()
                await self._start_apiserver()
                break
            except PlaneFailed as failure:
                await self._end_all()
                if attempt == _ATTEMPTS or "address already in use" not in str(failure):
                    raise
        await self._administrator().allow_everything(ADMINS)
        if "kube-controller-manager" in self._binaries:
            await self._start_clients()

    def fault_proxy(self) -> contextlib.AbstractAsyncContextManager[FaultClient]:
        """A fault proxy before this running plane."""
        return fault_proxy(
            self._folder / "faults",
            upstream=self._direct_url,
            upstream_ca=self._folder / "serving-ca.crt",
            key=self._folder / "tokens.key",
            front_proxy=self._folder / "front-proxy.pem",
        )

    def stand_behind(self, proxy: FaultClient) -> None:
        """Let all kubeconfigs from now on, the administrator's too, name *proxy*."""
        self._faults = proxy
        credentials = {"token": issue_token(self._token_key, ADMIN.user, ADMIN.groups)}
        self._write_kubeconfig(self.kubeconfig, ADMIN.user, credentials, server=self.url)

    async def stop(self) -> None:
        """End every process and remove the state; kubeconfigs, logs and `writes` stay."""
        await self._end_all()
        self._read_audit_log()
        await asyncio.to_thread(shutil.rmtree, self._folder / ETCD_DATA, ignore_errors=True)

    async def restart(self, *, away_s: float = 0.0) -> None:
        """Stop the API server, stay away for *away_s*, start it again on the same port with the same state."""
        await self._children.pop("kube-apiserver").end(grace_s=_GRACE_S)
        await asyncio.sleep(away_s)
        await self._start_apiserver()
        if self._faults is not None:
            await self._faults.wait_open()

    async def kubeconfig_for(self, user: str, *, groups: Sequence[str] = (), admin: bool = True) -> Path:
        """A kubeconfig with a client certificate of *user*'s own, or with a token that the fault proxy reads.

        With *admin* the account may do everything; otherwise what RBAC grants to it and to *groups*.
        """
        all_groups = [*groups, *([ADMINS] if admin else [])]
        if self._faults is not None:
            credentials = {"token": issue_token(self._token_key, user, all_groups)}
        else:
            pair = self._client_authority.client(user, all_groups)
            credentials = certificate_credentials(pair.public_pem, pair.private_pem)
        return self._account_file(user, credentials)

    async def service_account_kubeconfig(
        self,
        namespace: str,
        name: str,
        *,
        lifetime_s: int = 86_400,
        pod: str = "",
    ) -> Path:
        """A kubeconfig with a fresh token of an existing ServiceAccount, by TokenRequest.

        With *pod* it is the token that a kubelet would mount into this existing Pod of the account: it names the pod,
        and ends with it. Raises: NotFound if there is no such account or pod.
        """
        token = await self._administrator().request_token(namespace, name, lifetime_s=lifetime_s, pod=pod)
        user = f"system:serviceaccount:{namespace}:{name}"
        return self._account_file(user, {"token": token}, namespace=namespace)

    def writes(self) -> list[Write]:
        """Every write that the audit log knows, in the order in which the server decided them.

        A line appears when its answer was sent: allow a few milliseconds after the last answer.
        """
        self._read_audit_log()
        return writes_in_order(self._attempts)

    def _write_files(self) -> None:
        names = ["127.0.0.1", "::1", "localhost", "kubernetes.default.svc"]
        names += [self._node_address, _FIRST_SERVICE] if self._node_address else []
        serving = self._serving_authority.serving(*names)
        kubelet_client = self._client_authority.client("kube-apiserver", ["system:masters"])
        tokens, front_proxy = token_signing_pair(), self._front_proxy_authority.client(FRONT_PROXY)
        self._token_key = secrets.token_bytes(32)
        contents: dict[str, bytes] = {
            "serving.crt": serving.public_pem,
            "serving.key": serving.private_pem,
            "serving-ca.crt": self._serving_authority.certificate_pem,
            "front-proxy-ca.crt": self._front_proxy_authority.certificate_pem,
            "front-proxy.pem": front_proxy.public_pem + front_proxy.private_pem,
            "tokens.key": self._token_key,
            "kubelet-client.crt": kubelet_client.public_pem,
            "kubelet-client.key": kubelet_client.private_pem,
            "client-ca.crt": self._client_authority.certificate_pem,
            "service-accounts.pub": tokens.public_pem,
            "service-accounts.key": tokens.private_pem,
            "tokens.csv": f'{self._admin_token},admin,admin,"system:masters"\n'.encode(),
            "audit-policy.json": json.dumps(audit_policy(self._audited_groups or ())).encode(),
        }
        for name, content in contents.items():
            path = self._folder / name
            path.touch(mode=0o600)
            path.write_bytes(content)

    async def _start_etcd(self) -> None:
        shutil.rmtree(self._folder / ETCD_DATA, ignore_errors=True)
        command = etcd_command(self._binaries["etcd"], self._folder, port=self._etcd_port)
        await self._start(command, name="etcd")

    async def _start_apiserver(self) -> None:
        await self._start(
            apiserver_command(
                self._binaries["kube-apiserver"],
                self._folder,
                port=self._port,
                etcd_port=self._etcd_port,
                audit=self._audited_groups is not None,
                node_address=self._node_address,
                flags=self._apiserver_flags,
            ),
            name="kube-apiserver",
        )
        for path in (self._direct, *([] if self._faults else [self.kubeconfig])):
            credentials = {"token": self._admin_token}
            self._write_kubeconfig(path, "admin", credentials, server=self._direct_url)
        await self._wait_ready()

    async def _start_clients(self) -> None:
        """kube-controller-manager, and with nodes kube-scheduler."""
        manager, with_nodes = "kube-controller-manager", bool(self._node_address)
        commands = {
            manager: controller_manager_command(
                self._binaries[manager], self._folder, nodes=with_nodes, more=self._controllers
            )
        }
        if with_nodes:
            commands[_SCHEDULER] = scheduler_command(self._binaries[_SCHEDULER], self._folder)
        for name, command in commands.items():
            pair = self._client_authority.client(f"system:{name}", ["system:masters"])
            self._write_kubeconfig(
                self._folder / f"{name}.kubeconfig",
                f"system:{name}",
                certificate_credentials(pair.public_pem, pair.private_pem),
                server=self._direct_url,
            )
            await self._start(command, name=name)

    async def _start(self, command: Sequence[str], *, name: str) -> None:
        self._children[name] = await start_child(command, name=name, log=self._folder / f"{name}.log")

    async def _wait_ready(self) -> None:
        administrator = self._administrator()
        deadline = time.monotonic() + _READY_S
        while not await administrator.is_ready():
            for child in self._children.values():
                if not child.is_running:
                    raise PlaneFailed(f"{child.name} ended at its start:\n{child.last_lines()}")
            if time.monotonic() > deadline:
                log = self._children["kube-apiserver"].last_lines()
                raise PlaneFailed(f"kube-apiserver is not ready after {_READY_S:.0f} s:\n{log}")
            await asyncio.sleep(0.1)

    def _administrator(self) -> Administrator:
        return Administrator(self._direct)

    async def _end_all(self) -> None:
        """Clients before servers, so that none complains about the absence of another."""
        for name in reversed([*SERVERS, _SCHEDULER]):
            if child := self._children.pop(name, None):
                await child.end(grace_s=_GRACE_S if name == "kube-apiserver" else 0)

    def _account_file(self, user: str, credentials: dict[str, str], *, namespace: str = "default") -> Path:
        stem = re.sub(r"[^A-Za-z0-9_.-]", "_", user)
        path = self._folder / f"{stem}-{secrets.token_hex(4)}.kubeconfig"
        return self._write_kubeconfig(path, user, credentials, server=self.url, namespace=namespace)

    def _write_kubeconfig(
        self, path: Path, user: str, credentials: dict[str, str], *, server: str, namespace: str = "default"
    ) -> Path:
        proxy_authority = self._faults.ca.read_bytes() if self._faults else b""
        return write_kubeconfig(
            path,
            server=server,
            authority_pem=self._serving_authority.certificate_pem + proxy_authority,
            user=user,
            credentials=credentials,
            namespace=namespace,
        )

    @property
    def _direct(self) -> Path:
        """The administrator's kubeconfig past the fault proxy."""
        return self._folder / "direct.kubeconfig"

    def _read_audit_log(self) -> None:
        """Take the complete lines that came since the last time."""
        if self._audited_groups is None or not (self._folder / AUDIT_LOG).exists():
            return
        with (self._folder / AUDIT_LOG).open("rb") as file:
            file.seek(self._audit_read_bytes)
            offset_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.time()
            self._attempts += read_attempts(self._complete_lines(file), boot_offset_s=offset_s)

    def _complete_lines(self, file: Iterable[bytes]) -> Iterator[bytes]:
        for line in file:
            if not line.endswith(b"\n"):
                return
            self._audit_read_bytes += len(line)
            yield line
