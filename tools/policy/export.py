"""The shipped form of a policy: LeRobot tensor names, config and statistics.

    python export.py --folder ../../config/so101_policy     # check and describe
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from so101.tokens import MAX_TOKENS, WORDS
from vla import Config, Vla, flops

NUM_VIEWS = 2
# The first columns of an action are offsets from the state that the policy saw; the gripper is absolute.
ARM_JOINTS = 5
STATISTICS = ("am", "asd", "slo", "shi")

_VLM = "paligemma_with_expert.paligemma.model."
_EXPERT = "paligemma_with_expert.gemma_expert.model."
_VISION = _VLM + "vision_tower.vision_model."
# Short prefix → LeRobot prefix. Names that match none are the same in both.
_PREFIXES = {
    "patch.": _VISION + "embeddings.patch_embedding.",
    "vl.": _VISION + "encoder.layers.",
    "vnorm.": _VISION + "post_layernorm.",
    "proj.": _VLM + "multi_modal_projector.linear.",
    "embed.": _VLM + "language_model.embed_tokens.",
    "lm.": _VLM + "language_model.layers.",
    "lmnorm.": _VLM + "language_model.norm.",
    "ex.": _EXPERT + "layers.",
    "exnorm.": _EXPERT + "norm.",
}


def lerobot_name(name: str) -> str:
    """LeRobot's name of a tensor of ``Vla``."""
    if name == "pos":
        return _VISION + "embeddings.position_embedding.weight"
    for short, long in _PREFIXES.items():
        if name.startswith(short):
            return long + name[len(short) :]
    return name


def load_weights(model: Vla, path: Path) -> None:
    """Load a file with LeRobot's names; every tensor must be there and no other."""
    stored = load_file(path)
    short = {lerobot_name(name): name for name in model.state_dict()}
    unknown = sorted(set(stored) - set(short))
    if unknown:
        raise KeyError(f"{path}: unexpected tensor {unknown[0]}")
    model.load_state_dict({short[name]: tensor for name, tensor in stored.items()})


def export(folder: Path, weights: dict, config: Config, statistics: dict, execute_rows: int) -> None:
    """Write ``model.safetensors``, ``config.json`` and ``stats.json``.

    Args:
        weights: ``Vla.state_dict()`` of the weights to ship.
        statistics: Lists ``am`` and ``asd`` (chunk row × joint) and ``slo``, ``shi`` (joint).
        execute_rows: Rows of a chunk to execute before the next one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {lerobot_name(k): v.detach().float().cpu().contiguous() for k, v in weights.items()}
    described = config.to_dict() | {
        "num_views": NUM_VIEWS,
        "max_prompt_tokens": MAX_TOKENS,
        "anchor_dims": ARM_JOINTS,
        "words": WORDS,
        "execute_rows": execute_rows,
    }
    (folder / "config.json").write_text(json.dumps(described, indent=2) + "\n")
    (folder / "stats.json").write_text(json.dumps({k: statistics[k] for k in STATISTICS}) + "\n")
    # Last and by rename: a reader that sees new weights sees their config too.
    partial = folder / ".model.safetensors.partial"
    save_file(tensors, partial)
    partial.rename(folder / "model.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    args = parser.parse_args()
    config = Config.from_dict(json.loads((args.folder / "config.json").read_text()))
    model = Vla(config)
    load_weights(model, args.folder / "model.safetensors")
    finite = all(torch.isfinite(p).all() for p in model.parameters())
    print(f"parameters {sum(p.numel() for p in model.parameters())}, finite {finite}")
    print(f"file {(args.folder / 'model.safetensors').stat().st_size} bytes")
    for steps in (5, 10):
        print(f"one tick, {steps} flow steps: {flops(config, NUM_VIEWS, MAX_TOKENS, steps) / 1e9:.3f} GFLOP")


if __name__ == "__main__":
    main()
