import numpy as np
import pytest
from so101.tokens import MAX_TOKENS, STATE_OFFSET, WORDS, state_bins, tokenize


def test_bins_cover_the_range_and_clip_beyond_it():
    values = np.array([-2.0, -1.0, -1.0 + 1 / 128 - 1e-9, -1.0 + 1 / 128, 0.0, 1.0 - 1e-9, 1.0, 3.0])
    assert state_bins(values).tolist() == [0, 0, 0, 1, 128, 255, 255, 255]


def test_prompt_layout():
    tokens, mask = tokenize("put the cube on the red pad", np.full(6, -1.0))
    words = ["<bos>", "put", "the", "cube", "on", "the", "red", "pad", "state"]
    expected = [WORDS.index(w) for w in words] + [STATE_OFFSET] * 6 + [WORDS.index("action")]
    assert tokens.tolist() == expected + [0] * (MAX_TOKENS - len(expected))
    assert mask.sum() == len(expected) and mask[: len(expected)].all()


def test_unknown_word_is_refused():
    with pytest.raises(KeyError):
        tokenize("put the ball on the red pad", np.zeros(6))


def test_too_long_prompt_is_refused():
    with pytest.raises(ValueError, match="at most 18"):
        tokenize("put the cube on the red pad on the pad", np.zeros(6))


def test_training_makes_the_same_tokens():
    torch = pytest.importorskip("torch")
    from so101.task import COLORS
    from train import Prompts

    rng = np.random.default_rng(0)
    states = rng.uniform(-1.3, 1.3, (64, 6)).astype(np.float32)
    colors = rng.integers(3, size=64)
    one = torch.ones(6)
    made = Prompts("cpu")(torch.from_numpy(colors), torch.from_numpy(states), -one, one)
    for row, color, state in zip(made, colors, states, strict=True):
        tokens, mask = tokenize(f"put the cube on the {COLORS[color]} pad", state)
        assert row.tolist() == tokens[mask].tolist()
