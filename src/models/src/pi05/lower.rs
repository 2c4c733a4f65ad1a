//! The two stages as recorded operations.
//!
//! Formulas are those of LeRobot's `PI05Pytorch`: norm epsilons 1e-6 everywhere, RoPE pairs the halves of a
//! head, the flow-time embedding is not rounded to 16 bits.

use flashrt_exec::Recorder;
use flashrt_ops::{
    action_unnormalize, ada_rms_norm, add_position, attention, axpy, clamp, embed_gather, latch,
    layer_norm, matmul, patch_embed, philox_normal, positions_from_mask, rms_norm, rope,
    rope_table, style_gate, suffix_positions, Anchor, Epilogue, KvPart, Tensor,
};

use super::params::{Linear, Params};
use super::set::{Noise, SetBuffers};
use super::Pi05Config;
use crate::Error;

const EPS: f32 = 1e-6;
const ROPE_BASE: f64 = 10_000.0;

fn linear(
    r: &mut Recorder<'_>,
    x: &Tensor,
    l: &Linear,
    epilogue: Epilogue<'_>,
    out: &Tensor,
) -> Result<(), Error> {
    Ok(matmul(r, x, &l.w, l.b.as_ref(), epilogue, out)?)
}

/// A `[M, H, D]` tensor as `[M, H·D]`.
fn flat(t: &Tensor) -> Result<Tensor, Error> {
    let s = t.shape();
    Ok(t.view(&[s[0], s[1] * s[2]])?)
}

/// Vision tower and prefix: from the host's staged inputs to keys, values, mask and latched state.
pub(super) fn context(
    r: &mut Recorder<'_>,
    c: &Pi05Config,
    p: &Params,
    b: &SetBuffers,
) -> Result<(), Error> {
    let s = &b.s;
    latch(r, &b.in_images, &s.images)?;
    latch(r, &b.in_tokens, &s.tokens)?;
    latch(r, &b.in_mask, &b.key_mask)?;
    latch(r, &b.in_state, &b.state)?;

    vision(r, c, p, b)?;
    let n = c.image_tokens();
    linear(r, &s.vh, &p.proj, Epilogue::None, &s.px.rows(0..n)?)?;
    let text = s.px.rows(n..c.prefix_tokens())?;
    embed_gather(
        r,
        &p.embed,
        &s.tokens,
        (c.width as f64).sqrt() as f32,
        &text,
    )?;
    if let Some(t) = &b.taps {
        latch(r, &s.vh, &t.siglip)?;
        latch(r, &s.px, &t.prefix_embs)?;
    }

    positions_from_mask(r, &b.key_mask, &s.positions)?;
    rope_table(r, &s.positions, ROPE_BASE, &s.rope)?;
    let scale = 1.0 / (c.head_dim as f32).sqrt();
    for (layer, (keys, values)) in p.prefix.iter().zip(b.keys.iter().zip(&b.values)) {
        rms_norm(r, &s.px, &layer.norm1, EPS, &s.ph)?;
        linear(r, &s.ph, &layer.k, Epilogue::None, &flat(keys)?)?;
        linear(r, &s.ph, &layer.v, Epilogue::None, &flat(values)?)?;
        rope(r, keys, &s.rope, keys)?;
        let Some((rest, norm2)) = &layer.rest else {
            break;
        };
        linear(r, &s.ph, &rest.q, Epilogue::None, &flat(&s.pq)?)?;
        rope(r, &s.pq, &s.rope, &s.pq)?;
        attention(
            r,
            &s.pq,
            &[KvPart {
                k: keys,
                v: values,
                mask: Some(&b.key_mask),
            }],
            scale,
            &s.pa,
        )?;
        linear(r, &flat(&s.pa)?, &rest.o, Epilogue::Residual(&s.px), &s.px)?;
        rms_norm(r, &s.px, norm2, EPS, &s.ph)?;
        linear(r, &s.ph, &rest.gate, Epilogue::None, &s.pm)?;
        linear(r, &s.ph, &rest.up, Epilogue::GegluUp { gate: &s.pm }, &s.pm)?;
        linear(r, &s.pm, &rest.down, Epilogue::Residual(&s.px), &s.px)?;
    }
    if let (Some(t), Some(norm)) = (&b.taps, &p.prefix_norm) {
        rms_norm(r, &s.px, norm, EPS, &t.prefix_out)?;
    }
    Ok(())
}

