//! Calls that would wait for themselves are refused instead: from a kernel, from a task of one, and
//! from inside a host access.

use flashrt_exec::{Context, CpuOptions, Error, Pool, Space, StreamId, StreamOrder};
use std::sync::{Arc, Mutex};

const S0: StreamId = StreamId(0);

fn context(threads: usize) -> Context {
    Context::cpu(CpuOptions {
        threads,
        order: StreamOrder::Submission,
    })
    .unwrap()
}

#[test]
fn from_a_kernel_and_its_tasks() {
    let ctx = context(4);
    let host = ctx.alloc("host", Space::Host, 4).unwrap();
    let refused = Arc::new(Mutex::new(Vec::new()));
    let kernel = {
        // A kernel that holds its context keeps it alive while queued; fine in a test.
        let (ctx, refused, host) = (ctx.clone(), refused.clone(), host.clone());
        move |pool: &Pool| {
            pool.for_each(64, &|_| {
                let results = [
                    ctx.synchronize(S0),
                    ctx.fill(&host.all(), 1, S0),
                    ctx.alloc("late", Space::Host, 1).map(drop),
                    host.host_write(0, &[1]),
                    ctx.enqueue(S0, |r| r.fill(&host.all(), 1)),
                ];
                refused.lock().unwrap().extend(results);
                std::thread::sleep(std::time::Duration::from_micros(50));
            });
        }
    };
    ctx.enqueue::<Error>(S0, |r| {
        r.host_kernel("nosy", &[&host.all()], Box::new(kernel))
    })
    .unwrap();
    ctx.synchronize(S0).unwrap();
    let refused = std::mem::take(&mut *refused.lock().unwrap());
    assert_eq!(refused.len(), 64 * 5);
    for result in refused {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Busy { .. }), "{error}");
        assert_eq!(error.code(), -1);
    }
    host.host_write(0, &[1]).unwrap();
}

#[test]
fn from_a_host_access() {
    let ctx = context(1);
    let host = ctx.alloc("host", Space::Host, 4).unwrap();
    let errors = host
        .host_with_mut(|bytes| {
            bytes[0] = 7;
            [
                host.host_write(0, &[1]),
                host.host_read(0, &mut [0]),
                ctx.synchronize(S0),
            ]
        })
        .unwrap();
    for error in errors {
        assert!(matches!(error, Err(Error::Busy { .. })), "{error:?}");
    }
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        host.host_with_mut(|_| std::panic::resume_unwind(Box::new("caller")))
    }));
    assert!(panicked.is_err());
    let mut out = [0; 4];
    host.host_read(0, &mut out).unwrap();
    assert_eq!(out, [7, 0, 0, 0]);
}

#[test]
fn another_thread_waits_its_turn() {
    let ctx = context(2);
    let host = ctx.alloc("host", Space::Host, 8).unwrap();
    let add_one = {
        let (host, window) = (host.clone(), host.all());
        move |_: &Pool| {
            assert_eq!(window.bytes(), host.bytes());
            // SAFETY: the kernel was recorded with this window, which is 8 aligned bytes long.
            unsafe { *window.as_ptr().cast::<u64>() += 1 };
        }
    };
    let graph = ctx.graph("count", 0).unwrap();
    graph
        .capture::<Error>(0, |r| {
            r.host_kernel("add_one", &[&host.all()], Box::new(add_one))
        })
        .unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    graph.replay(0, S0).unwrap();
                    ctx.synchronize(S0).unwrap();
                    host.host_with_mut(|bytes| bytes[0] = bytes[0].wrapping_add(0))
                        .unwrap();
                }
            });
        }
    });
    let mut out = [0; 8];
    host.host_read(0, &mut out).unwrap();
    assert_eq!(u64::from_ne_bytes(out), 2000);
}
