//! Weights and constants on the device, shared by all live sets.

use std::collections::BTreeMap;

use flashrt_exec::{Context, Space, StreamId};
use flashrt_ops::{matmul, time_embedding, DType, Epilogue, PackedWeight, Tensor};

use super::{names, Pi05Config};
use crate::stats::Stats;
use crate::weights::Weights;
use crate::Error;

/// Shortest and longest period of the flow-time embedding.
const TIME_PERIODS: (f64, f64) = (4e-3, 4.0);

/// A linear layer.
pub(super) struct Linear {
    pub w: PackedWeight,
    pub b: Option<Tensor>,
}

/// Weight and bias of a LayerNorm.
pub(super) struct LayerNorm {
    pub w: Tensor,
    pub b: Tensor,
}

pub(super) struct VisionLayer {
    pub ln1: LayerNorm,
    pub q: Linear,
    pub k: Linear,
    pub v: Linear,
    pub out: Linear,
    pub ln2: LayerNorm,
    pub fc1: Linear,
    pub fc2: Linear,
}

/// What follows keys and values in a transformer layer.
pub(super) struct Rest {
    pub q: Linear,
    pub o: Linear,
    pub gate: Linear,
    pub up: Linear,
    pub down: Linear,
}

pub(super) struct PrefixLayer {
    pub norm1: Tensor,
    pub k: Linear,
    pub v: Linear,
    /// Absent in the last layer, whose output nobody reads; present there too for taps.
    pub rest: Option<(Rest, Tensor)>,
}

pub(super) struct ExpertLayer {
    pub k: Linear,
    pub v: Linear,
    pub rest: Rest,
}

/// Constants of one shape bucket.
#[derive(Clone)]
pub(super) struct Bucket {
    /// Time conditioning of every step, `[steps, ex_width]`.
    pub cond: Tensor,
    /// Scale, shift and gate of every norm in every step, `[steps, 2·depth + 1, 3·ex_width]`.
    pub styles: Tensor,
}

pub(super) struct Params {
    pub patch: Linear,
    pub pos: Tensor,
    pub vision: Vec<VisionLayer>,
    pub vision_norm: LayerNorm,
    pub proj: Linear,
    pub embed: Tensor,
    pub prefix: Vec<PrefixLayer>,
    /// Final norm of the prefix; for taps only.
    pub prefix_norm: Option<Tensor>,
    pub expert: Vec<ExpertLayer>,
    pub action_in: Linear,
    pub action_out: Linear,
    pub mean: Tensor,
    pub std: Tensor,
    /// `[robot_dim]` u8, 1 on columns that are offsets from the state.
    pub anchored: Tensor,
    pub clip: bool,
    pub buckets: BTreeMap<u32, Bucket>,
    /// Bytes of everything above.
    pub bytes: usize,
}

struct Loader<'a> {
    ctx: &'a Context,
    weights: &'a Weights,
    bytes: usize,
}

impl Loader<'_> {
    fn upload(&mut self, name: &str, shape: &[usize], values: &[f32]) -> Result<Tensor, Error> {
        let t = Tensor::alloc(self.ctx, name, Space::Device, DType::F32, shape)?;
        t.upload_f32(self.ctx, values)?;
        self.bytes += t.slice().bytes();
        Ok(t)
    }

    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, Error> {
        let values = self.weights.read(name, shape)?;
        self.upload(name, shape, &values)
    }

    /// `name.weight` `[n, ..]` packed as `[n, k]`, and `name.bias` when there is one.
    fn linear(
        &mut self,
        name: &dyn Fn(&str) -> String,
        shape: &[usize],
        bias: bool,
    ) -> Result<Linear, Error> {
        let weight = name("weight");
        let raw: Vec<u8> = self
            .weights
            .read(&weight, shape)?
            .iter()
            .flat_map(|x| x.to_ne_bytes())
            .collect();
        let k = shape[1..].iter().product();
        let w = PackedWeight::from_bytes(self.ctx, &weight, DType::F32, shape[0], k, &raw)?;
        self.bytes += w.bytes();
        let b = if bias {
            Some(self.tensor(&name("bias"), &shape[..1])?)
        } else {
            None
        };
        Ok(Linear { w, b })
    }

    fn layer_norm(
        &mut self,
        name: &dyn Fn(&str) -> String,
        width: usize,
    ) -> Result<LayerNorm, Error> {
        Ok(LayerNorm {
            w: self.tensor(&name("weight"), &[width])?,
            b: self.tensor(&name("bias"), &[width])?,
        })
    }

    /// Everything of a transformer layer but norms, keys and values.
    fn rest(
        &mut self,
        name: &dyn Fn(&str) -> String,
        c: &Pi05Config,
        width: usize,
        mlp: usize,
    ) -> Result<Rest, Error> {
        let mut part = |part: &str, n: usize, k: usize| {
            self.linear(&|x| name(&format!("{part}.{x}")), &[n, k], false)
        };
        Ok(Rest {
            q: part("self_attn.q_proj", c.q_width(), width)?,
            o: part("self_attn.o_proj", width, c.q_width())?,
            gate: part("mlp.gate_proj", mlp, width)?,
            up: part("mlp.up_proj", mlp, width)?,
            down: part("mlp.down_proj", width, mlp)?,
        })
    }

    fn key_value(
        &mut self,
        name: &dyn Fn(&str) -> String,
        c: &Pi05Config,
        width: usize,
    ) -> Result<(Linear, Linear), Error> {
        let mut part = |part: &str| {
            self.linear(
                &|x| name(&format!("self_attn.{part}.{x}")),
                &[c.kv_width(), width],
                false,
            )
        };
        Ok((part("k_proj")?, part("v_proj")?))
    }
}

