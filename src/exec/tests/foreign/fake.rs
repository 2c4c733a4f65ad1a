//! An execution library inside the test: it runs everything at once, writes down each call, answers what
//! the test tells it to, and notes every breach of the ABI's rules.
#![allow(dead_code)]

use flashrt_exec::{Context, Error, ForeignExec, ForeignTable, Graph};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// What the library says when the test makes a call fail.
pub const REASON: &str = "the test wants it so";

pub struct Fake {
    state: Mutex<State>,
    is_inside: AtomicBool,
}

#[derive(Default)]
struct State {
    objects: Vec<Object>,
    trace: Vec<String>,
    is_quiet: bool,
    answers: HashMap<&'static str, i64>,
    violations: Vec<String>,
    streams: c_int,
}

struct Object {
    /// The handle: points at whose it is and which.
    tag: *mut (*const Fake, usize),
    body: Option<Body>,
}

impl Object {
    fn new(fake: *const Fake, id: usize, body: Body) -> Object {
        Object {
            tag: Box::into_raw(Box::new((fake, id))),
            body: Some(body),
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: made in `new`; objects live as long as the library.
        drop(unsafe { Box::from_raw(self.tag) });
    }
}

// SAFETY: the tag is only read, and the library outlives its objects.
unsafe impl Send for Object {}

enum Body {
    Event,
    Buffer(Vec<u8>),
    /// Key, buffer and the value that a replay fills it with.
    Graph(Vec<(u64, usize, u8)>),
    Plan,
}

/// The anchor of a context: its drop shows in the trace.
struct Anchor(Arc<Fake>);

impl Drop for Anchor {
    fn drop(&mut self) {
        self.0.state.lock().unwrap().trace.push("anchor".into());
    }
}

impl Fake {
    pub fn new() -> Arc<Fake> {
        let fake = Arc::new(Fake {
            state: Mutex::default(),
            is_inside: AtomicBool::new(false),
        });
        fake.state.lock().unwrap().streams = 1;
        fake
    }

    /// A context over the whole library but for the symbols `without`.
    pub fn context_without(self: &Arc<Self>, without: &[&str]) -> Result<Context, Error> {
        let ctx = Arc::as_ptr(self).cast_mut().cast();
        self.context_at(ctx, without)
    }

    pub fn context_at(
        self: &Arc<Self>,
        ctx: *mut c_void,
        without: &[&str],
    ) -> Result<Context, Error> {
        let find = |symbol| match without.contains(&symbol) {
            true => std::ptr::null_mut(),
            false => address(symbol),
        };
        let exec = ForeignExec {
            // SAFETY: the functions below have the signatures of the ABI.
            table: unsafe { ForeignTable::from_symbols(find) },
            ctx,
            anchor: Box::new(Anchor(self.clone())),
        };
        // SAFETY: the anchor holds the library, whose functions keep the ABI.
        unsafe { Context::foreign(exec) }
    }

    pub fn context(self: &Arc<Self>) -> Context {
        self.context_without(&[]).unwrap()
    }

    /// A buffer that the library's owner made.
    pub fn buffer(&self, bytes: usize) -> *mut c_void {
        self.add(Body::Buffer(vec![0; bytes]))
    }

    /// A graph that the library's owner made: each key fills a buffer of the owner with a value.
    pub fn graph(&self, variants: &[(u64, *mut c_void, u8)]) -> *mut c_void {
        let variants = variants.iter().map(|&(key, buffer, value)| {
            // SAFETY: a handle of this library.
            let (_, id) = unsafe { *buffer.cast::<(*const Fake, usize)>() };
            (key, id, value)
        });
        self.add(Body::Graph(variants.collect()))
    }

    /// A graph without variants, adopted.
    pub fn adopted_graph(&self, ctx: &Context) -> Graph {
        // SAFETY: objects live as long as the library.
        unsafe { ctx.adopt_graph(self.graph(&[]), "graph") }.unwrap()
    }

    /// Makes `symbol` answer `value` and do nothing. Functions that give pointers give null for 0.
    pub fn answer(&self, symbol: &'static str, value: i64) {
        self.state.lock().unwrap().answers.insert(symbol, value);
    }

    pub fn answer_truly(&self, symbol: &'static str) {
        self.state.lock().unwrap().answers.remove(symbol);
    }

    /// From now on, calls are not written down.
    pub fn be_quiet(&self) {
        self.state.lock().unwrap().is_quiet = true;
    }

