//! The gated delta rule: linear attention with a matrix of state a head, which forgets and corrects itself.

use flashrt_exec::{BackendKind, Recorder};

use crate::check::{operand, Check};
use crate::device::{is_packed, Call, DELTA};
use crate::lanes::{Lanes, LANES};
use crate::launch::{on_device, record, Kernel, Ptr};
use crate::math;
use crate::{DType, Error, Tensor};

/// Tokens that [`gated_delta`] takes at once; `CHUNK` of `kernels/delta.cu`.
const CHUNK: usize = 64;
/// Columns of the state that one block of a GPU has; `SLICE` of `kernels/delta.cu`.
const SLICE: usize = 32;
/// f32 that the bf16 kernels keep of one chunk of one head; `PIECES` of `kernels/delta.cu`, 16 bytes each.
const PIECES: usize = (4 * 512 + CHUNK) * 4;
/// Below a vector's square before its root is taken, as in the checkpoints' own code.
const NORM_EPS: f32 = 1e-6;

/// Heads of a gated delta rule.
#[derive(Clone, Copy, Debug)]
pub struct DeltaShape {
    /// Heads of queries and keys, HK.
    pub key_heads: usize,
    /// Heads of values, HV, a multiple of HK: value head h reads key head `h / (HV/HK)`.
    pub value_heads: usize,
    /// Elements of a query or key, DK.
    pub key_dim: usize,
    /// Elements of a value, DV.
    pub value_dim: usize,
    /// Divide queries and keys by `√(Σx² + 1e-6)` first.
    pub normalize: bool,
    /// Factor of the queries, usually 1/√DK.
    pub scale: f32,
}

impl DeltaShape {
    /// Columns of `qkv`: 2·HK·DK + HV·DV.
    pub fn columns(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }

    /// f32 elements of the scratch of [`gated_delta`] for `tokens` tokens of this type.
    pub fn scratch(&self, dtype: DType, tokens: usize) -> usize {
        match dtype {
            DType::F32 => self.value_heads * self.per_head(),
            _ => self.value_heads * tokens.div_ceil(CHUNK) * PIECES,
        }
    }

    /// f32 that one head needs for a chunk: A, P, four vectors, N.
    fn per_head(&self) -> usize {
        2 * CHUNK * CHUNK + 4 * CHUNK + CHUNK * self.value_dim
    }
}

/// Operands of [`gated_delta`] and [`gated_delta_steps`].
#[derive(Clone, Copy, Debug)]
pub struct GatedDelta<'a> {
    /// `[T, 2·HK·DK + HV·DV]`: a row a token, all queries, all keys, all values; f32, on CUDA also bf16.
    pub qkv: &'a Tensor,
    /// Logarithm of the decay, at most 0, `[T, HV]` f32.
    pub g: &'a Tensor,
    /// How much of a value is written, `[T, HV]` f32.
    pub beta: &'a Tensor,
    /// `[HV, DK, DV]` f32, read and updated in place.
    pub state: &'a Tensor,
    /// `[T, HV, DV]`, f32 or qkv's type.
    pub out: &'a Tensor,
}

