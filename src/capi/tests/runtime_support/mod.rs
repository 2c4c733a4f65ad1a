//! What the tests of the runtime functions share: builders by text, counted owners, a producer with recording verbs.
#![allow(dead_code)]

use flashrt_capi::abi::*;
use flashrt_capi::*;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// A handle that nobody may follow.
pub fn fake<T>(number: usize) -> *mut T {
    without_provenance_mut(number)
}

pub fn last_error() -> String {
    // SAFETY: never null, and nothing was called since.
    unsafe { CStr::from_ptr(frt_last_error()) }
        .to_string_lossy()
        .into_owned()
}

/// The bytes of a C string; `None` for null.
pub fn bytes_at(text: *const c_char) -> Option<Vec<u8>> {
    // SAFETY: texts that the library hands out end at a NUL and live as long as their object.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes().to_vec())
}

pub fn text_at(text: *const c_char) -> String {
    String::from_utf8(bytes_at(text).expect("not null")).unwrap()
}

/// The entries of an array that the library handed out.
pub fn slice<'a, T>(data: *const T, n: u64) -> &'a [T] {
    if n == 0 {
        assert!(data.is_null(), "an empty array is null");
        return &[];
    }
    // SAFETY: the arrays of an object have as many entries as it says; the tests hold a reference.
    unsafe { std::slice::from_raw_parts(data, n as usize) }
}

fn c(text: impl AsRef<[u8]>) -> CString {
    CString::new(text.as_ref()).unwrap()
}

/// A port to declare; tensor, f32, flat, in, swap, not required, dimensions `4`, no window, unless said otherwise.
#[derive(Clone, Debug)]
pub struct Port {
    pub name: Vec<u8>,
    pub codes: [u32; 5],
    pub required: u32,
    pub shape: Vec<i64>,
    pub cadence_hint_hz: u32,
    pub window: (usize, u64, u64),
}

pub fn port(name: impl AsRef<[u8]>) -> Port {
    Port {
        name: name.as_ref().to_vec(),
        codes: [
            FRT_RT_MOD_TENSOR,
            FRT_RT_DTYPE_F32,
            FRT_RT_LAYOUT_FLAT,
            FRT_RT_PORT_IN,
            FRT_RT_PORT_SWAP,
        ],
        required: 0,
        shape: vec![4],
        cadence_hint_hz: 0,
        window: (0, 0, 0),
    }
}

impl Port {
    pub fn codes(
        mut self,
        modality: u32,
        dtype: u32,
        layout: u32,
        direction: u32,
        update: u32,
    ) -> Port {
        self.codes = [modality, dtype, layout, direction, update];
        self
    }
    pub fn way(mut self, direction: u32, update: u32) -> Port {
        self.codes[3] = direction;
        self.codes[4] = update;
        self
    }
    pub fn required(mut self) -> Port {
        self.required = 1;
        self
    }
    pub fn shape(mut self, shape: &[i64]) -> Port {
        self.shape = shape.to_vec();
        self
    }
    pub fn window(mut self, buffer: usize, offset: u64, bytes: u64) -> Port {
        self.window = (buffer, offset, bytes);
        self
    }
}

/// A builder driven through the C functions.
#[derive(Clone, Copy)]
pub struct Build(pub frt_runtime_builder);

