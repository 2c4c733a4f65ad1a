//! Reads a foreign export or model runtime into checked, owned data.
//!
//! What lies behind a pointer cannot be proven; what can be checked is: null pointers with a count, counts above [`MAX_ENTRIES`], misaligned
//! arrays, names, references and dependencies. Each refusal says what was there. Nothing is retained by a read.

use std::collections::HashSet;
use std::ffi::{c_char, c_int, c_void, CStr, CString};

use super::{
    frt_generic_stage_desc_v1, frt_generic_stage_plan_ext_v1, frt_model_runtime_v1,
    frt_model_runtime_verbs, frt_runtime_export_v1, frt_runtime_port_desc, frt_runtime_stage_desc,
    FRT_EXT_GENERIC_STAGE_PLAN_V1, FRT_GENERIC_STAGE_NAME_MAX_BYTES,
    FRT_GENERIC_STAGE_PLAN_ABI_VERSION, FRT_GENERIC_STAGE_PLAN_EXT_V1_SIZE,
    FRT_MODEL_RUNTIME_ABI_VERSION, FRT_MODEL_RUNTIME_V1_BASE_SIZE,
    FRT_MODEL_RUNTIME_V1_QUERY_EXTENSION_SIZE, FRT_RUNTIME_ABI_VERSION,
};
use crate::{
    check_earlier, check_generic_after, check_graph_index, check_stage_name, Direction, Error,
    ExecutorKind, GenericStageDecl, Layout, Modality, PortDType, PortDecl, StageDecl, Update,
    VerbTable,
};

/// Most entries that are read from one foreign array (names excepted, which end at their NUL).
pub const MAX_ENTRIES: u64 = 1 << 20;

const VERBS_BYTES: u32 = std::mem::size_of::<frt_model_runtime_verbs>() as u32;
const EXPORT_BYTES: u32 = std::mem::size_of::<frt_runtime_export_v1>() as u32;

/// Runner of the OPAQUE stages of a plan.
pub type RunOpaque = unsafe extern "C" fn(stage_self: *mut c_void, executor_ref: u32) -> c_int;

/// A generic plan that passed every check.
#[derive(Debug)]
pub struct GenericPlan {
    /// Stages; every graph reference and dependency is in range.
    pub stages: Vec<GenericStageDecl>,
    /// Passed to `run_opaque`.
    pub stage_self: *mut c_void,
    /// Executes an OPAQUE stage, complete on return.
    pub run_opaque: RunOpaque,
}

/// The `n` entries at `data`, empty for 0.
///
/// # Errors
/// A null or misaligned pointer with a count, or more than [`MAX_ENTRIES`].
///
/// # Safety
/// When `data` is not null, aligned and `n` at most [`MAX_ENTRIES`], `n` initialised entries are there, and nobody writes them during `'a`.
pub unsafe fn entries<'a, T>(
    what: &'static str,
    name: &[u8],
    data: *const T,
    n: u64,
) -> Result<&'a [T], Error> {
    if n == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return refuse(what, name, format!("its array is null, its count is {n}"));
    }
    if n > MAX_ENTRIES {
        return refuse(
            what,
            name,
            format!("{n} entries, at most {MAX_ENTRIES} are read"),
        );
    }
    if !data.is_aligned() {
        return refuse(what, name, format!("its array at {data:p} is not aligned"));
    }
    // SAFETY: not null, aligned, and the caller promises the entries.
    Ok(unsafe { std::slice::from_raw_parts(data, n as usize) })
}

/// The verbs at `verbs`: an empty table for null, a misaligned pointer or a `struct_size` below 48; bytes behind the 48 are not looked at.
///
/// # Safety
/// Null, or as many bytes as `struct_size` says (4 at least) are readable.
pub unsafe fn verbs(verbs: *const frt_model_runtime_verbs) -> frt_model_runtime_verbs {
    // SAFETY: the size is readable, and the other bytes when it covers them.
    if verbs.is_null() || !verbs.is_aligned() || unsafe { (*verbs).struct_size } < VERBS_BYTES {
        return frt_model_runtime_verbs::empty();
    }
    frt_model_runtime_verbs {
        struct_size: VERBS_BYTES,
        reserved: 0,
        // SAFETY: the table says that it has all its 48 bytes.
        ..unsafe { verbs.read() }
    }
}

