"""The network of a cluster's nodes: a bridge on this machine, a cable to each node, routes to their pods.

The machine is 10.N.0.1, node i is 10.N.0.(10 + i), its pods are 10.N.i.0/24. No address is translated between them,
and this machine forwards nothing.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

_FIRST = 88
_CLUSTERS = 8
"""10.88 to 10.95: Services begin at 10.96."""
MOST_NODES = 9


class NetworkFailed(Exception):
    """`ip` refused an order."""


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """The bridge `ringleader<number>` and what hangs on it."""

    number: int

    @property
    def bridge(self) -> str:
        """Name of the bridge, of the cluster's cgroup, and the stem of the cables' names."""
        return f"ringleader{self.number}"

    @property
    def address(self) -> str:
        """This machine's address on the bridge."""
        return f"{self._stem}.0.1"

    def node_address(self, index: int) -> str:
        return f"{self._stem}.0.{10 + index}"

    def pods(self, index: int) -> str:
        """The addresses of a node's pods, as a CIDR."""
        return f"{self._stem}.{index}.0/24"

    @property
    def all_pods(self) -> str:
        return f"{self._stem}.0.0/16"

    @property
    def _stem(self) -> str:
        return f"10.{_FIRST + self.number}"

    def _cable(self, index: int) -> str:
        return f"{self.bridge}-{index}"

    def connect(self, index: int, *, pid: int, others: Sequence[int]) -> None:
        """Lay the cable to node *index*, whose network namespace is that of *pid*; *others* are its peers."""
        cable, inside = self._cable(index), ("nsenter", f"--net=/proc/{pid}/ns/net")
        _run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        _run("ip", "link", "set", cable, "master", self.bridge, "up")
        _run(*inside, "ip", "address", "add", f"{self.node_address(index)}/24", "dev", "eth0")
        _run(*inside, "ip", "link", "set", "eth0", "up")
        for other in others:
            _run(*inside, "ip", "route", "add", self.pods(other), "via", self.node_address(other))
        _run("ip", "route", "replace", self.pods(index), "via", self.node_address(index))

    def cut(self, index: int) -> None:
        """Pull the cable of node *index*: nothing gets in or out, and nothing there ends."""
        _run("ip", "link", "set", self._cable(index), "down")

    def mend(self, index: int) -> None:
        _run("ip", "link", "set", self._cable(index), "up")

    def remove(self) -> None:
        """Remove cables and bridge; what is gone already is no error."""
        for name in [*(self._cable(index) for index in range(1, MOST_NODES + 1)), self.bridge]:
            subprocess.run(["ip", "link", "delete", name], capture_output=True, timeout=30, check=False)


def create_network() -> NodeNetwork:
    """A network of which no other cluster of this machine has the addresses.

    Raises: NetworkFailed if all are taken.
    """
    for number in range(_CLUSTERS):
        network = NodeNetwork(number)
        try:
            _run("ip", "link", "add", network.bridge, "type", "bridge")
        except NetworkFailed as failed:
            if "File exists" not in str(failed):
                raise
            continue
        _run("ip", "address", "add", f"{network.address}/24", "dev", network.bridge)
        _run("ip", "link", "set", network.bridge, "up")
        return network
    raise NetworkFailed(
        f"the bridges ringleader0 to ringleader{_CLUSTERS - 1} are all taken; end a cluster first"
    )


def _run(*command: str) -> None:
    answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if answer.returncode != 0:
        raise NetworkFailed(f"{' '.join(command)}: {answer.stderr.strip()}")