/// For one token after another, per value head: `S = exp(g)·S`, `S += k ⊗ beta·(v - kᵀS)`, `out = scale·qᵀS`; for a prompt, in
/// chunks of 64 tokens.
///
/// With G the sum of g from a chunk's start, its new rows solve the triangular system
/// `N_i = beta_i·(v_i - exp(G_i)·k_iᵀS - Σ_{j<i} exp(G_i - G_j)·(k_i·k_j)·N_j)`; the rule's published chunkwise ("WY") form. `scratch`
/// has [`DeltaShape::scratch`] f32 elements. bf16 runs on tensor cores, with f32 state and about 16 bits in between: there DK is 64
/// or 128, DV a multiple of 32, and qkv starts on 16 bytes. In f32 all backends give equal bits.
///
/// # Errors
/// [`Error::Shape`], [`Error::DType`], [`Error::Overlap`], [`Error::Argument`]; the recorder's own errors.
pub fn gated_delta(
    r: &mut Recorder<'_>,
    shape: &DeltaShape,
    t: &GatedDelta<'_>,
    scratch: &Tensor,
) -> Result<(), Error> {
    let c = Check("gated_delta");
    let tokens = check(c, r.backend(), shape, t)?;
    let need = shape.scratch(t.qkv.dtype(), tokens);
    c.f32("scratch", scratch)?;
    if scratch.numel() < need {
        return Err(c.bad_shape("scratch", scratch, format!("at least {need} elements")));
    }
    c.apart(
        operand("scratch", scratch),
        &[
            operand("qkv", t.qkv),
            operand("g", t.g),
            operand("beta", t.beta),
            operand("state", t.state),
            operand("out", t.out),
        ],
    )?;
    let touches = [t.qkv, t.g, t.beta, t.state, t.out, scratch];
    if t.qkv.dtype() != DType::F32 {
        let (prepare, chunks) = match (shape.key_dim, t.out.dtype()) {
            (64, DType::F32) => ("delta_prepare_64_bf16", "delta_chunks_64_f32"),
            (64, _) => ("delta_prepare_64_bf16", "delta_chunks_64_bf16"),
            (_, DType::F32) => ("delta_prepare_128_bf16", "delta_chunks_128_f32"),
            _ => ("delta_prepare_128_bf16", "delta_chunks_128_bf16"),
        };
        if tokens == 0 {
            return Ok(());
        }
        let first = Call::new(&DELTA, prepare)
            .blocks(tokens.div_ceil(CHUNK), shape.value_heads)
            .threads(128)
            .tensor(t.qkv)
            .tensor(t.g)
            .tensor(t.beta)
            .tensor(scratch);
        let second = Call::new(&DELTA, chunks)
            .blocks(shape.value_dim / SLICE, shape.value_heads)
            .shared(
                3 * CHUNK * (shape.key_dim + 8) * 2
                    + 2 * shape.key_dim * SLICE * 2
                    + 6 * CHUNK * SLICE * 2,
            )
            .tensor(t.qkv)
            .tensor(scratch)
            .tensor(t.state)
            .tensor(t.out);
        let calls = vec![heads(first, shape, tokens), heads(second, shape, tokens)];
        return on_device(r, c.0, &touches, calls);
    }
    let kernel = Chunks {
        rule: Rule::new(shape, t, tokens),
        scratch: Ptr::of(scratch),
        per_head: shape.per_head(),
    };
    record(r, c.0, &touches, kernel, || {
        let call = Call::new(&DELTA, "delta_chunks_f32")
            .blocks(shape.value_heads, 1)
            .tensor(t.qkv)
            .tensor(t.g)
            .tensor(t.beta)
            .tensor(t.state)
            .tensor(t.out)
            .tensor(scratch);
        vec![heads(call, shape, tokens).size(shape.key_dim)]
    })
}

/// As [`gated_delta`], token by token as the rule is written: for decoding, where T is 1 or a few.
///
/// # Errors
/// As [`gated_delta`].
pub fn gated_delta_steps(
    r: &mut Recorder<'_>,
    shape: &DeltaShape,
    t: &GatedDelta<'_>,
) -> Result<(), Error> {
    let c = Check("gated_delta_steps");
    let tokens = check(c, r.backend(), shape, t)?;
    let touches = [t.qkv, t.g, t.beta, t.state, t.out];
    let operands = |call: Call| {
        let call = call.tensor(t.qkv).tensor(t.g).tensor(t.beta);
        heads(call.tensor(t.state).tensor(t.out), shape, tokens)
    };
    if t.qkv.dtype() != DType::F32 {
        let kernel = match (shape.key_dim, t.out.dtype()) {
            (64, DType::F32) => "delta_steps_64_f32",
            (64, _) => "delta_steps_64_bf16",
            (_, DType::F32) => "delta_steps_128_f32",
            _ => "delta_steps_128_bf16",
        };
        if tokens == 0 {
            return Ok(());
        }
        let call = Call::new(&DELTA, kernel).blocks(shape.value_dim / SLICE, shape.value_heads);
        return on_device(r, c.0, &touches, vec![operands(call)]);
    }
    let kernel = Steps(Rule::new(shape, t, tokens));
    record(r, c.0, &touches, kernel, || {
        let call = Call::new(&DELTA, "delta_steps_f32")
            .blocks(shape.value_dim.div_ceil(64), shape.value_heads)
            .threads(64);
        vec![operands(call).size(shape.key_dim)]
    })
}

