//! Record-time operations, each behind one call for every backend.
//!
//! A model is a sequence of calls `op(recorder, operands.., parameters.., out)`. Each call checks
//! its operands (an [`Error`] names the operation, the operand, what was expected and what came)
//! and appends work to the [`Recorder`](flashrt_exec::Recorder): a graph capture or a live stream.
//! Nothing runs at the call, and replaying it allocates nothing. [`prepare`] compiles and loads what a GPU needs; do it before the
//! first capture.
//!
//! All tensors are contiguous and row-major. Activations are f32; some operations take f16 and bf16 too, and say so. `[.., D]` operands are rows of
//! `D` elements whatever their rank.
//!
//! # Numerics
//!
//! [`NUMERICS`] names the rules, which make an f32 result independent of the number of cores, of the
//! instruction set ([`Isa`]) and of the backend:
//! * every dot product accumulates in the order of its inner index, from zero, with one fused
//!   multiply-add a step; parallelism and vector lanes are over output elements only;
//! * sums over a row (norms) are sixteen partial sums, element `i` in partial `i % 16`, folded as a
//!   fixed tree; softmax sums run in key order;
//! * `exp`, `sin`, `cos`, `ln` and what is built on them are this crate's own polynomials in f32
//!   fused multiply-adds; square root and division are the correctly rounded ones;
//! * not-a-number results are so everywhere, but their payload bits are not promised.
#![warn(missing_docs)]

mod action;
mod attention;
mod check;
mod conv1d;
#[cfg(feature = "cuda")]
mod cuda;
mod device;
mod elementwise;
mod embed;
mod error;
mod gate;
mod gated_delta;
mod gemm;
mod gemv;
mod isa;
mod kernels;
mod lanes;
mod launch;
mod math;
mod matmul;
mod noise;
mod norm;
pub mod preprocess;
mod rope;
mod rows;
mod tensor;
mod tile;
mod time;

pub use action::{action_unnormalize, Anchor};
pub use attention::{
    attention, attention_scratch, attention_within, Causal, KvPart, Within, HALF_HEAD_DIMS,
    MAX_HEAD_DIM,
};
pub use conv1d::{causal_conv1d, Conv1d, CONV_TAPS};
pub use elementwise::{
    add_position, axpy, clamp, gated_residual, geglu, gelu_tanh, residual_add, silu, style_gate,
};
pub use embed::{embed_gather, im2col, patch_embed};
pub use error::Error;
pub use gate::{delta_gates, gated_rms_norm, sigmoid_gate, silu_gate, DeltaGates};
pub use gated_delta::{gated_delta, gated_delta_steps, DeltaShape, GatedDelta};
pub use gemm::{GemmPlan, GemmShape};
pub use gemv::{geglu_gemv, gemv, GemvEpilogue, MAX_GEMV_ROWS};
pub use isa::Isa;
pub use kernels::{compile_ahead, identity, prepare, KernelSet};
pub use matmul::{matmul, Epilogue, PackedWeight};
pub use noise::{philox4x32_10, philox_normal};
pub use norm::{ada_rms_norm, layer_norm, rms_norm};
pub use rope::{positions_from_mask, rope, rope_table, suffix_positions};
pub use rows::{concat_rows, copy_rows, latch};
pub use tensor::{DType, Tensor, MAX_RANK};
pub use time::time_embedding;

/// Version of the numeric rules above; part of a model's identity.
pub const NUMERICS: &str = "v1";