/// Images to vision tokens, all views at once; the result is in `vh`.
fn vision(r: &mut Recorder<'_>, c: &Pi05Config, p: &Params, b: &SetBuffers) -> Result<(), Error> {
    let s = &b.s;
    let (n, heads) = (c.view_tokens(), c.v_heads);
    let dim = c.v_width / heads;
    let scale = 1.0 / (dim as f32).sqrt();
    patch_embed(
        r,
        &s.images,
        c.patch,
        &p.patch.w,
        p.patch.b.as_ref(),
        &s.patches,
        &s.vx,
    )?;
    add_position(r, &s.vx, &p.pos, &s.vx)?;
    for l in &p.vision {
        layer_norm(r, &s.vx, &l.ln1.w, &l.ln1.b, EPS, &s.vh)?;
        linear(r, &s.vh, &l.q, Epilogue::None, &s.vq)?;
        linear(r, &s.vh, &l.k, Epilogue::None, &s.vk)?;
        linear(r, &s.vh, &l.v, Epilogue::None, &s.vv)?;
        for view in 0..c.num_views {
            let part = |t: &Tensor| t.rows(view * n..(view + 1) * n)?.view(&[n, heads, dim]);
            let (k, v) = (part(&s.vk)?, part(&s.vv)?);
            attention(
                r,
                &part(&s.vq)?,
                &[KvPart {
                    k: &k,
                    v: &v,
                    mask: None,
                }],
                scale,
                &part(&s.va)?,
            )?;
        }
        linear(r, &s.va, &l.out, Epilogue::Residual(&s.vx), &s.vx)?;
        layer_norm(r, &s.vx, &l.ln2.w, &l.ln2.b, EPS, &s.vh)?;
        linear(r, &s.vh, &l.fc1, Epilogue::GeluTanh, &s.vm)?;
        linear(r, &s.vm, &l.fc2, Epilogue::Residual(&s.vx), &s.vx)?;
    }
    Ok(layer_norm(
        r,
        &s.vx,
        &p.vision_norm.w,
        &p.vision_norm.b,
        EPS,
        &s.vh,
    )?)
}

/// Noise to actions in `steps` flow steps over cached keys and values.
pub(super) fn action(
    r: &mut Recorder<'_>,
    c: &Pi05Config,
    p: &Params,
    b: &SetBuffers,
    steps: u32,
) -> Result<(), Error> {
    let s = &b.s;
    let bucket = p.buckets.get(&steps).ok_or_else(|| Error::Value {
        key: "flow_steps",
        got: steps.to_string(),
        rule: format!("expected one of {:?}", p.buckets.keys()),
    })?;
    match &b.noise {
        Noise::Philox(rng) => philox_normal(r, rng, &b.x)?,
        Noise::External(noise) => latch(r, noise, &b.x)?,
    }
    suffix_positions(r, &b.key_mask, &s.action_positions)?;
    rope_table(r, &s.action_positions, ROPE_BASE, &s.action_rope)?;
    if let Some(t) = &b.taps {
        latch(r, &bucket.cond, &t.cond.rows(0..steps as usize)?)?;
    }

    let scale = 1.0 / (c.head_dim as f32).sqrt();
    for k in 0..steps as usize {
        let styles = bucket
            .styles
            .rows(k..k + 1)?
            .view(&[2 * c.depth + 1, 3 * c.ex_width])?;
        let style = |site: usize| styles.rows(site..site + 1)?.view(&[3 * c.ex_width]);
        linear(r, &b.x, &p.action_in, Epilogue::None, &s.ax)?;
        for (i, layer) in p.expert.iter().enumerate() {
            let (style1, style2) = (style(2 * i)?, style(2 * i + 1)?);
            ada_rms_norm(r, &s.ax, &style1, EPS, &s.ah)?;
            linear(r, &s.ah, &layer.rest.q, Epilogue::None, &flat(&s.aq)?)?;
            linear(r, &s.ah, &layer.k, Epilogue::None, &flat(&s.ak)?)?;
            linear(r, &s.ah, &layer.v, Epilogue::None, &flat(&s.av)?)?;
            rope(r, &s.aq, &s.action_rope, &s.aq)?;
            rope(r, &s.ak, &s.action_rope, &s.ak)?;
            let prefix = KvPart {
                k: &b.keys[i],
                v: &b.values[i],
                mask: Some(&b.key_mask),
            };
            let own = KvPart {
                k: &s.ak,
                v: &s.av,
                mask: None,
            };
            attention(r, &s.aq, &[prefix, own], scale, &s.aa)?;
            let gate = style_gate(&style1)?;
            let residual = Epilogue::ResidualGate {
                residual: &s.ax,
                gate: &gate,
            };
            linear(r, &flat(&s.aa)?, &layer.rest.o, residual, &s.ax)?;
            ada_rms_norm(r, &s.ax, &style2, EPS, &s.ah)?;
            linear(r, &s.ah, &layer.rest.gate, Epilogue::None, &s.am)?;
            linear(
                r,
                &s.ah,
                &layer.rest.up,
                Epilogue::GegluUp { gate: &s.am },
                &s.am,
            )?;
            let gate = style_gate(&style2)?;
            let residual = Epilogue::ResidualGate {
                residual: &s.ax,
                gate: &gate,
            };
            linear(r, &s.am, &layer.rest.down, residual, &s.ax)?;
        }
        // The gate of the last norm is not used.
        ada_rms_norm(r, &s.ax, &style(2 * c.depth)?, EPS, &s.ah)?;
        linear(r, &s.ah, &p.action_out, Epilogue::None, &s.velocity)?;
        axpy(r, &b.x, (-1.0 / f64::from(steps)) as f32, &s.velocity)?;
        if let Some(t) = &b.taps {
            latch(r, &s.velocity, &t.velocity.rows(k..k + 1)?)?;
            latch(r, &b.x, &t.x.rows(k..k + 1)?)?;
        }
    }

    let raw = if p.clip {
        clamp(r, &b.x, -1.0, 1.0, &s.clipped)?;
        &s.clipped
    } else {
        &b.x
    };
    let anchor = Anchor {
        state: &b.state,
        mask: &p.anchored,
    };
    action_unnormalize(r, raw, &p.std, &p.mean, Some(anchor), &s.actions)?;
    Ok(latch(r, &s.actions, &b.out_actions)?)
}