impl frt_model_runtime_verbs {
    /// Which verbs are there.
    pub fn present(&self) -> VerbTable {
        VerbTable {
            set_input: self.set_input.is_some(),
            get_output: self.get_output.is_some(),
            step: self.step.is_some(),
            last_error: self.last_error.is_some(),
        }
    }
}

/// Checks that an export may be used: version, size, `retain`, `release`, and no null array with a count.
///
/// # Safety
/// Null, or `abi_version` and `struct_size` are readable, and the 128 bytes when these two are good.
pub unsafe fn check_export(exp: *const frt_runtime_export_v1) -> Result<(), Error> {
    const WHAT: &str = "export";
    check_pointer(WHAT, exp)?;
    // SAFETY: the head is readable.
    let (version, size) = unsafe { ((*exp).abi_version, (*exp).struct_size) };
    check_head(WHAT, version, FRT_RUNTIME_ABI_VERSION, size, EXPORT_BYTES)?;
    // SAFETY: version and size are good.
    let exp = unsafe { &*exp };
    if exp.retain.is_none() || exp.release.is_none() {
        return refuse(WHAT, b"", "it has no retain or no release");
    }
    for (what, is_null, n) in [
        ("streams", exp.streams.is_null(), exp.n_streams),
        ("graphs", exp.graphs.is_null(), exp.n_graphs),
        ("buffers", exp.buffers.is_null(), exp.n_buffers),
        (
            "capsule_regions",
            exp.capsule_regions.is_null(),
            exp.n_capsule_regions,
        ),
    ] {
        if is_null && n > 0 {
            return refuse(WHAT, b"", format!("{what} is null, its count is {n}"));
        }
    }
    Ok(())
}

/// Checks the base of a model runtime: version, size (128 at least), `exp`, `retain` and `release`.
///
/// # Safety
/// Null, or `abi_version` and `struct_size` are readable, and the first 128 bytes when these two are good.
pub unsafe fn check_model(rt: *const frt_model_runtime_v1) -> Result<(), Error> {
    const WHAT: &str = "model runtime";
    check_pointer(WHAT, rt)?;
    // SAFETY: the head is readable.
    let (version, size) = unsafe { ((*rt).abi_version, (*rt).struct_size) };
    check_head(
        WHAT,
        version,
        FRT_MODEL_RUNTIME_ABI_VERSION,
        size,
        FRT_MODEL_RUNTIME_V1_BASE_SIZE,
    )?;
    // SAFETY: the base is readable.
    let (exp, retain, release) = unsafe { ((*rt).exp, (*rt).retain, (*rt).release) };
    if exp.is_null() {
        return refuse(WHAT, b"", "its export is null");
    }
    if retain.is_none() || release.is_none() {
        return refuse(WHAT, b"", "it has no retain or no release");
    }
    Ok(())
}

/// A port under the rules that do not depend on the builder: name not empty, direction and update class known, shape there.
///
/// # Safety
/// The name is null or NUL-terminated; `shape` is null or has `rank` entries (when `rank` is at most [`MAX_ENTRIES`]).
pub unsafe fn port(desc: &frt_runtime_port_desc) -> Result<PortDecl<CString>, Error> {
    const WHAT: &str = "port";
    // SAFETY: the caller promises a NUL-terminated name.
    let name = unsafe { text(desc.name) }.unwrap_or_default();
    let bytes = name.to_bytes();
    if bytes.is_empty() {
        let reason = if desc.name.is_null() {
            "its name is null"
        } else {
            "its name is empty"
        };
        return refuse(WHAT, bytes, reason);
    }
    let Some(direction) = Direction::from_code(desc.direction) else {
        return refuse(
            WHAT,
            bytes,
            format!("direction {}, expected 0 or 1", desc.direction),
        );
    };
    let Some(update) = Update::from_code(desc.update) else {
        return refuse(
            WHAT,
            bytes,
            format!("update class {}, expected 0, 1 or 2", desc.update),
        );
    };
    // SAFETY: the caller promises `rank` dimensions.
    let shape = unsafe { entries(WHAT, bytes, desc.shape, desc.rank.into()) }?;
    Ok(PortDecl {
        name: name.to_owned(),
        modality: Modality::from_code(desc.modality),
        dtype: PortDType::from_code(desc.dtype),
        layout: Layout::from_code(desc.layout),
        direction,
        update,
        required: desc.required,
        shape: shape.to_vec(),
        cadence_hint_hz: desc.cadence_hint_hz,
        buffer: desc.buffer.expose_provenance() as u64,
        offset: desc.offset,
        bytes: desc.bytes,
    })
}

