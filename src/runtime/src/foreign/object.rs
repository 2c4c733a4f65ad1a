//! Checks a producer's object and copies everything that it declares.

use std::ffi::{c_int, c_void};
use std::ptr::addr_of;

use super::read;
use super::Fault;
use crate::abi::read as abi_read;
use crate::abi::{self, frt_model_runtime_v1, frt_runtime_export_v1};
use crate::{
    check_staged, fnv1a64, BufferDecl, Declaration, GraphDecl, PortDecl, RegionDecl, RegionFlags,
    Role, StateClass, StreamDecl, StreamId,
};

/// What a factory gave.
#[derive(Clone, Copy)]
pub(super) enum Object {
    Model(*const frt_model_runtime_v1),
    Export(*const frt_runtime_export_v1),
}

type Counted = Option<unsafe extern "C" fn(*mut c_void)>;

/// One reference to an object, given back exactly once.
pub(super) struct Reference {
    owner: *mut c_void,
    release: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: the interface says that `release` may be called on any thread.
unsafe impl Send for Reference {}
// SAFETY: nothing is done through a shared borrow.
unsafe impl Sync for Reference {}

impl Drop for Reference {
    fn drop(&mut self) {
        // SAFETY: the holder owns one reference (see `Object::reference` and `Object::retain`), and drop runs once.
        unsafe { (self.release)(self.owner) }
    }
}

/// The producer's functions, copied out.
#[derive(Clone, Copy)]
pub(super) struct Calls {
    pub(super) verbs: abi::frt_model_runtime_verbs,
    pub(super) self_: *mut c_void,
    pub(super) run_opaque: Option<unsafe extern "C" fn(*mut c_void, u32) -> c_int>,
    pub(super) stage_self: *mut c_void,
}

// SAFETY: the interface lets any one thread call at a time; the live set that owns them is driven by one.
unsafe impl Send for Calls {}

/// Everything that an object declares.
pub(super) struct Declared {
    pub(super) declaration: Declaration,
    pub(super) identity: Vec<u8>,
    pub(super) fingerprint: u64,
    pub(super) ctx: *mut c_void,
    pub(super) calls: Calls,
    /// No ports, no plan, no verbs.
    pub(super) is_export: bool,
}

// SAFETY: `ctx` is a number here; whoever uses it keeps the rules of the execution interface.
unsafe impl Send for Declared {}

/// The first fields of both objects, and where their reference count is.
struct Head {
    owner: *mut c_void,
    retain: Counted,
    release: Counted,
}

impl Object {
    /// Pointer, version and size: what must hold before a field is looked at.
    ///
    /// # Safety
    /// The object is null or what its `abi_version` and `struct_size` say, and stays so during the call.
    unsafe fn head(self) -> Result<Head, Fault> {
        let (what, at, least) = match self {
            Object::Model(p) => (
                "model runtime",
                p.cast::<u64>(),
                abi::FRT_MODEL_RUNTIME_V1_BASE_SIZE,
            ),
            Object::Export(p) => (
                "export",
                p.cast(),
                size_of::<frt_runtime_export_v1>() as u32,
            ),
        };
        if at.is_null() || !at.is_aligned() {
            return Err(Fault::object(format!(
                "the {what} at {at:p} is null or not aligned"
            )));
        }
        // SAFETY: not null and aligned; both objects start with two u32.
        let [version, size] = unsafe { at.cast::<[u32; 2]>().read() };
        // Both interfaces have version 1.
        if version != 1 || size < least {
            return Err(Fault::object(format!(
                "the {what} has version {version} and {size} bytes, expected version 1 and at least {least}"
            )));
        }
        // SAFETY: `size` covers the fields up to `release` in both objects; places are read one by one, because the object may
        // be shorter than our struct behind `release`.
        Ok(unsafe {
            match self {
                Object::Model(p) => Head {
                    owner: addr_of!((*p).owner).read(),
                    retain: addr_of!((*p).retain).read(),
                    release: addr_of!((*p).release).read(),
                },
                Object::Export(p) => Head {
                    owner: addr_of!((*p).owner).read(),
                    retain: addr_of!((*p).retain).read(),
                    release: addr_of!((*p).release).read(),
                },
            }
        })
    }

