//! A panic in a kernel or in one of its tasks is an error of the call that asked for the result. It is
//! told once, follows event waits, and harms nothing else.

use flashrt_exec::{Buffer, Context, CpuOptions, Error, Pool, Space, StreamId, StreamOrder};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;

const S0: StreamId = StreamId(0);

struct Rig {
    ctx: Context,
    broken: Arc<AtomicBool>,
    out: Buffer,
}

/// Variant 1 of a graph "model" fills `out` with 1, runs a kernel that panics while `broken`, and
/// fills `out` with 2.
fn rig(threads: usize, order: StreamOrder) -> (Rig, flashrt_exec::Graph) {
    // The panics are meant; their backtraces would only fill the log.
    std::panic::set_hook(Box::new(|_| ()));
    let ctx = Context::cpu(CpuOptions { threads, order }).unwrap();
    let broken = Arc::new(AtomicBool::new(true));
    let out = ctx.alloc("out", Space::Device, 1).unwrap();
    let graph = ctx.graph("model", 0).unwrap();
    let flag = broken.clone();
    graph
        .capture::<Error>(1, |r| {
            r.fill(&out.all(), 1)?;
            let kernel = move |pool: &Pool| {
                pool.for_each(64, &|task| {
                    if task == 40 && flag.load(Relaxed) {
                        panic!("task {task} of the gemm");
                    }
                })
            };
            r.host_kernel("gemm", &[&out.all()], Box::new(kernel))?;
            r.fill(&out.all(), 2)
        })
        .unwrap();
    (Rig { ctx, broken, out }, graph)
}

impl Rig {
    fn value(&self) -> u8 {
        let mut out = [0];
        self.ctx.download(&self.out.all(), &mut out).unwrap();
        out[0]
    }
}

fn panicked(stream: i32) -> Error {
    Error::KernelPanicked {
        kernel: "gemm",
        origin: "graph \"model\" key 1".into(),
        stream,
        message: "task 40 of the gemm".into(),
    }
}

#[test]
fn it_names_the_kernel_and_is_told_once() {
    for threads in [1, 2, 4] {
        for order in [
            StreamOrder::Submission,
            StreamOrder::Adversarial { seed: 3 },
        ] {
            let (rig, graph) = rig(threads, order);
            graph.replay(1, S0).unwrap();
            let error = rig.ctx.synchronize(S0).unwrap_err();
            assert_eq!(error, panicked(0));
            assert_eq!(error.code(), -5);
            rig.ctx.synchronize(S0).unwrap();
            assert_eq!(rig.value(), 1, "the rest of the launch was skipped");

            // The same executable, stream and pool go on.
            rig.broken.store(false, Relaxed);
            graph.replay(1, S0).unwrap();
            rig.ctx.synchronize(S0).unwrap();
            assert_eq!(rig.value(), 2);
        }
    }
}

#[test]
fn other_streams_do_not_report_it() {
    let (rig, graph) = rig(2, StreamOrder::Submission);
    let other = rig.ctx.stream(0).unwrap();
    let buffer = rig.ctx.alloc("other", Space::Host, 1).unwrap();
    graph.replay(1, S0).unwrap();
    rig.ctx.fill(&buffer.all(), 5, other).unwrap();
    rig.ctx.synchronize(other).unwrap();
    let mut out = [0];
    buffer.host_read(0, &mut out).unwrap();
    assert_eq!(out, [5]);
    assert_eq!(rig.ctx.synchronize(S0).unwrap_err(), panicked(0));
}

#[test]
fn it_follows_an_event_to_the_stream_that_waited() {
    for seed in 0..20 {
        let (rig, graph) = rig(1, StreamOrder::Adversarial { seed });
        let (middle, last) = (rig.ctx.stream(0).unwrap(), rig.ctx.stream(0).unwrap());
        let events = [rig.ctx.event().unwrap(), rig.ctx.event().unwrap()];
        graph.replay(1, S0).unwrap();
        rig.ctx.record(&events[0], S0).unwrap();
        rig.ctx.wait(middle, &events[0]).unwrap();
        rig.ctx.record(&events[1], middle).unwrap();
        rig.ctx.wait(last, &events[1]).unwrap();
        assert_eq!(rig.ctx.synchronize(last).unwrap_err(), panicked(0));
        for stream in [last, middle, S0] {
            rig.ctx.synchronize(stream).unwrap();
        }
    }
}

#[test]
fn every_blocking_call_can_tell_it() {
    let (rig, graph) = rig(1, StreamOrder::Submission);
    let event = rig.ctx.event().unwrap();
    let mut plan = rig.ctx.plan();
    plan.add(&graph, 1, S0).unwrap();
    let calls: [&dyn Fn() -> Result<(), Error>; 6] = [
        &|| rig.ctx.sync_event(&event),
        &|| rig.ctx.query(&event).map(drop),
        &|| rig.ctx.synchronize_all(),
        &|| rig.ctx.upload(&rig.out.all(), &[9]),
        &|| rig.ctx.download(&rig.out.all(), &mut [9]),
        &|| plan.sync(),
    ];
    for call in calls {
        graph.replay(1, S0).unwrap();
        rig.ctx.record(&event, S0).unwrap();
        assert_eq!(call().unwrap_err(), panicked(0));
        rig.ctx.synchronize(S0).unwrap();
        assert_eq!(rig.value(), 1);
    }
}

#[test]
fn an_eager_kernel_says_so() {
    let (rig, _) = rig(1, StreamOrder::Submission);
    let kernel = |_: &Pool| panic!("eager");
    rig.ctx
        .enqueue::<Error>(S0, |r| r.host_kernel("probe", &[], Box::new(kernel)))
        .unwrap();
    let error = rig.ctx.synchronize(S0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "kernel `probe` of an eager call on stream 0 panicked: eager"
    );
}
