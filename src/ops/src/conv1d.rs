//! Causal depthwise convolution over tokens.

use flashrt_exec::{BackendKind, Recorder};

use crate::check::{operand, Check};
use crate::device::{is_packed, Call, CONV1D, PACK};
use crate::lanes::{Lanes, LANES};
use crate::launch::{on_device, record, Kernel, Ptr};
use crate::math;
use crate::{DType, Error, Tensor};

/// Taps of [`causal_conv1d`]: a token and the three before it.
pub const CONV_TAPS: usize = 4;
/// Tokens of a thread; `TOKENS` of `kernels/conv1d.cu`.
const TOKENS: usize = 16;

/// Operands of [`causal_conv1d`].
#[derive(Clone, Copy, Debug)]
pub struct Conv1d<'a> {
    /// `[T, C]`, a row a token; f32, on CUDA also bf16.
    pub x: &'a Tensor,
    /// `[C, 4]` f32, the newest token's tap last, as in checkpoints.
    pub weight: &'a Tensor,
    /// `[C]` f32.
    pub bias: Option<&'a Tensor>,
    /// `[C, 3]` f32: the three inputs before the first, the newest last; becomes the last three of state and `x`.
    pub state: &'a Tensor,
    /// `[T, C]` of x's type, apart from `x`.
    pub out: &'a Tensor,
}

/// `out[t, c] = f(bias[c] + Σ_j weight[c, j]·x[t - 3 + j, c])`, f the identity or SiLU, with what came before `x` in a state that moves
/// on. Any T: a prompt, or one token of decoding.
///
/// The sum is a chain from the bias on, oldest tap first; in f32 all backends give equal bits.
///
/// # Errors
/// [`Error::Shape`], [`Error::DType`], [`Error::Overlap`]; the recorder's own errors.
pub fn causal_conv1d(r: &mut Recorder<'_>, t: &Conv1d<'_>, is_silu: bool) -> Result<(), Error> {
    let c = Check("causal_conv1d");
    match r.backend() {
        BackendKind::Cuda => c.dtype("x", t.x, &[DType::F32, DType::BF16], "f32 or bf16")?,
        _ => c.dtype("x", t.x, &[DType::F32], "f32 (bf16 on cuda only)")?,
    }
    c.rank("x", t.x, 2, "[T, C]")?;
    let (tokens, channels) = (t.x.shape()[0], t.x.shape()[1]);
    c.f32_shape("weight", t.weight, &[channels, CONV_TAPS])?;
    c.f32_shape("state", t.state, &[channels, CONV_TAPS - 1])?;
    c.like("out", t.out, t.x)?;
    let mut inputs = vec![operand("x", t.x), operand("weight", t.weight)];
    if let Some(bias) = t.bias {
        c.f32_shape("bias", bias, &[channels])?;
        inputs.push(operand("bias", bias));
    }
    c.apart(operand("out", t.out), &inputs)?;
    c.apart(operand("state", t.state), &inputs)?;
    c.apart(operand("out", t.out), &[operand("state", t.state)])?;
    let mut touches = vec![t.x, t.weight, t.state, t.out];
    touches.extend(t.bias);
    let call = |kernel, each: usize| {
        const BLOCK: usize = 128;
        Call::new(&CONV1D, kernel)
            .blocks((channels / each).div_ceil(BLOCK), tokens.div_ceil(TOKENS))
            .threads(BLOCK as u32)
            .tensor(t.x)
            .tensor(t.weight)
            .optional(t.bias)
            .tensor(t.state)
            .tensor(t.out)
            .size(tokens)
            .size(channels)
            .size(usize::from(is_silu))
    };
    if t.x.dtype() != DType::F32 {
        let call = match is_packed(&[t.x, t.out], channels) {
            true => call("conv1d_packed_bf16", PACK / 2),
            false => call("conv1d_bf16", 1),
        };
        return on_device(r, c.0, &touches, vec![call]);
    }
    let kernel = Convolve {
        x: Ptr::of(t.x),
        weight: Ptr::of(t.weight),
        bias: Ptr::of_opt(t.bias),
        state: Ptr::of(t.state),
        out: Ptr::of(t.out),
        tokens,
        channels,
        is_silu,
    };
    record(r, c.0, &touches, kernel, || vec![call("conv1d_f32", 1)])
}

/// Sixteen channels a task.
struct Convolve {
    x: Ptr<f32>,
    weight: Ptr<f32>,
    bias: Option<Ptr<f32>>,
    state: Ptr<f32>,
    out: Ptr<f32>,
    tokens: usize,
    channels: usize,
    is_silu: bool,
}

const BEFORE: usize = CONV_TAPS - 1;

impl Kernel for Convolve {
    fn tasks(&self) -> usize {
        match self.tokens {
            0 => 0,
            _ => self.channels.div_ceil(LANES),
        }
    }

    #[inline(always)]
    unsafe fn run<V: Lanes>(&self, task: usize) {
        let at = task * LANES;
        let lanes = LANES.min(self.channels - at);
        // Column `j` of rows of `width` values, a row a channel.
        let column = |p: *const f32, width: usize, j: usize| {
            let mut a = [0f32; LANES];
            for (i, v) in a.iter_mut().enumerate().take(lanes) {
                *v = *p.add((at + i) * width + j);
            }
            V::load(a.as_ptr())
        };
        let taps: [V; CONV_TAPS] = std::array::from_fn(|j| column(self.weight.get(), CONV_TAPS, j));
        let bias = match self.bias {
            Some(bias) => V::load_part(bias.get().add(at), lanes, 0.0),
            None => V::splat(0.0),
        };
        let mut window = [V::splat(0.0); CONV_TAPS];
        for j in 0..BEFORE {
            window[j + 1] = column(self.state.get(), BEFORE, j);
        }
        for token in 0..self.tokens {
            window.rotate_left(1);
            window[BEFORE] = V::load_part(self.x.get().add(token * self.channels + at), lanes, 0.0);
            let mut y = bias;
            for (x, w) in window.iter().zip(&taps) {
                y = x.fma(*w, y);
            }
            if self.is_silu {
                y = math::silu(y);
            }
            y.store_part(self.out.mut_ptr().add(token * self.channels + at), lanes);
        }
        for j in 0..BEFORE {
            let values = window[j + 1].to_array();
            for (i, v) in values.iter().enumerate().take(lanes) {
                *self.state.mut_ptr().add((at + i) * BEFORE + j) = *v;
            }
        }
    }
}