    /// The calls since the last time. Objects are numbered as they are made.
    pub fn take_trace(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().trace)
    }

    /// Breaches of the ABI's rules; a test ends with none.
    pub fn violations(&self) -> Vec<String> {
        self.state.lock().unwrap().violations.clone()
    }

    fn add(&self, body: Body) -> *mut c_void {
        let mut state = self.state.lock().unwrap();
        let object = Object::new(self, state.objects.len(), body);
        let handle = object.tag.cast();
        state.objects.push(object);
        handle
    }

    /// One call of the library: traced, overruled where the test wants, otherwise `work`.
    fn call(
        &self,
        symbol: &'static str,
        arguments: std::fmt::Arguments<'_>,
        work: impl FnOnce(&mut State) -> i64,
    ) -> i64 {
        let was_inside = self.is_inside.swap(true, SeqCst);
        std::thread::yield_now();
        let mut state = self.state.lock().unwrap();
        if was_inside {
            let violation = format!("{symbol} while another call runs");
            state.violations.push(violation);
        }
        if !state.is_quiet {
            let name = symbol.trim_start_matches("frt_");
            state
                .trace
                .push(format!("{name} {arguments}").trim_end().into());
        }
        let answer = match state.answers.get(symbol) {
            Some(&answer) => {
                LAST.with(|last| *last.borrow_mut() = CString::new(REASON).unwrap());
                answer
            }
            None => work(&mut state),
        };
        self.is_inside.store(false, SeqCst);
        answer
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

impl State {
    fn body(&mut self, id: usize) -> Option<&mut Body> {
        if self.objects[id].body.is_none() {
            self.violations.push(format!("#{id} used after its end"));
        }
        self.objects[id].body.as_mut()
    }

    fn end(&mut self, id: usize) -> i64 {
        if self.objects[id].body.take().is_none() {
            self.violations.push(format!("#{id} ended twice"));
        }
        0
    }

    fn bytes(&mut self, id: usize) -> &mut Vec<u8> {
        match self.body(id) {
            Some(Body::Buffer(bytes)) => bytes,
            _ => panic!("#{id} is no buffer"),
        }
    }

    fn make(&mut self, fake: &Fake, body: Body) -> i64 {
        let object = Object::new(fake, self.objects.len(), body);
        let handle = object.tag;
        self.objects.push(object);
        handle as i64
    }
}

/// SAFETY (of all functions below): handles come from this library, and memory is as long as said. `id`
/// works on a handle of an object, `fake` on the context's.
unsafe fn id<'a>(handle: *mut c_void) -> (&'a Fake, usize) {
    let (fake, id) = unsafe { *handle.cast::<(*const Fake, usize)>() };
    (unsafe { &*fake }, id)
}

unsafe fn fake<'a>(ctx: *mut c_void) -> &'a Fake {
    unsafe { &*ctx.cast_const().cast() }
}

unsafe extern "C" fn ctx_event(ctx: *mut c_void) -> *mut c_void {
    let fake = unsafe { fake(ctx) };
    let made = fake.call("frt_ctx_event", format_args!(""), |s| {
        s.make(fake, Body::Event)
    });
    made as *mut c_void
}

unsafe extern "C" fn event_destroy(event: *mut c_void) {
    let (fake, id) = unsafe { id(event) };
    fake.call("frt_event_destroy", format_args!("#{id}"), |s| s.end(id));
}

unsafe extern "C" fn event_record(event: *mut c_void, stream: c_int) -> c_int {
    let (fake, id) = unsafe { id(event) };
    fake.call("frt_event_record", format_args!("#{id} s{stream}"), |s| {
        s.body(id).map_or(-1, |_| 0)
    }) as c_int
}

unsafe extern "C" fn stream_wait(ctx: *mut c_void, stream: c_int, event: *mut c_void) -> c_int {
    let (_, id) = unsafe { id(event) };
    let fake = unsafe { fake(ctx) };
    fake.call("frt_stream_wait", format_args!("s{stream} #{id}"), |s| {
        s.body(id).map_or(-1, |_| 0)
    }) as c_int
}

unsafe extern "C" fn buffer_alloc(
    ctx: *mut c_void,
    name: *const c_char,
    bytes: usize,
) -> *mut c_void {
    let fake = unsafe { fake(ctx) };
    let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap();
    let made = fake.call("frt_buffer_alloc", format_args!("{name} {bytes}"), |s| {
        s.make(fake, Body::Buffer(vec![0xDD; bytes]))
    });
    made as *mut c_void
}

unsafe extern "C" fn buffer_dptr(buffer: *mut c_void) -> *mut c_void {
    let (fake, id) = unsafe { id(buffer) };
    let start = fake.call("frt_buffer_dptr", format_args!("#{id}"), |s| {
        s.bytes(id).as_ptr() as i64
    });
    start as *mut c_void
}

unsafe extern "C" fn buffer_bytes(buffer: *mut c_void) -> usize {
    let (fake, id) = unsafe { id(buffer) };
    fake.call("frt_buffer_bytes", format_args!("#{id}"), |s| {
        s.bytes(id).len() as i64
    }) as usize
}

unsafe extern "C" fn buffer_copy(
    ctx: *mut c_void,
    dst: *mut c_void,
    to: usize,
    src: *mut c_void,
    from: usize,
    bytes: usize,
    stream: c_int,
) -> c_int {
    let ((_, dst), (_, src)) = unsafe { (id(dst), id(src)) };
    let arguments = format_args!("#{dst}+{to} #{src}+{from} {bytes} s{stream}");
    unsafe { fake(ctx) }.call("frt_buffer_copy", arguments, |s| {
        for i in 0..bytes {
            let byte = s.bytes(src)[from + i];
            s.bytes(dst)[to + i] = byte;
        }
        0
    }) as c_int
}

unsafe extern "C" fn graph_replay(graph: *mut c_void, key: u64, stream: c_int) -> c_int {
    let (fake, id) = unsafe { id(graph) };
    let arguments = format_args!("#{id} key {key} s{stream}");
    fake.call("frt_graph_replay", arguments, |s| {
        let found = match s.body(id) {
            Some(Body::Graph(variants)) => variants.iter().find(|v| v.0 == key).copied(),
            _ => None,
        };
        match found {
            Some((_, buffer, value)) => {
                s.bytes(buffer).fill(value);
                0
            }
            None => -2,
        }
    }) as c_int
}

unsafe extern "C" fn graph_has_variant(graph: *mut c_void, key: u64) -> c_int {
    let (fake, id) = unsafe { id(graph) };
    let arguments = format_args!("#{id} key {key}");
    fake.call("frt_graph_has_variant", arguments, |s| match s.body(id) {
        Some(Body::Graph(variants)) => i64::from(variants.iter().any(|v| v.0 == key)),
        _ => 0,
    }) as c_int
}

unsafe extern "C" fn graph_evict(graph: *mut c_void, key: u64) -> c_int {
    let (fake, id) = unsafe { id(graph) };
    let arguments = format_args!("#{id} key {key}");
    fake.call("frt_graph_evict", arguments, |s| match s.body(id) {
        Some(Body::Graph(variants)) => match variants.iter().position(|v| v.0 == key) {
            Some(index) => {
                variants.remove(index);
                0
            }
            None => -2,
        },
        _ => -1,
    }) as c_int
}

unsafe extern "C" fn graph_variant_count(graph: *mut c_void) -> usize {
    let (fake, id) = unsafe { id(graph) };
    let arguments = format_args!("#{id}");
    fake.call("frt_graph_variant_count", arguments, |s| match s.body(id) {
        Some(Body::Graph(variants)) => variants.len() as i64,
        _ => 0,
    }) as usize
}

unsafe extern "C" fn plan_create(ctx: *mut c_void) -> *mut c_void {
    let fake = unsafe { fake(ctx) };
    let made = fake.call("frt_plan_create", format_args!(""), |s| {
        s.make(fake, Body::Plan)
    });
    made as *mut c_void
}

unsafe extern "C" fn plan_add(
    plan: *mut c_void,
    graph: *mut c_void,
    key: u64,
    stream: c_int,
) -> c_int {
    let ((fake, plan), (_, graph)) = unsafe { (id(plan), id(graph)) };
    let arguments = format_args!("#{plan} #{graph} key {key} s{stream}");
    fake.call("frt_plan_add", arguments, |s| {
        s.body(plan).map_or(-1, |_| 0)
    }) as c_int
}

unsafe extern "C" fn plan_sync(plan: *mut c_void) -> c_int {
    let (fake, id) = unsafe { id(plan) };
    fake.call("frt_plan_sync", format_args!("#{id}"), |s| {
        s.body(id).map_or(-1, |_| 0)
    }) as c_int
}

unsafe extern "C" fn plan_destroy(plan: *mut c_void) {
    let (fake, id) = unsafe { id(plan) };
    fake.call("frt_plan_destroy", format_args!("#{id}"), |s| s.end(id));
}

unsafe extern "C" fn ctx_stream(ctx: *mut c_void, priority: c_int) -> c_int {
    let arguments = format_args!("{priority}");
    unsafe { fake(ctx) }.call("frt_ctx_stream", arguments, |s| {
        s.streams += 1;
        i64::from(s.streams - 1)
    }) as c_int
}

unsafe extern "C" fn event_query(event: *mut c_void) -> c_int {
    let (fake, id) = unsafe { id(event) };
    fake.call("frt_event_query", format_args!("#{id}"), |s| {
        s.body(id).map_or(-1, |_| 0)
    }) as c_int
}

unsafe extern "C" fn event_sync(event: *mut c_void) -> c_int {
    let (fake, id) = unsafe { id(event) };
    fake.call("frt_event_sync", format_args!("#{id}"), |s| {
        s.body(id).map_or(-1, |_| 0)
    }) as c_int
}

unsafe extern "C" fn stream_sync(ctx: *mut c_void, stream: c_int) -> c_int {
    let arguments = format_args!("s{stream}");
    unsafe { fake(ctx) }.call("frt_stream_sync", arguments, |_| 0) as c_int
}

unsafe extern "C" fn buffer_upload(
    ctx: *mut c_void,
    dst: *mut c_void,
    to: usize,
    src: *const c_void,
    bytes: usize,
    stream: c_int,
) -> c_int {
    let (_, dst) = unsafe { id(dst) };
    let arguments = format_args!("#{dst}+{to} {bytes} s{stream}");
    unsafe { fake(ctx) }.call("frt_buffer_upload", arguments, |s| {
        let src = unsafe { std::slice::from_raw_parts(src.cast::<u8>(), bytes) };
        s.bytes(dst)[to..to + bytes].copy_from_slice(src);
        0
    }) as c_int
}

unsafe extern "C" fn buffer_download(
    ctx: *mut c_void,
    src: *mut c_void,
    from: usize,
    dst: *mut c_void,
    bytes: usize,
    stream: c_int,
) -> c_int {
    let (_, src) = unsafe { id(src) };
    let arguments = format_args!("#{src}+{from} {bytes} s{stream}");
    unsafe { fake(ctx) }.call("frt_buffer_download", arguments, |s| {
        let dst = unsafe { std::slice::from_raw_parts_mut(dst.cast::<u8>(), bytes) };
        dst.copy_from_slice(&s.bytes(src)[from..from + bytes]);
        0
    }) as c_int
}

unsafe extern "C" fn buffer_fill(
    ctx: *mut c_void,
    buffer: *mut c_void,
    at: usize,
    value: c_int,
    bytes: usize,
    stream: c_int,
) -> c_int {
    let (_, id) = unsafe { id(buffer) };
    let arguments = format_args!("#{id}+{at} {value} {bytes} s{stream}");
    unsafe { fake(ctx) }.call("frt_buffer_fill", arguments, |s| {
        s.bytes(id)[at..at + bytes].fill(value as u8);
        0
    }) as c_int
}

unsafe extern "C" fn buffer_free(buffer: *mut c_void) -> c_int {
    let (fake, id) = unsafe { id(buffer) };
    fake.call("frt_buffer_free", format_args!("#{id}"), |s| s.end(id)) as c_int
}

unsafe extern "C" fn ctx_backend(ctx: *mut c_void) -> c_int {
    unsafe { fake(ctx) }.call("frt_ctx_backend", format_args!(""), |_| 0) as c_int
}

unsafe extern "C" fn last_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// Where the library has `symbol`.
fn address(symbol: &str) -> *mut c_void {
    macro_rules! find {
        ($($name:ident)*) => {
            match symbol.strip_prefix("frt_") {
                $(Some(stringify!($name)) => $name as *mut c_void,)*
                _ => panic!("{symbol} is not a symbol of the ABI"),
            }
        };
    }
    find!(
        ctx_event event_destroy event_record stream_wait buffer_alloc buffer_dptr buffer_bytes buffer_copy
        graph_replay graph_has_variant graph_evict graph_variant_count plan_create plan_add plan_sync
        plan_destroy ctx_stream event_query event_sync stream_sync buffer_upload buffer_download buffer_fill
        buffer_free ctx_backend last_error
    )
}
