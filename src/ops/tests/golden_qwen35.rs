//! A small Qwen3.5 built of operations gives the logits and the states of Transformers' own code, from test/data/golden_qwen35.
//!
//! Three layers of gated delta rule and one of gated attention; a prompt in chunks, then 32 tokens one by one.

mod common;

use std::collections::BTreeMap;

use common::{everywhere, ints, tensor};
use flashrt_exec::{Context, Recorder, StreamId};
use flashrt_ops::*;
use safetensors::SafeTensors;

const MODEL: &[u8] = include_bytes!("../../../test/data/golden_qwen35/model.safetensors");
const GOLDEN: &[u8] = include_bytes!("../../../test/data/golden_qwen35/golden.safetensors");

/// config.json
const HIDDEN: usize = 64;
const MLP: usize = 128;
const VOCABULARY: usize = 256;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 32;
const ROTATED: usize = HEAD_DIM / 4;
const EPS: f32 = 1e-6;
const DELTA: DeltaShape = DeltaShape {
    key_heads: 2,
    value_heads: 4,
    key_dim: 16,
    value_dim: 16,
    normalize: true,
    scale: 0.25,
};
const VALUES: usize = DELTA.value_heads * DELTA.value_dim;
const PROMPT: usize = 70;
const DECODED: usize = 32;