/// The struct `Heads` of `kernels/delta.cu`.
fn heads(call: Call, shape: &DeltaShape, tokens: usize) -> Call {
    call.words(
        &[
            tokens,
            shape.key_heads,
            shape.value_heads,
            shape.value_dim,
            usize::from(shape.normalize),
        ],
        shape.scale,
    )
}

/// The number of tokens.
fn check(
    c: Check,
    backend: BackendKind,
    shape: &DeltaShape,
    t: &GatedDelta<'_>,
) -> Result<usize, Error> {
    let DeltaShape {
        key_heads: hk,
        value_heads: hv,
        key_dim: dk,
        value_dim: dv,
        ..
    } = *shape;
    let fits = hk > 0 && hv > 0 && hv % hk == 0 && dk > 0 && dv > 0;
    c.argument(
        "shape",
        fits,
        "dimensions above 0, value_heads a multiple of key_heads",
        format!("{hk} and {hv} heads of {dk} and {dv}"),
    )?;
    c.argument("scale", shape.scale.is_finite(), "finite", shape.scale)?;
    match backend {
        BackendKind::Cuda => c.dtype("qkv", t.qkv, &[DType::F32, DType::BF16], "f32 or bf16")?,
        _ => c.dtype("qkv", t.qkv, &[DType::F32], "f32 (bf16 on cuda only)")?,
    }
    c.rank("qkv", t.qkv, 2, "[T, 2·HK·DK + HV·DV]")?;
    let tokens = t.qkv.shape()[0];
    c.shape("qkv", t.qkv, &[tokens, shape.columns()])?;
    c.f32_shape("g", t.g, &[tokens, hv])?;
    c.f32_shape("beta", t.beta, &[tokens, hv])?;
    c.f32_shape("state", t.state, &[hv, dk, dv])?;
    if t.out.dtype() != t.qkv.dtype() {
        c.dtype("out", t.out, &[DType::F32], "f32 or qkv's type")?;
    }
    c.shape("out", t.out, &[tokens, hv, dv])?;
    let inputs = [
        operand("qkv", t.qkv),
        operand("g", t.g),
        operand("beta", t.beta),
    ];
    c.apart(operand("out", t.out), &inputs)?;
    c.apart(operand("state", t.state), &inputs)?;
    c.apart(operand("out", t.out), &[operand("state", t.state)])?;
    if t.qkv.dtype() != DType::F32 {
        c.argument(
            "shape",
            (dk == 64 || dk == 128) && dv % SLICE == 0,
            "key_dim 64 or 128 and value_dim a multiple of 32 for bf16",
            format!("{dk} and {dv}"),
        )?;
        if !is_packed(&[t.qkv], 8) {
            return Err(c.bad_shape("qkv", t.qkv, "an address of 16 bytes".to_owned()));
        }
    }
    Ok(tokens)
}

/// Pointers and sizes of the f32 halves.
#[derive(Clone, Copy)]
struct Rule {
    qkv: Ptr<f32>,
    g: Ptr<f32>,
    beta: Ptr<f32>,
    state: Ptr<f32>,
    out: Ptr<f32>,
    tokens: usize,
    shape: DeltaShape,
}

/// e^x of one value.
#[inline(always)]
fn exp<V: Lanes>(x: f32) -> f32 {
    math::exp(V::splat(x)).to_array()[0]
}

#[inline(always)]
unsafe fn dot(a: *const f32, b: *const f32, n: usize) -> f32 {
    let mut sum = 0f32;
    for i in 0..n {
        sum = (*a.add(i)).mul_add(*b.add(i), sum);
    }
    sum
}