/// The `n` ports at `ports`, each under the rules of [`port`].
///
/// # Safety
/// As for [`entries`] and [`port`].
pub unsafe fn ports(
    ports: *const frt_runtime_port_desc,
    n: u64,
) -> Result<Vec<PortDecl<CString>>, Error> {
    // SAFETY: the caller's promise.
    let ports = unsafe { entries("ports", b"", ports, n) }?;
    // SAFETY: the caller's promise.
    ports.iter().map(|p| unsafe { port(p) }).collect()
}

/// The `n` graph stages at `stages`. Dependencies are on earlier stages; graphs are below `graphs`, when that is known.
///
/// # Safety
/// As for [`entries`], and for the `after` of each stage.
pub unsafe fn stages(
    stages: *const frt_runtime_stage_desc,
    n: u64,
    graphs: Option<u64>,
) -> Result<Vec<StageDecl>, Error> {
    // SAFETY: the caller's promise.
    let stages = unsafe { entries("stages", b"", stages, n) }?;
    let mut out = Vec::with_capacity(stages.len());
    for (i, s) in stages.iter().enumerate() {
        let name = i.to_string();
        if let Some(graphs) = graphs {
            check_graph_index("stage", name.as_bytes(), s.graph, graphs)?;
        }
        // SAFETY: the caller's promise.
        let after = unsafe { entries("stage", name.as_bytes(), s.after, s.n_after.into()) }?;
        check_earlier(i, after)?;
        out.push(StageDecl {
            graph: s.graph,
            after: after.to_vec(),
        });
    }
    Ok(out)
}

/// Asks a checked model runtime for its generic plan and checks the plan whole; `None` when there is none.
///
/// Checked in this order: plan version and size; stages; runner; the model supplies `last_error`; version and size of the export;
/// per stage its name (valid, unique), executor, graph reference and dependencies; an OPAQUE stage is there; no graph stages beside it.
///
/// # Safety
/// [`check_model`] accepted `rt`; what its query function answers with 0 is a plan whose arrays are as long as it says.
pub unsafe fn generic_plan(rt: *const frt_model_runtime_v1) -> Result<Option<GenericPlan>, Error> {
    const WHAT: &str = "generic plan";
    // SAFETY: the base is readable, and the tail when the size covers it.
    let query = unsafe {
        match (*rt).struct_size >= FRT_MODEL_RUNTIME_V1_QUERY_EXTENSION_SIZE {
            true => (*rt).query_extension,
            false => None,
        }
    };
    let Some(query) = query else { return Ok(None) };
    let mut out: *const c_void = std::ptr::null();
    // SAFETY: the function belongs to `rt`; `out` lives through the call.
    match unsafe { query(rt, FRT_EXT_GENERIC_STAGE_PLAN_V1, 1, &mut out) } {
        0 => {}
        -3 => return Ok(None),
        code => {
            return refuse(
                WHAT,
                b"",
                format!("the query for it answers {code}, expected 0 or -3"),
            )
        }
    }
    let plan: *const frt_generic_stage_plan_ext_v1 = out.cast();
    if plan.is_null() || !plan.is_aligned() {
        return refuse(
            WHAT,
            b"",
            format!("the query for it answers 0 with the pointer {plan:p}"),
        );
    }
    // SAFETY: the head of a plan is readable.
    let (version, size) = unsafe { ((*plan).abi_version, (*plan).struct_size) };
    if version < FRT_GENERIC_STAGE_PLAN_ABI_VERSION {
        return refuse(WHAT, b"", format!("version {version}, expected at least 1"));
    }
    if size < FRT_GENERIC_STAGE_PLAN_EXT_V1_SIZE {
        return refuse(WHAT, b"", format!("{size} bytes, expected at least 40"));
    }
    // SAFETY: the plan says that it has its 40 bytes.
    let plan = unsafe { plan.read() };
    if plan.n_stages == 0 {
        return refuse(WHAT, b"", "it has 0 stages");
    }
    // SAFETY: the caller's promise.
    let descs = unsafe { entries(WHAT, b"", plan.stages, plan.n_stages) }?;
    let Some(run_opaque) = plan.run_opaque else {
        return refuse(WHAT, b"", "it has no runner");
    };
    // SAFETY: the base is readable.
    let table = unsafe { verbs(&raw const (*rt).verbs) };
    if table.last_error.is_none() {
        return refuse(WHAT, b"", "there is no last_error");
    }
    // SAFETY: the base is readable, its export as well.
    let exp = unsafe { (*rt).exp };
    // SAFETY: as above.
    unsafe { check_export(exp) }?;
    // SAFETY: version and size of the export are good.
    let graphs = unsafe { (*exp).n_graphs };
    // SAFETY: the caller's promise.
    let stages = unsafe { generic_stages(descs, graphs) }?;
    if !stages
        .iter()
        .any(|s| s.executor_kind == ExecutorKind::Opaque)
    {
        return refuse(WHAT, b"", "it has no OPAQUE stage");
    }
    // SAFETY: the base is readable.
    if unsafe { (*rt).n_stages } > 0 {
        return refuse("model", b"", "both graph stages and a generic plan");
    }
    Ok(Some(GenericPlan {
        stages,
        stage_self: plan.stage_self,
        run_opaque,
    }))
}

