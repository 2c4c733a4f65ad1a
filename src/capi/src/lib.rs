//! C ABI of exec, runtime and capsule.
#![warn(missing_docs)]
