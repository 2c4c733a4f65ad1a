//! Workers burn no core time while no graph runs. Alone in its binary: it measures the process.
#![cfg(target_os = "linux")]

use flashrt_exec::{Context, CpuOptions, Error, Pool, Space, StreamId, StreamOrder};
use std::time::Duration;

/// Core time of the whole process so far, in clock ticks (10 ms on every Linux that we know).
fn core_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // Fields 14 and 15, counted behind the name, which may hold spaces.
    let after_name = stat.rsplit_once(") ").unwrap().1;
    let fields: Vec<&str> = after_name.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn between_two_ticks_no_core_time_is_used() {
    let ctx = Context::cpu(CpuOptions {
        threads: 8,
        order: StreamOrder::Submission,
    })
    .unwrap();
    let buffer = ctx.alloc("buffer", Space::Device, 1).unwrap();
    let graph = ctx.graph("graph", 0).unwrap();
    let kernel = |pool: &Pool| pool.for_each(64, &|_| std::hint::spin_loop());
    graph
        .capture::<Error>(0, |r| {
            r.host_kernel("spin", &[&buffer.all()], Box::new(kernel))
        })
        .unwrap();
    graph.replay(0, StreamId(0)).unwrap();
    ctx.synchronize(StreamId(0)).unwrap();
    std::thread::sleep(Duration::from_millis(20));

    let before = core_ticks();
    std::thread::sleep(Duration::from_millis(500));
    let used = core_ticks() - before;
    // Spinning workers would use 50 ticks on each core.
    assert!(used <= 5, "{used} ticks in 500 ms of doing nothing");
}
