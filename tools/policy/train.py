"""Train the policy: first to see, then to act.

Stage 1 pretrains the prefix on still scenes to predict where cube and goal are.
Stage 2 clones the expert by flow matching, with the same prediction as a second
loss. Demonstrations may still arrive during stage 1, corrections during stage 2.
The moving average of the weights is exported again and again to ``OUT/latest`` in
the shipped form, at the end to ``OUT/final``. A second cycle at a lower rate ends
in ``OUT/polished``.

    python train.py --data data --out run --minutes 6.9 --polish-minutes 4.2
"""

import argparse
import json
import math
import threading
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from export import STATISTICS, export, load_weights
from policy import ARM_JOINTS, normalize_state
from shards import CHUNK_ROWS
from so101.task import COLORS
from so101.tokens import tokenize
from torch import Tensor, nn
from vla import PRESETS, Config, Vla

AUX_CENTER = (0.225, 0.0, 0.03, 0.225, 0.0)
AUX_SCALE = (0.045, 0.06, 0.03, 0.045, 0.06)
AUX_WEIGHT = 0.3
ACTION_CLIP = 5.0
EMA_DECAY = 0.999
EXECUTE_ROWS = 8
VALIDATION_FRAMES = 2048


class Pool:
    """Frames of one kind in the memory of the training device.

    ``add`` may run in another thread: rows below ``count`` never change. Rows below
    ``first`` are held out of training.
    """

    def __init__(self, capacity: int, image_size: int, device: str):
        self.first, self.count, self.capacity, self.device = 0, 0, capacity, device
        self.images = torch.empty(capacity, 2, image_size, image_size, 3, dtype=torch.uint8, device=device)
        self.states = torch.empty(capacity, 6, device=device)
        self.aux = torch.empty(capacity, 5, device=device)
        self.colors = torch.empty(capacity, dtype=torch.int64, device=device)
        self.chunks = torch.empty(capacity, CHUNK_ROWS, 6, device=device)

    def rows(self, n: int, held_out: bool = False) -> dict[str, Tensor]:
        """Random frames."""
        low, high = (0, self.first) if held_out else (self.first, self.count)
        i = torch.randint(low, high, (n,), device=self.device)
        return {k: getattr(self, k)[i] for k in ("images", "states", "aux", "colors", "chunks")}

    def add(self, path: Path) -> None:
        with np.load(path) as shard:
            n = min(len(shard["states"]), self.capacity - self.count)
            rows = slice(self.count, self.count + n)
            for name in shard.files:
                getattr(self, name)[rows] = torch.from_numpy(shard[name][:n]).to(self.device)
        self.count += n


class Feed(threading.Thread):
    """Moves new shards of a folder into a pool, in the background."""

    def __init__(self, folder: Path, pool: Pool):
        super().__init__(daemon=True)
        self.folder, self.pool, self.taken = folder, pool, set()

    def run(self) -> None:
        while True:
            for path in sorted(set(self.folder.glob("*.npz")) - self.taken):
                if self.pool.count < self.pool.capacity:
                    self.pool.add(path)
                self.taken.add(path)
            time.sleep(1)

    def wait_for(self, done: Path) -> None:
        """Return once the file ``done`` exists and every shard was taken."""
        while not (done.exists() and self.taken.issuperset(self.folder.glob("*.npz"))):
            time.sleep(1)


