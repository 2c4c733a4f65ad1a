"""A shipped policy folder as a function from observation to joint targets."""

import json
from pathlib import Path

import numpy as np
import torch
from export import ARM_JOINTS, STATISTICS, load_weights
from so101.task import Observation
from so101.tokens import tokenize
from vla import Config, Vla


def normalize_state(state: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Map the range seen in training to [-1, 1]; values beyond it are kept."""
    return 2.0 * (state - low) / (high - low) - 1.0


class Policy:
    """Loads ``model.safetensors``, ``config.json`` and ``stats.json`` of a folder."""

    def __init__(self, folder: Path):
        described = json.loads((folder / "config.json").read_text())
        statistics = json.loads((folder / "stats.json").read_text())
        self.config = Config.from_dict(described)
        self.execute_rows = described["execute_rows"]
        self.mean, self.deviation, self.low, self.high = (np.array(statistics[k]) for k in STATISTICS)
        self.model = Vla(self.config).eval()
        load_weights(self.model, folder / "model.safetensors")

    def act(self, seen: Observation, noise: torch.Generator, steps: int | None = None) -> np.ndarray:
        """A chunk of joint targets ``(rows, 6)`` in rad, anchored to ``seen.state``."""
        c = self.config
        tokens, mask = tokenize(seen.instruction, normalize_state(seen.state, self.low, self.high))
        images = torch.from_numpy(seen.images).permute(0, 3, 1, 2).float()[None] / 127.5 - 1.0
        actions = self.model.sample(
            images,
            torch.from_numpy(tokens)[None],
            torch.from_numpy(mask)[None],
            torch.randn(1, c.chunk, c.adim, generator=noise),
            steps or c.steps,
        )[0].numpy()
        actions = actions * self.deviation + self.mean
        actions[:, :ARM_JOINTS] += seen.state[:ARM_JOINTS]
        return actions
