//! The buffers of one live set.

use std::collections::BTreeMap;

use flashrt_exec::{Buffer, Space};
use flashrt_ops::{DType, Tensor};
use flashrt_runtime::{LiveSetBuilder, Role, StateClass};

use super::{NoiseSource, Pi05Config};
use crate::Error;

/// Layout of the host buffers below; an identity pair.
pub(super) const STATE_LAYOUT: &str = "pi05-1";

/// Bytes of text kept for each token slot.
const TEXT_BYTES_PER_TOKEN: usize = 8;

/// All mutable memory of a live set.
///
/// | Buffer | Space | Class | Content |
/// |---|---|---|---|
/// | `in_images` | host | continuation | `[views, side, side, 3]` f32, normalised |
/// | `in_state` | host | continuation | `[robot_dim]` f32, as given |
/// | `in_prompt` | host | continuation | length u32 LE, then UTF-8 text, zeros behind |
/// | `in_tokens` | host | continuation | `[max_prompt_tokens]` i32, padded |
/// | `in_mask` | host | continuation | `[prefix_tokens]` u8, 1 = valid |
/// | `state` | device | continuation | the state that the last context saw |
/// | `key_mask` | device | continuation | the mask that the last context saw |
/// | `kv` | device | continuation | `[depth, 2, prefix_tokens, kv_width]` f32 |
/// | `rng` | device | continuation | key and counter, u64 |
/// | `noise` | device | continuation | `[chunk, adim]` f32; only with external noise |
/// | `x` | device | output | `[chunk, adim]` f32: noise, then the raw actions |
/// | `out_actions` | host | output | `[chunk, robot_dim]` f32 |
/// | `scratch` | device | scratch | everything that is written before it is read in one stage |
/// | `taps` | device | scratch | intermediates for tests |
pub(super) struct SetBuffers {
    pub in_images: Tensor,
    pub in_state: Tensor,
    pub in_prompt: Buffer,
    pub in_tokens: Tensor,
    pub in_mask: Tensor,
    pub state: Tensor,
    pub key_mask: Tensor,
    /// Keys of each layer, `[prefix_tokens, kv, head_dim]`.
    pub keys: Vec<Tensor>,
    /// Values of each layer, same shape.
    pub values: Vec<Tensor>,
    pub noise: Noise,
    pub x: Tensor,
    pub out_actions: Tensor,
    pub s: Scratch,
    pub taps: Option<Taps>,
}

/// What `x` starts from.
pub(super) enum Noise {
    /// Key and counter of the set's generator, `[2]` u64.
    Philox(Tensor),
    /// What the host wrote, `[chunk, adim]` f32.
    External(Tensor),
}

/// Working memory.
pub(super) struct Scratch {
    pub images: Tensor,
    pub tokens: Tensor,
    pub patches: Tensor,
    pub vx: Tensor,
    pub vh: Tensor,
    pub vq: Tensor,
    pub vk: Tensor,
    pub vv: Tensor,
    pub va: Tensor,
    pub vm: Tensor,
    pub px: Tensor,
    pub ph: Tensor,
    pub pq: Tensor,
    pub pa: Tensor,
    pub pm: Tensor,
    pub positions: Tensor,
    pub rope: Tensor,
    pub ax: Tensor,
    pub ah: Tensor,
    pub aq: Tensor,
    pub ak: Tensor,
    pub av: Tensor,
    pub aa: Tensor,
    pub am: Tensor,
    pub velocity: Tensor,
    pub clipped: Tensor,
    pub actions: Tensor,
    pub action_positions: Tensor,
    pub action_rope: Tensor,
}

/// Kept intermediates; rows `steps..` of the per-step ones are of an earlier, longer run.
pub(super) struct Taps {
    pub siglip: Tensor,
    pub prefix_embs: Tensor,
    pub prefix_out: Tensor,
    pub cond: Tensor,
    pub velocity: Tensor,
    pub x: Tensor,
}

/// Lays named f32/i32 tensors out in one buffer, each on a 64-byte boundary.
#[derive(Default)]
struct Arena {
    at: usize,
    parts: BTreeMap<&'static str, (usize, DType, Vec<usize>)>,
}

