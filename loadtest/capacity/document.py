"""What a search for capacities found: one JSON document, one table, one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from ringleader.output import Table

_OURS: Final = "#0072B2"
_OTHERS: Final = ("#E69F00", "#009E73", "#CC79A7")  # Okabe-Ito: told apart by all
SHARDED: Final = "sharded"


class Trial(msgspec.Struct, frozen=True):
    """One rate, for one number of replicas."""

    rate_per_s: float
    passed: bool
    failed_lines: list[str]
    """What broke the service level, one sentence each."""
    cores: dict[str, float]
    """Cores used by each group of processes."""
    ready_p99_s: float | None = None
    queue_p99_s: float | None = None
    is_clear: bool = False
    """Whether it failed by so much that it was not tried again."""


class Capacity(msgspec.Struct, frozen=True):
    """The highest rate that *replicas* of *mode* carried."""

    mode: str
    replicas: int
    rate_per_s: float
    cores: dict[str, float]
    """At that rate."""
    trials: list[Trial]
    largest_share: float | None = None
    """Part of the objects that the replica with the most had; None: the fleet does not share them."""

    @property
    def all_cores(self) -> float:
        return sum(self.cores.values())


class CapacityDocument(msgspec.Struct, frozen=True):
    """One search."""

    run: str
    command: str
    target: str
    objects: int
    reconcile_wait_ms: int | None
    """Of the example's controller; None: another one ran."""
    trial_s: float
    slo: dict[str, float]
    capacities: list[Capacity]
    machine: dict[str, Any]
    versions: dict[str, str]
    notices: list[str] = []

    def one_replica(self) -> float | None:
        """What one sharded replica carried; None if that was not measured."""
        return next((c.rate_per_s for c in self.capacities if (c.mode, c.replicas) == (SHARDED, 1)), None)

    def times(self, capacity: Capacity) -> float | None:
        """How many times as much as one replica."""
        one = self.one_replica()
        return capacity.rate_per_s / one if one else None

    @property
    def passed(self) -> bool:
        """Whether each number of replicas carried something."""
        return bool(self.capacities) and all(capacity.rate_per_s > 0 for capacity in self.capacities)

    def table(self) -> Table:
        """A row for each number of replicas."""
        cores = int(self.machine.get("cores", 0))
        return Table(
            ("MODE", "REPLICAS", "RATE", "OF ONE", "LARGEST SHARE", "CORES", "TRIALS"),
            [
                (
                    each.mode,
                    str(each.replicas),
                    f"{each.rate_per_s:.1f}/s",
                    f"{times:.2f}x" if (times := self.times(each)) is not None else "-",
                    f"{each.largest_share:.1%}" if each.largest_share is not None else "-",
                    f"{each.all_cores:.2f} of {cores}" if each.cores else "-",
                    str(len(each.trials)),
                )
                for each in self.capacities
            ],
        )


def draw(document: CapacityDocument, path: Path) -> None:
    """Rate against replicas with the ideal line, the machine's cores beside each point."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    modes = list(dict.fromkeys(each.mode for each in document.capacities))
    colours = {mode: _OURS if mode == SHARDED else _OTHERS[index % 3] for index, mode in enumerate(modes)}
    wait_ms = document.reconcile_wait_ms
    waits = "" if wait_ms is None else f", {wait_ms} ms of waiting in each reconcile"
    one, most = document.one_replica(), max(each.replicas for each in document.capacities)
    if one is not None:
        axes.plot([0, most], [0, one * most], color="#999999", linestyle="--", linewidth=1, label="ideal")
    for mode in modes:
        points = sorted(
            (each for each in document.capacities if each.mode == mode), key=lambda each: each.replicas
        )
        axes.plot(
            [each.replicas for each in points],
            [each.rate_per_s for each in points],
            color=colours[mode],
            marker="o",
            label=mode,
        )
        for each in points:
            axes.annotate(
                f"{each.rate_per_s:.0f}/s, {each.all_cores:.1f} cores",
                (each.replicas, each.rate_per_s),
                xytext=(6, -12),
                textcoords="offset points",
                fontsize=8,
            )
    axes.set(
        title=f"{document.objects:,} objects{waits}",
        xlabel="replicas",
        ylabel="operations per second within the service level",
        xlim=(0, most + 0.7),
    )
    axes.set_ylim(bottom=0)
    axes.set_xticks(range(most + 1))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