fn floats(file: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let data = file.tensor(name).unwrap_or_else(|e| panic!("{name}: {e}"));
    let words = data.data().chunks_exact(4);
    words
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

fn integers(file: &SafeTensors<'_>, name: &str) -> Vec<i32> {
    let words = file.tensor(name).unwrap();
    let words = words.data().chunks_exact(4);
    words
        .map(|b| i32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

enum Mixer {
    Delta {
        qkv: PackedWeight,
        z: PackedWeight,
        a: PackedWeight,
        b: PackedWeight,
        conv: Tensor,
        a_log: Tensor,
        dt_bias: Tensor,
        norm: Tensor,
        conv_state: Tensor,
        state: Tensor,
    },
    Attention {
        q: PackedWeight,
        gate: PackedWeight,
        k: PackedWeight,
        v: PackedWeight,
        q_norm: Tensor,
        k_norm: Tensor,
        keys: Tensor,
        values: Tensor,
    },
}

struct Layer {
    input_norm: Tensor,
    mixer: Mixer,
    out: PackedWeight,
    post_norm: Tensor,
    gate: PackedWeight,
    up: PackedWeight,
    down: PackedWeight,
}

struct Model {
    embedding: Tensor,
    head: PackedWeight,
    norm: Tensor,
    layers: Vec<Layer>,
}

impl Model {
    fn new(ctx: &Context) -> Model {
        let file = SafeTensors::deserialize(MODEL).unwrap();
        let zeros = |shape: &[usize]| tensor(ctx, shape, &vec![0.0; shape.iter().product()]);
        let packed = |name: &str, values: &[f32], k: usize| {
            let bytes = common::f32_bytes(values);
            PackedWeight::from_bytes(ctx, name, DType::F32, values.len() / k, k, &bytes).unwrap()
        };
        let layers = (0..4).map(|i| {
            let get = |name: &str| floats(&file, &format!("model.layers.{i}.{name}.weight"));
            let vector = |values: Vec<f32>| tensor(ctx, &[values.len()], &values);
            let linear = |name: &str, k: usize| packed(name, &get(name), k);
            let own = |name: &str| floats(&file, &format!("model.layers.{i}.linear_attn.{name}"));
            let (mixer, out) = if i < 3 {
                let mixer = Mixer::Delta {
                    qkv: linear("linear_attn.in_proj_qkv", HIDDEN),
                    z: linear("linear_attn.in_proj_z", HIDDEN),
                    a: linear("linear_attn.in_proj_a", HIDDEN),
                    b: linear("linear_attn.in_proj_b", HIDDEN),
                    conv: tensor(
                        ctx,
                        &[DELTA.columns(), CONV_TAPS],
                        &get("linear_attn.conv1d"),
                    ),
                    a_log: vector(own("A_log")),
                    dt_bias: vector(own("dt_bias")),
                    norm: vector(get("linear_attn.norm")),
                    conv_state: zeros(&[DELTA.columns(), CONV_TAPS - 1]),
                    state: zeros(&[DELTA.value_heads, DELTA.key_dim, DELTA.value_dim]),
                };
                (mixer, linear("linear_attn.out_proj", VALUES))
            } else {
                // A head's rows are its query, then its gate.
                let rows = get("self_attn.q_proj");
                let half = |which: usize| -> Vec<f32> {
                    let of_head = rows.chunks_exact(HEAD_DIM * HIDDEN);
                    of_head.skip(which).step_by(2).flatten().copied().collect()
                };
                let cache = [PROMPT + DECODED, KV_HEADS, HEAD_DIM];
                let mixer = Mixer::Attention {
                    q: packed("q", &half(0), HIDDEN),
                    gate: packed("gate", &half(1), HIDDEN),
                    k: linear("self_attn.k_proj", HIDDEN),
                    v: linear("self_attn.v_proj", HIDDEN),
                    q_norm: vector(get("self_attn.q_norm")),
                    k_norm: vector(get("self_attn.k_norm")),
                    keys: zeros(&cache),
                    values: zeros(&cache),
                };
                (mixer, linear("self_attn.o_proj", HEADS * HEAD_DIM))
            };
            Layer {
                input_norm: vector(get("input_layernorm")),
                mixer,
                out,
                post_norm: vector(get("post_attention_layernorm")),
                gate: linear("mlp.gate_proj", HIDDEN),
                up: linear("mlp.up_proj", HIDDEN),
                down: linear("mlp.down_proj", MLP),
            }
        });
        let embedding = floats(&file, "model.embed_tokens.weight");
        Model {
            layers: layers.collect(),
            norm: tensor(ctx, &[HIDDEN], &floats(&file, "model.norm.weight")),
            head: packed("head", &embedding, HIDDEN),
            embedding: tensor(ctx, &[VOCABULARY, HIDDEN], &embedding),
        }
    }

    /// Records `work` over all tokens of `a`; `logits` gets a row each.
    fn record(
        &self,
        r: &mut Recorder<'_>,
        a: &Activations,
        at: usize,
        is_chunked: bool,
    ) -> Result<(), Error> {
        use Epilogue::{None as Plain, Residual};
        let n = a.tokens;
        rope_table(r, &a.positions, 10_000.0, &a.table)?;
        embed_gather(r, &self.embedding, &a.ids, 1.0, &a.x)?;
        for layer in &self.layers {
            rms_norm(r, &a.x, &layer.input_norm, EPS, &a.h)?;
            match &layer.mixer {
                Mixer::Delta {
                    qkv,
                    z,
                    a: decay,
                    b,
                    conv,
                    a_log,
                    dt_bias,
                    norm,
                    conv_state,
                    state,
                } => {
                    matmul(r, &a.h, qkv, None, Plain, &a.qkv)?;
                    matmul(r, &a.h, z, None, Plain, &a.z)?;
                    matmul(r, &a.h, decay, None, Plain, &a.a)?;
                    matmul(r, &a.h, b, None, Plain, &a.b)?;
                    let conv = Conv1d {
                        x: &a.qkv,
                        weight: conv,
                        bias: None,
                        state: conv_state,
                        out: &a.mixed,
                    };
                    causal_conv1d(r, &conv, true)?;
                    let gates = DeltaGates {
                        a: &a.a,
                        b: &a.b,
                        a_log,
                        dt_bias,
                        g: &a.g,
                        beta: &a.beta,
                    };
                    delta_gates(r, &gates)?;
                    let rule = GatedDelta {
                        qkv: &a.mixed,
                        g: &a.g,
                        beta: &a.beta,
                        state,
                        out: &a.o,
                    };
                    match is_chunked {
                        true => gated_delta(r, &DELTA, &rule, &a.scratch)?,
                        false => gated_delta_steps(r, &DELTA, &rule)?,
                    }
                    let heads = [n, DELTA.value_heads, DELTA.value_dim];
                    let z = a.z.view(&heads)?;
                    gated_rms_norm(r, &a.o, norm, &z, EPS, &a.o)?;
                    matmul(
                        r,
                        &a.o.view(&[n, VALUES])?,
                        &layer.out,
                        None,
                        Residual(&a.x),
                        &a.x,
                    )?;
                }
                Mixer::Attention {
                    q,
                    gate,
                    k,
                    v,
                    q_norm,
                    k_norm,
                    keys,
                    values,
                } => {
                    let (new_k, new_v) = (keys.rows(at..at + n)?, values.rows(at..at + n)?);
                    let row = [n, KV_HEADS * HEAD_DIM];
                    matmul(r, &a.h, q, None, Plain, &a.q.view(&[n, HEADS * HEAD_DIM])?)?;
                    matmul(r, &a.h, gate, None, Plain, &a.gate)?;
                    matmul(r, &a.h, k, None, Plain, &new_k.view(&row)?)?;
                    matmul(r, &a.h, v, None, Plain, &new_v.view(&row)?)?;
                    rms_norm(r, &a.q, q_norm, EPS, &a.q)?;
                    rms_norm(r, &new_k, k_norm, EPS, &new_k)?;
                    rope(r, &a.q, &a.table, &a.q)?;
                    rope(r, &new_k, &a.table, &new_k)?;
                    let scale = 1.0 / (HEAD_DIM as f32).sqrt();
                    for i in 0..n {
                        let part = KvPart {
                            k: &keys.rows(0..at + i + 1)?,
                            v: &values.rows(0..at + i + 1)?,
                            mask: None,
                        };
                        let (q, out) = (a.q.rows(i..i + 1)?, a.attended.rows(i..i + 1)?);
                        attention(r, &q, &[part], scale, &out)?;
                    }
                    let attended = a.attended.view(&[n, HEADS * HEAD_DIM])?;
                    sigmoid_gate(r, &attended, &a.gate, &attended)?;
                    matmul(r, &attended, &layer.out, None, Residual(&a.x), &a.x)?;
                }
            }
            rms_norm(r, &a.x, &layer.post_norm, EPS, &a.h)?;
            matmul(r, &a.h, &layer.gate, None, Plain, &a.up_gate)?;
            matmul(r, &a.h, &layer.up, None, Plain, &a.up)?;
            silu_gate(r, &a.up, &a.up_gate, &a.up)?;
            matmul(r, &a.up, &layer.down, None, Residual(&a.x), &a.x)?;
        }
        rms_norm(r, &a.x, &self.norm, EPS, &a.h)?;
        matmul(r, &a.h, &self.head, None, Plain, &a.logits)
    }

    /// Everything that the layers keep, by the names of the golden file, with as many keys and values.
    fn kept(&self, ctx: &Context, tokens: usize) -> BTreeMap<String, Vec<f32>> {
        let mut all = BTreeMap::new();
        for (i, layer) in self.layers.iter().enumerate() {
            match &layer.mixer {
                Mixer::Delta {
                    conv_state, state, ..
                } => {
                    all.insert(format!("l{i}.conv"), conv_state.download_f32(ctx).unwrap());
                    all.insert(format!("l{i}.rec"), state.download_f32(ctx).unwrap());
                }
                Mixer::Attention { keys, values, .. } => {
                    for (name, cache) in [("k", keys), ("v", values)] {
                        let rows = cache.rows(0..tokens).unwrap().download_f32(ctx).unwrap();
                        all.insert(format!("l{i}.{name}"), rows);
                    }
                }
            }
        }
        all
    }
}

struct Activations {
    tokens: usize,
    ids: Tensor,
    positions: Tensor,
    table: Tensor,
    x: Tensor,
    h: Tensor,
    qkv: Tensor,
    mixed: Tensor,
    z: Tensor,
    a: Tensor,
    b: Tensor,
    g: Tensor,
    beta: Tensor,
    o: Tensor,
    scratch: Tensor,
    q: Tensor,
    gate: Tensor,
    attended: Tensor,
    up: Tensor,
    up_gate: Tensor,
    logits: Tensor,
}

impl Activations {
    fn new(ctx: &Context, n: usize) -> Activations {
        let f = |shape: &[usize]| common::poisoned(ctx, shape);
        Activations {
            tokens: n,
            ids: ints(ctx, &vec![0; n]),
            positions: ints(ctx, &vec![0; n]),
            table: f(&[n, ROTATED]),
            x: f(&[n, HIDDEN]),
            h: f(&[n, HIDDEN]),
            qkv: f(&[n, DELTA.columns()]),
            mixed: f(&[n, DELTA.columns()]),
            z: f(&[n, VALUES]),
            a: f(&[n, DELTA.value_heads]),
            b: f(&[n, DELTA.value_heads]),
            g: f(&[n, DELTA.value_heads]),
            beta: f(&[n, DELTA.value_heads]),
            o: f(&[n, DELTA.value_heads, DELTA.value_dim]),
            scratch: f(&[DELTA.scratch(DType::F32, n)]),
            q: f(&[n, HEADS, HEAD_DIM]),
            gate: f(&[n, HEADS * HEAD_DIM]),
            attended: f(&[n, HEADS, HEAD_DIM]),
            up: f(&[n, MLP]),
            up_gate: f(&[n, MLP]),
            logits: f(&[n, VOCABULARY]),
        }
    }

    fn upload(&self, ctx: &Context, ids: &[i32], at: usize) {
        let positions: Vec<i32> = (at..at + ids.len()).map(|p| p as i32).collect();
        for (t, values) in [(&self.ids, ids), (&self.positions, &positions[..])] {
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
            ctx.upload(t.slice(), &bytes).unwrap();
        }
    }
}

/// Logits of the prompt and of every decoded token, then what is kept after each, as one row of numbers.
fn run(ctx: &Context, is_chunked: bool) -> Vec<f32> {
    let golden = SafeTensors::deserialize(GOLDEN).unwrap();
    let model = Model::new(ctx);
    let mut all = Vec::new();
    let run = |a: &Activations, at: usize, is_chunked: bool| {
        let graph = ctx.graph("qwen35", 0).unwrap();
        graph
            .capture(0, |r| model.record(r, a, at, is_chunked))
            .unwrap();
        graph.replay(0, StreamId(0)).unwrap();
        ctx.synchronize(StreamId(0)).unwrap();
        a.logits.download_f32(ctx).unwrap()
    };
    let prompt = Activations::new(ctx, PROMPT);
    prompt.upload(ctx, &integers(&golden, "prompt"), 0);
    all.extend(run(&prompt, 0, is_chunked));
    all.extend(model.kept(ctx, PROMPT).into_values().flatten());
    let one = Activations::new(ctx, 1);
    let ids = integers(&golden, "decode_ids");
    for (i, id) in ids[..DECODED].iter().enumerate() {
        one.upload(ctx, &[*id], PROMPT + i);
        all.extend(run(&one, PROMPT + i, false));
    }
    all.extend(model.kept(ctx, PROMPT + DECODED).into_values().flatten());
    all
}

/// The same numbers of the golden file, with their names and sizes.
fn golden() -> Vec<(String, Vec<f32>)> {
    let file = SafeTensors::deserialize(GOLDEN).unwrap();
    let mut all = Vec::new();
    for (logits, kept) in [
        ("prefill_logits", "after_prefill"),
        ("decode_logits", "after_decode"),
    ] {
        all.push((logits.to_owned(), floats(&file, logits)));
        for part in [
            "l0.conv", "l0.rec", "l1.conv", "l1.rec", "l2.conv", "l2.rec", "l3.k", "l3.v",
        ] {
            let name = format!("{kept}.{part}");
            let mut values = floats(&file, &name);
            if part.ends_with("conv") {
                // Four inputs a channel there, of which the oldest is never read again.
                values = values
                    .chunks_exact(4)
                    .flat_map(|c| c[1..].to_vec())
                    .collect();
            }
            if part.starts_with("l3") {
                // [heads, tokens, dim] there.
                let tokens = values.len() / (KV_HEADS * HEAD_DIM);
                let at = |t: usize, h: usize| (h * tokens + t) * HEAD_DIM;
                let rows = (0..tokens).flat_map(|t| (0..KV_HEADS).map(move |h| at(t, h)));
                values = rows
                    .flat_map(|i| values[i..i + HEAD_DIM].to_vec())
                    .collect();
            }
            all.push((name, values));
        }
    }
    all
}

/// Largest error relative to the largest value. Both sides compute in f32. Nearly all is within 1e-5, but three prompt tokens have a
/// head whose output is a hundred times smaller than usual, which the gated norm brings back to size with its rounding: there the
/// golden logits are 1.4e-4 from the same network in float64.
const TOLERANCE: f32 = 2e-4;

fn compare(mut got: &[f32]) {
    for (name, want) in golden() {
        let (part, rest) = got.split_at(want.len());
        got = rest;
        let scale = want.iter().fold(0f32, |m, x| m.max(x.abs()));
        let off = part.iter().zip(&want).fold(0f32, |m, (g, w)| {
            if g.is_finite() {
                m.max((g - w).abs())
            } else {
                f32::NAN
            }
        });
        println!("{name}: {:.1e}", off / scale);
        assert!(
            off <= TOLERANCE * scale,
            "{name}: off by {off:e} of {scale}"
        );
    }
    assert!(got.is_empty());
}

#[test]
fn a_prompt_in_chunks_and_decoding_give_the_golden_logits_and_states() {
    compare(&everywhere(|ctx| run(ctx, true)));
}

#[test]
fn a_prompt_token_by_token_gives_the_golden_logits_and_states() {
    compare(&everywhere(|ctx| run(ctx, false)));
}
