"""The pictures of the report, as PNG files. Needs matplotlib and no display."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
from matplotlib.ticker import MaxNLocator  # noqa: E402

from .lockstep import Frame  # noqa: E402
from .stats import percentile  # noqa: E402

_INK, _FIRST, _SECOND, _CONTROL = "#1c2733", "#6fb1e8", "#0b3c66", "#d9541e"
_DPI = 110

plt.rcParams.update(
    {
        "font.size": 10,
        "text.color": _INK,
        "axes.labelcolor": _INK,
        "axes.edgecolor": "#8a96a3",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#e6eaee",
        "axes.axisbelow": True,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "legend.frameon": False,
    }
)


@dataclass(frozen=True)
class ActionTraces:
    """Joint targets around the restore point, one row per control step, rad.

    Attributes:
        names: Joint names, in column order.
        lead_in: Joint positions before the restore point.
        first, second, control: Targets executed after it, in each pass.
        chunk_starts: Control steps after the restore point at which a chunk begins.
        step_s: Simulated seconds per control step.
    """

    names: Sequence[str]
    lead_in: np.ndarray
    first: np.ndarray
    second: np.ndarray
    control: np.ndarray
    chunk_starts: Sequence[int]
    step_s: float


def filmstrip(path: Path, film: Sequence[tuple[int, Frame]], views: Sequence[str], caption: str, step_s: float) -> None:
    """Both camera views over time, as the policy saw them, enlarged.

    Args:
        film: Control step and frame, in order.
        caption: The instruction and what became of it.
    """
    columns = min(len(film), 7)
    chosen = np.unique(np.linspace(0, len(film) - 1, columns).round().astype(int))
    side = 1.55
    figure, axes = plt.subplots(
        len(views), len(chosen), figsize=(side * len(chosen) + 0.7, side * len(views) + 0.85), squeeze=False
    )
    for column, index in enumerate(chosen):
        for row, view in enumerate(views):
            axis = axes[row][column]
            axis.imshow(film[index][1].images[row], interpolation="lanczos")
            axis.set_xticks([])
            axis.set_yticks([])
            axis.grid(False)
            for spine in axis.spines.values():
                spine.set_visible(False)
            if row == 0:
                axis.set_title(f"{film[index][0] * step_s:.1f} s", fontweight="normal", fontsize=9)
            if column == 0:
                axis.set_ylabel(view, fontsize=9)
    figure.suptitle(caption, fontsize=12, fontweight="bold", y=0.985)
    figure.subplots_adjust(left=0.045, right=0.995, top=0.84, bottom=0.015, wspace=0.04, hspace=0.04)
    figure.savefig(path, dpi=_DPI)
    plt.close(figure)


def actions(path: Path, traces: ActionTraces) -> None:
    """Both passes and the control, one panel per joint."""
    figure, axes = plt.subplots(3, 2, figsize=(10.5, 7.6), sharex=True)
    lead_t = (np.arange(len(traces.lead_in)) - len(traces.lead_in) + 1) * traces.step_s

    def times(rows: np.ndarray) -> np.ndarray:
        return (np.arange(len(rows)) + 1) * traces.step_s

    for joint, axis in enumerate(axes.flat):
        for start in traces.chunk_starts:
            axis.axvline(start * traces.step_s, color="#c3ccd4", linewidth=0.8, linestyle=(0, (1, 2)))
        axis.axvline(0, color=_INK, linewidth=1.4, label="capsule restored")
        axis.plot(lead_t, traces.lead_in[:, joint], color="#9aa5b1", linewidth=1.5, label="joint position before")
        axis.plot(times(traces.first), traces.first[:, joint], color=_FIRST, linewidth=4.5, solid_capstyle="round",
                  label="first pass")
        axis.plot(times(traces.control), traces.control[:, joint], color=_CONTROL, linewidth=1.3, marker=".",
                  markersize=4, label="control: noise generator left out")
        axis.plot(times(traces.second), traces.second[:, joint], color=_SECOND, linewidth=1.6, linestyle=(0, (4, 2)),
                  label="second pass, after restore")
        axis.set_title(traces.names[joint].replace("_", " "), loc="left")
        axis.set_ylabel("target (rad)")
        axis.yaxis.set_major_locator(MaxNLocator(5))
    for axis in axes[-1]:
        axis.set_xlabel("simulated time from the restore point (s)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    order = [1, 0, 2, 4, 3]
    figure.legend([handles[i] for i in order], [labels[i] for i in order], loc="upper center", ncol=5,
                  bbox_to_anchor=(0.5, 0.965), fontsize=9.5, columnspacing=1.5, handlelength=1.8)
    title = "Joint targets: the second pass " + ("lies on the first, byte for byte" if _equal(traces) else "DIFFERS from the first")
    figure.suptitle(title, fontsize=13, fontweight="bold", y=0.99).set_in_layout(False)
    figure.tight_layout(rect=(0, 0, 1, 0.93))
    figure.savefig(path, dpi=_DPI)
    plt.close(figure)


def _equal(traces: ActionTraces) -> bool:
    return traces.first.shape == traces.second.shape and bool((traces.first == traces.second).all())


def latency(path: Path, milliseconds: Sequence[float]) -> None:
    """Histogram of the tick latency with p50 and p99."""
    figure, axis = plt.subplots(figsize=(8.6, 3.3))
    p50, p99 = percentile(milliseconds, 50), percentile(milliseconds, 99)
    low, high = min(milliseconds), max(milliseconds)
    pad = max(0.5, 0.05 * (high - low))
    axis.hist(milliseconds, bins=np.linspace(low - pad, high + pad, 41), color=_FIRST, edgecolor="white", linewidth=0.6)
    top = axis.get_ylim()[1]
    axis.set_ylim(0, top * 1.16)
    near = (p99 - p50) < 0.2 * (high - low + 2 * pad)
    for value, name, colour, right in ((p50, "p50", _SECOND, near), (p99, "p99", _CONTROL, False)):
        axis.axvline(value, color=colour, linewidth=1.6)
        right = right or (name == "p99" and value > high - 0.15 * (high - low + 2 * pad) and not near)
        axis.text(value, top * 1.15, f" {name} {value:.1f} ms ", color=colour, ha="right" if right else "left",
                  va="top", fontweight="bold")
    axis.set_xlabel("tick latency, gate to published chunk (ms)")
    axis.set_ylabel("ticks")
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_title(f"Tick latency of policy_node, {len(milliseconds)} ticks", loc="left", fontsize=12)
    figure.tight_layout()
    figure.savefig(path, dpi=_DPI)
    plt.close(figure)
