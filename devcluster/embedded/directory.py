"""Names of the files in a control plane's directory: the child process writes them, its parent reads them."""

from typing import Final

KUBECONFIG: Final = "kubeconfig"
"""The administrator's."""
CA: Final = "ca.pem"
KEY: Final = "token.key"
"""Signs bearer tokens; readable by the owner only."""
WRITES: Final = "writes.jsonl"
"""The write log."""
ADDRESS: Final = "address"
"""The URL; written last, when the server answers."""