impl Build {
    pub fn new() -> Build {
        let b = frt_runtime_builder_create(fake(0x1000));
        assert!(!b.is_null());
        Build(b)
    }
    pub fn metadata() -> Build {
        let b = frt_model_runtime_builder_create_metadata();
        assert!(!b.is_null());
        Build(b)
    }
    pub fn stream(
        self,
        name: impl AsRef<[u8]>,
        id: c_int,
        priority: c_int,
        native: usize,
    ) -> c_int {
        // SAFETY: the text ends at a NUL.
        unsafe {
            frt_runtime_builder_add_stream(self.0, c(name).as_ptr(), id, priority, fake(native))
        }
    }
    pub fn graph(
        self,
        name: impl AsRef<[u8]>,
        handle: usize,
        keys: &[u64],
        stream: c_int,
    ) -> c_int {
        let n = keys.len() as u64;
        let default = keys.first().copied().unwrap_or(0);
        // SAFETY: the text ends at a NUL, the array is as long as it says.
        unsafe {
            frt_runtime_builder_add_graph(
                self.0,
                c(name).as_ptr(),
                fake(handle),
                default,
                keys.as_ptr(),
                n,
                stream,
            )
        }
    }
    pub fn buffer(self, name: impl AsRef<[u8]>, handle: usize, bytes: u64, role: u32) -> c_int {
        // SAFETY: the text ends at a NUL.
        unsafe {
            frt_runtime_builder_add_buffer(self.0, c(name).as_ptr(), fake(handle), bytes, role)
        }
    }
    pub fn region(
        self,
        name: impl AsRef<[u8]>,
        handle: usize,
        offset: u64,
        bytes: u64,
        flags: u32,
    ) -> c_int {
        // SAFETY: the text ends at a NUL.
        unsafe {
            frt_runtime_builder_add_region(
                self.0,
                c(name).as_ptr(),
                fake(handle),
                offset,
                bytes,
                flags,
            )
        }
    }
    pub fn pair(self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> c_int {
        // SAFETY: the texts end at a NUL.
        unsafe { frt_runtime_builder_add_identity(self.0, c(key).as_ptr(), c(value).as_ptr()) }
    }
    pub fn manifest(self, json: &str) -> c_int {
        // SAFETY: the text ends at a NUL.
        unsafe { frt_runtime_builder_set_manifest(self.0, c(json).as_ptr()) }
    }
    pub fn port(self, p: &Port) -> c_int {
        let [modality, dtype, layout, direction, update] = p.codes;
        let (buffer, offset, bytes) = p.window;
        let rank = p.shape.len() as u32;
        // SAFETY: the text ends at a NUL, the array is as long as it says.
        unsafe {
            frt_runtime_builder_add_port(
                self.0,
                c(&p.name).as_ptr(),
                modality,
                dtype,
                layout,
                direction,
                update,
                p.required,
                p.shape.as_ptr(),
                rank,
                p.cadence_hint_hz,
                fake(buffer),
                offset,
                bytes,
            )
        }
    }
    pub fn stage(self, graph: u32, after: &[u32]) -> c_int {
        // SAFETY: the array is as long as it says.
        unsafe { frt_runtime_builder_add_stage(self.0, graph, after.as_ptr(), after.len() as u32) }
    }
    pub fn generic(
        self,
        name: impl AsRef<[u8]>,
        kind: u32,
        executor_ref: u32,
        after: &[u32],
    ) -> c_int {
        let n = after.len() as u32;
        // SAFETY: the text ends at a NUL, the array is as long as it says.
        unsafe {
            frt_runtime_builder_add_generic_stage(
                self.0,
                c(name).as_ptr(),
                kind,
                executor_ref,
                after.as_ptr(),
                n,
            )
        }
    }
    pub fn runner(self) -> c_int {
        // SAFETY: the runner takes any number for its `self`.
        unsafe {
            frt_runtime_builder_set_generic_stage_runner(self.0, fake(0x77), Some(run_opaque))
        }
    }
    pub fn finish(self) -> *mut frt_runtime_export_v1 {
        // SAFETY: no callbacks.
        unsafe { frt_runtime_builder_finish(self.0, null_mut(), None, None) }
    }
    pub fn finish_for(self, owner: &Counted) -> *mut frt_runtime_export_v1 {
        // SAFETY: the callbacks count on the owner.
        unsafe {
            frt_runtime_builder_finish(
                self.0,
                owner.pointer(),
                Some(count_retain),
                Some(count_release),
            )
        }
    }
    pub fn finish_model(self, verbs: &frt_model_runtime_verbs) -> *mut frt_model_runtime_v1 {
        // SAFETY: the verbs take any number for their `self`; no callbacks.
        unsafe {
            frt_runtime_builder_finish_model(self.0, verbs, fake(0x55), null_mut(), None, None)
        }
    }
    pub fn finish_model_for(
        self,
        verbs: &frt_model_runtime_verbs,
        verbs_self: *mut c_void,
        owner: &Counted,
    ) -> *mut frt_model_runtime_v1 {
        let (pointer, retain, release) = (
            owner.pointer(),
            Some(count_retain as _),
            Some(count_release as _),
        );
        // SAFETY: the callbacks count on the owner.
        unsafe {
            frt_runtime_builder_finish_model(self.0, verbs, verbs_self, pointer, retain, release)
        }
    }
    pub fn destroy(self) {
        frt_runtime_builder_destroy(self.0);
    }
}

/// Gives back the one reference of an export.
pub fn release_export(exp: *mut frt_runtime_export_v1) {
    // SAFETY: an export of the library, whose reference the test holds.
    unsafe { ((*exp).release.unwrap())((*exp).owner) }
}

/// Gives back one reference of a model.
pub fn release_model(model: *const frt_model_runtime_v1) {
    // SAFETY: a model to which the test holds a reference.
    unsafe { ((*model).release.unwrap())((*model).owner) }
}

/// Identity and fingerprint of an export.
pub fn identity(exp: *const frt_runtime_export_v1) -> (Vec<u8>, u64) {
    // SAFETY: the test holds a reference.
    unsafe { (bytes_at((*exp).identity).unwrap(), (*exp).fingerprint) }
}

/// An owner that counts what is done to it.
#[derive(Default)]
pub struct Counted {
    pub retains: AtomicU32,
    pub releases: AtomicU32,
}

impl Counted {
    pub fn pointer(&self) -> *mut c_void {
        (self as *const Counted).cast_mut().cast()
    }
    /// (retains, releases)
    pub fn counts(&self) -> (u32, u32) {
        (self.retains.load(SeqCst), self.releases.load(SeqCst))
    }
}

pub unsafe extern "C" fn count_retain(owner: *mut c_void) {
    // SAFETY: the owner is a `Counted` that outlives the object.
    unsafe { &*owner.cast::<Counted>() }
        .retains
        .fetch_add(1, SeqCst);
}

pub unsafe extern "C" fn count_release(owner: *mut c_void) {
    // SAFETY: as above.
    unsafe { &*owner.cast::<Counted>() }
        .releases
        .fetch_add(1, SeqCst);
}

/// Answers the reference plus 100.
pub unsafe extern "C" fn run_opaque(_: *mut c_void, executor_ref: u32) -> c_int {
    executor_ref as c_int + 100
}

pub unsafe extern "C" fn set_input(
    _: *mut c_void,
    port: u32,
    _: *const c_void,
    bytes: u64,
    stream: c_int,
) -> c_int {
    1000 + port as c_int * 100 + bytes as c_int * 10 + stream
}

pub unsafe extern "C" fn get_output(
    _: *mut c_void,
    port: u32,
    _: *mut c_void,
    capacity: u64,
    written: *mut u64,
    stream: c_int,
) -> c_int {
    if !written.is_null() {
        // SAFETY: the test hands in a live counter.
        unsafe { *written = capacity + 1 };
    }
    2000 + port as c_int * 100 + stream
}

pub unsafe extern "C" fn prepare(_: *mut c_void, graph: u32, key: u64) -> c_int {
    3000 + graph as c_int * 100 + key as c_int
}

/// Answers the address that it got as `self`.
pub unsafe extern "C" fn step(this: *mut c_void) -> c_int {
    this.addr() as c_int
}

pub unsafe extern "C" fn last_error_text(_: *mut c_void) -> *const c_char {
    c"the producer's text".as_ptr()
}

pub unsafe extern "C" fn other_error_text(_: *mut c_void) -> *const c_char {
    c"the other producer's text".as_ptr()
}

pub const NO_VERBS: frt_model_runtime_verbs = frt_model_runtime_verbs::empty();

pub fn all_verbs() -> frt_model_runtime_verbs {
    frt_model_runtime_verbs {
        set_input: Some(set_input),
        get_output: Some(get_output),
        prepare: Some(prepare),
        step: Some(step),
        last_error: Some(last_error_text),
        ..NO_VERBS
    }
}

/// Two opaque stages and a STAGED input, over no resources.
pub fn opaque_model(owner: &Counted) -> *mut frt_model_runtime_v1 {
    let b = Build::metadata();
    assert_eq!(b.pair("provider", "test"), 0);
    assert_eq!(b.port(&port("prompt").codes(2, 0, 0, 0, 1).shape(&[-1])), 0);
    assert_eq!(b.generic("first", 1, 7, &[]), 0);
    assert_eq!(b.generic("second", 1, 9, &[0]), 0);
    assert_eq!(b.runner(), 0);
    let model = b.finish_model_for(&all_verbs(), fake(0x55), owner);
    assert!(!model.is_null(), "{}", last_error());
    model
}

/// Two graph stages, a SWAP input and a SWAP output.
pub fn graph_model(owner: &Counted) -> *mut frt_model_runtime_v1 {
    let b = Build::new();
    assert_eq!(b.graph("encode", 0x10, &[3], 0), 0);
    assert_eq!(b.graph("decode", 0x20, &[4, 5], 0), 0);
    assert_eq!(b.buffer("io", 0x30, 64, 3), 0);
    assert_eq!(b.port(&port("in").window(0x30, 0, 16)), 0);
    assert_eq!(b.port(&port("out").way(1, 0).window(0x30, 16, 16)), 0);
    assert_eq!(b.stage(0, &[]), 0);
    assert_eq!(b.stage(1, &[0]), 0);
    let model = b.finish_model_for(&all_verbs(), fake(0x55), owner);
    assert!(!model.is_null(), "{}", last_error());
    model
}

/// Extension `id` of a model: the status and the pointer.
pub fn query(rt: *const frt_model_runtime_v1, id: u64, min_version: u32) -> (c_int, *const c_void) {
    let mut out: *const c_void = fake::<c_void>(0xbad).cast_const();
    // SAFETY: the test holds a reference; `out` is live.
    let code = unsafe { ((*rt).query_extension.unwrap())(rt, id, min_version, &mut out) };
    (code, out)
}

/// The generic plan of a model that has one.
pub fn plan<'a>(rt: *const frt_model_runtime_v1) -> &'a frt_generic_stage_plan_ext_v1 {
    let (code, out) = query(rt, FRT_EXT_GENERIC_STAGE_PLAN_V1, 1);
    assert_eq!(code, 0, "{}", last_error());
    // SAFETY: the plan lives as long as the runtime.
    unsafe { &*out.cast() }
}

pub const NO_OUT: *const c_void = null();
