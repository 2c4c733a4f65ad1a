//! Descriptor arrays over a declaration.

use std::ffi::{c_void, CStr, CString};
use std::ptr::{null, with_exposed_provenance_mut};

use flashrt_runtime::abi::{
    frt_generic_stage_desc_v1, frt_runtime_buffer_desc, frt_runtime_graph_desc,
    frt_runtime_port_desc, frt_runtime_region_desc, frt_runtime_stage_desc,
    frt_runtime_stream_desc,
};
use flashrt_runtime::{Declaration, PortDecl, StageDecl};

/// Descriptors that point into a declaration: good as long as that is alive and where it was.
pub(super) struct Arrays {
    pub(super) streams: Vec<frt_runtime_stream_desc>,
    pub(super) graphs: Vec<frt_runtime_graph_desc>,
    pub(super) buffers: Vec<frt_runtime_buffer_desc>,
    pub(super) regions: Vec<frt_runtime_region_desc>,
    pub(super) ports: Vec<frt_runtime_port_desc>,
    pub(super) stages: Vec<frt_runtime_stage_desc>,
    pub(super) generic_stages: Vec<frt_generic_stage_desc_v1>,
}

impl Arrays {
    pub(super) fn empty() -> Arrays {
        Arrays {
            streams: Vec::new(),
            graphs: Vec::new(),
            buffers: Vec::new(),
            regions: Vec::new(),
            ports: Vec::new(),
            stages: Vec::new(),
            generic_stages: Vec::new(),
        }
    }

    /// `native` has one handle a stream.
    pub(super) fn of(decl: &Declaration<CString>, native: &[*mut c_void]) -> Arrays {
        Arrays {
            streams: decl
                .streams
                .iter()
                .zip(native)
                .map(|(s, native)| frt_runtime_stream_desc {
                    name: s.name.as_ptr(),
                    stream_id: s.stream_id.0,
                    priority: s.priority,
                    native_handle: *native,
                })
                .collect(),
            graphs: decl
                .graphs
                .iter()
                .map(|g| frt_runtime_graph_desc {
                    name: g.name.as_ptr(),
                    handle: handle(g.handle),
                    default_key: g.default_key,
                    keys: start(&g.keys),
                    n_keys: g.keys.len() as u64,
                    stream_id: g.stream_id,
                })
                .collect(),
            buffers: decl
                .buffers
                .iter()
                .map(|b| frt_runtime_buffer_desc {
                    name: b.name.as_ptr(),
                    handle: handle(b.handle),
                    bytes: b.bytes,
                    role: b.role.0,
                    reserved: 0,
                })
                .collect(),
            regions: decl
                .regions
                .iter()
                .map(|r| frt_runtime_region_desc {
                    name: r.name.as_ptr(),
                    buffer: handle(r.buffer),
                    offset: r.offset,
                    bytes: r.bytes,
                    flags: r.flags.0,
                    reserved: 0,
                })
                .collect(),
            ports: ports(&decl.ports),
            stages: stages(&decl.stages),
            generic_stages: decl
                .generic_stages
                .iter()
                .map(|s| frt_generic_stage_desc_v1 {
                    name: s.name.as_ptr(),
                    executor_kind: s.executor_kind.code(),
                    executor_ref: s.executor_ref,
                    n_after: s.after.len() as u32,
                    after: start(&s.after),
                })
                .collect(),
        }
    }
}

pub(super) fn ports(ports: &[PortDecl<CString>]) -> Vec<frt_runtime_port_desc> {
    ports
        .iter()
        .map(|p| frt_runtime_port_desc {
            name: p.name.as_ptr(),
            modality: p.modality.code(),
            dtype: p.dtype.code(),
            layout: p.layout.code(),
            direction: p.direction.code(),
            update: p.update.code(),
            required: p.required,
            shape: start(&p.shape),
            rank: p.shape.len() as u32,
            cadence_hint_hz: p.cadence_hint_hz,
            buffer: handle(p.buffer),
            offset: p.offset,
            bytes: p.bytes,
        })
        .collect()
}

pub(super) fn stages(stages: &[StageDecl]) -> Vec<frt_runtime_stage_desc> {
    stages
        .iter()
        .map(|s| frt_runtime_stage_desc {
            graph: s.graph,
            n_after: s.after.len() as u32,
            after: start(&s.after),
        })
        .collect()
}

/// The first entry; null when there is none, as readers of a provider without resources expect.
pub(super) fn start<T>(values: &[T]) -> *const T {
    if values.is_empty() {
        null()
    } else {
        values.as_ptr()
    }
}

/// A handle as a number, for a declaration. Nothing here follows it.
pub(super) fn number<T>(handle: *mut T) -> u64 {
    handle.expose_provenance() as u64
}

/// The handle that [`number`] took.
pub(super) fn handle<T>(number: u64) -> *mut T {
    with_exposed_provenance_mut(number as usize)
}

/// The text's first byte; null for none.
pub(super) fn text(text: Option<&CString>) -> *const std::ffi::c_char {
    text.map_or(null(), |t| CStr::as_ptr(t))
}