impl Params {
    pub fn load(
        ctx: &Context,
        c: &Pi05Config,
        weights: &Weights,
        stats: &Stats,
        steps: &[u32],
        taps: bool,
    ) -> Result<Params, Error> {
        let mut l = Loader {
            ctx,
            weights,
            bytes: 0,
        };
        let (v, w, e) = (c.v_width, c.width, c.ex_width);
        let patch = l.linear(&names::patch, &[v, 3, c.patch, c.patch], true)?;
        let pos = l.tensor(&names::pos(), &[c.view_tokens(), v])?;
        let mut vision = Vec::with_capacity(c.v_depth);
        for i in 0..c.v_depth {
            let name = |part: &str| names::vision(i, part);
            let attn = |l: &mut Loader<'_>, part: &str| {
                l.linear(&|x| name(&format!("self_attn.{part}.{x}")), &[v, v], true)
            };
            vision.push(VisionLayer {
                ln1: l.layer_norm(&|x| name(&format!("layer_norm1.{x}")), v)?,
                q: attn(&mut l, "q_proj")?,
                k: attn(&mut l, "k_proj")?,
                v: attn(&mut l, "v_proj")?,
                out: attn(&mut l, "out_proj")?,
                ln2: l.layer_norm(&|x| name(&format!("layer_norm2.{x}")), v)?,
                fc1: l.linear(&|x| name(&format!("mlp.fc1.{x}")), &[c.v_mlp, v], true)?,
                fc2: l.linear(&|x| name(&format!("mlp.fc2.{x}")), &[v, c.v_mlp], true)?,
            });
        }
        let vision_norm = l.layer_norm(&names::vision_norm, v)?;
        let proj = l.linear(&names::projector, &[w, v], true)?;
        let embed = l.tensor(names::EMBED, &[c.vocab, w])?;
        let mut prefix = Vec::with_capacity(c.depth);
        for i in 0..c.depth {
            let name = |part: &str| names::prefix(i, part);
            let (k, v) = l.key_value(&name, c, w)?;
            let rest = if i + 1 < c.depth || taps {
                Some((
                    l.rest(&name, c, w, c.mlp)?,
                    l.tensor(&name("post_attention_layernorm.weight"), &[w])?,
                ))
            } else {
                None
            };
            prefix.push(PrefixLayer {
                norm1: l.tensor(&name("input_layernorm.weight"), &[w])?,
                k,
                v,
                rest,
            });
        }
        let prefix_norm = if taps {
            Some(l.tensor(&names::prefix_norm(), &[w])?)
        } else {
            None
        };
        let mut expert = Vec::with_capacity(c.depth);
        for i in 0..c.depth {
            let name = |part: &str| names::expert(i, part);
            let (k, v) = l.key_value(&name, c, e)?;
            expert.push(ExpertLayer {
                k,
                v,
                rest: l.rest(&name, c, e, c.ex_mlp)?,
            });
        }
        let action_in = l.linear(&|x| format!("action_in_proj.{x}"), &[e, c.adim], true)?;
        let action_out = l.linear(&|x| format!("action_out_proj.{x}"), &[c.adim, e], true)?;

