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
from devcluster.listening import LOOPBACK, free_ports
from devcluster.plane import ADMINS, Write
from devcluster.real.administrator import Administrator
from devcluster.real.audit_log import (
    DEFAULT_GROUPS,
    Attempt,
    Restore,
    audit_policy,
    read_attempts,
    writes_in_order,
)
from devcluster.real.binaries import SERVERS, find_binaries, kubernetes_recipe
from devcluster.real.certificates import Authority, token_signing_pair
from devcluster.real.etcd import Snapshot, restore_snapshot, save_snapshot
from devcluster.real.servers import (
    ETCD,
    ETCD_DATA,
    FRONT_PROXY,
    apiserver_command,
    apiserver_name,
    audit_log_name,
    controller_manager_command,
    etcd_command,
    front_proxy_flags,
    kubeconfig_name,
    scheduler_command,
)

_READY_S = 60.0
_GRACE_S = 1.0
"""For the answers under way; open watches alone would keep it for a minute."""
_ATTEMPTS = 3
_SCHEDULER = "kube-scheduler"
_MANAGER = "kube-controller-manager"
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
    api_servers: int = 1,
    faults: bool = False,
    faults_host: str = LOOPBACK,
) -> AsyncIterator[RealPlane]:
    """A running control plane whose files are in *directory*; ended with the block, and with this process.

    kube-apiserver gets *apiserver_flags* after its own; *controllers* run besides those that every plane has. With
    *faults* all clients but the controller manager come through a fault proxy, on *faults_host*, which spreads their
    connections over all *api_servers*. The processes die with the thread that runs this. Nothing is built here: see
    `ensure_binaries`.

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
        api_servers=api_servers,
    )
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(plane.stop)
        await plane.start()
        if faults:
            plane.stand_behind(await stack.enter_async_context(plane.fault_proxy(faults_host)))
        yield plane


class RealPlane:
    """etcd, kube-apiserver and kube-controller-manager on loopback. Keeps the promises of `ControlPlane`.

    With *api_servers* so many kube-apiservers share the etcd, numbered from 1 on; accounts are spread over them. With
    *node_address*, that of this machine on the network of its nodes, they serve nodes, beside kube-scheduler.
    """

    def __init__(
        self,
        directory: Path,
        *,
        binaries: dict[str, Path],
        audited_groups: Sequence[str] | None,
        controllers: Sequence[str] = (),
        apiserver_flags: Sequence[str] = (),
        api_servers: int = 1,
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
        self._numbers = range(1, api_servers + 1)
        self._ports: dict[int, int] = {}
        self._accounts = 0
        self._etcd_port = 0
        self._attempts: list[Attempt] = []
        self._audit_read_bytes = dict.fromkeys(self._numbers, 0)
        self._restores: list[Restore] = []

    @property
    def kubeconfig(self) -> Path:
        return self._folder / "admin.kubeconfig"

    @property
    def url(self) -> str:
        return self._faults.url if self._faults else self._direct_url(1)

    @property
    def direct_kubeconfigs(self) -> list[Path]:
        """The administrator's kubeconfigs, one for each API server, past the fault proxy."""
        return [self._direct(number) for number in self._numbers]

    def _direct_url(self, number: int) -> str:
        return f"https://{self._node_address or '127.0.0.1'}:{self._ports[number]}"

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
            self._etcd_port, *ports = free_ports(1 + len(self._numbers))
            self._ports = dict(zip(self._numbers, ports, strict=True))
            try:
                await self._start_etcd()
                for number in self._numbers:
                    await self.start_apiserver(number)
                break
            except PlaneFailed as failure:
                await self._end_all()
                if attempt == _ATTEMPTS or "address already in use" not in str(failure):
                    raise
        await Administrator(self._direct(1)).allow_everything(ADMINS)
        await self._start_clients()

    def fault_proxy(self, host: str = LOOPBACK) -> contextlib.AbstractAsyncContextManager[FaultClient]:
        """A fault proxy before this running plane, which listens on *host*."""
        return fault_proxy(
            self._folder / "faults",
            upstreams=[self._direct_url(number) for number in self._numbers],
            upstream_ca=self._folder / "serving-ca.crt",
            key=self._folder / "tokens.key",
            front_proxy=self._folder / "front-proxy.pem",
            host=host,
        )

    def stand_behind(self, proxy: FaultClient) -> None:
        """Let all kubeconfigs from now on, the administrator's too, name *proxy*."""
        self._faults = proxy
        credentials = {"token": issue_token(self._token_key, ADMIN.user, ADMIN.groups)}
        self._write_kubeconfig(self.kubeconfig, ADMIN.user, credentials, server=self.url)

    async def stop(self) -> None:
        """End every process and remove the state; kubeconfigs, logs and `writes` stay."""
        await self._end_all()
        self._read_audit_logs()
        await asyncio.to_thread(shutil.rmtree, self._folder / ETCD_DATA, ignore_errors=True)

    async def restart(self, *, away_s: float = 0.0) -> None:
        """Stop the API servers, stay away for *away_s*, start them again on the same ports with the same state."""
        await self._end([apiserver_name(number) for number in self._numbers])
        await asyncio.sleep(away_s)
        await self._start_apiservers()

    async def kill_apiserver(self, number: int) -> None:
        """SIGKILL API server *number*; the others go on. It stays away until `start_apiserver`."""
        await self._children.pop(apiserver_name(number)).end(grace_s=0)

    async def snapshot(self) -> Snapshot:
        """A snapshot of etcd as it is now."""
        return await save_snapshot(self.etcd_url, self._folder / f"snapshot-{secrets.token_hex(4)}.db")

    async def restore(self, snapshot: Snapshot, *, away_s: float = 0.0) -> None:
        """End all servers, restore etcd from *snapshot* with raised revisions, and start all again after *away_s*.

        Raises: BinariesMissing without etcdutl, PlaneFailed with what it printed.
        """
        await self._end([_SCHEDULER, _MANAGER, *map(apiserver_name, self._numbers), ETCD])
        self._read_audit_logs()
        await asyncio.to_thread(shutil.rmtree, self._folder / ETCD_DATA)
        await asyncio.to_thread(restore_snapshot, snapshot, self._folder / ETCD_DATA)
        self._restores.append(Restore(to=snapshot.revision, after=len(self._attempts)))
        await asyncio.sleep(away_s)
        await self._run_etcd()
        await self._start_apiservers()
        await self._start_clients()

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
        token = await Administrator(self._direct(1)).request_token(
            namespace, name, lifetime_s=lifetime_s, pod=pod
        )
        user = f"system:serviceaccount:{namespace}:{name}"
        return self._account_file(user, {"token": token}, namespace=namespace)

    def writes(self) -> list[Write]:
        """Every write that the audit log knows, in the order in which the server decided them.

        A line appears when its answer was sent: allow a few milliseconds after the last answer.
        """
        self._read_audit_logs()
        return writes_in_order(self._attempts, restores=self._restores)

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
        await self._run_etcd()

    async def _run_etcd(self) -> None:
        command = etcd_command(self._binaries[ETCD], self._folder, port=self._etcd_port)
        await self._start(command, name=ETCD)

    async def start_apiserver(self, number: int) -> None:
        """Start API server *number* and wait until it is ready."""
        name, url = apiserver_name(number), self._direct_url(number)
        await self._start(
            apiserver_command(
                self._binaries["kube-apiserver"],
                self._folder,
                port=self._ports[number],
                etcd_port=self._etcd_port,
                audit_log="" if self._audited_groups is None else audit_log_name(number),
                node_address=self._node_address,
                flags=self._apiserver_flags,
            ),
            name=name,
        )
        for_all = self._folder / kubeconfig_name("admin", number)
        for path in (self._direct(number), *([] if self._faults else [for_all])):
            self._write_kubeconfig(path, "admin", {"token": self._admin_token}, server=url)
        await self._wait_ready(number)

    async def _start_apiservers(self) -> None:
        """Start all API servers at once."""
        await asyncio.gather(*map(self.start_apiserver, self._numbers))
        if self._faults is not None:
            await self._faults.wait_open()

    async def _start_clients(self) -> None:
        """kube-controller-manager if this plane has one, and with nodes kube-scheduler."""
        if _MANAGER not in self._binaries:
            return
        with_nodes = bool(self._node_address)
        commands = {
            _MANAGER: controller_manager_command(
                self._binaries[_MANAGER], self._folder, nodes=with_nodes, more=self._controllers
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
                server=self._direct_url(1),
            )
            await self._start(command, name=name)

    async def _start(self, command: Sequence[str], *, name: str) -> None:
        self._children[name] = await start_child(command, name=name, log=self._folder / f"{name}.log")

    async def _wait_ready(self, number: int) -> None:
        administrator, name = Administrator(self._direct(number)), apiserver_name(number)
        deadline = time.monotonic() + _READY_S
        while not await administrator.is_ready():
            for child in [child for child in map(self._children.get, (ETCD, name)) if child is not None]:
                if not child.is_running:
                    raise PlaneFailed(f"{child.name} ended at its start:\n{child.last_lines()}")
            if time.monotonic() > deadline:
                log = self._children[name].last_lines()
                raise PlaneFailed(f"{name} is not ready after {_READY_S:.0f} s:\n{log}")
            await asyncio.sleep(0.1)

    async def _end_all(self) -> None:
        """Clients before servers, so that none complains about the absence of another."""
        await self._end([_SCHEDULER, _MANAGER, *map(apiserver_name, self._numbers), ETCD])

    async def _end(self, names: Sequence[str]) -> None:
        """End those of *names* that run, one after the other."""
        for name in names:
            if child := self._children.pop(name, None):
                await child.end(grace_s=_GRACE_S if name.startswith("kube-apiserver") else 0)

    def _account_file(self, user: str, credentials: dict[str, str], *, namespace: str = "default") -> Path:
        stem = re.sub(r"[^A-Za-z0-9_.-]", "_", user)
        path = self._folder / f"{stem}-{secrets.token_hex(4)}.kubeconfig"
        self._accounts += 1
        server = self.url if self._faults else self._direct_url(self._accounts % len(self._numbers) + 1)
        return self._write_kubeconfig(path, user, credentials, server=server, namespace=namespace)

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

    def _direct(self, number: int) -> Path:
        """The administrator's kubeconfig for API server *number*, past the fault proxy."""
        return self._folder / kubeconfig_name("direct", number)

    def _read_audit_logs(self) -> None:
        """Take the complete lines that came since the last time."""
        for number in self._numbers:
            log = self._folder / audit_log_name(number)
            if self._audited_groups is None or not log.exists():
                continue
            with log.open("rb") as file:
                file.seek(self._audit_read_bytes[number])
                offset_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.time()
                lines = self._complete_lines(file, number)
                self._attempts += read_attempts(lines, boot_offset_s=offset_s)

    def _complete_lines(self, file: Iterable[bytes], number: int) -> Iterator[bytes]:
        for line in file:
            if not line.endswith(b"\n"):
                return
            self._audit_read_bytes[number] += len(line)
            yield line