impl Rule {
    fn new(shape: &DeltaShape, t: &GatedDelta<'_>, tokens: usize) -> Rule {
        // Bf16 has no half here; its pointers would be of another type.
        Rule {
            qkv: Ptr::of(t.qkv),
            g: Ptr::of(t.g),
            beta: Ptr::of(t.beta),
            state: Ptr::of(t.state),
            out: Ptr::of(t.out),
            tokens,
            shape: *shape,
        }
    }

    #[inline(always)]
    unsafe fn row(&self, token: usize) -> *const f32 {
        self.qkv.get().add(token * self.shape.columns())
    }

    #[inline(always)]
    unsafe fn query(&self, token: usize, head: usize) -> *const f32 {
        let s = &self.shape;
        self.row(token)
            .add(head / (s.value_heads / s.key_heads) * s.key_dim)
    }

    #[inline(always)]
    unsafe fn key(&self, token: usize, head: usize) -> *const f32 {
        self.query(token, head)
            .add(self.shape.key_heads * self.shape.key_dim)
    }

    #[inline(always)]
    unsafe fn value(&self, token: usize, head: usize) -> *const f32 {
        let s = &self.shape;
        self.row(token)
            .add(2 * s.key_heads * s.key_dim + head * s.value_dim)
    }

    #[inline(always)]
    unsafe fn inverse_norm(&self, x: *const f32) -> f32 {
        match self.shape.normalize {
            true => 1.0 / (dot(x, x, self.shape.key_dim) + NORM_EPS).sqrt(),
            false => 1.0,
        }
    }

    #[inline(always)]
    unsafe fn home(&self, head: usize) -> *mut f32 {
        let s = &self.shape;
        self.state.mut_ptr().add(head * s.key_dim * s.value_dim)
    }

    #[inline(always)]
    unsafe fn out(&self, token: usize, head: usize) -> *mut f32 {
        let s = &self.shape;
        self.out
            .mut_ptr()
            .add((token * s.value_heads + head) * s.value_dim)
    }
}

/// `Σ_i scale_i·rows[i]` added to `sum` in order, over lanes of columns.
#[inline(always)]
unsafe fn chain<V: Lanes>(
    mut sum: V,
    rows: *const f32,
    stride: usize,
    count: usize,
    lanes: usize,
    scale: impl Fn(usize) -> f32,
) -> V {
    for i in 0..count {
        let row = V::load_part(rows.add(i * stride), lanes, 0.0);
        sum = row.fma(V::splat(scale(i)), sum);
    }
    sum
}

/// A head and sixteen columns of its state a task.
struct Steps(Rule);

impl Kernel for Steps {
    fn tasks(&self) -> usize {
        match self.0.tokens {
            0 => 0,
            _ => self.0.shape.value_heads * self.0.shape.value_dim.div_ceil(LANES),
        }
    }

    #[inline(always)]
    unsafe fn run<V: Lanes>(&self, task: usize) {
        let rule = &self.0;
        let DeltaShape {
            key_dim: dk,
            value_dim: dv,
            value_heads: hv,
            scale,
            ..
        } = rule.shape;
        let groups = dv.div_ceil(LANES);
        let (head, at) = (task / groups, task % groups * LANES);
        let lanes = LANES.min(dv - at);
        let state = rule.home(head).add(at);
        for token in 0..rule.tokens {
            let (q, k) = (rule.query(token, head), rule.key(token, head));
            let fq = rule.inverse_norm(q) * scale;
            let fk = rule.inverse_norm(k);
            let decay = V::splat(exp::<V>(*rule.g.get().add(token * hv + head)));
            let beta = *rule.beta.get().add(token * hv + head);
            let mut seen = V::splat(0.0);
            for d in 0..dk {
                let s = V::load_part(state.add(d * dv), lanes, 0.0).mul(decay);
                s.store_part(state.add(d * dv), lanes);
                seen = s.fma(V::splat(*k.add(d)), seen);
            }
            let v = V::load_part(rule.value(token, head).add(at), lanes, 0.0);
            let change = seen
                .fma(V::splat(-fk), v)
                .mul(V::splat(beta))
                .mul(V::splat(fk));
            let mut o = V::splat(0.0);
            for d in 0..dk {
                let s = V::load_part(state.add(d * dv), lanes, 0.0);
                let s = change.fma(V::splat(*k.add(d)), s);
                s.store_part(state.add(d * dv), lanes);
                o = s.fma(V::splat(*q.add(d)), o);
            }
            o.mul(V::splat(fq))
                .store_part(rule.out(token, head).add(at), lanes);
        }
    }
}

