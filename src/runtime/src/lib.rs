//! One deployed model: ports, stages, identity, live sets.
#![warn(missing_docs)]
