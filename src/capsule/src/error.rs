//! The crate's error type.

/// Everything that can go wrong with a capsule. Unless the text says so, the live set and the store are as they were.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name outside `[A-Za-z0-9][A-Za-z0-9_.-]{0,127}`.
    #[error("capsule name {name:?} ({bytes} bytes) is not [A-Za-z0-9][A-Za-z0-9_.-]{{0,127}}")]
    BadName {
        /// The name, cut to 128 characters.
        name: String,
        /// Its length in bytes.
        bytes: usize,
    },
    /// No such capsule.
    #[error("no capsule named '{name}' (there are {count})")]
    NotFound {
        /// The name.
        name: String,
        /// Capsules in the store.
        count: usize,
    },
    /// The name is taken and overwriting was not asked for.
    #[error("capsule '{name}' exists already")]
    Exists {
        /// The name.
        name: String,
    },
    /// The history does not reach that far.
    #[error("history of live set '{set}': {reason}")]
    NoHistory {
        /// Live set name.
        set: String,
        /// What was asked and what there is.
        reason: String,
    },
    /// No room in a tier's byte budget.
    #[error(
        "{space} memory for capsules: {needed} bytes needed, {used} of {budget} used and {reclaimable} of those free to reuse"
    )]
    NoSpace {
        /// `device` or `host`.
        space: &'static str,
        /// Bytes that the new backing takes.
        needed: u64,
        /// Bytes reserved now.
        used: u64,
        /// Of those, bytes that no capsule holds.
        reclaimable: u64,
        /// The budget.
        budget: u64,
    },
    /// The store holds as many capsules as it may.
    #[error("the store holds {count} capsules of at most {capacity}")]
    Full {
        /// Capsules in the store.
        count: usize,
        /// The most that it may hold.
        capacity: usize,
    },
    /// The capsule was made by another model, build or configuration.
    #[error(
        "fingerprint {capsule:016x} of the capsule is not {live:016x} of live set '{set}'; first differing record: '{capsule_record}' in the capsule, '{live_record}' in the set"
    )]
    Fingerprint {
        /// Live set name.
        set: String,
        /// Fingerprint of the capsule.
        capsule: u64,
        /// Fingerprint of the live set.
        live: u64,
        /// First differing identity record of the capsule.
        capsule_record: String,
        /// The record at its place in the live set.
        live_record: String,
    },
    /// The region tables differ.
    #[error("region table of live set '{set}': {expected} expected, the capsule has {got}")]
    Regions {
        /// Live set name.
        set: String,
        /// What the live set declares.
        expected: String,
        /// What the capsule holds.
        got: String,
    },
    /// The capsule lacks regions on purpose and that was not allowed.
    #[error("capsule '{name}' is partial: {missing} of {regions} regions were left out")]
    Partial {
        /// The name.
        name: String,
        /// Regions left out.
        missing: usize,
        /// Regions of the live set.
        regions: usize,
    },
    /// A name in an exclude list that is no continuation region.
    #[error("'{name}' is no continuation region of live set '{set}'")]
    NoSuchRegion {
        /// Live set name.
        set: String,
        /// The name.
        name: String,
    },
    /// The saved host state block does not hold what its layout says.
    #[error("capsule '{name}': {source}")]
    HostState {
        /// Capsule name.
        name: String,
        /// What is wrong.
        #[source]
        source: Box<flashrt_runtime::Error>,
    },
    /// The runtime refused (for example a poisoned live set).
    #[error("{context}: {source}")]
    Runtime {
        /// What was being done.
        context: String,
        /// The cause.
        #[source]
        source: Box<flashrt_runtime::Error>,
    },
    /// The execution layer failed before any live byte was written.
    #[error("{context}: {source}")]
    Exec {
        /// What was being done.
        context: String,
        /// The cause.
        #[source]
        source: flashrt_exec::Error,
    },
    /// The execution layer failed after the first live write. The live set is poisoned.
    #[error(
        "restore of '{name}' into live set '{set}' failed midway, the set is poisoned: {source}"
    )]
    Poisoned {
        /// Capsule name.
        name: String,
        /// Live set name.
        set: String,
        /// The cause.
        #[source]
        source: Box<Error>,
    },
    /// The caller's drive function failed during verification.
    #[error("verification, {phase}: {source}")]
    Drive {
        /// The phase.
        phase: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Verification was called with arguments that cannot prove anything.
    #[error("verification: {reason}")]
    Vacuous {
        /// Why.
        reason: String,
    },
}

impl Error {
    /// Wraps a failure of the execution layer with what was being done.
    pub(crate) fn exec(context: impl Into<String>, source: flashrt_exec::Error) -> Error {
        Error::Exec {
            context: context.into(),
            source,
        }
    }

    /// True for a name that breaks the rule.
    pub fn is_bad_name(&self) -> bool {
        matches!(self, Error::BadName { .. })
    }

    /// True when the capsule or the history entry does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::NotFound { .. } | Error::NoHistory { .. })
    }

    /// True when the name is taken.
    pub fn is_exists(&self) -> bool {
        matches!(self, Error::Exists { .. })
    }

    /// True when a budget or the capacity is exhausted.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::NoSpace { .. } | Error::Full { .. })
    }

    /// True when the capsule belongs to another identity.
    pub fn is_fingerprint(&self) -> bool {
        matches!(self, Error::Fingerprint { .. })
    }

    /// True when the capsule's content does not have the form that the live set needs (region table, host state block).
    pub fn is_format(&self) -> bool {
        matches!(self, Error::Regions { .. } | Error::HostState { .. })
    }

    /// True when the argument makes no sense for this capsule or set.
    pub fn is_bad_argument(&self) -> bool {
        matches!(
            self,
            Error::Partial { .. } | Error::NoSuchRegion { .. } | Error::Vacuous { .. }
        )
    }

    /// True when the live set is poisoned, by this call or before.
    pub fn is_poisoned(&self) -> bool {
        match self {
            Error::Poisoned { .. } => true,
            Error::Runtime { source, .. } => source.is_poisoned(),
            _ => false,
        }
    }

    /// True when the device or the execution layer failed.
    pub fn is_device(&self) -> bool {
        matches!(self, Error::Exec { .. } | Error::Poisoned { .. })
    }
}
