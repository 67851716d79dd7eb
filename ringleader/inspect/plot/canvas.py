"""Paper, type and files of pictures: figures measured in inches, labels that keep their distance, PNG and SVG.

Owns how matplotlib is used: without a window (Agg), without its global state, and so that the same data give the same
file.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os.path import commonprefix
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kubeio.errors import InputError, KubeError
from ringleader.inspect.plot.palette import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS: Final = ("png", "svg")
DPI: Final = 100
SMALL: Final = 7.5
"""Points of labels."""
ROW: Final = 0.155
"""Inches from one label of this size to the next."""
LETTER: Final = 0.063
"""Inches that a letter of a label takes; a wide one a little more."""
LONGEST: Final = 28
"""Letters of a name that are shown; the middle of a longer one is left out."""
_STYLE: Final[dict[str, Any]] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.parse_math": False,  # a $ in a name is a $
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "ringleader",
}


class NoMatplotlib(KubeError):
    """Nothing can be drawn here."""

    def __init__(self) -> None:
        super().__init__(
            "matplotlib is not installed, and plots are drawn with it; pip install 'ringleader[plot]'"
        )


@contextmanager
def drawing() -> Iterator[None]:
    """Everything about a picture happens in here: its style holds, and nothing is said about letters that a font lacks.

    Raises: NoMatplotlib.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise NoMatplotlib from error
    style: Any = _STYLE  # its keys are not typed as text
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def paper(width: float, height: float) -> Figure:
    """An empty figure of that many inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def sheet(figure: Figure) -> Axes:
    """Axes without lines over the whole of *figure*, in inches from its lower left corner."""
    width, height = figure.get_size_inches()
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    return axes


def place(figure: Figure, left: float, bottom: float, width: float, height: float, **more: Any) -> Axes:
    """Axes at that place, in inches from the lower left corner of *figure*."""
    over, up = figure.get_size_inches()
    return figure.add_axes((left / over, bottom / up, width / over, height / up), **more)


def title(figure: Figure, text: str, remark: str = "") -> None:
    """Heading at the upper left, and a line below it in small type."""
    width, height = figure.get_size_inches()
    figure.text(0.25 / width, (height - 0.3) / height, text, fontsize=12, fontweight="bold", va="center")
    if remark:
        figure.text(0.25 / width, (height - 0.55) / height, remark, fontsize=SMALL, va="center")


def short(name: str) -> str:
    """*name* on one line, at most `LONGEST` letters of it."""
    line = "".join(letter if letter.isprintable() else "?" for letter in name)
    return line if len(line) <= LONGEST else f"{line[:13]}…{line[-14:]}"


def labels(names: Sequence[str]) -> dict[str, str]:
    """What *names* are called in a picture: if some are too long, without the words with which all begin."""
    cut = 0
    if len(names) > 1 and max(map(len, names)) > LONGEST:
        cut = len(commonprefix(list(names)))  # noqa: RUF071 - letter by letter is what is wanted
        while cut and all(name[cut - 1].isalnum() for name in names):  # not within a word or a number
            cut -= 1
    return {name: short(f"…{name[cut:]}" if cut else name) for name in names}


def width_of(texts: Sequence[str]) -> float:
    """Inches that the longest of *texts* takes as a label."""
    return LETTER * max(map(len, texts), default=0)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places near the *wanted* ones (ascending), at least *gap* apart and from *low* to *high*.

    Together they move as little as possible (least squares). Without room for all they reach beyond *high*.
    """
    blocks: list[
        tuple[float, int]
    ] = []  # mean of what is wanted less the gaps before it, and how many share it
    for index, value in enumerate(wanted):
        mean, count = value - index * gap, 1
        while blocks and blocks[-1][0] > mean:
            other, size = blocks.pop()
            mean, count = (mean * count + other * size) / (count + size), count + size
        blocks.append((mean, count))
    highest = max(low, high - gap * (len(wanted) - 1))
    flat = [min(max(mean, low), highest) for mean, count in blocks for _ in range(count)]
    return [place + index * gap for index, place in enumerate(flat)]


def target_of(output: str | None, *, default: str) -> Path:
    """The file to write: `-o` names it, or only its format (png, svg); then, or without it, it is called *default*.

    Raises: InputError for any other ending, or for a folder that does not exist.
    """
    if output is None or output in FORMATS:
        return Path(f"{default}.{output or FORMATS[0]}")
    path = Path(output)
    if path.suffix.removeprefix(".").lower() not in FORMATS:
        raise InputError("-o", output, "is neither png nor svg", "write png, svg, or a file such as ring.svg")
    if not path.parent.is_dir():
        raise InputError("-o", output, f"is in {path.parent}, which is not a folder", "name an existing one")
    return path


def save(figure: Figure, path: Path) -> None:
    """Write *figure*; the ending of *path* says in which format. A PNG has 256 colours: a third of the bytes."""
    if path.suffix.lower() == ".svg":
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": "ringleader"})
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas: Any = FigureCanvasAgg(figure)  # its methods are not typed
    canvas.draw()
    picture = Image.frombuffer("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba())).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(path, format="PNG", optimize=True, dpi=(DPI, DPI))
