//! What a replay costs through the C ABI, against the same work called directly, in one run.
//!
//! `cargo bench -p flashrt-capi --bench replay_abi [-- ITERATIONS]` (20000 unless said otherwise, at least 100).
//!
//! CPU: a graph of N host functions, and one of N 64-byte fills, replayed and synchronised, against a loop over the same
//! functions and fills. CUDA (skipped with the reason where there is none): `frt_graph_replay` against `cuGraphLaunch` of
//! the same executable on the same stream, the call alone with an idle stream before it, and with the wait for its end.
//!
//! The two sides take turns iteration by iteration, so both meet the same state of the machine. Prints one JSON object;
//! times are nanoseconds, each with the two clock readings around it, whose own cost is in the object.

use flashrt_capi::*;
use std::ffi::{c_int, c_void, CStr};
use std::hint::black_box;
use std::time::Instant;

const WARM_UP: usize = 500;
const FILL: usize = 64;

fn main() {
    let number = std::env::args().skip(1).find_map(|a| a.parse().ok());
    let iterations: usize = number.unwrap_or(20_000).max(100);
    let mut clock: Vec<u64> = (0..iterations).map(|_| time(|| ())).collect();
    println!(
        "{{\"bench\": \"replay_abi\", \"iterations\": {iterations}, \"clock\": {}, \"cpu\": [{}], \"cuda\": {}}}",
        summary(&mut clock),
        cpu(iterations).join(", "),
        cuda(iterations)
    );
}

fn time(f: impl FnOnce()) -> u64 {
    let begin = Instant::now();
    f();
    begin.elapsed().as_nanos() as u64
}

fn last() -> String {
    // SAFETY: never null, and read before the next call.
    unsafe { CStr::from_ptr(frt_last_error()) }
        .to_string_lossy()
        .into_owned()
}

fn ok(status: c_int) {
    assert_eq!(status, FRT_OK, "{}", last());
}

/// The time of each call of `one` and of `other`, in turn.
fn in_turn(
    iterations: usize,
    mut one: impl FnMut() -> u64,
    mut other: impl FnMut() -> u64,
) -> (Vec<u64>, Vec<u64>) {
    let (mut a, mut b) = (
        Vec::with_capacity(iterations),
        Vec::with_capacity(iterations),
    );
    for i in 0..WARM_UP + iterations {
        let (x, y) = (one(), other());
        if i >= WARM_UP {
            a.push(x);
            b.push(y);
        }
    }
    (a, b)
}

fn at(sorted: &[u64], share: f64) -> u64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

fn summary(samples: &mut [u64]) -> String {
    samples.sort_unstable();
    format!(
        "{{\"p50_ns\": {}, \"p99_ns\": {}, \"max_ns\": {}}}",
        at(samples, 0.5),
        at(samples, 0.99),
        at(samples, 1.0)
    )
}

/// One pair as JSON members, with what the ABI costs over the direct call in the median.
fn pair(ours: &str, theirs: &str, (mut a, mut b): (Vec<u64>, Vec<u64>)) -> String {
    let (a_text, b_text) = (summary(&mut a), summary(&mut b));
    let over = at(&a, 0.5) as i64 - at(&b, 0.5) as i64;
    format!("\"{ours}\": {a_text}, \"{theirs}\": {b_text}, \"overhead_p50_ns\": {over}")
}

/// A small operation of C.
unsafe extern "C" fn fill_line(user: *mut c_void) {
    // SAFETY: every user of it passes 64 writable bytes.
    unsafe { std::ptr::write_bytes(black_box(user.cast::<u8>()), 7, FILL) };
}

type Record<'a> = &'a dyn Fn(*mut c_void);

unsafe extern "C" fn record(user: *mut c_void, stream: *mut c_void) {
    // SAFETY: `captured` passes a live `Record`.
    unsafe { (*user.cast::<Record>())(stream) }
}

fn captured(ctx: frt_ctx, key: u64, work: Record) -> frt_graph {
    let mut work = work;
    // SAFETY: as for C; the closure lives during the call.
    unsafe {
        let graph = frt_graph_create(ctx, c"bench".as_ptr(), 0);
        ok(frt_graph_capture(
            graph,
            key,
            Some(record),
            (&raw mut work).cast(),
        ));
        graph
    }
}

