//! What a replay costs over the driver call that it ends in, on one GPU, in one run.
//!
//! `cargo run --release -p flashrt-exec --example replay_floor [iterations]`
//!
//! One executable of one node is launched by `cuGraphLaunch` itself and by `Graph::replay`, in turn, so
//! that both meet the same state of the device. Once the call alone is timed, with the stream idle before
//! it, and once the call with the wait for its end. Prints one JSON object a line; times are in
//! nanoseconds and include the clock, whose own cost is the first line.

use cudarc::driver::sys;
use flashrt_exec::{Context, Error, Space, StreamId};
use std::ffi::CStr;
use std::time::Instant;

const S0: StreamId = StreamId(0);
const WARM_UP: usize = 2_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let iterations = match std::env::args().nth(1) {
        Some(text) => text.parse()?,
        None => 20_000,
    };
    let ctx = match Context::cuda(0) {
        Ok(ctx) => ctx,
        Err(error) if error.is_unavailable() => {
            eprintln!("skipped: {error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let place = place(ctx.isa());

    let buffer = ctx.alloc("buffer", Space::Device, 64)?;
    let graph = ctx.graph("one node", 0)?;
    graph.capture::<Error>(0, |r| r.fill(&buffer.all(), 1))?;
    let executable: sys::CUgraphExec = graph.executable(0)?.raw().cast();
    let stream: sys::CUstream = ctx.raw_stream(S0)?.cast();

    // SAFETY: an executable and a stream of `ctx`, which made its device current on this thread; `graph`
    // keeps the executable to the end.
    let raw_launch = || check(unsafe { sys::cuGraphLaunch(executable, stream) });
    // SAFETY: as above.
    let raw_wait = || check(unsafe { sys::cuStreamSynchronize(stream) });
    let our_launch = || graph.replay(0, S0).expect("a replay");
    let our_wait = || ctx.synchronize(S0).expect("a wait");

    let mut samples = [(); 5].map(|()| Vec::with_capacity(iterations));
    for round in 0..WARM_UP + iterations {
        let raw_call = || time_then(raw_launch, raw_wait);
        let our_call = || time_then(our_launch, our_wait);
        let raw_whole = || {
            time(|| {
                raw_launch();
                raw_wait();
            })
        };
        let our_whole = || {
            time(|| {
                our_launch();
                our_wait();
            })
        };
        // Each goes first in every second round.
        let is_raw_first = round % 2 == 0;
        let (raw_1, our_1) = in_turn(is_raw_first, raw_call, our_call);
        let (raw_2, our_2) = in_turn(is_raw_first, raw_whole, our_whole);
        let times = [time(|| ()), raw_1, our_1, raw_2, our_2];
        if round >= WARM_UP {
            for (all, time) in samples.iter_mut().zip(times) {
                all.push(time);
            }
        }
    }

    let names = [
        "clock",
        "cuGraphLaunch, call",
        "Graph::replay, call",
        "cuGraphLaunch + cuStreamSynchronize",
        "Graph::replay + Context::synchronize",
    ];
    let mut medians = [0; 5];
    for (index, (name, mut all)) in names.into_iter().zip(samples).enumerate() {
        all.sort_unstable();
        let at = |permille: usize| all[(all.len() - 1) * permille / 1000];
        medians[index] = at(500);
        println!(
            "{{\"bench\": \"replay_floor\", \"name\": \"{name}\", \"median_ns\": {}, \"p99_ns\": {}, \"max_ns\": {}, \
             \"iterations\": {iterations}, {place}}}",
            at(500),
            at(990),
            at(1000)
        );
    }
    println!(
        "{{\"bench\": \"replay_floor\", \"name\": \"ratio of the medians\", \"call\": {:.3}, \"call_and_wait\": {:.3}, {place}}}",
        ratio(medians[2], medians[1]),
        ratio(medians[4], medians[3])
    );
    Ok(())
}

fn ratio(ours: u64, raw: u64) -> f64 {
    ours as f64 / raw as f64
}

fn check(answer: sys::CUresult) {
    assert_eq!(answer, sys::CUresult::CUDA_SUCCESS);
}

/// Both, the first one first if asked so.
fn in_turn(first: bool, a: impl Fn() -> u64, b: impl Fn() -> u64) -> (u64, u64) {
    if first {
        let a = a();
        (a, b())
    } else {
        let b = b();
        (a(), b)
    }
}

fn time(work: impl FnOnce()) -> u64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_nanos() as u64
}

fn time_then(work: impl FnOnce(), untimed: impl FnOnce()) -> u64 {
    let time = time(work);
    untimed();
    time
}

/// Device and driver as members of a JSON object.
fn place(isa: &str) -> String {
    let (mut name, mut device, mut version) = ([0u8; 128], 0, 0);
    // SAFETY: writes one number each, and at most 128 bytes of a text that ends in a zero.
    unsafe {
        check(sys::cuDeviceGet(&mut device, 0));
        check(sys::cuDeviceGetName(
            name.as_mut_ptr().cast(),
            name.len() as i32,
            device,
        ));
        check(sys::cuDriverGetVersion(&mut version));
    }
    let name = CStr::from_bytes_until_nul(&name).map_or("?".into(), CStr::to_string_lossy);
    let driver = format!("{}.{}", version / 1000, version % 1000 / 10);
    format!("\"device\": \"{name}\", \"isa\": \"{isa}\", \"driver\": \"{driver}\"")
}