    /// Takes over the reference that the caller holds.
    ///
    /// A failure means that version or size are not those of the interface, or that there is no `release`: then the reference
    /// cannot be given back.
    ///
    /// # Safety
    /// As [`Object::head`], and the caller owns one reference, which it gives away.
    pub(super) unsafe fn reference(self) -> Result<Reference, Fault> {
        // SAFETY: the caller's promise.
        let head = unsafe { self.head() }?;
        Ok(Reference {
            owner: head.owner,
            release: head.release.ok_or_else(no_release)?,
        })
    }

    /// Adds a reference.
    ///
    /// # Safety
    /// As [`Object::head`], and the caller holds a reference during the call.
    pub(super) unsafe fn retain(self) -> Result<Reference, Fault> {
        // SAFETY: the caller's promise.
        let head = unsafe { self.head() }?;
        let (Some(retain), Some(release)) = (head.retain, head.release) else {
            return Err(no_release());
        };
        // SAFETY: the object is alive, and this is its own pair of functions.
        unsafe { retain(head.owner) };
        Ok(Reference {
            owner: head.owner,
            release,
        })
    }

    /// Functions of the producer, to find the library that they came from.
    ///
    /// # Safety
    /// As [`Object::head`].
    pub(super) unsafe fn code(self) -> Result<Vec<*const c_void>, Fault> {
        let mut found = Vec::new();
        // SAFETY: the caller's promise; the verbs lie before `release`, within the size that the head has checked.
        let head = unsafe { self.head() }?;
        if let Object::Model(p) = self {
            // SAFETY: as above.
            let verbs = unsafe { abi_read::verbs(addr_of!((*p).verbs)) };
            found.extend(verbs.step.map(|f| f as *const c_void));
            found.extend(verbs.set_input.map(|f| f as *const c_void));
            found.extend(verbs.get_output.map(|f| f as *const c_void));
        }
        found.extend(head.release.map(|f| f as *const c_void));
        Ok(found)
    }

    /// Checks the whole object and copies it.
    ///
    /// # Safety
    /// As [`Object::head`], a reference is held during the call, and everything that the object points to is as it says:
    /// arrays as long as their counts (up to 2^20), texts with an end.
    pub(super) unsafe fn declared(self) -> Result<Declared, Fault> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Object::Export(exp) => {
                    abi_read::check_export(exp)?;
                    export(exp)
                }
                Object::Model(model) => {
                    abi_read::check_model(model)?;
                    declared_model(model)
                }
            }
        }
    }
}

fn no_release() -> Fault {
    Fault::object("the object has no retain or no release function")
}

/// # Safety
/// As [`Object::declared`], after `check_export`.
unsafe fn export(exp: *const frt_runtime_export_v1) -> Result<Declared, Fault> {
    // SAFETY: the head says that the whole struct is there; it has no invalid byte patterns.
    let e = unsafe { exp.read() };
    let mut d = Declaration::default();
    // SAFETY: from here on: arrays and texts of a live object, by the caller's promise; each is bounded by its reader.
    unsafe {
        for (i, s) in abi_read::entries("streams", b"", e.streams, e.n_streams)?
            .iter()
            .enumerate()
        {
            d.streams.push(StreamDecl {
                name: read::name(&format!("stream {i}"), s.name)?,
                stream_id: StreamId(s.stream_id),
                priority: s.priority,
            });
        }
        for (i, g) in abi_read::entries("graphs", b"", e.graphs, e.n_graphs)?
            .iter()
            .enumerate()
        {
            let name = read::name(&format!("graph {i}"), g.name)?;
            d.graphs.push(GraphDecl {
                handle: handle("graph", &name, g.handle.cast())?,
                default_key: g.default_key,
                keys: abi_read::entries("keys of graph", name.as_bytes(), g.keys, g.n_keys)?
                    .to_vec(),
                stream_id: g.stream_id,
                name,
            });
        }
        for (i, b) in abi_read::entries("buffers", b"", e.buffers, e.n_buffers)?
            .iter()
            .enumerate()
        {
            let name = read::name(&format!("buffer {i}"), b.name)?;
            d.buffers.push(BufferDecl {
                handle: handle("buffer", &name, b.handle.cast())?,
                bytes: b.bytes,
                role: Role(b.role),
                name,
            });
        }
        let regions = abi_read::entries("regions", b"", e.capsule_regions, e.n_capsule_regions)?;
        for (i, r) in regions.iter().enumerate() {
            let name = read::name(&format!("region {i}"), r.name)?;
            if r.bytes == 0 {
                return Err(Fault::object(format!("region '{name}' has 0 bytes")));
            }
            let flags = RegionFlags(r.flags);
            d.regions.push(RegionDecl {
                buffer: handle("region", &name, r.buffer.cast())?,
                offset: r.offset,
                bytes: r.bytes,
                flags,
                class: match flags.contains(RegionFlags::SNAPSHOT | RegionFlags::RESTORE) {
                    true => StateClass::Continuation,
                    false => StateClass::Scratch,
                },
                name,
            });
        }
        let identity = read::document("the identity", e.identity)?;
        let printed = fnv1a64(&identity);
        if printed != e.fingerprint {
            return Err(Fault::object(format!(
                "the fingerprint is {:016x}, but the identity text gives {printed:016x}",
                e.fingerprint
            )));
        }
        if !e.manifest_json.is_null() {
            let manifest = read::document("the manifest", e.manifest_json)?;
            d.manifest = Some(String::from_utf8_lossy(&manifest).into_owned());
        }
        d.pairs = pairs(&identity);
        Ok(Declared {
            declaration: d,
            identity,
            fingerprint: e.fingerprint,
            ctx: e.ctx.cast(),
            calls: Calls {
                verbs: abi::frt_model_runtime_verbs::empty(),
                self_: std::ptr::null_mut(),
                run_opaque: None,
                stage_self: std::ptr::null_mut(),
            },
            is_export: true,
        })
    }
}

