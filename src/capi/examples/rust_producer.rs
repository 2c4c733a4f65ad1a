//! A native producer in Rust: the policy of `c_producer/toy_policy.c`, as a shared library that carries its own execution
//! library inside.
//!
//! `cargo build -p flashrt-capi --example rust_producer` gives `librust_producer.so` in the folder `examples` of the profile.
//! Ports, arithmetic and configuration are those of the C file; the plans are the same four. The tick only touches memory
//! that was there when the factory returned.
#![allow(clippy::missing_safety_doc)]

use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::ptr::{null, null_mut};

use flashrt_capi::abi::*;
use flashrt_capi::*;

const PROMPT_BYTES: usize = 64;
const MAIN: c_int = 0;
const IMAGES: u32 = 0;
const STATE: u32 = 1;
const PROMPT: u32 = 2;
const ACTIONS: u32 = 4;
const STAGE_CONTEXT: u32 = 4;
const STAGE_WEIGH: u32 = 7;
const STAGE_ACTION: u32 = 91;

/// One buffer of the context, and where it is.
struct Memory<T> {
    handle: frt_buffer,
    at: *mut T,
    len: usize,
}

impl<T> Memory<T> {
    fn new(ctx: frt_ctx, name: &CStr, len: usize) -> Result<Memory<T>, String> {
        // SAFETY: a live context and a name with an end.
        let handle = unsafe { frt_buffer_alloc(ctx, name.as_ptr(), len * size_of::<T>()) };
        if handle.is_null() {
            return Err(format!("no memory for {name:?}"));
        }
        // SAFETY: a live buffer of the CPU backend: its address is host memory, zeroed and aligned to 64 bytes.
        let at = unsafe { frt_buffer_dptr(handle) }.cast();
        Ok(Memory { handle, at, len })
    }

    fn bytes(&self) -> u64 {
        (self.len * size_of::<T>()) as u64
    }

