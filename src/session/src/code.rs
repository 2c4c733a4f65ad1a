//! Result codes, equal to `msg/ResultCode.msg`, and the error type of the crate.

use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)*) => {
        /// Result code of a command or service. The numbers are those of `flashrt_ros/msg/ResultCode`; they are never reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum ResultCode { $($(#[$doc])* $variant = $number,)* }

        impl ResultCode {
            /// Every code in ascending order of its number.
            pub const ALL: &'static [ResultCode] = &[$(ResultCode::$variant,)*];

            /// The name as it stands in `msg/ResultCode.msg`, for instance `"NOT_FOUND"`.
            pub fn name(self) -> &'static str {
                match self { $(ResultCode::$variant => $name,)* }
            }

            /// The code with this number, or `None`.
            pub fn from_number(number: u16) -> Option<ResultCode> {
                match number { $($number => Some(ResultCode::$variant),)* _ => None }
            }
        }
    };
}

codes! {
    /// Done.
    Ok = 0, "OK";
    /// Accepted, still running: ask `operation_status`.
    Accepted = 1, "ACCEPTED";
    /// No model is loaded.
    NotConfigured = 2, "NOT_CONFIGURED";
    /// Another transition or operation excludes this one now.
    Busy = 3, "BUSY";
    /// No capsule, port, graph or operation of that name.
    NotFound = 4, "NOT_FOUND";
    /// The name is taken.
    Exists = 5, "EXISTS";
    /// Not a valid capsule name.
    BadName = 6, "BAD_NAME";
    /// A field is out of range.
    BadArgument = 7, "BAD_ARGUMENT";
    /// The lifecycle state forbids it.
    WrongState = 8, "WRONG_STATE";
    /// The capsule belongs to another deployment.
    Fingerprint = 9, "FINGERPRINT";
    /// Not a capsule, or its structure is wrong.
    Format = 10, "FORMAT";
    /// A format version that this build does not read.
    Version = 11, "VERSION";
    /// Checksum or length does not match.
    Corrupt = 12, "CORRUPT";
    /// The tier's budget cannot hold it.
    NoSpace = 13, "NO_SPACE";
    /// No live set of that name, or it is not idle.
    NoSession = 14, "NO_SESSION";
    /// The model or the build cannot do this.
    Unsupported = 15, "UNSUPPORTED";
    /// A deadline passed.
    Timeout = 16, "TIMEOUT";
    /// A required port has no input, or only old inputs.
    StaleInput = 17, "STALE_INPUT";
    /// The device failed.
    Device = 18, "DEVICE";
    /// A defect of this package.
    Internal = 19, "INTERNAL";
    /// More tokens than the model takes.
    PromptTooLong = 20, "PROMPT_TOO_LONG";
    /// No tokens.
    PromptEmpty = 21, "PROMPT_EMPTY";
    /// NaN or infinity where a number is needed.
    NonFinite = 22, "NON_FINITE";
    /// Size, type or layout differs from the port's.
    Shape = 23, "SHAPE";
    /// The live set was left half-written.
    Poisoned = 24, "POISONED";
    /// Given up because the node left the state it needs.
    Cancelled = 25, "CANCELLED";
    /// The capsule leaves regions out.
    Partial = 26, "PARTIAL";
    /// A file operation failed.
    Io = 27, "IO";
    /// Inputs are further apart in time than the limit.
    Skew = 28, "SKEW";
}

impl ResultCode {
    /// The number on the wire.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// True for [`ResultCode::Ok`] alone.
    pub fn is_ok(self) -> bool {
        self == ResultCode::Ok
    }
}

impl fmt::Display for ResultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Error of the session crate: a numbered code and a text with names and numbers (expected, got).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct SessionError {
    /// Code for the wire.
    pub code: ResultCode,
    /// Reason with the names and numbers that a user needs.
    pub message: String,
}

impl SessionError {
    /// An error with this code and text.
    pub fn new(code: ResultCode, message: impl Into<String>) -> SessionError {
        SessionError {
            code,
            message: message.into(),
        }
    }
}
