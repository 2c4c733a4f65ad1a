"""The π0.5 architecture at small dims, in plain PyTorch.

A SigLIP-style vision tower and the prompt's embeddings form a bidirectional
prefix; a Gemma-style transformer turns it into keys and values per layer; an
action expert with adaptive RMS norms attends to them and predicts the velocity
of a flow from noise (t = 1) to a chunk of actions (t = 0). Names are short here;
``export.py`` holds the mapping to LeRobot's tensor names.
"""

import math
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROPE_BASE = 10_000.0
EPS = 1e-6


@dataclass(frozen=True)
class Config:
    """Dims of a policy; ``v_`` is the vision tower, ``ex_`` the action expert."""

    width: int = 128
    depth: int = 4
    mlp: int = 384
    heads: int = 8
    kv: int = 1
    head_dim: int = 16
    ex_width: int = 128
    ex_mlp: int = 384
    v_width: int = 128
    v_depth: int = 4
    v_heads: int = 4
    v_mlp: int = 384
    patch: int = 8
    image: int = 96
    vocab: int = 320
    chunk: int = 16
    adim: int = 6
    steps: int = 5

    @classmethod
    def from_dict(cls, values: dict) -> "Config":
        """Take the known keys of ``values`` and ignore the others."""
        return cls(**{k: v for k, v in values.items() if k in cls.__dataclass_fields__})

    def to_dict(self) -> dict:
        return asdict(self)

    @property
    def patches(self) -> int:
        """Tokens of one view."""
        return (self.image // self.patch) ** 2


PRESETS = {
    "base": Config(),
    "large": Config(width=160, mlp=480, v_width=160, v_heads=5, v_mlp=480),
    "toy": Config(width=32, depth=2, mlp=64, ex_width=32, ex_mlp=64, v_width=32, v_depth=1, v_heads=2, v_mlp=64),
}


def flops(c: Config, views: int, tokens: int, steps: int) -> int:
    """Twice the multiply-adds of all matrix products in one full tick.

    Counts projections, MLPs, attention scores and mixes; the last prefix layer
    only makes keys and values. Norms, activations and softmax are left out.
    """

    def attention(queries: int, keys: int, inner: int) -> int:
        return 2 * queries * keys * inner

    inner, kv = c.heads * c.head_dim, c.kv * c.head_dim
    n, p = c.patches, views * c.patches + tokens
    vision = n * 3 * c.patch**2 * c.v_width
    vision += c.v_depth * (n * (4 * c.v_width**2 + 2 * c.v_width * c.v_mlp) + attention(n, n, c.v_width))
    vision += n * c.v_width * c.width
    layer = p * (2 * c.width * inner + 2 * c.width * kv + 3 * c.width * c.mlp) + attention(p, p, inner)
    prefix = (c.depth - 1) * layer + p * 2 * c.width * kv
    h = c.chunk
    expert = h * (2 * c.ex_width * inner + 2 * c.ex_width * kv + 3 * c.ex_width * c.ex_mlp)
    expert += attention(h, p + h, inner) + 2 * 3 * c.ex_width**2
    step = c.depth * expert + 5 * c.ex_width**2 + 2 * h * c.adim * c.ex_width
    return 2 * (views * vision + prefix + steps * step)


class RmsNorm(nn.Module):
    """Gemma's RMS norm with a learned scale."""

    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        return (_rms(x) * (1 + self.weight.float())).to(x.dtype)


class AdaRmsNorm(nn.Module):
    """RMS norm whose scale, shift and residual gate come from the flow time."""

    def __init__(self, dim: int):
        super().__init__()
        self.dense = nn.Linear(dim, 3 * dim)
        nn.init.zeros_(self.dense.weight)
        nn.init.zeros_(self.dense.bias)

    def forward(self, x: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised ``x`` and the gate for the sublayer's residual."""
        scale, shift, gate = self.dense(time)[:, None].chunk(3, -1)
        return (_rms(x) * (1 + scale.float()) + shift.float()).to(x.dtype), gate.to(x.dtype)


def _rms(x: Tensor) -> Tensor:
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)


class GatedMlp(nn.Module):
    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x))