/// # Safety
/// As [`Object::declared`], after `check_model`.
unsafe fn declared_model(rt: *const frt_model_runtime_v1) -> Result<Declared, Fault> {
    // SAFETY: the caller's promise: the head says that the base is there, and what it points to is as it says.
    let (mut out, verbs, ports, stages, plan) = unsafe {
        let exp = addr_of!((*rt).exp).read();
        abi_read::check_export(exp)?;
        let out = export(exp)?;
        let graphs = out.declaration.graphs.len() as u64;
        let n_ports = addr_of!((*rt).n_ports).read();
        let n_stages = addr_of!((*rt).n_stages).read();
        (
            out,
            abi_read::verbs(addr_of!((*rt).verbs)),
            abi_read::ports(addr_of!((*rt).ports).read(), n_ports)?,
            abi_read::stages(addr_of!((*rt).stages).read(), n_stages, Some(graphs))?,
            abi_read::generic_plan(rt)?,
        )
    };
    out.is_export = false;
    out.calls.verbs = verbs;
    // SAFETY: part of the base.
    out.calls.self_ = unsafe { addr_of!((*rt).self_).read() };
    let d = &mut out.declaration;
    for p in ports {
        let name = utf8("port", p.name.into_bytes())?;
        check_staged(name.as_bytes(), p.direction, p.update, verbs.present())?;
        d.ports.push(PortDecl {
            name,
            modality: p.modality,
            dtype: p.dtype,
            layout: p.layout,
            direction: p.direction,
            update: p.update,
            required: p.required,
            shape: p.shape,
            cadence_hint_hz: p.cadence_hint_hz,
            buffer: p.buffer,
            offset: p.offset,
            bytes: p.bytes,
        });
    }
    d.stages = stages;
    if let Some(plan) = plan {
        d.generic_stages = plan.stages;
        out.calls.run_opaque = Some(plan.run_opaque);
        out.calls.stage_self = plan.stage_self;
    }
    if d.stages.is_empty() && d.generic_stages.is_empty() && verbs.step.is_none() {
        return Err(Fault::object(
            "it declares no stage, and its step verb is null: there is nothing to run",
        ));
    }
    Ok(out)
}

fn utf8(what: &str, bytes: Vec<u8>) -> Result<String, Fault> {
    String::from_utf8(bytes).map_err(|e| {
        Fault::object(format!(
            "the name of {what} {:?} is not UTF-8 from byte {} on",
            String::from_utf8_lossy(e.as_bytes()),
            e.utf8_error().valid_up_to()
        ))
    })
}

fn handle(what: &str, name: &str, handle: *mut c_void) -> Result<u64, Fault> {
    if handle.is_null() {
        return Err(Fault::object(format!(
            "the handle of {what} '{name}' is null"
        )));
    }
    Ok(handle as u64)
}

/// The identity pairs, for people: the lines with a `=` between the header and the first other record.
fn pairs(identity: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(identity);
    let kinds = ["graph:", "region:", "port:", "stage:", "gstage-v1:"];
    text.lines()
        .skip(1)
        .take_while(|line| !kinds.iter().any(|k| line.starts_with(k)))
        .filter_map(|line| line.split_once('='))
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect()
}
