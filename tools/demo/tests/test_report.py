"""The last line, the page and the pictures, from made-up data."""

import numpy as np
import pytest
from closedloop.lockstep import Frame, compare
from closedloop.report import EpisodeRow, Summary, render


def verdict(control_change=True):
    chunks = [np.full((4, 6), n, np.float32) for n in range(5)]
    return compare(chunks, chunks, [c + control_change for c in chunks])


def summary(**changes):
    made = Summary(
        episodes=[EpisodeRow(1, "put <it> there", True, 60, 8, 6.0, 6.5), EpisodeRow(2, "again", False, 150, 19, 15.0, 16.0)],
        chunks=39, latencies_ms=[10.0, 20.0, 31.26], verdict=verdict(),
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_the_last_line_has_its_exact_form():
    assert summary().last_line() == (
        "demo: episodes=2 success=1 chunks=39 tick_ms_p50=20.0 tick_ms_p99=31.3 restore_exact=true control_differs=true"
    )


def test_a_run_that_did_nothing_still_has_a_last_line():
    assert Summary().last_line() == (
        "demo: episodes=0 success=0 chunks=0 tick_ms_p50=nan tick_ms_p99=nan restore_exact=false control_differs=false"
    )


@pytest.mark.parametrize(
    "changes", [{"verdict": None}, {"verdict": verdict(control_change=False)}, {"episodes": []}, {"bag_exact": False}]
)
def test_each_broken_promise_fails_the_demo(changes):
    assert summary().ok
    assert not summary(**changes).ok


def test_the_page_is_self_contained_and_escaped(tmp_path):
    picture = tmp_path / "p.png"
    picture.write_bytes(b"\x89PNG")
    page = render(summary(pictures=[("Title", picture, "caption")]))
    assert "put &lt;it&gt; there" in page and "<it>" not in page
    assert "data:image/png;base64,iVBORw==" in page and "src='http" not in page
    assert verdict().first in page and "equal" in page


def test_pictures_are_drawn(tmp_path):
    plots = pytest.importorskip("closedloop.plots", reason="matplotlib is in .demo/venv", exc_type=ImportError)
    film = [(4 * n, Frame(n, np.full((2, 8, 8, 3), 20 * n, np.uint8), np.zeros(6, np.float32))) for n in range(9)]
    plots.filmstrip(tmp_path / "film.png", film, ("workspace", "wrist"), "caption", 0.1)
    rows = np.random.default_rng(0).normal(size=(16, 6))
    traces = plots.ActionTraces([f"j{n}" for n in range(6)], rows[:5], rows, rows, rows + 0.1, [0, 8], 0.1)
    plots.actions(tmp_path / "actions.png", traces)
    plots.latency(tmp_path / "latency.png", [3.0])
    assert all((tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG" for name in ("film", "actions", "latency"))
