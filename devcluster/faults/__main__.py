"""`python -m devcluster.faults`: the fault proxy before the API servers of one cluster, until it is killed."""

from __future__ import annotations

import argparse
import asyncio
import ssl
from pathlib import Path

import trustme

from devcluster.faults.fault_client import ADDRESS, CA
from devcluster.faults.proxy import FaultProxy
from devcluster.listening import LOOPBACK, bound_socket, server_tls


async def _serve(options: argparse.Namespace) -> None:
    tls = ssl.create_default_context(cafile=str(options.upstream_ca))
    if options.front_proxy:
        tls.load_cert_chain(options.front_proxy)
    proxy = FaultProxy(
        options.upstream,
        upstream_tls=tls,
        key=options.key.read_bytes(),
        names_users=options.front_proxy is not None,
    )
    authority = trustme.CA()
    sockets = bound_socket(0, options.host), bound_socket(0, options.host)
    (options.directory / CA).write_bytes(authority.cert_pem.bytes())
    draft = options.directory / f".{ADDRESS}"
    ports = [each.getsockname()[1] for each in sockets]
    draft.write_text("\n".join(f"https://{options.host}:{port}" for port in ports), encoding="utf-8")
    draft.replace(options.directory / ADDRESS)
    await proxy.serve(*sockets, server_tls(authority, *({options.host} - {LOOPBACK})))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m devcluster.faults", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="address and CA go here")
    parser.add_argument(
        "--upstream", required=True, action="append", metavar="URL", help="one for each server"
    )
    parser.add_argument("--upstream-ca", type=Path, required=True)
    parser.add_argument("--host", default=LOOPBACK, help="IPv4 address of this machine to listen on")
    parser.add_argument("--key", type=Path, required=True, help="key that tokens are signed with")
    parser.add_argument("--front-proxy", type=Path, help="certificate and key to name users with")
    work = _serve(parser.parse_args())
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


if __name__ == "__main__":
    main()
