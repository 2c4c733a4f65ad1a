use std::path::PathBuf;

use crate::DType;

/// What a record-time check, a view or a transform refused.
///
/// Every variant names the operation and the operand, what was expected and what came.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The execution layer refused; for an operation without an implementation on the
    /// context's backend this is its "backend unavailable".
    #[error(transparent)]
    Exec(#[from] flashrt_exec::Error),
    /// An operand has the wrong shape.
    #[error("{op}: {operand} has shape {got}, expected {expected}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// The operand's name in the operation's documentation.
        operand: &'static str,
        /// The shape, or the relation, that the operation needs.
        expected: String,
        /// The operand's shape.
        got: String,
    },
    /// An operand has the wrong element type.
    #[error("{op}: {operand} is {got}, expected {expected}")]
    DType {
        /// The operation.
        op: &'static str,
        /// The operand's name in the operation's documentation.
        operand: &'static str,
        /// The types that the operation takes.
        expected: &'static str,
        /// The operand's type.
        got: DType,
    },
    /// A scalar argument is out of range.
    #[error("{op}: {argument} is {got}, expected {expected}")]
    Argument {
        /// The operation.
        op: &'static str,
        /// The argument.
        argument: &'static str,
        /// The allowed values.
        expected: String,
        /// The value that came.
        got: String,
    },
    /// An output shares bytes with an operand that the operation still reads.
    #[error("{op}: {output} overlaps {operand} in buffer '{buffer}'; it may only be the very same view, where the operation allows that")]
    Overlap {
        /// The operation.
        op: &'static str,
        /// The output.
        output: &'static str,
        /// The operand that it overlaps.
        operand: &'static str,
        /// The buffer that both lie in.
        buffer: String,
    },
    /// A view does not fit the memory under it.
    #[error(
        "view of buffer '{buffer}': {expected} bytes needed for shape {shape}, the slice has {got}"
    )]
    ViewSize {
        /// The buffer.
        buffer: String,
        /// The shape asked for.
        shape: String,
        /// Bytes that the shape needs (`usize::MAX` when the product overflows).
        expected: usize,
        /// Bytes that there are.
        got: usize,
    },
    /// A view would start at an address that its element type cannot have.
    #[error("view of buffer '{buffer}' at byte {offset}: {dtype} needs an alignment of {align}")]
    ViewAlign {
        /// The buffer.
        buffer: String,
        /// Byte offset of the view.
        offset: usize,
        /// The element type.
        dtype: DType,
        /// The alignment in bytes that it needs.
        align: usize,
    },
    /// Rows outside a tensor.
    #[error("rows {start}..{end} of a tensor with {rows} rows")]
    Rows {
        /// First row asked for.
        start: usize,
        /// One past the last row asked for.
        end: usize,
        /// Rows that there are.
        rows: usize,
    },
    /// The device is older than the kernels.
    #[error("kernels: the device is {arch}, expected sm_80 or later")]
    KernelArch {
        /// The device's architecture.
        arch: String,
    },
    /// A kernel has to be compiled, and there is nothing to do it with.
    #[error("kernels: NVRTC is not found and the kernel cache has no file for this device: {reason}; install it (for example the wheel nvidia-cuda-nvrtc), set FLASHRT_NVRTC to its path, or fill FLASHRT_KERNEL_CACHE ahead of time")]
    NoCompiler {
        /// What the loader said of each place.
        reason: String,
    },
    /// A kernel file does not compile.
    #[error("kernels: {file} does not compile for {arch} with {compiler}: {log}")]
    KernelCompile {
        /// The file of `kernels/`.
        file: &'static str,
        /// The architecture.
        arch: String,
        /// The compiler and its version.
        compiler: String,
        /// What it said, the first lines.
        log: String,
    },
    /// The driver does not take a compiled kernel.
    #[error("kernels: {file} for {arch} cannot be loaded: {reason}")]
    KernelLoad {
        /// The file of `kernels/`.
        file: &'static str,
        /// The architecture.
        arch: String,
        /// The driver's call and answer.
        reason: String,
    },
    /// A product needs cuBLASLt, which is not there.
    #[error("gemm: cuBLASLt is not found: {reason}; install it (for example the wheel nvidia-cublas) or set FLASHRT_CUBLASLT to its path")]
    NoCublas {
        /// What the loader said of each place.
        reason: String,
    },
    /// cuBLASLt refused.
    #[error("gemm: {call} answers {status}, expected 0 (see cublasStatus_t; 7 invalid value, 13 execution failed, 15 not supported)")]
    Cublas {
        /// The library's function.
        call: &'static str,
        /// Its status.
        status: i32,
    },
    /// A compiled kernel cannot be written.
    #[error("kernels: {} cannot be written: {reason}", path.display())]
    KernelFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// Host memory given to a transform or an upload has the wrong length.
    #[error("{what}: {got} given, {expected} needed")]
    Length {
        /// The memory and its unit.
        what: &'static str,
        /// Least (or exact) length.
        expected: usize,
        /// The length that came.
        got: usize,
    },
}