/// # Safety
/// Each name is null or NUL-terminated, each `after` as long as it says.
unsafe fn generic_stages(
    descs: &[frt_generic_stage_desc_v1],
    graphs: u64,
) -> Result<Vec<GenericStageDecl>, Error> {
    const WHAT: &str = "generic stage";
    let mut taken = HashSet::with_capacity(descs.len());
    let mut out = Vec::with_capacity(descs.len());
    for (i, s) in descs.iter().enumerate() {
        // SAFETY: the caller promises NUL-terminated names.
        let name = unsafe { stage_name(s.name) };
        let Some(name) = name else {
            return refuse(WHAT, i.to_string().as_bytes(), "its name is null");
        };
        check_stage_name(&name)?;
        let Some(executor_kind) = ExecutorKind::from_code(s.executor_kind) else {
            return refuse(
                WHAT,
                &name,
                format!("executor kind {}, expected 0 or 1", s.executor_kind),
            );
        };
        if executor_kind == ExecutorKind::Graph {
            check_graph_index(WHAT, &name, s.executor_ref, graphs)?;
        }
        // SAFETY: the caller's promise.
        let after = unsafe { entries(WHAT, &name, s.after, s.n_after.into()) }?;
        check_generic_after(&name, i, after)?;
        if !taken.insert(name.clone()) {
            return refuse(WHAT, &name, "the name is taken");
        }
        out.push(GenericStageDecl {
            name: String::from_utf8_lossy(&name).into_owned(),
            executor_kind,
            executor_ref: s.executor_ref,
            after: after.to_vec(),
        });
    }
    Ok(out)
}

/// The text at `text`; `None` for null.
///
/// # Safety
/// Null, or NUL-terminated and not written during `'a`.
pub unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: not null; the caller promises the rest.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// The name of a generic stage, not read further than one byte past the longest allowed one.
///
/// # Safety
/// Null, or readable up to its NUL.
pub unsafe fn stage_name(name: *const c_char) -> Option<Vec<u8>> {
    if name.is_null() {
        return None;
    }
    let mut out = Vec::new();
    while out.len() <= FRT_GENERIC_STAGE_NAME_MAX_BYTES as usize {
        // SAFETY: no NUL so far, so this byte is readable.
        match unsafe { name.add(out.len()).read() } {
            0 => break,
            b => out.push(b as u8),
        }
    }
    Some(out)
}

fn check_pointer<T>(what: &'static str, pointer: *const T) -> Result<(), Error> {
    if pointer.is_null() {
        return refuse(what, b"", "it is null");
    }
    if !pointer.is_aligned() {
        return refuse(what, b"", format!("its address {pointer:p} is not aligned"));
    }
    Ok(())
}

fn check_head(
    what: &'static str,
    version: u32,
    expected: u32,
    size: u32,
    least: u32,
) -> Result<(), Error> {
    if version != expected {
        return refuse(what, b"", format!("version {version}, expected {expected}"));
    }
    if size < least {
        return refuse(
            what,
            b"",
            format!("{size} bytes, expected at least {least}"),
        );
    }
    Ok(())
}

fn refuse<T>(what: &'static str, name: &[u8], reason: impl Into<String>) -> Result<T, Error> {
    Err(Error::Declaration {
        what,
        name: String::from_utf8_lossy(name).into_owned(),
        reason: reason.into(),
    })
}