class Statistics:
    """State range from the still scenes, action mean and deviation from demonstrations."""

    def __init__(self, low: Tensor, high: Tensor):
        self.low, self.high = low, high
        self.mean = self.deviation = torch.empty(0)

    @classmethod
    def shipped_in(cls, folder: Path, device: str) -> "Statistics":
        """Those of a policy that training goes on from."""
        stored = json.loads((folder / "stats.json").read_text())
        mean, deviation, low, high = (torch.tensor(stored[k], device=device) for k in STATISTICS)
        made = cls(low, high)
        made.mean, made.deviation = mean, deviation
        return made

    def measure_actions(self, demos: Pool) -> None:
        """Per-row statistics, so that near rows keep their precision."""
        deltas = demos.chunks[: demos.count].clone()
        deltas[..., :ARM_JOINTS] -= demos.states[: demos.count, None, :ARM_JOINTS]
        self.mean, self.deviation = deltas.mean(0), deltas.std(0) + 1e-3

    def actions(self, chunks: Tensor, states: Tensor) -> Tensor:
        """The network's target for absolute joint targets."""
        deltas = chunks.clone()
        deltas[..., :ARM_JOINTS] -= states[:, None, :ARM_JOINTS]
        return ((deltas - self.mean) / self.deviation).clamp(-ACTION_CLIP, ACTION_CLIP)

    def shipped(self) -> dict:
        return {
            "am": self.mean.tolist(),
            "asd": self.deviation.tolist(),
            "slo": self.low.tolist(),
            "shi": self.high.tolist(),
        }


class Prompts:
    """``tokens.tokenize`` on the training device, without padding.

    Every instruction of the task is equally long, so the padding can be left out
    and attention needs no mask.
    """

    def __init__(self, device: str):
        rows, length = [], None
        for color in COLORS:
            tokens, mask = tokenize(f"put the cube on the {color} pad", np.zeros(6))
            assert length in (None, mask.sum())
            length = int(mask.sum())
            rows.append(tokens[:length])
        self.template = torch.tensor(np.stack(rows), device=device)
        self.length = length

    def __call__(self, colors: Tensor, states: Tensor, low: Tensor, high: Tensor) -> Tensor:
        bins = torch.floor((normalize_state(states, low, high) + 1.0) * 128.0).clamp(0, 255).long()
        tokens = self.template[colors].clone()
        tokens[:, -7:-1] = 64 + bins
        return tokens


class Learner(nn.Module):
    """The policy with the head for the second loss; both losses in one pass."""

    def __init__(self, config: Config):
        super().__init__()
        self.policy = Vla(config)
        w = config.width
        self.head = nn.Sequential(nn.Linear(w, w), nn.GELU(), nn.Linear(w, len(AUX_CENTER)))

    def where(self, images: Tensor, tokens: Tensor) -> Tensor:
        """Predicted positions, read from the prompt's last token."""
        return self.head(self.policy.prefix(images, tokens, output=True).output[:, -1])

    def forward(self, images: Tensor, tokens: Tensor, x_t: Tensor, t: Tensor, draws: int) -> tuple[Tensor, Tensor]:
        prefix = self.policy.prefix(images, tokens, output=True)
        return self.policy.velocity(prefix, x_t, t, draws), self.head(prefix.output[:, -1])


def prepare_images(raw: Tensor, augment: bool) -> Tensor:
    """u8 ``(b, view, h, w, 3)`` to [-1, 1] ``(b, view, 3, h, w)``, with colour noise.

    There is no shift: the camera is fixed and its pixels are the measurement.
    """
    x = raw.permute(0, 1, 4, 2, 3).float() / 127.5 - 1.0
    if augment:
        per_view = (x.shape[0], x.shape[1], 3, 1, 1)
        x = x * (1 + 0.2 * (torch.rand(per_view, device=x.device) - 0.5))
        x = x + 0.2 * (torch.rand(per_view, device=x.device) - 0.5) + 0.03 * torch.randn_like(x)
    return x.contiguous()


