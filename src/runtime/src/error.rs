//! The crate's error type.

use crate::foreign::ForeignFault;
use crate::ShapeKey;

/// Everything that can go wrong in this crate. Each variant names what it is about and, where there are numbers,
/// what was expected and what came.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The execution layer refused or failed.
    #[error("{context}: {source}")]
    Exec {
        /// What was being done.
        context: String,
        /// The cause.
        #[source]
        source: flashrt_exec::Error,
    },
    /// No such buffer, graph, port, plan or live set.
    #[error("no {kind} named '{name}'")]
    NotFound {
        /// What was looked for.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// An index outside its table.
    #[error("{kind} {index} does not exist: there are {count}")]
    BadIndex {
        /// What was looked for.
        kind: &'static str,
        /// The index given.
        index: usize,
        /// Entries in the table.
        count: usize,
    },
    /// A name that the identity text could not carry safely.
    #[error("{kind} name '{name}' {reason}")]
    BadName {
        /// What the name is for.
        kind: &'static str,
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The same name twice.
    #[error("{kind} '{name}' is declared twice")]
    Duplicate {
        /// What the name is for.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A declaration rule was broken.
    #[error("declaration of {what} '{name}': {reason}")]
    Declaration {
        /// Kind of the declared thing.
        what: &'static str,
        /// Its name.
        name: String,
        /// The rule, with numbers.
        reason: String,
    },
    /// The declaration builder was used up by a successful finish.
    #[error("the declaration builder was already finished")]
    BuilderConsumed,
    /// Bytes outside a window.
    #[error("{what} '{name}': {offset} + {bytes} bytes do not fit its {available} bytes")]
    OutOfBounds {
        /// Kind of the window.
        what: &'static str,
        /// Its name.
        name: String,
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        bytes: u64,
        /// Bytes there are.
        available: u64,
    },
    /// A payload of the wrong size.
    #[error("port '{port}': expected {expected} bytes, got {got}")]
    PortBytes {
        /// Port name.
        port: String,
        /// Bytes that the port takes.
        expected: u64,
        /// Bytes that came.
        got: u64,
    },
    /// A payload of the wrong kind or shape.
    #[error("port '{port}': expected {expected}, got {got}")]
    PortFormat {
        /// Port name.
        port: String,
        /// What the port takes.
        expected: String,
        /// What came.
        got: String,
    },
    /// A value that is not allowed in a port, such as NaN.
    #[error("port '{port}': {reason}")]
    PortValue {
        /// Port name.
        port: String,
        /// What is wrong, with the index and the value.
        reason: String,
    },
    /// A payload that the model's own transform refused; the source says why (for example a prompt that is too long).
    #[error("port '{port}': {source}")]
    PortInput {
        /// Port name.
        port: String,
        /// The producer's typed error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The port does not work this way (for example a swap of a STAGED port, or a read of an input).
    #[error("port '{port}' is {is}: {verb} needs {needs}")]
    PortClass {
        /// Port name.
        port: String,
        /// Direction and update class of the port.
        is: String,
        /// The call.
        verb: &'static str,
        /// What the call needs.
        needs: &'static str,
    },
    /// The output storage is too small.
    #[error("port '{port}': output needs {needed} bytes, got room for {got}")]
    OutputTooSmall {
        /// Port name.
        port: String,
        /// Bytes needed.
        needed: u64,
        /// Bytes given.
        got: u64,
    },
    /// Not allowed while the live set is hot.
    #[error("live set '{set}': {what} is refused while hot")]
    Hot {
        /// Live set name.
        set: String,
        /// The refused call.
        what: String,
    },
    /// The graph has no variant for the key.
    #[error("graph '{graph}' has no variant for key {key}")]
    NoVariant {
        /// Graph name.
        graph: String,
        /// The key.
        key: ShapeKey,
    },
    /// A stage depends on one that never ran.
    #[error("stage {stage} of plan '{plan}' depends on stage {dep}, which has never run")]
    StageNotReady {
        /// Plan name.
        plan: String,
        /// The stage.
        stage: usize,
        /// The stage that it waits for.
        dep: usize,
    },
    /// The live set failed midway and must be rebuilt.
    #[error("live set '{set}' is poisoned ({reason}): rebuild it")]
    Poisoned {
        /// Live set name.
        set: String,
        /// Why.
        reason: String,
    },
    /// The verb is not supplied.
    #[error("{verb} is not supported by this model")]
    Unsupported {
        /// The verb.
        verb: &'static str,
    },
    /// The host state block does not hold what its layout says.
    #[error("host state: {field} is {got}, expected {expected}")]
    HostState {
        /// Field name.
        field: &'static str,
        /// What the layout says.
        expected: String,
        /// What is there.
        got: String,
    },
    /// Two live sets of one model differ.
    #[error(
        "live set '{set}' differs from '{reference}': '{got}' where '{expected}' was expected"
    )]
    SetsDiffer {
        /// The set that differs.
        set: String,
        /// The first set.
        reference: String,
        /// Record of the first set.
        expected: String,
        /// Record of the set that differs.
        got: String,
    },
    /// A native model is refused or failed.
    #[error("native model {model}: {reason}")]
    Foreign {
        /// Its name, or its library.
        model: String,
        /// What kind of failure.
        fault: ForeignFault,
        /// What was expected and what came; the producer's own text where it gave one.
        reason: String,
    },
    /// The producer's own failure.
    #[error("{model}: {message}")]
    Model {
        /// Producer name.
        model: String,
        /// What went wrong.
        message: String,
        /// The cause, when there is one.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

impl Error {
    /// Wraps a failure of the execution layer with what was being done.
    pub fn exec(context: impl Into<String>, source: flashrt_exec::Error) -> Error {
        Error::Exec {
            context: context.into(),
            source,
        }
    }

    /// A producer's failure with a text.
    pub fn model(model: impl Into<String>, message: impl Into<String>) -> Error {
        Error::Model {
            model: model.into(),
            message: message.into(),
            source: None,
        }
    }

    /// A producer's failure with its cause.
    pub fn model_from(
        model: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        let source = source.into();
        Error::Model {
            model: model.into(),
            message: source.to_string(),
            source: Some(source),
        }
    }

    /// True when the thing asked for does not exist (name, index or variant).
    pub fn is_not_found(&self) -> bool {
        matches!(
            self,
            Error::NotFound { .. } | Error::BadIndex { .. } | Error::NoVariant { .. }
        )
    }

    /// True when the payload was refused (size, shape, kind, value or window); the set is as it was.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Error::PortBytes { .. }
                | Error::PortFormat { .. }
                | Error::PortValue { .. }
                | Error::PortInput { .. }
                | Error::PortClass { .. }
                | Error::OutputTooSmall { .. }
                | Error::OutOfBounds { .. }
        )
    }

    /// True when the call is legal, but not now (hot).
    pub fn is_wrong_state(&self) -> bool {
        matches!(self, Error::Hot { .. } | Error::StageNotReady { .. })
    }

    /// True when the live set must be rebuilt.
    pub fn is_poisoned(&self) -> bool {
        matches!(self, Error::Poisoned { .. })
    }

    /// True when the call is not supported by this model.
    pub fn is_unsupported(&self) -> bool {
        self.code() == -3 && !self.is_wrong_state()
    }

    /// Return code of the model runtime's verbs: -1 invalid argument, -2 not found, -3 unsupported,
    /// -4 shape or format mismatch, -5 storage too small, -6 backend failure.
    pub fn code(&self) -> i32 {
        match self {
            Error::NotFound { .. } | Error::BadIndex { .. } | Error::NoVariant { .. } => -2,
            Error::Unsupported { .. } | Error::Hot { .. } => -3,
            Error::PortBytes { .. } | Error::PortFormat { .. } => -4,
            Error::OutputTooSmall { .. } => -5,
            Error::Exec { .. } | Error::Poisoned { .. } | Error::Model { .. } => -6,
            Error::Foreign { fault, .. } => match fault {
                ForeignFault::Unsupported => -3,
                ForeignFault::Status(code @ -6..=-1) => *code,
                _ => -6,
            },
            _ => -1,
        }
    }
}

impl From<flashrt_exec::Error> for Error {
    fn from(source: flashrt_exec::Error) -> Error {
        Error::exec("execution layer", source)
    }
}
