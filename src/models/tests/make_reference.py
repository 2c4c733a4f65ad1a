"""Reference chunks of the demo policy, computed by PyTorch in float32.

    python src/models/tests/make_reference.py

Runs ``tools/policy/vla.py`` on the weights of ``config/so101_policy`` with made-up
images, states, instructions and noise, and writes ``tests/data/demo_reference.safetensors``.
To be run again whenever those weights change: the test compares their SHA-256.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
FOLDER = REPOSITORY / "config" / "so101_policy"
sys.path.insert(0, str(REPOSITORY / "tools" / "policy"))

from export import lerobot_name  # noqa: E402
from so101.tokens import tokenize  # noqa: E402
from vla import Config, Vla  # noqa: E402

INSTRUCTIONS = ["put the cube on the red pad", "put the cube on the blue pad"]
STEPS = (5, 10)


def load() -> Vla:
    """The demo's network; its file may hold short names or LeRobot's."""
    model = Vla(Config.from_dict(json.loads((FOLDER / "config.json").read_text()))).eval()
    stored = load_file(FOLDER / "model.safetensors")
    names = {name: name if name in stored else lerobot_name(name) for name in model.state_dict()}
    model.load_state_dict({short: stored[name] for short, name in names.items()})
    return model


def main() -> None:
    torch.manual_seed(7)
    torch.set_num_threads(1)
    rng = np.random.default_rng(7)
    model = load()
    c = model.config
    stats = {k: np.array(v) for k, v in json.loads((FOLDER / "stats.json").read_text()).items()}
    anchored = json.loads((FOLDER / "config.json").read_text())["anchor_dims"]
    out = {}
    for case, instruction in enumerate(INSTRUCTIONS):
        # Smooth pictures with noise on top, so that patches differ and edges exist.
        y, x = np.mgrid[0 : c.image, 0 : c.image] / c.image
        waves = [np.sin(7 * x + case), np.cos(5 * y + 2 * case), np.sin(9 * x * y + case)]
        images = np.stack([np.stack([w * (1 - 2 * v) for w in waves], -1) for v in range(2)])
        images = np.clip(127 + 90 * images + rng.normal(0, 12, images.shape), 0, 255).astype(np.uint8)
        state = rng.uniform(stats["slo"] - 0.05, stats["shi"] + 0.05).astype(np.float32)
        # In float32 steps as the Rust side may not do them: this is the float64 form that training used.
        normalized = 2.0 * (state - stats["slo"]) / (stats["shi"] - stats["slo"]) - 1.0
        tokens, mask = tokenize(instruction, normalized)
        noise = torch.randn(1, c.chunk, c.adim)
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float()[None] / 127.5 - 1.0
        out[f"images{case}"] = torch.from_numpy(images)
        out[f"state{case}"] = torch.from_numpy(state)
        out[f"tokens{case}"] = torch.from_numpy(tokens[mask].astype(np.int32))
        out[f"noise{case}"] = noise[0]
        for steps in STEPS:
            raw = model.sample(pixels, torch.from_numpy(tokens)[None], torch.from_numpy(mask)[None], noise, steps)[0]
            actions = raw.numpy() * stats["asd"] + stats["am"]
            actions[:, :anchored] += state[:anchored]
            out[f"raw{case}_steps{steps}"] = raw
            out[f"actions{case}_steps{steps}"] = torch.from_numpy(actions.astype(np.float32))
    digest = hashlib.sha256((FOLDER / "model.safetensors").read_bytes()).hexdigest()
    out["weights_sha256"] = torch.tensor(list(bytes.fromhex(digest)), dtype=torch.uint8)
    target = HERE / "data" / "demo_reference.safetensors"
    target.parent.mkdir(exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in out.items()}, target)
    print(f"{target.relative_to(REPOSITORY)}: {target.stat().st_size} bytes, weights {digest[:16]}")


if __name__ == "__main__":
    main()
