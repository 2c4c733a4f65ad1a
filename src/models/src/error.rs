//! The crate's error.

use std::path::PathBuf;

/// Everything that can go wrong while a built-in policy is loaded, built or fed.
///
/// Shapes are printed as lists, outermost dimension first.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The execution layer refused or failed.
    #[error(transparent)]
    Exec(#[from] flashrt_exec::Error),
    /// An operation refused its operands.
    #[error(transparent)]
    Ops(#[from] flashrt_ops::Error),
    /// The runtime refused a declaration.
    #[error(transparent)]
    Runtime(#[from] flashrt_runtime::Error),
    /// A file could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A JSON file is malformed, lacks a key or has an unknown one.
    #[error("{}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Key and position.
        source: serde_json::Error,
    },
    /// A value of a configuration or statistics file is out of its range.
    #[error("{key} = {got}: {rule}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value found.
        got: String,
        /// The rule it breaks.
        rule: String,
    },
    /// No built-in policy has this name.
    #[error("no built-in policy `{name}`; known: {known}")]
    UnknownPolicy {
        /// The name asked for.
        name: String,
        /// All names, separated by commas.
        known: String,
    },
    /// The weights file is not a well-formed safetensors file.
    #[error("{}: not a safetensors file: {reason}", path.display())]
    WeightsFormat {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The weights hold no tensor of this name.
    #[error("tensor `{name}` {expected:?} is missing from the weights ({missing} missing in all)")]
    MissingTensor {
        /// LeRobot's name of the first missing tensor.
        name: String,
        /// The shape it should have.
        expected: Vec<usize>,
        /// How many tensors are missing.
        missing: usize,
    },
    /// The weights hold a tensor that the architecture does not have.
    #[error("tensor `{name}` {got:?} is not part of the model ({extra} such tensors in all)")]
    UnexpectedTensor {
        /// Its name in the file.
        name: String,
        /// Its shape.
        got: Vec<usize>,
        /// How many tensors are unexpected.
        extra: usize,
    },
    /// A tensor has another shape than the configuration says.
    #[error("tensor `{name}`: expected shape {expected:?}, got {got:?}")]
    TensorShape {
        /// Its name in the file.
        name: String,
        /// The shape that follows from the configuration.
        expected: Vec<usize>,
        /// The shape in the file.
        got: Vec<usize>,
    },
    /// A tensor has an element type that cannot be converted.
    #[error("tensor `{name}`: expected F32, F16 or BF16, got {got}")]
    TensorDType {
        /// Its name in the file.
        name: String,
        /// The element type in the file.
        got: String,
    },
    /// A tensor holds NaN or an infinity.
    #[error("tensor `{name}`: element {index} is {value}, expected a finite number")]
    TensorValue {
        /// Its name in the file.
        name: String,
        /// Flat index of the first bad element.
        index: usize,
        /// The bad element.
        value: f32,
    },
    /// Configuration and weights disagree about a dimension.
    #[error("config says {key} = {config}, but tensor `{tensor}` {shape:?} says {weights}")]
    Dimension {
        /// Key of the configuration.
        key: &'static str,
        /// Its value.
        config: usize,
        /// What the tensor implies.
        weights: usize,
        /// The tensor.
        tensor: String,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// The instruction has a word that the tokenizer does not know.
    #[error("unknown word `{}` at position {position} of the instruction (0 is the first)", word.escape_debug())]
    UnknownWord {
        /// The word.
        word: String,
        /// Its index among the words.
        position: usize,
    },
    /// The instruction does not fit.
    #[error("the prompt needs {tokens} tokens, the limit is {limit}")]
    PromptTooLong {
        /// Tokens needed, state tokens included.
        tokens: usize,
        /// Tokens that fit.
        limit: usize,
    },
    /// The instruction's text does not fit.
    #[error("the prompt has {bytes} bytes, the limit is {limit}")]
    PromptBytes {
        /// Bytes after cleaning.
        bytes: usize,
        /// Bytes that fit.
        limit: usize,
    },
    /// The instruction is empty or white space only.
    #[error("the prompt is empty")]
    PromptEmpty,
    /// NaN or an infinity where a number is needed.
    #[error("element {index} is {value}, expected a finite number")]
    NonFinite {
        /// Flat index of the first bad element.
        index: usize,
        /// The bad element.
        value: f32,
    },
    /// The prompt is not UTF-8.
    #[error("the prompt is not UTF-8 from byte {valid_up_to} on")]
    PromptEncoding {
        /// Bytes that are valid.
        valid_up_to: usize,
    },
    /// A state bin outside of what the tokenizer can express.
    #[error("state bin {got} of element {index}: expected -1..=255")]
    StateBin {
        /// Element of the state.
        index: usize,
        /// The bin.
        got: i32,
    },
}