fn cpu(iterations: usize) -> Vec<String> {
    // SAFETY: as for C, here and below.
    let ctx = unsafe { frt_ctx_create_with(FRT_BACKEND_CPU, 0) };
    assert!(!ctx.is_null(), "{}", last());
    let buffer = unsafe { frt_buffer_alloc(ctx, c"line".as_ptr(), FILL) };
    let memory = unsafe { frt_buffer_dptr(buffer) };
    let mut rows = Vec::new();
    for ops in [1, 16, 256] {
        let functions = captured(ctx, 1, &|stream| {
            for _ in 0..ops {
                // SAFETY: the buffer lives as long as the context.
                ok(unsafe { frt_stream_host_func(stream, Some(fill_line), memory) });
            }
        });
        let fills = captured(ctx, 1, &|_| {
            for _ in 0..ops {
                // SAFETY: as for C.
                ok(unsafe { frt_buffer_fill(ctx, buffer, 0, 7, FILL, 0) });
            }
        });
        for (name, graph) in [("host functions", functions), ("fills", fills)] {
            let ours = || {
                time(|| unsafe {
                    ok(frt_graph_replay(graph, 1, 0));
                    ok(frt_stream_sync(ctx, 0));
                })
            };
            let function: unsafe extern "C" fn(*mut c_void) = black_box(fill_line);
            let direct = || {
                time(|| {
                    for _ in 0..ops {
                        // SAFETY: nothing else touches the buffer now.
                        unsafe { function(memory) };
                    }
                })
            };
            let times = in_turn(iterations, ours, direct);
            rows.push(format!(
                "{{\"operations\": {ops}, \"kind\": \"{name}\", {}}}",
                pair("replay_and_sync", "direct", times)
            ));
        }
    }
    unsafe { frt_ctx_destroy(ctx) };
    rows
}

type Launch = unsafe extern "C" fn(exec: *mut c_void, stream: *mut c_void) -> c_int;
type Wait = unsafe extern "C" fn(stream: *mut c_void) -> c_int;

fn cuda(iterations: usize) -> String {
    // SAFETY: as for C, here and below.
    let ctx = unsafe { frt_ctx_create_with(FRT_BACKEND_CUDA, 0) };
    if ctx.is_null() {
        return format!("{{\"skipped\": {:?}}}", last());
    }
    // SAFETY: the driver that the context has loaded already, and two of its published prototypes.
    let (driver, launch, wait) = unsafe {
        let driver = libloading::Library::new("libcuda.so.1").expect("the driver");
        let launch = *driver
            .get::<Launch>(b"cuGraphLaunch\0")
            .expect("cuGraphLaunch");
        let wait = *driver
            .get::<Wait>(b"cuStreamSynchronize\0")
            .expect("cuStreamSynchronize");
        (driver, launch, wait)
    };
    let buffer = unsafe { frt_buffer_alloc(ctx, c"line".as_ptr(), FILL) };
    let mut rows = Vec::new();
    for ops in [1, 16] {
        let graph = captured(ctx, 1, &|_| {
            for _ in 0..ops {
                // SAFETY: as for C.
                ok(unsafe { frt_buffer_fill(ctx, buffer, 0, 7, FILL, 0) });
            }
        });
        let (exec, stream) = unsafe { (frt_graph_executable(graph, 1), frt_stream_handle(ctx, 0)) };
        assert!(!exec.is_null() && !stream.is_null(), "{}", last());
        // The context made its device current on this thread with the calls above.
        let raw = || unsafe { assert_eq!(launch(exec, stream), 0) };
        let raw_wait = || unsafe { assert_eq!(wait(stream), 0) };
        let ours = || unsafe { ok(frt_graph_replay(graph, 1, 0)) };
        let our_wait = || unsafe { ok(frt_stream_sync(ctx, 0)) };

        let call = in_turn(
            iterations,
            || {
                let t = time(ours);
                raw_wait();
                t
            },
            || {
                let t = time(raw);
                raw_wait();
                t
            },
        );
        let whole = in_turn(
            iterations,
            || {
                time(|| {
                    ours();
                    our_wait();
                })
            },
            || {
                time(|| {
                    raw();
                    raw_wait();
                })
            },
        );
        rows.push(format!(
            "{{\"operations\": {ops}, \"call\": {{{}}}, \"call_and_sync\": {{{}}}}}",
            pair("frt_graph_replay", "cuGraphLaunch", call),
            pair("frt", "driver", whole)
        ));
    }
    unsafe { frt_ctx_destroy(ctx) };
    drop(driver);
    format!("[{}]", rows.join(", "))
}
