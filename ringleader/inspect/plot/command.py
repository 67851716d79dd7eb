"""`ringleader plot ring|timeline`: reads the numbers, draws the figure and prints the path of its file.

Flags and matplotlib are checked before anything is read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kubeio.errors import InputError
from ring import HashRing
from ringleader.inspect.plot.data import label, read_moments, share_rows, timeline
from ringleader.inspect.plot.figures import FORMATS, draw_ring, draw_timeline, drawing, save
from ringleader.inspect.simulate.object_keys import tell_on_stderr
from ringleader.inspect.simulate.simulation_input import InputFlags, SimulationInput, with_input
from ringleader.output import print_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STDIN: Final = "-"


def plot_ring(flags: InputFlags, *, out: str | None) -> int:
    """Shares beside their bounds. Raises: InputError, FailedAt, NoMatplotlib."""

    async def read(start: SimulationInput) -> tuple[SimulationInput, HashRing]:
        return start, next(iter(start.rings(start.members.weights).values()))

    def draw() -> Figure:
        start, ring = with_input(flags, read, needs_objects=False, is_single=True)
        return draw_ring(share_rows(ring), title=_title(start, ring))

    return _write(draw, out, default=_named("ring", flags.ring))


def _title(start: SimulationInput, ring: HashRing) -> str:
    """Ring, members and bound. Where the ring has other main resources, a note on stderr names them."""
    if start.resource:
        left_out = ", ".join(start.left_out)
        sys.stderr.write(f"note: the ring of {start.resource} is shown; left out: {left_out}\n")
    name = f"Ring {label(start.name)}" if start.name else "Ring"
    of = f"\nof {label(start.resource)}" if start.resource else ""
    members = f"{len(ring):,} members" if len(ring) > 1 else "1 member"
    return f"{name}{of}\n{members}, no share above {1 + float(ring.eps):g} times its even share"


def plot_timeline(ring: str | None, *, file: str, out: str | None) -> int:
    """The moments that *file* holds. Raises: InputError, NoMatplotlib."""

    def draw() -> Figure:
        source = "standard input" if file == STDIN else Path(file).name
        return draw_timeline(timeline(read_moments(_lines(file), ring, source=source, warn=tell_on_stderr)))

    return _write(draw, out, default=_named("timeline", ring))


def _lines(file: str) -> Iterator[bytes]:
    """Lines of *file*; standard input ends with Ctrl-C too, which also ends `status -w` before the pipe."""
    if file == STDIN:
        if sys.stdin.isatty():
            remedy = "name a file, or pipe: ringleader status -w -o json | ringleader plot timeline"
            raise InputError("-f", file, "is a terminal", remedy)
        with suppress(KeyboardInterrupt):
            yield from sys.stdin.buffer
        return
    try:
        with Path(file).open("rb") as stream:
            yield from stream
    except OSError as error:
        remedy = "name a file that ringleader status -w -o json wrote, or - for standard input"
        raise InputError("-f", file, f"cannot be read ({error.strerror})", remedy) from error


def _named(figure: str, ring: str | None) -> str:
    return f"{figure}-{ring}.png" if ring else f"{figure}.png"


def checked_path(out: str) -> Path:
    """The file to write. Raises: InputError for another ending, or a folder that does not exist."""
    path = Path(out)
    if path.suffix.lower() not in FORMATS:
        remedy = f"name a file that ends in {', '.join(FORMATS)}"
        raise InputError("--out", out, "names no format of a figure", remedy)
    if not path.parent.is_dir():
        raise InputError("--out", out, f"is in {path.parent}, which is not a folder", "name an existing one")
    return path


def _write(draw: Callable[[], Figure], out: str | None, *, default: str) -> int:
    path = checked_path(default if out is None else out)
    with drawing():
        save(draw(), path)
    print_line(str(path))
    return 0
