"""The report of a run: one HTML file with everything in it, and the last line."""

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .lockstep import Verdict
from .stats import percentile


@dataclass(frozen=True)
class EpisodeRow:
    """One line of the table of episodes."""

    seed: int
    instruction: str
    success: bool
    steps: int
    chunks: int
    simulated_s: float
    wall_s: float
    note: str = ""


@dataclass
class Summary:
    """Everything that the last line and the report say.

    Attributes:
        episodes: What became of each.
        chunks: Action chunks received in the whole run.
        latencies_ms: Latency of every accepted tick.
        verdict: Of the restore check; None if it did not come to one.
        facts: Name and value of what ran, for the report.
        pictures: Title, file and caption of each picture, in order.
        bag_exact: With ``--record``: both replays gave the live bytes.
    """

    episodes: list[EpisodeRow] = field(default_factory=list)
    chunks: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    verdict: Verdict | None = None
    facts: list[tuple[str, str]] = field(default_factory=list)
    pictures: list[tuple[str, Path, str]] = field(default_factory=list)
    bag_exact: bool | None = None

    @property
    def successes(self) -> int:
        """Solved episodes."""
        return sum(row.success for row in self.episodes)

    @property
    def ok(self) -> bool:
        """Whether the demo did what it promises."""
        verdict = self.verdict
        return (
            verdict is not None
            and verdict.restore_exact
            and verdict.control_differs
            and self.successes > 0
            and self.bag_exact is not False
        )

    def last_line(self) -> str:
        """The demo's last line of output."""
        exact = self.verdict is not None and self.verdict.restore_exact
        differs = self.verdict is not None and self.verdict.control_differs
        return (
            f"demo: episodes={len(self.episodes)} success={self.successes} chunks={self.chunks}"
            f" tick_ms_p50={percentile(self.latencies_ms, 50):.1f} tick_ms_p99={percentile(self.latencies_ms, 99):.1f}"
            f" restore_exact={_flag(exact)} control_differs={_flag(differs)}"
        )


def _flag(value: bool) -> str:
    return "true" if value else "false"


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2733; max-width: 1060px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p.lead { color: #4a5764; margin-top: 0; } figure { margin: 1rem 0; } img { max-width: 100%; }
figcaption { color: #4a5764; font-size: .9rem; } code { font-size: .82rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .3rem .7rem .3rem 0; }
th { border-bottom: 2px solid #c3ccd4; font-weight: 600; } td { border-bottom: 1px solid #e6eaee; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } .good { color: #14713d; font-weight: 600; }
.bad { color: #b3261e; font-weight: 600; }
"""


def render(summary: Summary) -> str:
    """The report as one self-contained HTML page."""
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>flashrt_ros demo</title>",
        f"<style>{_STYLE}</style>",
        "<h1>flashrt_ros demo</h1>",
        "<p class='lead'>A simulated SO-101 arm with two cameras and an instruction, driven by policy_node over DDS.</p>",
        f"<p><code>{html.escape(summary.last_line())}</code></p>",
        _verdict(summary),
        _pictures(summary.pictures),
        _episodes(summary.episodes),
        _facts(summary.facts),
        "</html>\n",
    ]
    return "\n".join(parts)


def _mark(good: bool, yes: str, no: str) -> str:
    return f"<span class='{'good' if good else 'bad'}'>{yes if good else no}</span>"


def _verdict(summary: Summary) -> str:
    verdict = summary.verdict
    out = "<h2>Restore</h2>"
    if verdict is None:
        return out + "<p class='bad'>The restore check did not come to a result.</p>"
    rows = [
        ("first pass", verdict.first, f"{verdict.compared} chunks"),
        ("second pass, after restore", verdict.second, _mark(verdict.restore_exact, "equal", "DIFFERENT or too few")),
        ("control, noise generator left out", verdict.control,
         _mark(verdict.control_differs, "differs, as it must", "DOES NOT DIFFER")),
    ]
    out += "<table><tr><th>raw chunk data</th><th>SHA-256</th><th></th></tr>"
    out += "".join(f"<tr><td>{name}</td><td><code>{sha}</code></td><td>{say}</td></tr>" for name, sha, say in rows)
    out += "</table>"
    if verdict.frames_compared:
        out += (f"<p>The simulator, put back with the capsule and driven by the second pass, showed "
                f"{verdict.frames_equal} of {verdict.frames_compared} frames byte for byte as in the first.</p>")
    if summary.bag_exact is not None:
        out += f"<p>Recorded bag replayed twice without DDS: {_mark(summary.bag_exact, 'same bytes', 'DIFFERENT BYTES')}.</p>"
    return out


def _pictures(pictures: Sequence[tuple[str, Path, str]]) -> str:
    out = []
    for title, path, caption in pictures:
        data = base64.b64encode(path.read_bytes()).decode()
        out.append(f"<h2>{html.escape(title)}</h2><figure><img alt='{html.escape(title)}' src='data:image/png;base64,{data}'>"
                   f"<figcaption>{html.escape(caption)}</figcaption></figure>")
    return "\n".join(out)


def _episodes(rows: Sequence[EpisodeRow]) -> str:
    out = ["<h2>Episodes</h2><table><tr><th class='n'>seed</th><th>instruction</th><th>result</th><th class='n'>steps</th>"
           "<th class='n'>chunks</th><th class='n'>simulated (s)</th><th class='n'>wall (s)</th><th></th></tr>"]
    for row in rows:
        out.append(
            f"<tr><td class='n'>{row.seed}</td><td>{html.escape(row.instruction)}</td>"
            f"<td>{_mark(row.success, 'solved', 'not solved')}</td><td class='n'>{row.steps}</td><td class='n'>{row.chunks}</td>"
            f"<td class='n'>{row.simulated_s:.1f}</td><td class='n'>{row.wall_s:.1f}</td><td>{html.escape(row.note)}</td></tr>"
        )
    return "".join(out) + "</table>"


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<tr><td>{html.escape(k)}</td><td><code>{html.escape(v)}</code></td></tr>" for k, v in facts)
    return f"<h2>What ran</h2><table>{rows}</table>"
