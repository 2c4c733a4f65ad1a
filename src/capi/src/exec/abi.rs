//! `flashrt/exec.h`.
#![allow(non_camel_case_types)]

pub use flashrt_runtime::abi::{frt_buffer, frt_ctx, frt_graph, frt_shape_key};

/// What a [`frt_plan`] points to. Never read on either side.
#[repr(C)]
pub struct frt_plan_s {
    _private: [u8; 0],
}
/// Handle of a plan.
pub type frt_plan = *mut frt_plan_s;

/// What a [`frt_event`] points to. Never read on either side.
#[repr(C)]
pub struct frt_event_s {
    _private: [u8; 0],
}
/// Handle of an event.
pub type frt_event = *mut frt_event_s;
