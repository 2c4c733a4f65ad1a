//! `Pool::for_each`: every index once, the same result for every number of threads, panics that leave
//! the pool whole.

use flashrt_exec::{Context, CpuOptions, Error, Pool, Space, StreamId, StreamOrder};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use std::time::Duration;

#[test]
fn for_any_number_of_tasks_and_threads() {
    for threads in [1, 2, 3, 8] {
        let pool = Pool::new(threads).unwrap();
        assert_eq!(pool.threads(), threads);
        for tasks in (0..70).chain([1000, 4096]) {
            let counts: Vec<AtomicU32> = (0..tasks).map(|_| AtomicU32::new(0)).collect();
            pool.for_each(tasks, &|index| {
                counts[index].fetch_add(1, Relaxed);
            });
            assert!(
                counts.iter().all(|c| c.load(Relaxed) == 1),
                "{threads} threads, {tasks} tasks"
            );
        }
    }
}

#[test]
fn jobs_back_to_back_and_after_a_rest_never_mix() {
    let pool = Pool::new(4).unwrap();
    for job in 0..20_000usize {
        let sum = AtomicUsize::new(0);
        let tasks = 2 + job % 7;
        pool.for_each(tasks, &|index| {
            sum.fetch_add(job * 10 + index, Relaxed);
        });
        assert_eq!(sum.into_inner(), tasks * job * 10 + tasks * (tasks - 1) / 2);
        if job % 4000 == 0 {
            // Long enough for the workers to park.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn workers_do_take_tasks() {
    let pool = Pool::new(2).unwrap();
    let driver = std::thread::current().id();
    let helped = AtomicBool::new(false);
    // Two tasks that wait for each other can only end on two threads.
    let meeting = std::sync::Barrier::new(2);
    pool.for_each(2, &|_| {
        meeting.wait();
        if std::thread::current().id() != driver {
            helped.store(true, Relaxed);
        }
    });
    assert!(helped.into_inner());
}

#[test]
fn zero_threads_means_all_cores_and_too_many_are_refused() {
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(Pool::new(0).unwrap().threads(), cores);
    let error = Pool::new(1025).unwrap_err();
    assert_eq!(error.to_string(), "threads: expected 0..=1024, got 1025");
}

#[test]
fn a_call_inside_a_task_runs_inline() {
    let pool = Pool::new(3).unwrap();
    let sum = AtomicUsize::new(0);
    pool.for_each(10, &|outer| {
        pool.for_each(10, &|inner| {
            sum.fetch_add(outer * 10 + inner, Relaxed);
        });
    });
    assert_eq!(sum.into_inner(), (0..100).sum());
}

#[test]
fn a_panic_reaches_the_caller_and_leaves_the_pool_whole() {
    std::panic::set_hook(Box::new(|_| ()));
    let pool = Pool::new(4).unwrap();
    for bad in [0, 17, 63] {
        let ran = AtomicUsize::new(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.for_each(64, &|index| {
                if index == bad {
                    panic!("bad {index}");
                }
                ran.fetch_add(1, Relaxed);
            })
        }));
        let payload = result.unwrap_err();
        assert_eq!(
            payload.downcast_ref::<String>(),
            Some(&format!("bad {bad}"))
        );
        assert!(ran.load(Relaxed) < 64);
        let after = AtomicUsize::new(0);
        pool.for_each(64, &|_| {
            after.fetch_add(1, Relaxed);
        });
        assert_eq!(after.into_inner(), 64);
    }
}

/// Row sums of a matrix whose f32 rounding depends on the order of additions inside a row.
fn row_sums(threads: usize) -> Vec<u8> {
    const ROWS: usize = 257;
    const COLUMNS: usize = 301;
    let ctx = Context::cpu(CpuOptions {
        threads,
        order: StreamOrder::Submission,
    })
    .unwrap();
    let out = ctx.alloc("sums", Space::Host, ROWS * 4).unwrap();
    let window = out.all();
    let kernel = move |pool: &Pool| {
        pool.for_each(ROWS, &|row| {
            let sum: f32 = (0..COLUMNS)
                .map(|c| 1.0 / (1.0 + ((row * 31 + c * 17) % 97) as f32))
                .sum();
            // SAFETY: the window was recorded with the kernel and holds ROWS aligned f32; each task
            // writes its own.
            unsafe { window.as_ptr().cast::<f32>().add(row).write(sum) };
        });
    };
    ctx.enqueue::<Error>(StreamId(0), |r| {
        r.host_kernel("row_sums", &[&out.all()], Box::new(kernel))
    })
    .unwrap();
    let mut bytes = vec![0; ROWS * 4];
    ctx.download(&out.all(), &mut bytes).unwrap();
    bytes
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let one = row_sums(1);
    assert!(one.iter().any(|&b| b != 0));
    for threads in [2, 3, 5, 16] {
        assert!(row_sums(threads) == one, "{threads} threads");
    }
}