        let a = &stats.action;
        let table: &[usize] = if a.rows == 1 {
            &[a.width]
        } else {
            &[a.rows, a.width]
        };
        let mean = l.upload("action_mean", table, &a.mean)?;
        let std = l.upload("action_std", table, &a.std)?;
        let anchored = Tensor::alloc(ctx, "action_anchored", Space::Device, DType::U8, &[a.width])?;
        let mask: Vec<u8> = (0..a.width).map(|d| u8::from(d < c.anchor_dims)).collect();
        ctx.upload(anchored.slice(), &mask)?;

        let buckets = Self::buckets(&mut l, c, steps)?;
        Ok(Params {
            patch,
            pos,
            vision,
            vision_norm,
            proj,
            embed,
            prefix,
            prefix_norm,
            expert,
            action_in,
            action_out,
            mean,
            std,
            anchored,
            clip: a.clip,
            buckets,
            bytes: l.bytes,
        })
    }

    /// Styles depend on the flow time only, so all of them are computed here, by the same operations as a tick's.
    fn buckets(
        l: &mut Loader<'_>,
        c: &Pi05Config,
        steps: &[u32],
    ) -> Result<BTreeMap<u32, Bucket>, Error> {
        let (ctx, e, sites) = (l.ctx, c.ex_width, 2 * c.depth + 1);
        let before = l.bytes;
        let time_in = l.linear(&|x| format!("time_mlp_in.{x}"), &[e, e], true)?;
        let time_out = l.linear(&|x| format!("time_mlp_out.{x}"), &[e, e], true)?;
        let mut dense = Vec::with_capacity(sites);
        for i in 0..c.depth {
            for part in ["input_layernorm", "post_attention_layernorm"] {
                dense.push(l.linear(
                    &|x| names::expert(i, &format!("{part}.dense.{x}")),
                    &[3 * e, e],
                    true,
                )?);
            }
        }
        dense.push(l.linear(&names::expert_norm, &[3 * e, e], true)?);
        // These weights are dropped at the end of this function.
        l.bytes = before;

        let mut buckets = BTreeMap::new();
        for &n in steps {
            let rows = n as usize;
            let alloc = |name: &str, shape: &[usize]| {
                Tensor::alloc(ctx, name, Space::Device, DType::F32, shape)
            };
            let (time, hidden) = (
                alloc("flow_time", &[rows, e])?,
                alloc("flow_time_hidden", &[rows, e])?,
            );
            let cond = alloc(&format!("cond_{n}"), &[rows, e])?;
            let styles = alloc(&format!("styles_{n}"), &[rows, sites, 3 * e])?;
            ctx.enqueue(StreamId(0), |r| {
                for k in 0..rows {
                    time_embedding(
                        r,
                        flow_time(k, n),
                        TIME_PERIODS.0,
                        TIME_PERIODS.1,
                        &time.rows(k..k + 1)?,
                    )?;
                }
                matmul(
                    r,
                    &time,
                    &time_in.w,
                    time_in.b.as_ref(),
                    Epilogue::Silu,
                    &hidden,
                )?;
                matmul(
                    r,
                    &hidden,
                    &time_out.w,
                    time_out.b.as_ref(),
                    Epilogue::Silu,
                    &cond,
                )?;
                for k in 0..rows {
                    for (site, d) in dense.iter().enumerate() {
                        let out = styles
                            .rows(k..k + 1)?
                            .view(&[sites, 3 * e])?
                            .rows(site..site + 1)?;
                        matmul(
                            r,
                            &cond.rows(k..k + 1)?,
                            &d.w,
                            d.b.as_ref(),
                            Epilogue::None,
                            &out,
                        )?;
                    }
                }
                Ok::<(), Error>(())
            })?;
            ctx.synchronize(StreamId(0))?;
            l.bytes += cond.slice().bytes() + styles.slice().bytes();
            buckets.insert(n, Bucket { cond, styles });
        }
        Ok(buckets)
    }
}

/// Time of step `k` of `n`: 1 - k/n, rounded to f32 as in the reference.
fn flow_time(k: usize, n: u32) -> f64 {
    f64::from((1.0 - k as f64 / f64::from(n)) as f32)
}
