import json
import os
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from export import export, lerobot_name, load_weights  # noqa: E402
from policy import Policy  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from so101.task import Observation  # noqa: E402
from vla import PRESETS, Config, Vla, flops  # noqa: E402

BUDGET_FLOP = 2.2e9
BUDGET_BYTES = 16 << 20


def relative_error(made, reference) -> float:
    return float((made - reference).norm() / reference.norm())


@pytest.fixture(scope="module")
def golden(repository) -> Path:
    folder = Path(os.environ.get("GOLDEN_PI05") or repository / "test" / "data" / "golden_pi05")
    if not (folder / "golden.safetensors").exists():
        pytest.skip(f"no reference outputs in {folder}; set GOLDEN_PI05")
    return folder


@pytest.mark.parametrize("steps", [1, 4, 10])
def test_actions_equal_the_reference(golden, steps):
    model = Vla(Config.from_dict(json.loads((golden / "config.json").read_text()))).eval()
    load_weights(model, golden / "model.safetensors")
    want = load_file(golden / "golden.safetensors")
    images = torch.stack([want["image0"], want["image1"]], 1)
    made = model.sample(images, want["tokens"].long(), want["token_mask"].bool(), want["noise"], steps)
    assert relative_error(made, want[f"actions_steps{steps}"]) <= 1e-5


def test_padding_does_not_matter():
    torch.manual_seed(0)
    c = PRESETS["toy"]
    model = Vla(c).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.05)
    images, noise = torch.rand(2, 2, 3, c.image, c.image), torch.randn(2, c.chunk, c.adim)
    tokens = torch.randint(1, c.vocab, (2, 16))
    padded = torch.cat([tokens, torch.zeros(2, 2, dtype=torch.long)], 1)
    mask = torch.arange(18)[None].expand(2, -1) < 16
    bare = model.sample(images, tokens, None, noise, 3)
    assert relative_error(model.sample(images, padded, mask, noise, 3), bare) < 1e-5


def statistics(c: Config) -> dict:
    rng = np.random.default_rng(0)
    table = rng.uniform(0.5, 1.5, (2, c.chunk, c.adim)).tolist()
    return {"am": table[0], "asd": table[1], "slo": [-1.0] * c.adim, "shi": [1.5] * c.adim}


def test_export_round_trip(tmp_path):
    torch.manual_seed(0)
    c = PRESETS["toy"]
    model = Vla(c).eval()
    export(tmp_path, model.state_dict(), c, statistics(c), execute_rows=7)
    policy = Policy(tmp_path)
    assert policy.config == c and policy.execute_rows == 7
    for name, tensor in model.state_dict().items():
        assert torch.equal(policy.model.state_dict()[name], tensor), name
    assert all(t.dtype == torch.float32 for t in load_file(tmp_path / "model.safetensors").values())

    images = np.random.default_rng(1).integers(0, 256, (2, c.image, c.image, 3)).astype(np.uint8)
    state = np.linspace(-0.5, 0.5, 6, dtype=np.float32)
    seen = Observation(images, state, "put the cube on the blue pad")
    chunk = policy.act(seen, torch.Generator().manual_seed(3))
    assert chunk.shape == (c.chunk, c.adim)
    assert np.array_equal(chunk, policy.act(seen, torch.Generator().manual_seed(3)))


def test_unknown_tensor_is_refused(tmp_path):
    model = Vla(PRESETS["toy"])
    tensors = {lerobot_name(k): v for k, v in model.state_dict().items()} | {"surplus": torch.zeros(1)}
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(KeyError, match="surplus"):
        load_weights(model, tmp_path / "model.safetensors")


def test_shipped_policy_keeps_its_budget(repository):
    folder = repository / "config" / "so101_policy"
    described = json.loads((folder / "config.json").read_text())
    policy = Policy(folder)
    cost = flops(policy.config, described["num_views"], described["max_prompt_tokens"], policy.config.steps)
    assert cost <= BUDGET_FLOP
    assert (folder / "model.safetensors").stat().st_size <= BUDGET_BYTES
    assert all(torch.isfinite(p).all() for p in policy.model.parameters())