/// A head a task.
struct Chunks {
    rule: Rule,
    scratch: Ptr<f32>,
    per_head: usize,
}

impl Kernel for Chunks {
    fn tasks(&self) -> usize {
        match self.rule.tokens {
            0 => 0,
            _ => self.rule.shape.value_heads,
        }
    }

    #[inline(always)]
    unsafe fn run<V: Lanes>(&self, head: usize) {
        let rule = &self.rule;
        let DeltaShape {
            key_dim: dk,
            value_dim: dv,
            value_heads: hv,
            scale,
            ..
        } = rule.shape;
        let state = rule.home(head);
        let a = self.scratch.mut_ptr().add(head * self.per_head);
        let p = a.add(CHUNK * CHUNK);
        let sum = p.add(CHUNK * CHUNK);
        let (fq, fk, end) = (sum.add(CHUNK), sum.add(2 * CHUNK), sum.add(3 * CHUNK));
        let new = sum.add(4 * CHUNK);
        for first in (0..rule.tokens).step_by(CHUNK) {
            let n = CHUNK.min(rule.tokens - first);
            let mut total = 0f32;
            for i in 0..n {
                total += *rule.g.get().add((first + i) * hv + head);
                *sum.add(i) = total;
                *fq.add(i) = rule.inverse_norm(rule.query(first + i, head)) * scale;
                *fk.add(i) = rule.inverse_norm(rule.key(first + i, head));
            }
            for i in 0..n {
                *end.add(i) = exp::<V>(total - *sum.add(i)) * *fk.add(i);
                let (q, k) = (rule.query(first + i, head), rule.key(first + i, head));
                let beta = *rule.beta.get().add((first + i) * hv + head);
                for j in 0..=i {
                    let other = rule.key(first + j, head);
                    let decay = exp::<V>(*sum.add(i) - *sum.add(j)) * *fk.add(j);
                    *a.add(i * CHUNK + j) = dot(k, other, dk) * decay * *fk.add(i) * beta;
                    *p.add(i * CHUNK + j) = dot(q, other, dk) * decay * *fq.add(i);
                }
            }
            for at in (0..dv).step_by(LANES) {
                let lanes = LANES.min(dv - at);
                let zero = V::splat(0.0);
                for i in 0..n {
                    let (q, k) = (rule.query(first + i, head), rule.key(first + i, head));
                    let beta = *rule.beta.get().add((first + i) * hv + head);
                    let since = exp::<V>(*sum.add(i));
                    let seen = chain::<V>(zero, state.add(at), dv, dk, lanes, |d| *k.add(d));
                    let v = V::load_part(rule.value(first + i, head).add(at), lanes, 0.0);
                    let x = seen
                        .fma(V::splat(-(since * *fk.add(i))), v)
                        .mul(V::splat(beta));
                    let x = chain(x, new.add(at), dv, i, lanes, |j| -*a.add(i * CHUNK + j));
                    x.store_part(new.add(i * dv + at), lanes);
                    let o = chain::<V>(zero, state.add(at), dv, dk, lanes, |d| *q.add(d));
                    let o = o.mul(V::splat(since * *fq.add(i)));
                    let o = chain(o, new.add(at), dv, i + 1, lanes, |j| *p.add(i * CHUNK + j));
                    o.store_part(rule.out(first + i, head).add(at), lanes);
                }
                let decay = V::splat(exp::<V>(total));
                for d in 0..dk {
                    let place = state.add(d * dv + at);
                    let s = V::load_part(place, lanes, 0.0).mul(decay);
                    let k = |j: usize| *rule.key(first + j, head).add(d) * *end.add(j);
                    chain(s, new.add(at), dv, n, lanes, k).store_part(place, lanes);
                }
            }
        }
    }
}
