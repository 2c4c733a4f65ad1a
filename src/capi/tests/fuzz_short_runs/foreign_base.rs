//! Foreign models and exports with any content, of 128 or 136 bytes.
//!
//! What the producer owes is kept: bytes that the object says it has are there, arrays are as long as they say (or say more than is ever
//! read), strings end in a NUL, functions are null or functions.

use crate::input::Input;
use crate::owner::{self, release, retain, run_opaque, Owner};
use flashrt_capi::abi::*;
use flashrt_capi::frt_runtime_fingerprint;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void, CString};
use std::ptr::{null, without_provenance_mut};

thread_local! {
    /// Answer of the next query.
    static ANSWER: Cell<(c_int, *const c_void)> = const { Cell::new((-3, null())) };
}

unsafe extern "C" fn query(
    _: *const frt_model_runtime_v1,
    id: u64,
    _: u32,
    out: *mut *const c_void,
) -> c_int {
    let (code, plan) = ANSWER.get();
    if id != FRT_EXT_GENERIC_STAGE_PLAN_V1 {
        return -3;
    }
    // SAFETY: the caller's place for the answer.
    unsafe { out.write(plan) };
    code
}

/// Strings that are names for anything.
const NAMES: usize = 6;

/// An array and a count that agree, or that must be refused before the array is read.
fn counted<T>(input: &Input<'_>, array: &[T]) -> (*const T, u64) {
    let n = array.len() as u64;
    if !input.is_odd(5) {
        return (array.as_ptr(), n);
    }
    match input.below(4) {
        0 => (null(), n),
        1 => (array.as_ptr(), (1 << 20) + 1 + (input.number() >> 1)),
        2 => (array.as_ptr().cast::<u8>().wrapping_add(1).cast(), n.max(1)),
        _ => (array.as_ptr(), n / 2),
    }
}

fn counted32<T>(input: &Input<'_>, array: &[T]) -> (*const T, u32) {
    let (start, n) = counted(input, array);
    (start, u32::try_from(n).unwrap_or(u32::MAX))
}

fn handle<T>(input: &Input<'_>) -> *mut T {
    match input.is_odd(6) {
        true => without_provenance_mut(input.below(10)),
        false => without_provenance_mut(64),
    }
}

fn name(input: &Input<'_>, strings: &[CString]) -> *const c_char {
    if input.is_odd(8) {
        return match input.below(strings.len() + 1) {
            0 => null(),
            n => strings[n - 1].as_ptr(),
        };
    }
    strings[input.below(NAMES)].as_ptr()
}

/// Mostly the first.
pub fn pick(input: &Input<'_>, of: &[u32]) -> u32 {
    match input.is_odd(3) {
        true => of[input.below(of.len())],
        false => of[0],
    }
}

/// What was made, all of it alive during the call that gets it.
pub struct Base {
    pub model: *const frt_model_runtime_v1,
    pub exp: *const frt_runtime_export_v1,
    pub ports: *const frt_runtime_port_desc,
    pub n_ports: u64,
    pub stages: *const frt_runtime_stage_desc,
    pub n_stages: u64,
}