class Trainer:
    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.manual_seed(args.seed)
        torch.set_float32_matmul_precision("high")
        self.config = PRESETS[args.size]
        size = self.config.image
        self.static = Pool(args.static_capacity, size, self.device)
        self.demos = Pool(args.demo_capacity, size, self.device)
        self.corrections = Pool(args.correction_capacity, size, self.device)
        self.prompts = Prompts(self.device)
        self.learner = Learner(self.config).to(self.device)
        self.average = {k: v.detach().clone() for k, v in self.learner.policy.state_dict().items()}
        self.statistics: Statistics | None = None
        compiled = torch.compile if self.device == "cuda" else (lambda f, **_: f)
        self.where = compiled(self.learner.where, dynamic=False)
        self.both = compiled(self.learner, dynamic=False)
        self.prepare = compiled(prepare_images, dynamic=False)
        self.aux_center = torch.tensor(AUX_CENTER, device=self.device)
        self.aux_scale = torch.tensor(AUX_SCALE, device=self.device)
        self.log = open(args.out / "train.jsonl", "a")

    # Data

    def mixed(self, n: int) -> dict[str, Tensor]:
        """Demonstrations, and corrections in growing share as they come in."""
        have = self.corrections.count / max(1, self.demos.count)
        m = int(n * min(self.args.correction_share, have))
        parts = [self.demos.rows(n - m)] + ([self.corrections.rows(m)] if m else [])
        return {k: torch.cat([p[k] for p in parts]) for k in parts[0]}

    # Losses

    def aux_loss(self, predicted: Tensor, truth: Tensor) -> Tensor:
        return F.mse_loss(predicted.float(), (truth - self.aux_center) / self.aux_scale)

    def see_loss(self, batch: dict, augment: bool = True) -> Tensor:
        s = self.statistics
        tokens = self.prompts(batch["colors"], batch["states"], s.low, s.high)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            predicted = self.where(self.prepare(batch["images"], augment), tokens)
        return self.aux_loss(predicted, batch["aux"])

    def act_losses(self, batch: dict, augment: bool = True) -> tuple[Tensor, Tensor]:
        s, draws = self.statistics, self.args.draws
        tokens = self.prompts(batch["colors"], batch["states"], s.low, s.high)
        actions = s.actions(batch["chunks"], batch["states"]).repeat_interleave(draws, 0)
        noise = torch.randn_like(actions)
        # Beta(1.5, 1) on (0.001, 1]: more weight on noisy times.
        t = torch.rand(len(actions), device=self.device) ** (1 / 1.5) * 0.999 + 0.001
        mix = t[:, None, None]
        x_t = mix * noise + (1 - mix) * actions
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            velocity, where = self.both(self.prepare(batch["images"], augment), tokens, x_t, t, draws)
        return F.mse_loss(velocity.float(), noise - actions), self.aux_loss(where, batch["aux"])

    # Loop

    def stage(self, name: str, minutes: float, rate: float, losses, validate, on_tick=lambda progress: None) -> None:
        """Train for a wall-clock time with a cosine schedule.

        ``losses`` returns (total, *to report).
        """
        params = list(self.learner.parameters())
        optimizer = torch.optim.AdamW(
            params, lr=rate, weight_decay=1e-3, betas=(0.9, 0.95), fused=self.device == "cuda"
        )
        losses()[0].backward()  # compiles before the clock starts
        start, step, smooth = time.monotonic(), 0, None
        source = self.learner.policy.state_dict()
        keys = list(self.average)
        for k in keys:
            self.average[k].copy_(source[k])
        while (progress := (time.monotonic() - start) / (minutes * 60)) < 1:
            warm = min(1.0, (step + 1) / self.args.warmup)
            for group in optimizer.param_groups:
                group["lr"] = rate * warm * (0.98 * 0.5 * (1 + math.cos(math.pi * progress)) + 0.02)
            total, *reported = losses()
            optimizer.zero_grad(set_to_none=True)
            total.backward()
            nn.utils.clip_grad_norm_(params, 1.0)
            optimizer.step()
            decay = min(EMA_DECAY, (1 + step) / (10 + step))
            with torch.no_grad():
                torch._foreach_lerp_([self.average[k] for k in keys], [source[k] for k in keys], 1 - decay)
            values = torch.stack([r.detach() for r in reported])
            smooth = values if smooth is None else 0.98 * smooth + 0.02 * values
            step += 1
            if step % self.args.report_every == 0:
                self.report(name, step, time.monotonic() - start, smooth.tolist(), validate())
                on_tick(progress)
        self.report(name, step, time.monotonic() - start, smooth.tolist(), validate())

    def report(self, stage: str, step: int, seconds: float, train: list, held_out: list) -> None:
        line = {
            "stage": stage,
            "step": step,
            "seconds": round(seconds, 1),
            "train": [round(v, 4) for v in train],
            "held_out": [round(v, 4) for v in held_out],
            "static": self.static.count,
            "demos": self.demos.count,
            "corrections": self.corrections.count,
        }
        print(json.dumps(line), file=self.log, flush=True)

    @torch.no_grad()
    def validate_act(self) -> list:
        """Losses on demonstrations that training never sees."""
        n = self.args.batch
        return [float(v) for v in self.act_losses(self.demos.rows(n, held_out=True), augment=False)]

    def save(self, name: str) -> None:
        statistics = self.statistics.shipped()
        export(self.args.out / name, self.average, self.config, statistics, EXECUTE_ROWS)

    def run(self) -> None:
        args = self.args
        demo_feed = Feed(args.data / "demos", self.demos)
        if args.init:
            load_weights(self.learner.policy, args.init / "model.safetensors")
            self.statistics = Statistics.shipped_in(args.init, self.device)
            demo_feed.start()
            demo_feed.wait_for(args.data / "demos.done")
        else:
            static_feed = Feed(args.data / "static", self.static)
            static_feed.start()
            static_feed.wait_for(args.data / "static.done")
            low, high = self.static.states[: self.static.count].aminmax(dim=0)
            self.statistics = Statistics(low, high)
            demo_feed.start()

            def see():
                loss = self.see_loss(self.static.rows(args.batch))
                return loss, loss

            self.stage("see", args.pretrain_minutes, args.pretrain_rate, see, lambda: [])
            demo_feed.wait_for(args.data / "demos.done")
            self.statistics.measure_actions(self.demos)
        self.demos.first = min(VALIDATION_FRAMES, self.demos.count // 10)
        Feed(args.data / "corrections", self.corrections).start()
        last_save = time.monotonic()

        def act():
            flow, where = self.act_losses(self.mixed(args.batch))
            return flow + AUX_WEIGHT * where, flow, where

        def on_tick(progress: float) -> None:
            nonlocal last_save
            if progress > args.first_export and time.monotonic() - last_save > args.export_seconds:
                self.save("latest")
                last_save = time.monotonic()

        self.stage("act", args.minutes, args.rate, act, self.validate_act, on_tick)
        self.save("final")
        if args.polish_minutes:
            self.stage("polish", args.polish_minutes, args.polish_rate, act, self.validate_act, on_tick)
            self.save("polished")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, help="static/, demos/, corrections/ and marks static.done, demos.done"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", choices=PRESETS, default="large")
    parser.add_argument("--pretrain-minutes", type=float, default=0.6)
    parser.add_argument("--minutes", type=float, default=6.9)
    parser.add_argument("--polish-minutes", type=float, default=0.0, help="a second, gentler cycle on all data")
    parser.add_argument("--init", type=Path, help="go on from this policy folder; no stage 1")
    parser.add_argument("--pretrain-rate", type=float, default=1.5e-3)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--polish-rate", type=float, default=5e-4)
    parser.add_argument("--warmup", type=int, default=200, help="steps")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--draws", type=int, default=4, help="flow times per frame")
    parser.add_argument("--correction-share", type=float, default=0.5, help="of a batch, at most")
    parser.add_argument("--first-export", type=float, default=0.1, help="share of stage 2")
    parser.add_argument("--export-seconds", type=float, default=45.0)
    parser.add_argument("--report-every", type=int, default=100, help="steps")
    parser.add_argument("--static-capacity", type=int, default=80_000, help="frames")
    parser.add_argument("--demo-capacity", type=int, default=350_000)
    parser.add_argument("--correction-capacity", type=int, default=900_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    Trainer(args).run()


if __name__ == "__main__":
    main()
