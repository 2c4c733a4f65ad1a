//! The published binary layouts of an export ([`export`]) and of a model runtime ([`model`]), for LP64 targets.
//!
//! Plain `#[repr(C)]` data under the published names, with every size and offset checked at compile time; [`read`] turns foreign
//! objects into checked data. Numbers that have a meaning (modality, element type, ...) are also enums of this crate, see [`crate::Modality`].
//!
//! Rules for whoever reads a foreign object: check `abi_version`, then `struct_size` (never for equality, always `>=`), and only
//! then the field behind it. A pointer inside is valid only while a reference to the object is held.
#![allow(non_camel_case_types)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the published layouts are those of 64-bit targets");

pub mod export;
pub mod model;
pub mod read;

pub use export::*;
pub use model::*;

macro_rules! opaque {
    ($(#[$m:meta])* $alias:ident, $tag:ident) => {
        /// What the handle of that name points to. Never read on this side.
        #[repr(C)]
        pub struct $tag {
            _private: [u8; 0],
        }
        $(#[$m])*
        pub type $alias = *mut $tag;
    };
}

opaque! {
    /// Handle of an execution context.
    frt_ctx, frt_ctx_s
}
opaque! {
    /// Handle of a graph.
    frt_graph, frt_graph_s
}
opaque! {
    /// Handle of a buffer.
    frt_buffer, frt_buffer_s
}

/// Key of a graph variant.
pub type frt_shape_key = u64;

/// Checks the size of a struct and the offset of each of its fields while compiling.
macro_rules! layout {
    ($type:ty, $size:literal; $($field:ident $offset:literal),+ $(,)?) => {
        const _: () = assert!(std::mem::size_of::<$type>() == $size);
        const _: () = assert!(std::mem::align_of::<$type>() == 8);
        $(const _: () = assert!(std::mem::offset_of!($type, $field) == $offset);)+
    };
}
pub(crate) use layout;
