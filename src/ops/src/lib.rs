//! Record-time operations, each behind one call for every backend.
#![warn(missing_docs)]