/// Runs `body` over a model of which `input` says how it looks. Its references are given back by the end of `body`.
pub fn with(input: &Input<'_>, body: impl FnOnce(Base)) {
    let base_owner = Owner::default();
    let mut strings: Vec<CString> = ["a", "b", "image", ""]
        .map(|s| CString::new(s).unwrap())
        .into();
    let any: Vec<u8> = input
        .bytes(input.below(300))
        .iter()
        .copied()
        .filter(|&b| b != 0)
        .collect();
    strings.push(CString::new(any).unwrap_or_default());
    strings.push(CString::new(vec![b'n'; 250 + input.below(20)]).unwrap());

    let shape = [1i64, -1, i64::MIN, 3];
    // Increasing, so that what has enough stages before it may depend on them.
    let afters: Vec<u32> = (0..4)
        .map(|i| if input.is_odd(4) { input.code(5) } else { i })
        .collect();
    let ports: Vec<_> = (0..input.below(4))
        .map(|_| {
            let (shape, rank) = counted32(input, &shape[..input.below(5)]);
            frt_runtime_port_desc {
                name: name(input, &strings),
                modality: input.code(8),
                dtype: input.code(6),
                layout: input.code(5),
                direction: input.code(2),
                update: input.code(3),
                required: input.code(2),
                shape,
                rank,
                cadence_hint_hz: input.code(50),
                buffer: handle(input),
                offset: input.number(),
                bytes: input.number(),
            }
        })
        .collect();
    let stages: Vec<_> = (0..input.below(4))
        .map(|i| {
            let (after, n_after) = counted32(input, &afters[..input.below(i + 1)]);
            frt_runtime_stage_desc {
                graph: input.code(1),
                n_after,
                after,
            }
        })
        .collect();
    let generic: Vec<_> = (0..input.below(4))
        .map(|i| {
            let (after, n_after) = counted32(input, &afters[..input.below(i + 1)]);
            frt_generic_stage_desc_v1 {
                name: match input.is_odd(4) {
                    true => name(input, &strings),
                    false => strings[i].as_ptr(),
                },
                executor_kind: u32::from(!input.is_odd(4)),
                executor_ref: input.code(2),
                n_after,
                after,
            }
        })
        .collect();
    let keys = [1u64, 2, 3];
    let streams: Vec<_> = (0..input.below(3))
        .map(|i| frt_runtime_stream_desc {
            name: name(input, &strings),
            stream_id: if input.is_odd(6) {
                input.number() as i32
            } else {
                i as i32
            },
            priority: 0,
            native_handle: handle(input),
        })
        .collect();
    let graphs: Vec<_> = (0..1 + input.below(2))
        .map(|_| {
            let (keys, n_keys) = counted(input, &keys[..input.below(4)]);
            frt_runtime_graph_desc {
                name: name(input, &strings),
                handle: handle(input),
                default_key: input.byte().into(),
                keys,
                n_keys,
                stream_id: input.code(2) as i32,
            }
        })
        .collect();
    let buffers: Vec<_> = (0..input.below(3))
        .map(|_| frt_runtime_buffer_desc {
            name: name(input, &strings),
            handle: handle(input),
            bytes: input.size(100) as u64,
            role: input.code(16),
            reserved: 0,
        })
        .collect();
    let regions: Vec<_> = (0..input.below(3))
        .map(|_| frt_runtime_region_desc {
            name: name(input, &strings),
            buffer: handle(input),
            offset: input.size(50) as u64,
            bytes: input.size(50) as u64,
            flags: input.code(4),
            reserved: 0,
        })
        .collect();
    let identity = name(input, &strings);
    let fingerprint = match identity.is_null() || input.is_odd(6) {
        true => input.number(),
        // SAFETY: one of the strings.
        false => unsafe {
            let text = std::ffi::CStr::from_ptr(identity);
            frt_runtime_fingerprint(identity.cast(), text.count_bytes())
        },
    };
    let (streams_at, n_streams) = counted(input, &streams);
    let (graphs_at, n_graphs) = counted(input, &graphs);
    let (buffers_at, n_buffers) = counted(input, &buffers);
    let (regions_at, n_regions) = counted(input, &regions);
    let export = Box::new(frt_runtime_export_v1 {
        abi_version: if input.is_odd(12) { input.code(3) } else { 1 },
        struct_size: pick(input, &[128, 136, 127, 0]),
        ctx: handle(input),
        streams: streams_at,
        n_streams,
        graphs: graphs_at,
        n_graphs,
        buffers: buffers_at,
        n_buffers,
        capsule_regions: regions_at,
        n_capsule_regions: n_regions,
        fingerprint,
        identity,
        manifest_json: if input.one_in(2) {
            null()
        } else {
            name(input, &strings)
        },
        owner: base_owner.pointer(),
        retain: (!input.is_odd(12)).then_some(retain as _),
        release: (!input.is_odd(12)).then_some(release as _),
    });
    let exp: *const frt_runtime_export_v1 = match input.is_odd(12) {
        true => null(),
        false => &raw const *export,
    };
    let (plan_stages, n_plan_stages) = counted(input, &generic);
    let plan = Box::new(frt_generic_stage_plan_ext_v1 {
        abi_version: if input.is_odd(8) { input.code(3) } else { 1 },
        struct_size: pick(input, &[40, 400, 39, 0]),
        stages: plan_stages,
        n_stages: n_plan_stages,
        stage_self: base_owner.pointer(),
        run_opaque: (!input.is_odd(10)).then_some(run_opaque as _),
    });
    let plan_at: *const c_void = (&raw const *plan).cast();
    let answer = match (input.is_odd(4), input.below(3)) {
        (true, 0) => (0, null()),
        (true, 1) => (0, plan_at.cast::<u8>().wrapping_add(1).cast()),
        (true, _) => (input.code(4) as c_int - 3, plan_at),
        (false, 0) => (-3, null()),
        (false, _) => (0, plan_at),
    };
    ANSWER.set(answer);

    let (base_ports, n_ports) = counted(input, &ports);
    let (base_stages, n_stages) = counted(input, &stages);
    let is_whole = !input.one_in(4);
    let model = frt_model_runtime_v1 {
        abi_version: if input.is_odd(12) { input.code(3) } else { 1 },
        struct_size: match is_whole {
            true => pick(input, &[136, 4096, 127, 0]),
            false => pick(input, &[128, 135, 127, 8]),
        },
        exp,
        ports: base_ports,
        n_ports,
        stages: base_stages,
        n_stages,
        self_: base_owner.pointer(),
        verbs: {
            let mut table = owner::verbs(if input.is_odd(2) { input.byte() } else { 31 });
            table.struct_size = pick(input, &[48, 4096, 0, 47]);
            table
        },
        owner: base_owner.pointer(),
        retain: (!input.is_odd(12)).then_some(retain as _),
        release: (!input.is_odd(12)).then_some(release as _),
        query_extension: (!input.one_in(3)).then_some(query as _),
    };
    // As many bytes as it has, and none behind: a sanitizer sees a read too far.
    let words = if is_whole { 17 } else { 16 };
    let mut memory = vec![0u64; words].into_boxed_slice();
    // SAFETY: both are at least so long and apart.
    unsafe {
        let from = (&raw const model).cast::<u64>();
        memory.as_mut_ptr().copy_from_nonoverlapping(from, words);
    }
    let base: *const frt_model_runtime_v1 = memory.as_ptr().cast();
    let base = match (input.is_odd(12), input.below(2)) {
        (true, 0) => null(),
        (true, _) => base.cast::<u8>().wrapping_add(4).cast(),
        _ => base,
    };

    body(Base {
        model: base,
        exp,
        ports: base_ports,
        n_ports,
        stages: base_stages,
        n_stages,
    });
    assert_eq!(base_owner.retained.get(), base_owner.released.get());
    drop((export, plan, memory, strings));
    drop((streams, graphs, buffers, regions, ports, stages, generic));
}