    /// # Safety
    /// The buffer is alive, and nobody writes it meanwhile.
    unsafe fn get(&self) -> &[T] {
        // SAFETY: `len` initialised elements; the caller's promise.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }

    /// # Safety
    /// The buffer is alive, and nobody else uses it meanwhile.
    #[allow(clippy::mut_from_ref)] // the memory is the context's
    unsafe fn get_mut(&self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Plan {
    Graph,
    Opaque,
    Mixed,
    Step,
}

struct Options {
    plan: Plan,
    seed: usize,
    views: usize,
    height: usize,
    width: usize,
    state_dim: usize,
    horizon: usize,
    dim: usize,
    regions: usize,
}

struct Toy {
    options: Options,
    ctx: frt_ctx,
    action_stream: c_int,
    context: frt_graph,
    action: frt_graph,
    context_done: frt_event,
    images: Memory<u8>,
    state: Memory<f32>,
    prompt: Memory<u8>,
    noise: Memory<f32>,
    sums: Memory<u32>,
    weights: Memory<f32>,
    chunk: Memory<f32>,
    image_staging: Vec<u8>,
    error: CString,
}

impl Drop for Toy {
    fn drop(&mut self) {
        // SAFETY: live objects of this model, each destroyed once, the context last; buffers belong to it.
        unsafe {
            frt_event_destroy(self.context_done);
            frt_graph_destroy(self.context);
            frt_graph_destroy(self.action);
            frt_ctx_destroy(self.ctx);
        }
    }
}

// ---- the policy ----

/// # Safety
/// `user` is a live [`Toy`], and nothing else of it runs: the context's own order of work.
unsafe extern "C" fn sum_up(user: *mut c_void) {
    // SAFETY: the caller's promise, here and in the next two functions.
    unsafe {
        let t = &*user.cast::<Toy>();
        let words = (1u32..).zip(t.prompt.get());
        let sums = t.sums.get_mut();
        sums[0] = t.images.get().iter().map(|b| u32::from(*b)).sum();
        sums[1] = words.map(|(i, b)| i * u32::from(*b)).sum();
    }
}

unsafe extern "C" fn weigh(user: *mut c_void) {
    // SAFETY: see `sum_up`.
    unsafe {
        let t = &*user.cast::<Toy>();
        let (sums, weights) = (t.sums.get(), t.weights.get_mut());
        weights[0] = (sums[0] % 256) as f32 / 256.0;
        weights[1] = (sums[1] % 1024) as f32 / 1024.0;
    }
}

unsafe extern "C" fn act(user: *mut c_void) {
    // SAFETY: see `sum_up`.
    unsafe {
        let t = &*user.cast::<Toy>();
        let (state, weights) = (t.state.get(), t.weights.get());
        let both = t.chunk.get_mut().iter_mut().zip(t.noise.get_mut());
        for (at, (action, noise)) in both.enumerate() {
            let state = state.get(at % t.options.dim).copied().unwrap_or(0.0);
            *action = state + weights[0] + weights[1] + *noise;
            // Noise from outside may be any number.
            let draw = match noise.abs() < 1e6 {
                true => (*noise * 1024.0).floor() as i64,
                false => 0,
            };
            *noise = ((draw * 5 + at as i64 + 1) & 1023) as f32 / 1024.0;
        }
    }
}

unsafe extern "C" fn record_context(user: *mut c_void, stream: *mut c_void) {
    // SAFETY: `stream` is the one being captured; `user` outlives the graph.
    unsafe {
        frt_stream_host_func(stream, Some(sum_up), user);
        if (*user.cast::<Toy>()).options.plan != Plan::Mixed {
            frt_stream_host_func(stream, Some(weigh), user);
        }
    }
}

unsafe extern "C" fn record_action(user: *mut c_void, stream: *mut c_void) {
    // SAFETY: as above.
    unsafe { frt_stream_host_func(stream, Some(act), user) };
}

// ---- verbs ----

type Verb<T> = Result<T, (c_int, String)>;

fn refuse<T>(code: c_int, text: impl Into<String>) -> Verb<T> {
    Err((code, text.into()))
}

/// The status of a verb; the text stays for `last_error`.
///
/// # Safety
/// `this` is a live [`Toy`] that nobody else uses now.
unsafe fn status(this: *mut c_void, verb: impl FnOnce(&mut Toy) -> Verb<()>) -> c_int {
    // SAFETY: the caller's promise.
    let t = unsafe { &mut *this.cast::<Toy>() };
    match verb(t) {
        Ok(()) => 0,
        Err((code, text)) => {
            t.error = CString::new(text).unwrap_or_default();
            code
        }
    }
}

impl Toy {
    fn set_images(&mut self, views: &[frt_image_view]) -> Verb<()> {
        let (height, width) = (self.options.height, self.options.width);
        if views.len() != self.options.views {
            let text = format!(
                "images: {} views, expected {}",
                views.len(),
                self.options.views
            );
            return refuse(-4, text);
        }
        for (view, to) in views
            .iter()
            .zip(self.image_staging.chunks_exact_mut(height * width * 3))
        {
            if (view.struct_size as usize) < size_of::<frt_image_view>() || view.data.is_null() {
                return refuse(-1, "images: a view without data");
            }
            let is_bgr = view.pixel_format == FRT_RT_PIXEL_BGR8;
            if !is_bgr && view.pixel_format != FRT_RT_PIXEL_RGB8 {
                return refuse(-4, "images: neither rgb8 nor bgr8");
            }
            let (rows, columns) = (view.height.max(0) as usize, view.width.max(0) as usize);
            let stride = match view.stride_bytes {
                0 => columns * 3,
                n => n.max(0) as usize,
            };
            if rows == 0 || columns == 0 || stride < columns * 3 {
                return refuse(-4, "images: an empty view, or a stride shorter than a row");
            }
            if (view.bytes as usize) < stride * (rows - 1) + columns * 3 {
                return refuse(-5, "images: fewer bytes than rows");
            }
            // SAFETY: the caller of the verb gives as many bytes as the view says.
            let from =
                unsafe { std::slice::from_raw_parts(view.data.cast::<u8>(), view.bytes as usize) };
            for (i, pixel) in to.chunks_exact_mut(3).enumerate() {
                let (y, x) = (i / width, i % width);
                let at = y * rows / height * stride + x * columns / width * 3;
                pixel.copy_from_slice(&from[at..at + 3]);
                if is_bgr {
                    pixel.reverse();
                }
            }
        }
        self.upload(self.images.handle, &self.image_staging)
    }

    fn set_prompt(&mut self, text: &[u8]) -> Verb<()> {
        let mut block = [0; PROMPT_BYTES];
        let Some(room) = block.get_mut(..text.len()) else {
            return refuse(
                -4,
                format!("prompt: {} bytes, at most {PROMPT_BYTES}", text.len()),
            );
        };
        room.copy_from_slice(text);
        self.upload(self.prompt.handle, &block)
    }

    fn set_state(&mut self, values: &[u8]) -> Verb<()> {
        if values.len() as u64 != self.state.bytes() {
            let text = format!(
                "state: {} bytes, expected {}",
                values.len(),
                self.state.bytes()
            );
            return refuse(-4, text);
        }
        let number = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        if let Some(i) = values.chunks_exact(4).position(|b| !number(b).is_finite()) {
            return refuse(-1, format!("state: value {i} is not finite"));
        }
        self.upload(self.state.handle, values)
    }

    fn upload(&self, to: frt_buffer, bytes: &[u8]) -> Verb<()> {
        // SAFETY: live handles, and a slice of the length given.
        let code =
            unsafe { frt_buffer_upload(self.ctx, to, 0, bytes.as_ptr().cast(), bytes.len(), MAIN) };
        match code {
            0 => Ok(()),
            code => refuse(-6, format!("upload: status {code}")),
        }
    }

    fn step(&mut self) -> Verb<()> {
        // SAFETY: live handles of this model.
        let codes = unsafe {
            [
                frt_graph_replay(self.context, 0, MAIN),
                frt_event_record(self.context_done, MAIN),
                frt_stream_wait(self.ctx, self.action_stream, self.context_done),
                frt_graph_replay(self.action, 0, self.action_stream),
                frt_stream_sync(self.ctx, self.action_stream),
            ]
        };
        match codes.iter().find(|c| **c != 0) {
            None => Ok(()),
            Some(code) => refuse(-6, format!("step: status {code}")),
        }
    }
}

unsafe extern "C" fn set_input(
    this: *mut c_void,
    port: u32,
    data: *const c_void,
    bytes: u64,
    _stream: c_int,
) -> c_int {
    // SAFETY: the interface: `this` is what the model was finished with, and `data` has `bytes` readable bytes.
    unsafe {
        status(this, |t| {
            if data.is_null() && bytes > 0 {
                return refuse(-1, "the data is null");
            }
            let raw = match bytes {
                0 => &[],
                n => std::slice::from_raw_parts(data.cast::<u8>(), n as usize),
            };
            match port {
                IMAGES => {
                    if raw.len() % size_of::<frt_image_view>() != 0
                        || !data.cast::<u64>().is_aligned()
                    {
                        return refuse(-4, "images: no array of views");
                    }
                    let count = raw.len() / size_of::<frt_image_view>();
                    t.set_images(std::slice::from_raw_parts(data.cast(), count))
                }
                STATE => t.set_state(raw),
                PROMPT => t.set_prompt(raw),
                _ => refuse(-2, format!("input {port} takes no payload")),
            }
        })
    }
}

unsafe extern "C" fn get_output(
    this: *mut c_void,
    port: u32,
    out: *mut c_void,
    capacity: u64,
    written: *mut u64,
    _stream: c_int,
) -> c_int {
    // SAFETY: the interface: `out` has `capacity` writable bytes, `written` is a place for a number.
    unsafe {
        status(this, |t| {
            if port != ACTIONS {
                return refuse(-2, format!("output {port} does not exist"));
            }
            if out.is_null() || written.is_null() {
                return refuse(-1, "actions: null");
            }
            let need = t.chunk.bytes();
            *written = need;
            if capacity < need {
                return refuse(-5, format!("actions: {need} bytes, room for {capacity}"));
            }
            let stream = t.action_stream;
            match frt_buffer_download(t.ctx, t.chunk.handle, 0, out, need as usize, stream) {
                0 => Ok(()),
                code => refuse(-6, format!("download: status {code}")),
            }
        })
    }
}

unsafe extern "C" fn prepare(this: *mut c_void, graph: u32, key: frt_shape_key) -> c_int {
    // SAFETY: the interface, and live handles.
    unsafe {
        status(this, |t| {
            let graph = [t.context, t.action].get(graph as usize).copied();
            match graph.is_some_and(|g| frt_graph_has_variant(g, key) == 1) {
                true => Ok(()),
                false => refuse(-2, format!("no variant {key}")),
            }
        })
    }
}

unsafe extern "C" fn step(this: *mut c_void) -> c_int {
    // SAFETY: the interface.
    unsafe { status(this, Toy::step) }
}

unsafe extern "C" fn run_opaque(this: *mut c_void, executor_ref: u32) -> c_int {
    // SAFETY: the interface: nothing that the stage depends on is in flight.
    unsafe {
        match executor_ref {
            STAGE_CONTEXT => {
                sum_up(this);
                weigh(this);
            }
            STAGE_WEIGH => weigh(this),
            STAGE_ACTION => act(this),
            other => return status(this, |_| refuse(-2, format!("no stage {other}"))),
        }
    }
    0
}

unsafe extern "C" fn last_error(this: *mut c_void) -> *const c_char {
    // SAFETY: the interface.
    unsafe { (*this.cast::<Toy>()).error.as_ptr() }
}

unsafe extern "C" fn release(owner: *mut c_void) {
    // SAFETY: `owner` came from `Box::into_raw`, and the runtime calls this once.
    drop(unsafe { Box::from_raw(owner.cast::<Toy>()) });
}

// ---- opening ----

/// The text behind a key of a flat JSON object.
fn value<'a>(json: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = json.split_once(&format!("\"{key}\""))?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    rest.split([',', '}']).next().map(str::trim)
}

fn options(json: &str) -> Result<Options, String> {
    let number = |key: &str, preset: usize, range: std::ops::RangeInclusive<usize>| {
        let Some(text) = value(json, key) else {
            return Ok(preset);
        };
        let n = text.parse().ok().filter(|n| range.contains(n));
        n.ok_or_else(|| {
            format!(
                "{key}: expected {} to {}, got {text}",
                range.start(),
                range.end()
            )
        })
    };
    Ok(Options {
        plan: match value(json, "plan") {
            None | Some("\"graph\"") => Plan::Graph,
            Some("\"opaque\"") => Plan::Opaque,
            Some("\"mixed\"") => Plan::Mixed,
            Some("\"step\"") => Plan::Step,
            Some(other) => {
                return Err(format!(
                    "plan: expected graph, opaque, mixed or step, got {other}"
                ))
            }
        },
        seed: number("seed", 0, 0..=1 << 30)?,
        views: number("views", 1, 1..=8)?,
        height: number("height", 8, 1..=64)?,
        width: number("width", 8, 1..=64)?,
        state_dim: number("state_dim", 6, 1..=64)?,
        horizon: number("horizon", 4, 1..=64)?,
        dim: number("dim", 6, 1..=64)?,
        regions: number("regions", 1, 0..=1)?,
    })
}

/// Makes everything that a tick touches. On failure what was made stays with the context, which the process keeps: an
/// example may be that simple.
fn make(o: Options) -> Result<Box<Toy>, String> {
    // SAFETY: no arguments that could be wrong.
    let ctx = unsafe { frt_ctx_create_with(FRT_BACKEND_CPU, 0) };
    if ctx.is_null() {
        return Err("the CPU backend refused".into());
    }
    let chunk = o.horizon * o.dim;
    let mut t = Box::new(Toy {
        images: Memory::new(ctx, c"images", o.views * o.height * o.width * 3)?,
        state: Memory::new(ctx, c"state", o.state_dim)?,
        prompt: Memory::new(ctx, c"prompt", PROMPT_BYTES)?,
        noise: Memory::new(ctx, c"noise", chunk)?,
        sums: Memory::new(ctx, c"sums", 2)?,
        weights: Memory::new(ctx, c"weights", 2)?,
        chunk: Memory::new(ctx, c"chunk", chunk)?,
        image_staging: vec![0; o.views * o.height * o.width * 3],
        // SAFETY: a live context and names with an end.
        action_stream: unsafe { frt_ctx_stream(ctx, 0) },
        context: unsafe { frt_graph_create(ctx, c"context".as_ptr(), 1) },
        action: unsafe { frt_graph_create(ctx, c"action".as_ptr(), 1) },
        context_done: unsafe { frt_ctx_event(ctx) },
        error: CString::default(),
        ctx,
        options: o,
    });
    // SAFETY: nothing runs yet.
    for (i, noise) in unsafe { t.noise.get_mut() }.iter_mut().enumerate() {
        *noise = ((t.options.seed * 31 + i * 7) % 1024) as f32 / 1024.0;
    }
    let user: *mut Toy = &mut *t;
    // SAFETY: the box does not move its contents, and lives as long as the graphs.
    let codes = unsafe {
        [
            frt_graph_capture(t.context, 0, Some(record_context), user.cast()),
            frt_graph_capture(t.action, 0, Some(record_action), user.cast()),
        ]
    };
    match t.action_stream > 0 && !t.context_done.is_null() && codes == [0, 0] {
        true => Ok(t),
        false => Err("a graph could not be captured".into()),
    }
}

/// Declares the model; 0 on success.
///
/// # Safety
/// `b` is a live builder of the context of `t`, and `this` is `t`.
unsafe fn declare(t: &Toy, this: *mut c_void, b: frt_runtime_builder) -> c_int {
    let o = &t.options;
    let images = [o.views, o.height, o.width, 3].map(|n| n as i64);
    let (state, chunk) = ([o.state_dim as i64], [o.horizon as i64, o.dim as i64]);
    let (key, first, second) = ([0u64], [0u32], [1u32]);
    let none = null_mut::<frt_buffer_s>();
    let plan = match o.plan {
        Plan::Graph => c"graph",
        Plan::Opaque => c"opaque",
        Plan::Mixed => c"mixed",
        Plan::Step => c"step",
    };
    // (name, modality, dtype, layout, direction, update, required, shape, rate, buffer, bytes), in the order of the numbers above.
    type Row<'a> = (
        &'a CStr,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        &'a [i64],
        u32,
        frt_buffer,
        u64,
    );
    let (f32_, u8_, flat) = (FRT_RT_DTYPE_F32, FRT_RT_DTYPE_U8, FRT_RT_LAYOUT_FLAT);
    let (i, o_, staged, swap) = (
        FRT_RT_PORT_IN,
        FRT_RT_PORT_OUT,
        FRT_RT_PORT_STAGED,
        FRT_RT_PORT_SWAP,
    );
    let ports: [Row<'_>; 5] = [
        (
            c"images",
            FRT_RT_MOD_IMAGE,
            u8_,
            FRT_RT_LAYOUT_NHWC,
            i,
            staged,
            1,
            &images,
            30,
            t.images.handle,
            t.images.bytes(),
        ),
        (
            c"state",
            FRT_RT_MOD_STATE,
            f32_,
            flat,
            i,
            staged,
            1,
            &state,
            0,
            none,
            0,
        ),
        (
            c"prompt",
            FRT_RT_MOD_TEXT,
            u8_,
            flat,
            i,
            staged,
            1,
            &[-1],
            0,
            none,
            0,
        ),
        (
            c"noise",
            FRT_RT_MOD_TENSOR,
            f32_,
            flat,
            i,
            swap,
            0,
            &chunk,
            0,
            t.noise.handle,
            t.noise.bytes(),
        ),
        (
            c"actions",
            FRT_RT_MOD_ACTION,
            f32_,
            flat,
            o_,
            staged,
            0,
            &chunk,
            0,
            none,
            t.chunk.bytes(),
        ),
    ];
    // SAFETY: a live builder; names have an end; arrays are as long as their counts.
    unsafe {
        let mut codes = vec![
            frt_runtime_builder_add_identity(b, c"model".as_ptr(), c"toy_policy_rust".as_ptr()),
            frt_runtime_builder_add_identity(b, c"stage_plan".as_ptr(), plan.as_ptr()),
            frt_runtime_builder_add_stream(b, c"main".as_ptr(), MAIN, 0, null_mut()),
            frt_runtime_builder_add_stream(b, c"action".as_ptr(), t.action_stream, 0, null_mut()),
            frt_runtime_builder_add_graph(
                b,
                c"context".as_ptr(),
                t.context,
                0,
                key.as_ptr(),
                1,
                MAIN,
            ),
            frt_runtime_builder_add_graph(
                b,
                c"action".as_ptr(),
                t.action,
                0,
                key.as_ptr(),
                1,
                t.action_stream,
            ),
        ];
        for (name, buffer, bytes, role) in [
            (
                c"images",
                t.images.handle,
                t.images.bytes(),
                FRT_RT_ROLE_INPUT,
            ),
            (
                c"noise",
                t.noise.handle,
                t.noise.bytes(),
                FRT_RT_ROLE_INPUT | FRT_RT_ROLE_STATE,
            ),
        ] {
            codes.push(frt_runtime_builder_add_buffer(
                b,
                name.as_ptr(),
                buffer,
                bytes,
                role,
            ));
        }
        let both = FRT_RT_REGION_SNAPSHOT | FRT_RT_REGION_RESTORE;
        let (noise, bytes) = (t.noise.handle, t.noise.bytes());
        if t.options.regions > 0 {
            codes.push(frt_runtime_builder_add_region(
                b,
                c"rollout".as_ptr(),
                noise,
                0,
                bytes,
                both,
            ));
        }
        for (name, modality, dtype, layout, way, update, required, shape, rate, buffer, bytes) in
            ports
        {
            codes.push(frt_runtime_builder_add_port(
                b,
                name.as_ptr(),
                modality,
                dtype,
                layout,
                way,
                update,
                required,
                shape.as_ptr(),
                shape.len() as u32,
                rate,
                buffer,
                0,
                bytes,
            ));
        }
        let (graph, opaque) = (FRT_GENERIC_STAGE_GRAPH, FRT_GENERIC_STAGE_OPAQUE);
        let generic = |name: &CStr, kind, number, after: &[u32]| {
            frt_runtime_builder_add_generic_stage(
                b,
                name.as_ptr(),
                kind,
                number,
                after.as_ptr(),
                after.len() as u32,
            )
        };
        match t.options.plan {
            Plan::Graph => codes.extend([
                frt_runtime_builder_add_stage(b, 0, null(), 0),
                frt_runtime_builder_add_stage(b, 1, first.as_ptr(), 1),
            ]),
            Plan::Opaque => codes.extend([
                generic(c"context", opaque, STAGE_CONTEXT, &[]),
                generic(c"action", opaque, STAGE_ACTION, &first),
                frt_runtime_builder_set_generic_stage_runner(b, this, Some(run_opaque)),
            ]),
            Plan::Mixed => codes.extend([
                generic(c"context", graph, 0, &[]),
                generic(c"weigh", opaque, STAGE_WEIGH, &first),
                generic(c"action", graph, 1, &second),
                frt_runtime_builder_set_generic_stage_runner(b, this, Some(run_opaque)),
            ]),
            Plan::Step => {}
        }
        codes.into_iter().find(|c| *c != 0).unwrap_or(0)
    }
}

