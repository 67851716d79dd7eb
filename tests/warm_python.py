"""A Python whose commands need no imports: `python -m ringleader ...` is a fork of one process that has them all.

A command of ours takes 0.45 s of CPU, 0.3 s of them for imports, and tests start hundreds. `warm_python` gives an
executable that takes the words of `python`. It hands words, folder, environment and open files to the process of
`main`, whose fork runs the module: a process with a session, a memory and an exit code of its own. It passes signals
on, and is ended with its fork. What a fork cannot show starts cold: another program than ours, another setting of
Python, a closed stream. A test that looks at a process (its memory, parent) takes `sys.executable`; the number of the
fork is written to the file that WARM_PYTHON_PID names.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import marshal
import os
import pkgutil
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

PROGRAMS: Final = ("ringleader", "ringleader.kubectl_complete", "sharder", "shard_controller")
IMPORTED: Final = ("kubeio", "ring", "sharder", "shard_controller", "devcluster", "ringleader")
LATE: Final = ("typer._adapters", "loadtest.command")
"""What typer imports when it reads the first option, and the command above `ringleader`."""
_FREE: Final = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
"""Settings of Python that need no process of their own; the first is obeyed."""
_STUB: Final = """#!{python} -IS
import marshal, os, signal, sys
import _socket
PYTHON, SERVER, PROGRAMS, SETTINGS, FREE = {values}
words = sys.argv[1:]
if os.path.basename(sys.argv[0]) == "ringleader":
    words = ["-m", "ringleader", *words]
settings = {{k: v for k, v in os.environ.items() if k.startswith(("PYTHON", "LANG", "LC_")) and k not in FREE}}
at = words.index("-m") if "-m" in words[:2] else None
warm = settings == SETTINGS and at is not None and words[:at] in ([], ["-P"]) and words[at + 1:at + 2] != []
warm = warm and words[at + 1] in PROGRAMS and None not in (sys.stdin, sys.stdout, sys.stderr)
if not warm:
    os.execv(PYTHON, [PYTHON, *words])
child, early = 0, []
def forward(number, frame):
    if child:
        os.kill(child, number)
    else:
        early.append(number)
ignored = [n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_IGN]
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
    if number not in ignored:
        signal.signal(number, forward)
link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
link.connect(SERVER)
order = marshal.dumps((words[at + 1:], at == 0, os.getcwd(), dict(os.environ), [int(n) for n in ignored]))
files = b"".join(n.to_bytes(4, sys.byteorder) for n in (0, 1, 2))
link.sendmsg([len(order).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
link.sendall(order)
answer = link.recv(4, _socket.MSG_WAITALL)
if not answer:
    sys.exit("the warm Python has ended")
child = int.from_bytes(answer, "big")
if os.environ.get("WARM_PYTHON_PID"):
    with open(os.environ["WARM_PYTHON_PID"] + ".new", "w") as file:
        file.write(str(child))
    os.rename(file.name, os.environ["WARM_PYTHON_PID"])
for number in early:
    os.kill(child, number)
code = int.from_bytes(link.recv(4, _socket.MSG_WAITALL), "big", signed=True)
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@cache
def warm_python(**settings: str) -> str:
    """The executable, with `ringleader` beside it; *settings*: of Python, in the commands' environment beside ours."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    environment = {**os.environ, **settings}
    told = {
        k: v for k, v in environment.items() if k.startswith(("PYTHON", "LANG", "LC_")) and k not in _FREE
    }
    values = (sys.executable, str(folder / "socket"), PROGRAMS, told, _FREE)
    for name in ("python", "ringleader"):
        (folder / name).write_text(_STUB.format(python=sys.executable, values=repr(values)))
        (folder / name).chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(values[1])
        listening.listen(64)
        number = listening.fileno()
        server = subprocess.Popen(
            [sys.executable, "-P", __file__, str(number)],
            stdin=subprocess.PIPE,
            pass_fds=[number],
            env=environment,
            start_new_session=True,
        )
    atexit.register(shutil.rmtree, folder)
    atexit.register(server.communicate)  # closes its standard input: it ends, and all that it runs
    return str(folder / "python")


class _Server:
    """The forks that run, by the connection that asked for them."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._selector.register(0, selectors.EVENT_READ)
        self._ended, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(self._ended, selectors.EVENT_READ)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)
        self._wake = wake
        self._running: dict[int, socket.socket] = {}

    def serve(self) -> tuple[list[str], bool]:
        """Serve until standard input closes, then end. In a fork: the words to run, and whether the folder counts."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listening:
                    if (order := self._fork()) is not None:
                        return order
                elif key.fileobj == 0:
                    for child in self._running:
                        self._kill(child)
                    sys.exit()
                elif key.fileobj == self._ended:
                    os.read(self._ended, 4096)
                    self._reap()
                elif key.data in self._running:  # the one who asked is gone
                    self._selector.unregister(key.fileobj)
                    self._kill(key.data)

    def _fork(self) -> tuple[list[str], bool] | None:
        link, _ = self._listening.accept()
        head, files, _, _ = socket.recv_fds(link, 4, 3)
        order = marshal.loads(link.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
        if child := os.fork():
            for file in files:
                os.close(file)
            link.sendall(child.to_bytes(4, "big"))
            self._running[child] = link
            self._selector.register(link, selectors.EVENT_READ, child)
            return None
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for other in (self._listening, link, *self._running.values()):
            other.close()
        os.close(self._ended)
        os.close(self._wake)
        return _become(order, files)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                link = self._running.pop(ended[0])
                with suppress(KeyError):
                    self._selector.unregister(link)
                with suppress(OSError), link:
                    link.sendall(os.waitstatus_to_exitcode(ended[1]).to_bytes(4, "big", signed=True))

    def _kill(self, child: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)


def _become(order: Any, files: list[int]) -> tuple[list[str], bool]:
    words, counts, folder, environment, ignored = order
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    at_once = "PYTHONUNBUFFERED" in environment
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 # to the end
    sys.stdout = _writer(1, sys.stdout, at_once)
    sys.stderr = _writer(2, sys.stderr, at_once)
    return words, counts


def _writer(file: int, like: Any, at_once: bool) -> io.TextIOWrapper:
    buffer = open(file, "wb", closefd=False)  # noqa: SIM115 # to the end
    lines = file == 2 or os.isatty(file)
    return io.TextIOWrapper(
        buffer, encoding=like.encoding, errors=like.errors, line_buffering=lines, write_through=at_once
    )


def import_all() -> None:
    """Import every module of ours but the commands themselves."""
    for late in LATE:
        importlib.import_module(late)
    for package in map(importlib.import_module, IMPORTED):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not module.name.endswith("__main__") and module.name not in PROGRAMS:
                importlib.import_module(module.name)
    for program in PROGRAMS:
        sys.modules.pop(f"{program}.__main__", None)  # runpy warns of a module that is there before it runs


def main() -> None:
    import_all()
    assert threading.active_count() == 1
    server = _Server(socket.socket(fileno=int(sys.argv[1])))
    gc.collect()
    gc.freeze()
    words, counts = server.serve()
    if counts:
        sys.path.insert(0, str(Path.cwd()))
    sys.argv = words
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, int):
            _end(end.code)
        raise


def _end(code: int) -> None:
    """End as the interpreter does, but keep the modules: to take them apart is 0.05 s of CPU."""
    threading._shutdown()  # type: ignore[attr-defined] # waits for the threads
    atexit._run_exitfuncs()
    gc.collect()  # warns of what was not closed
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
