"""The policy's text: a word list, and joint state as 256 bins per joint.

A prompt is ``<bos> put the cube on the red pad state b0 … b5 action``, padded
with ``<pad>``. Bin ``i`` of a joint is token ``STATE_OFFSET + i``.
"""

import numpy as np

WORDS = ["<pad>", "<bos>", "put", "the", "cube", "on", "pad", "red", "green", "blue", "state", "action"]
STATE_OFFSET = 64
STATE_BINS = 256
VOCABULARY = STATE_OFFSET + STATE_BINS
MAX_TOKENS = 18

_ID = {word: i for i, word in enumerate(WORDS)}
# Lower edges of the bins over [-1, 1]; values outside fall in the end bins.
_EDGES = np.linspace(-1.0, 1.0, STATE_BINS + 1)[:-1]


def state_bins(normalized: np.ndarray) -> np.ndarray:
    """Bin of each value of a state normalised to [-1, 1], clipped to 0..255."""
    return np.clip(np.digitize(normalized, _EDGES) - 1, 0, STATE_BINS - 1)


def tokenize(instruction: str, normalized: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and validity mask, each ``MAX_TOKENS`` long.

    Raises:
        KeyError: a word of the instruction is not in ``WORDS``.
        ValueError: the prompt is longer than ``MAX_TOKENS``.
    """
    ids = [_ID["<bos>"], *(_ID[w] for w in instruction.split()), _ID["state"]]
    ids += [STATE_OFFSET + int(b) for b in state_bins(normalized)] + [_ID["action"]]
    if len(ids) > MAX_TOKENS:
        raise ValueError(f"prompt has {len(ids)} tokens, at most {MAX_TOKENS} fit")
    tokens = np.full(MAX_TOKENS, _ID["<pad>"], np.int64)
    tokens[: len(ids)] = ids
    return tokens, np.arange(MAX_TOKENS) < len(ids)