/// The factory of the interface.
///
/// # Safety
/// `config_json` is null or has an end; `out` is null or a place for a pointer.
#[no_mangle]
pub unsafe extern "C" fn frt_model_runtime_open_v1(
    config_json: *const c_char,
    out: *mut *mut frt_model_runtime_v1,
) -> c_int {
    if config_json.is_null() || out.is_null() {
        return -1;
    }
    // SAFETY: not null, and the caller's promise.
    let json = unsafe {
        *out = null_mut();
        CStr::from_ptr(config_json)
    };
    let Ok(toy) = json.to_str().map_err(|e| e.to_string()).and_then(options) else {
        return -1;
    };
    let Ok(toy) = make(toy) else { return -6 };
    let mut verbs = frt_model_runtime_verbs::empty();
    verbs.set_input = Some(set_input);
    verbs.get_output = Some(get_output);
    verbs.prepare = Some(prepare);
    verbs.last_error = Some(last_error);
    if toy.options.plan == Plan::Step {
        verbs.step = Some(step);
    }
    let this = Box::into_raw(toy).cast::<c_void>();
    // SAFETY: `this` is live; from a finished model on it belongs to that, which releases it once.
    unsafe {
        let t = &*this.cast::<Toy>();
        let b = frt_runtime_builder_create(t.ctx);
        let mut model = null_mut();
        if declare(t, this, b) == 0 {
            model = frt_runtime_builder_finish_model(b, &verbs, this, this, None, Some(release));
        }
        if model.is_null() {
            frt_runtime_builder_destroy(b);
            release(this);
            return -6;
        }
        *out = model;
    }
    0
}
