//! The functions of another execution library, as its C ABI declares them.

use std::ffi::{c_char, c_int, c_void};

/// Makes the table, the list of what a context cannot do without, and the constructor by symbol.
macro_rules! table {
    (
        required { $($(#[$r_doc:meta])* $r:ident: $r_type:ty,)* }
        optional { $($(#[$o_doc:meta])* $o:ident: $o_type:ty,)* }
    ) => {
        /// Functions of an execution library, each under its symbol without the leading `frt_`.
        ///
        /// The library promises what the published ABI says: handles are opaque, status 0 is success and
        /// the other statuses are those of [`Error::code`](crate::Error::code). Whoever fills a table
        /// answers for the signatures. A missing optional function makes the calls that need it fail with
        /// [`Error::BackendUnavailable`](crate::Error::BackendUnavailable), and nothing else.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct ForeignTable {
            $($(#[$r_doc])* pub $r: Option<$r_type>,)*
            $($(#[$o_doc])* pub $o: Option<$o_type>,)*
        }

        impl ForeignTable {
            /// Symbols without which there is no context.
            pub const REQUIRED: &'static [&'static str] = &[$(concat!("frt_", stringify!($r)),)*];

            /// Symbols that single calls need.
            pub const OPTIONAL: &'static [&'static str] = &[$(concat!("frt_", stringify!($o)),)*];

            /// Asks `find` once for each symbol; null means that the library has none.
            ///
            /// # Safety
            /// What `find` answers is null or the address of a function with the signature that the ABI
            /// gives that symbol, valid for as long as the table and its copies are used.
            pub unsafe fn from_symbols(
                mut find: impl FnMut(&'static str) -> *mut c_void,
            ) -> ForeignTable {
                ForeignTable {
                    // SAFETY: a null becomes `None`; the caller promises the type of the rest.
                    $($r: unsafe {
                        std::mem::transmute::<*mut c_void, Option<$r_type>>(
                            find(concat!("frt_", stringify!($r))),
                        )
                    },)*
                    // SAFETY: as above.
                    $($o: unsafe {
                        std::mem::transmute::<*mut c_void, Option<$o_type>>(
                            find(concat!("frt_", stringify!($o))),
                        )
                    },)*
                }
            }

            /// The symbols of [`ForeignTable::REQUIRED`] that are not there.
            pub fn missing(&self) -> Vec<&'static str> {
                let mut missing = Vec::new();
                $(if self.$r.is_none() {
                    missing.push(concat!("frt_", stringify!($r)));
                })*
                missing
            }
        }
    };
}

table! {
    required {
        /// A new event of the context; null on failure.
        ctx_event: unsafe extern "C" fn(ctx: *mut c_void) -> *mut c_void,
        /// Ends an event.
        event_destroy: unsafe extern "C" fn(event: *mut c_void),
        /// Marks what was submitted to the stream so far.
        event_record: unsafe extern "C" fn(event: *mut c_void, stream: c_int) -> c_int,
        /// Makes the stream wait for the event's mark.
        stream_wait: unsafe extern "C" fn(ctx: *mut c_void, stream: c_int, event: *mut c_void) -> c_int,
        /// Device memory; null on failure. The name is copied.
        buffer_alloc: unsafe extern "C" fn(ctx: *mut c_void, name: *const c_char, bytes: usize) -> *mut c_void,
        /// Address of a buffer, constant for its life.
        buffer_dptr: unsafe extern "C" fn(buffer: *mut c_void) -> *mut c_void,
        /// Length of a buffer in bytes.
        buffer_bytes: unsafe extern "C" fn(buffer: *mut c_void) -> usize,
        /// Submits a copy inside device space.
        buffer_copy: unsafe extern "C" fn(
            ctx: *mut c_void,
            dst: *mut c_void,
            dst_offset: usize,
            src: *mut c_void,
            src_offset: usize,
            bytes: usize,
            stream: c_int,
        ) -> c_int,
        /// Submits the variant under a key.
        graph_replay: unsafe extern "C" fn(graph: *mut c_void, key: u64, stream: c_int) -> c_int,
        /// 1 if there is a variant under the key, 0 if not.
        graph_has_variant: unsafe extern "C" fn(graph: *mut c_void, key: u64) -> c_int,
        /// Removes the variant under a key.
        graph_evict: unsafe extern "C" fn(graph: *mut c_void, key: u64) -> c_int,
        /// Number of variants.
        graph_variant_count: unsafe extern "C" fn(graph: *mut c_void) -> usize,
        /// A new plan; null on failure.
        plan_create: unsafe extern "C" fn(ctx: *mut c_void) -> *mut c_void,
        /// Adds a replay to a plan; the number of the node, or a negative status.
        plan_add: unsafe extern "C" fn(plan: *mut c_void, graph: *mut c_void, key: u64, stream: c_int) -> c_int,
        /// Waits for the streams of a plan.
        plan_sync: unsafe extern "C" fn(plan: *mut c_void) -> c_int,
        /// Ends a plan.
        plan_destroy: unsafe extern "C" fn(plan: *mut c_void),
    }
    optional {
        /// A new stream; its id, or a negative status. Published, but only [`crate::Context::stream`]
        /// needs it.
        ctx_stream: unsafe extern "C" fn(ctx: *mut c_void, priority: c_int) -> c_int,
        /// 0 when everything before the event's mark has run, 1 when not.
        event_query: unsafe extern "C" fn(event: *mut c_void) -> c_int,
        /// Waits for the event's mark.
        event_sync: unsafe extern "C" fn(event: *mut c_void) -> c_int,
        /// Waits for a stream.
        stream_sync: unsafe extern "C" fn(ctx: *mut c_void, stream: c_int) -> c_int,
        /// Writes caller memory into a buffer after all earlier work of the stream; complete on return.
        buffer_upload: unsafe extern "C" fn(
            ctx: *mut c_void,
            dst: *mut c_void,
            offset: usize,
            src: *const c_void,
            bytes: usize,
            stream: c_int,
        ) -> c_int,
        /// Reads a buffer into caller memory after all earlier work of the stream; complete on return.
        buffer_download: unsafe extern "C" fn(
            ctx: *mut c_void,
            src: *mut c_void,
            offset: usize,
            dst: *mut c_void,
            bytes: usize,
            stream: c_int,
        ) -> c_int,
        /// Submits setting bytes to a value (its low 8 bits).
        buffer_fill: unsafe extern "C" fn(
            ctx: *mut c_void,
            buffer: *mut c_void,
            offset: usize,
            value: c_int,
            bytes: usize,
            stream: c_int,
        ) -> c_int,
        /// Frees a buffer that `frt_buffer_alloc` made. Work that was submitted with it still runs.
        buffer_free: unsafe extern "C" fn(buffer: *mut c_void) -> c_int,
        /// Kind of the backend: 0 CPU, 1 CUDA.
        ctx_backend: unsafe extern "C" fn(ctx: *mut c_void) -> c_int,
        /// Why the last failed call of this thread failed, NUL-terminated.
        last_error: unsafe extern "C" fn() -> *const c_char,
    }
}