impl Arena {
    fn add(&mut self, name: &'static str, dtype: DType, shape: &[usize]) {
        let bytes = shape.iter().product::<usize>() * dtype.bytes();
        self.parts.insert(name, (self.at, dtype, shape.to_vec()));
        self.at += bytes.next_multiple_of(64);
    }

    fn view(&self, buffer: &Buffer, name: &str) -> Result<Tensor, Error> {
        let (offset, dtype, shape) = &self.parts[name];
        let bytes = shape.iter().product::<usize>() * dtype.bytes();
        Ok(Tensor::new(buffer.slice(*offset, bytes)?, *dtype, shape)?)
    }
}

impl SetBuffers {
    /// Allocates and declares everything.
    pub fn new(
        b: &mut LiveSetBuilder,
        c: &Pi05Config,
        noise: NoiseSource,
        max_steps: u32,
        with_taps: bool,
    ) -> Result<SetBuffers, Error> {
        use StateClass::{Continuation, Output};
        let (host, device) = (Space::Host, Space::Device);
        let (n, p, h) = (c.image_tokens(), c.prefix_tokens(), c.chunk);
        let mut tensor = |name: &str,
                          space,
                          dtype: DType,
                          shape: &[usize],
                          role,
                          class|
         -> Result<Tensor, Error> {
            let bytes = shape.iter().product::<usize>() * dtype.bytes();
            let buffer = b.buffer(name, space, bytes, role)?;
            b.region_all(&buffer, class)?;
            Ok(Tensor::new(buffer.all(), dtype, shape)?)
        };
        let image_shape = [c.num_views, c.image, c.image, 3];
        let staged = Role::INPUT | Role::STATE;
        let in_images = tensor(
            "in_images",
            host,
            DType::F32,
            &image_shape,
            staged,
            Continuation,
        )?;
        let in_state = tensor(
            "in_state",
            host,
            DType::F32,
            &[c.robot_dim()],
            staged,
            Continuation,
        )?;
        let text = 4 + TEXT_BYTES_PER_TOKEN * c.max_prompt_tokens;
        let in_prompt = tensor("in_prompt", host, DType::U8, &[text], staged, Continuation)?
            .slice()
            .buffer()
            .clone();
        let in_tokens = tensor(
            "in_tokens",
            host,
            DType::I32,
            &[c.max_prompt_tokens],
            staged,
            Continuation,
        )?;
        let in_mask = tensor("in_mask", host, DType::U8, &[p], staged, Continuation)?;
        let state = tensor(
            "state",
            device,
            DType::F32,
            &[c.robot_dim()],
            Role::STATE,
            Continuation,
        )?;
        let key_mask = tensor(
            "key_mask",
            device,
            DType::U8,
            &[p],
            Role::STATE,
            Continuation,
        )?;
        let kv_shape = [c.depth * 2, p, c.kv, c.head_dim];
        let kv = tensor(
            "kv",
            device,
            DType::F32,
            &kv_shape,
            Role::STATE,
            Continuation,
        )?;
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for layer in 0..c.depth {
            let part = |i: usize| {
                kv.rows(i..i + 1)
                    .and_then(|t| t.view(&[p, c.kv, c.head_dim]))
            };
            keys.push(part(2 * layer)?);
            values.push(part(2 * layer + 1)?);
        }
        let noise = match noise {
            NoiseSource::Philox => Noise::Philox(tensor(
                "rng",
                device,
                DType::U64,
                &[2],
                Role::STATE,
                Continuation,
            )?),
            NoiseSource::External => Noise::External(tensor(
                "noise",
                device,
                DType::F32,
                &[h, c.adim],
                staged,
                Continuation,
            )?),
        };
        let x = tensor("x", device, DType::F32, &[h, c.adim], Role::OUTPUT, Output)?;
        let out_actions = tensor(
            "out_actions",
            host,
            DType::F32,
            &[h, c.robot_dim()],
            Role::OUTPUT,
            Output,
        )?;

        let mut a = Arena::default();
        for (name, dtype, shape) in [
            ("images", DType::F32, &image_shape[..]),
            ("tokens", DType::I32, &[c.max_prompt_tokens]),
            ("patches", DType::F32, &[n, c.patch_elements()]),
            ("vx", DType::F32, &[n, c.v_width]),
            ("vh", DType::F32, &[n, c.v_width]),
            ("vq", DType::F32, &[n, c.v_width]),
            ("vk", DType::F32, &[n, c.v_width]),
            ("vv", DType::F32, &[n, c.v_width]),
            ("va", DType::F32, &[n, c.v_width]),
            ("vm", DType::F32, &[n, c.v_mlp]),
            ("px", DType::F32, &[p, c.width]),
            ("ph", DType::F32, &[p, c.width]),
            ("pq", DType::F32, &[p, c.heads, c.head_dim]),
            ("pa", DType::F32, &[p, c.heads, c.head_dim]),
            ("pm", DType::F32, &[p, c.mlp]),
            ("positions", DType::I32, &[p]),
            ("rope", DType::F32, &[p, c.head_dim]),
            ("ax", DType::F32, &[h, c.ex_width]),
            ("ah", DType::F32, &[h, c.ex_width]),
            ("aq", DType::F32, &[h, c.heads, c.head_dim]),
            ("ak", DType::F32, &[h, c.kv, c.head_dim]),
            ("av", DType::F32, &[h, c.kv, c.head_dim]),
            ("aa", DType::F32, &[h, c.heads, c.head_dim]),
            ("am", DType::F32, &[h, c.ex_mlp]),
            ("velocity", DType::F32, &[h, c.adim]),
            ("clipped", DType::F32, &[h, c.adim]),
            ("actions", DType::F32, &[h, c.robot_dim()]),
            ("action_positions", DType::I32, &[h]),
            ("action_rope", DType::F32, &[h, c.head_dim]),
        ] {
            a.add(name, dtype, shape);
        }
        let buffer = b.buffer("scratch", device, a.at, Role::SCRATCH)?;
        b.region_all(&buffer, StateClass::Scratch)?;
        let v = |name| a.view(&buffer, name);
        let s = Scratch {
            images: v("images")?,
            tokens: v("tokens")?,
            patches: v("patches")?,
            vx: v("vx")?,
            vh: v("vh")?,
            vq: v("vq")?,
            vk: v("vk")?,
            vv: v("vv")?,
            va: v("va")?,
            vm: v("vm")?,
            px: v("px")?,
            ph: v("ph")?,
            pq: v("pq")?,
            pa: v("pa")?,
            pm: v("pm")?,
            positions: v("positions")?,
            rope: v("rope")?,
            ax: v("ax")?,
            ah: v("ah")?,
            aq: v("aq")?,
            ak: v("ak")?,
            av: v("av")?,
            aa: v("aa")?,
            am: v("am")?,
            velocity: v("velocity")?,
            clipped: v("clipped")?,
            actions: v("actions")?,
            action_positions: v("action_positions")?,
            action_rope: v("action_rope")?,
        };
        let taps = if with_taps {
            let steps = max_steps as usize;
            let mut tap = |name: &str, shape: &[usize]| -> Result<Tensor, Error> {
                let bytes = shape.iter().product::<usize>() * 4;
                let buffer = b.buffer(&format!("tap.{name}"), device, bytes, Role::OUTPUT)?;
                b.region_all(&buffer, StateClass::Scratch)?;
                Ok(Tensor::new(buffer.all(), DType::F32, shape)?)
            };
            Some(Taps {
                siglip: tap("siglip", &[n, c.v_width])?,
                prefix_embs: tap("prefix_embs", &[p, c.width])?,
                prefix_out: tap("prefix_out", &[p, c.width])?,
                cond: tap("cond", &[steps, c.ex_width])?,
                velocity: tap("velocity", &[steps, h, c.adim])?,
                x: tap("x", &[steps, h, c.adim])?,
            })
        } else {
            None
        };
        Ok(SetBuffers {
            in_images,
            in_state,
            in_prompt,
            in_tokens,
            in_mask,
            state,
            key_mask,
            keys,
            values,
            noise,
            x,
            out_actions,
            s,
            taps,
        })
    }
}