class Attention(nn.Module):
    """Grouped-query attention; the caller joins keys and values in between."""

    def __init__(self, dim: int, heads: int, kv: int, head_dim: int):
        super().__init__()
        self.heads, self.kv, self.head_dim = heads, kv, head_dim
        self.q_proj = nn.Linear(dim, heads * head_dim, bias=False)
        self.k_proj = nn.Linear(dim, kv * head_dim, bias=False)
        self.v_proj = nn.Linear(dim, kv * head_dim, bias=False)
        self.o_proj = nn.Linear(heads * head_dim, dim, bias=False)

    def project(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys, and values, each ``(batch, heads, tokens, head_dim)``."""

        def split(y: Tensor, n: int) -> Tensor:
            return y.view(*y.shape[:2], n, self.head_dim).transpose(1, 2)

        q = rotate(split(self.q_proj(x), self.heads), angles)
        k = rotate(split(self.k_proj(x), self.kv), angles)
        return q, k, split(self.v_proj(x), self.kv)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        group = self.heads // self.kv
        k, v = (y[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(y.transpose(1, 2).flatten(2))


def rotate(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding, half-split pairing."""
    cos, sin = angles
    a, b = x.chunk(2, -1)
    return (x * cos + torch.cat([-b, a], -1) * sin).to(x.dtype)


def rope_angles(positions: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines for ``(batch, tokens)`` positions."""
    exponent = torch.arange(0, head_dim, 2, device=positions.device).float() / head_dim
    angle = positions[:, None, :, None].float() / ROPE_BASE**exponent
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


class PrefixLayer(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.self_attn = Attention(c.width, c.heads, c.kv, c.head_dim)
        self.mlp = GatedMlp(c.width, c.mlp)
        self.input_layernorm = RmsNorm(c.width)
        self.post_attention_layernorm = RmsNorm(c.width)


class ExpertLayer(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.self_attn = Attention(c.ex_width, c.heads, c.kv, c.head_dim)
        self.mlp = GatedMlp(c.ex_width, c.ex_mlp)
        self.input_layernorm = AdaRmsNorm(c.ex_width)
        self.post_attention_layernorm = AdaRmsNorm(c.ex_width)


class VisionLayer(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        d = c.v_width
        self.heads = c.v_heads
        self.layer_norm1 = nn.LayerNorm(d, EPS)
        self.layer_norm2 = nn.LayerNorm(d, EPS)
        self.self_attn = nn.ModuleDict({n: nn.Linear(d, d) for n in ("q_proj", "k_proj", "v_proj", "out_proj")})
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(d, c.v_mlp), "fc2": nn.Linear(c.v_mlp, d)})

    def forward(self, x: Tensor) -> Tensor:
        n = self.layer_norm1(x)
        q, k, v = (
            self.self_attn[name](n).view(*n.shape[:2], self.heads, -1).transpose(1, 2)
            for name in ("q_proj", "k_proj", "v_proj")
        )
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.self_attn["out_proj"](y)
        return x + self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.layer_norm2(x)), approximate="tanh"))


class Prefix:
    """What the action expert reads of images and prompt.

    ``keys_values`` has one pair per layer; ``mask`` marks valid tokens and is None
    where all are; ``length`` counts them per sample; ``output`` is the final hidden
    state when it was asked for.
    """

    def __init__(self, keys_values, mask: Tensor | None, length: Tensor, output: Tensor | None):
        self.keys_values, self.mask, self.length, self.output = keys_values, mask, length, output


class Vla(nn.Module):
    """The whole policy network on normalised inputs and outputs."""

    def __init__(self, config: Config):
        super().__init__()
        c = self.config = config
        self.patch = nn.Conv2d(3, c.v_width, c.patch, c.patch)
        self.pos = nn.Parameter(torch.randn(c.patches, c.v_width) * 0.02)
        self.vl = nn.ModuleList(VisionLayer(c) for _ in range(c.v_depth))
        self.vnorm = nn.LayerNorm(c.v_width, EPS)
        self.proj = nn.Linear(c.v_width, c.width)
        self.embed = nn.Embedding(c.vocab, c.width)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.lm = nn.ModuleList(PrefixLayer(c) for _ in range(c.depth))
        self.lmnorm = RmsNorm(c.width)
        self.ex = nn.ModuleList(ExpertLayer(c) for _ in range(c.depth))
        self.exnorm = AdaRmsNorm(c.ex_width)
        self.action_in_proj = nn.Linear(c.adim, c.ex_width)
        self.action_out_proj = nn.Linear(c.ex_width, c.adim)
        self.time_mlp_in = nn.Linear(c.ex_width, c.ex_width)
        self.time_mlp_out = nn.Linear(c.ex_width, c.ex_width)

    def see(self, images: Tensor) -> Tensor:
        """Vision tokens ``(batch, views · patches, width)`` of images in [-1, 1]."""
        batch = images.shape[0]
        x = self.patch(images.flatten(0, 1)).flatten(2).transpose(1, 2) + self.pos
        for layer in self.vl:
            x = layer(x)
        return self.proj(self.vnorm(x)).view(batch, -1, self.config.width)

    def prefix(self, images: Tensor, tokens: Tensor, token_mask: Tensor | None = None, output: bool = False) -> Prefix:
        """Encode ``(batch, views, 3, h, w)`` images and ``(batch, tokens)`` ids.

        ``token_mask`` None means that every token is valid. ``output`` also runs
        the last layer to its end, which only training needs.
        """
        c = self.config
        x = torch.cat([self.see(images), self.embed(tokens) * c.width**0.5], 1)
        batch, n = x.shape[:2]
        valid = attend = None
        if token_mask is None:
            positions = torch.arange(n, device=x.device)[None].expand(batch, -1)
            length = torch.full((batch, 1), n, device=x.device)
        else:
            seen = torch.ones(batch, n - tokens.shape[1], dtype=torch.bool, device=x.device)
            valid = torch.cat([seen, token_mask], 1)
            attend = valid[:, None, None, :].expand(-1, 1, n, -1)
            positions, length = valid.cumsum(1) - 1, valid.sum(1, keepdim=True)
        angles = rope_angles(positions, c.head_dim)
        keys_values = []
        for i, layer in enumerate(self.lm):
            q, k, v = layer.self_attn.project(layer.input_layernorm(x), angles)
            keys_values.append((k, v))
            if i == c.depth - 1 and not output:
                break
            x = x + layer.self_attn.mix(q, k, v, attend)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return Prefix(keys_values, valid, length, self.lmnorm(x) if output else None)

    def time_condition(self, t: Tensor) -> Tensor:
        """Conditioning vector of the flow time ``(batch,)``."""
        half = self.config.ex_width // 2
        fraction = torch.linspace(0, 1, half, dtype=torch.float64, device=t.device)
        period = 4e-3 * (4.0 / 4e-3) ** fraction
        angle = 2 * math.pi / period[None] * t[:, None].double()
        e = torch.cat([angle.sin(), angle.cos()], 1).to(t.dtype)
        return F.silu(self.time_mlp_out(F.silu(self.time_mlp_in(e))))

    def velocity(self, prefix: Prefix, x_t: Tensor, t: Tensor, draws: int = 1) -> Tensor:
        """Flow velocity at ``x_t (batch · draws, rows, adim)`` and times ``t``.

        Each of the prefix's samples serves ``draws`` neighbouring rows of the batch.
        """

        def spread(y: Tensor) -> Tensor:
            return y.repeat_interleave(draws, 0) if draws > 1 else y

        rows = x_t.shape[1]
        positions = spread(prefix.length) + torch.arange(rows, device=x_t.device)[None]
        angles = rope_angles(positions, self.config.head_dim)
        attend = None
        if prefix.mask is not None:
            own = torch.ones(x_t.shape[0], rows, dtype=torch.bool, device=x_t.device)
            attend = torch.cat([spread(prefix.mask), own], 1)[:, None, None, :].expand(-1, 1, rows, -1)
        condition = self.time_condition(t)
        x = self.action_in_proj(x_t)
        for layer, (pk, pv) in zip(self.ex, prefix.keys_values, strict=True):
            h, gate = layer.input_layernorm(x, condition)
            q, k, v = layer.self_attn.project(h, angles)
            k, v = torch.cat([spread(pk), k], 2), torch.cat([spread(pv), v], 2)
            x = x + layer.self_attn.mix(q, k, v, attend) * gate
            h, gate = layer.post_attention_layernorm(x, condition)
            x = x + layer.mlp(h) * gate
        return self.action_out_proj(self.exnorm(x, condition)[0].float())

    @torch.no_grad()
    def sample(self, images: Tensor, tokens: Tensor, token_mask: Tensor | None, noise: Tensor, steps: int) -> Tensor:
        """Integrate the flow from ``noise`` to normalised actions in ``steps`` steps."""
        prefix = self.prefix(images, tokens, token_mask)
        x = noise
        for i in range(steps):
            t = torch.full((x.shape[0],), 1.0 - i / steps, device=x.device)
            x = x - self.velocity(prefix, x, t) / steps
        return x
