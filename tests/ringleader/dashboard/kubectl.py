"""Stand-in for `kubectl port-forward`: forwards TCP to a port that a file names, without a kubelet.

The real kubectl asks the API server to stream to a kubelet, which no control plane of these tests has. KUBECTL_STAND_IN
names a folder; its file NAME holds the port that pod/NAME listens on. The words, KUBECONFIG and process id of each call
go to `calls.jsonl` there. It ends when the pod is gone, as kubectl does.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from pathlib import Path


async def main(words: list[str]) -> int:
    folder = Path(os.environ["KUBECTL_STAND_IN"])
    seen = {"words": words, "kubeconfig": os.environ.get("KUBECONFIG"), "pid": os.getpid()}
    with (folder / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps(seen) + "\n")
    name = next(word.removeprefix("pod/") for word in words if word.startswith("pod/"))
    port = next(word for word in words if word.startswith(":"))
    file = folder / name
    if not file.exists():
        print(f'Error from server (NotFound): pods "{name}" not found', file=sys.stderr)
        return 1
    gone = asyncio.Event()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        print(f"Handling connection for {own}", flush=True)
        try:
            there, to = await asyncio.open_connection("127.0.0.1", int(file.read_text()))
        except OSError:
            writer.close()
            gone.set()
            return
        await asyncio.gather(pump(reader, to), pump(there, writer))

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    own = server.sockets[0].getsockname()[1]
    print(f"Forwarding from 127.0.0.1:{own} -> {port[1:]}", flush=True)
    await gone.wait()
    print("error: lost connection to pod", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
