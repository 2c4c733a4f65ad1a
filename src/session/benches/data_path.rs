//! The parts of the way that are not the model: message to ring, ring to port bytes, chunk to sink. Device: host CPU.
//!
//! `cargo bench -p flashrt-session` prints criterion's estimates; the tail (p50, p99, max over single calls) is printed
//! first, because that is what a control loop feels.

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use flashrt_runtime::{HostFields, ImageView};
use flashrt_session::config::TickMode;
use flashrt_session::core::{CapsuleList, Core, CoreInfo, Plan, Restored, SnapshotSpec};
use flashrt_session::*;

/// A core that costs nothing but the copy of its inputs: what is left is the session.
struct CopyCore {
    info: CoreInfo,
    fields: HostFields,
    port: Vec<u8>,
}

impl Core for CopyCore {
    fn info(&self) -> &CoreInfo {
        &self.info
    }
    fn set_images(&mut self, _: usize, views: &[ImageView<'_>]) -> Result<(), SessionError> {
        self.port.clear();
        views
            .iter()
            .for_each(|v| self.port.extend_from_slice(v.data));
        Ok(())
    }
    fn set_state(&mut self, _: usize, state: &[f32]) -> Result<(), SessionError> {
        black_box(state);
        Ok(())
    }
    fn set_prompt(&mut self, _: usize, _: &str) -> Result<(), SessionError> {
        Ok(())
    }
    fn run(&mut self, _: usize, _: Plan, _: u64) -> Result<(), SessionError> {
        black_box(&self.port);
        Ok(())
    }
    fn read_actions(&mut self, _: usize, out: &mut [u8]) -> Result<(), SessionError> {
        out.fill(0);
        Ok(())
    }
    fn fields(&self, _: usize) -> Result<HostFields, SessionError> {
        Ok(self.fields)
    }
    fn set_fields(&mut self, _: usize, fields: &HostFields) -> Result<(), SessionError> {
        self.fields = *fields;
        Ok(())
    }
    fn snapshot(&mut self, _: usize, _: &SnapshotSpec<'_>) -> Result<CapsuleReport, SessionError> {
        Err(SessionError::new(ResultCode::Unsupported, "bench"))
    }
    fn restore(&mut self, _: usize, _: &str, _: bool) -> Result<Restored, SessionError> {
        Err(SessionError::new(ResultCode::Unsupported, "bench"))
    }
    fn rollback(&mut self, _: usize, _: &RollbackTarget, _: u64) -> Result<Restored, SessionError> {
        Err(SessionError::new(ResultCode::Unsupported, "bench"))
    }
    fn reset(&mut self, _: usize) -> Result<Restored, SessionError> {
        Err(SessionError::new(ResultCode::Unsupported, "bench"))
    }
    fn drop_capsule(&mut self, _: &str) -> Result<u64, SessionError> {
        Err(SessionError::new(ResultCode::Unsupported, "bench"))
    }
    fn list(&self, _: usize, _: u64) -> CapsuleList {
        CapsuleList::default()
    }
    fn prepare(&mut self, _: &str, _: u64, _: bool) -> Result<u32, SessionError> {
        Ok(0)
    }
    fn set_hot(&mut self, _: bool) {}
    fn poison(&self, _: usize) -> Option<String> {
        None
    }
}

/// Notes when the chunk came, on the engine's clock.
struct Stopwatch {
    clock: Arc<SystemClock>,
    chunk_ns: AtomicU64,
}

impl Sink for Stopwatch {
    fn chunk(&self, chunk: &ChunkRef<'_>) {
        black_box(messages::encode_chunk(chunk));
        self.chunk_ns.store(self.clock.steady_ns(), Relaxed);
    }
    fn command(&self, _: &CommandRef<'_>) {}
    fn tick_log(&self, _: &TickRecord) {}
    fn event(&self, _: Event) {}
}

const NAMES: [&str; 6] = [
    "shoulder_pan",
    "shoulder_lift",
    "elbow_flex",
    "wrist_flex",
    "wrist_roll",
    "gripper",
];

fn engine() -> (Engine, Arc<Stopwatch>) {
    let clock = Arc::new(SystemClock::default());
    let sink = Arc::new(Stopwatch {
        clock: clock.clone(),
        chunk_ns: AtomicU64::new(0),
    });
    let engine = Engine::new(clock, sink.clone());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/so101_demo.yaml");
    let mut config = Config::load(&file, None).expect("demo file");
    config.tick.mode = TickMode::Trigger;
    let info = CoreInfo {
        views: 2,
        state_dim: 6,
        horizon: 16,
        action_dim: 6,
        image_bytes: 640 * 480 * 3,
        has_prompt: true,
        ..CoreInfo::default()
    };
    let core = CopyCore {
        info,
        fields: HostFields::default(),
        port: Vec::with_capacity(2 * 640 * 480 * 3),
    };
    engine
        .configure_with(
            config,
            Box::new(move |_| Ok(Box::new(core) as Box<dyn Core>)),
        )
        .expect("configure");
    engine.activate().expect("activate");
    (engine, sink)
}

fn frame(width: u32, height: u32, data: &[u8]) -> ImageRef<'_> {
    ImageRef {
        width,
        height,
        encoding: "rgb8",
        is_bigendian: false,
        step: width * 3,
        data,
    }
}

fn push_all(engine: &Engine, names: &[String], width: u32, height: u32, data: &[u8]) {
    for view in ["workspace", "wrist"] {
        assert_eq!(
            engine.push_image(view, frame(width, height, data), 0),
            PushOutcome::Accepted
        );
    }
    engine.push_joints(
        JointsRef {
            names,
            positions: &[0.1; 6],
        },
        0,
    );
}

fn tail(what: &str, mut samples: Vec<Duration>) {
    samples.sort();
    let at = |p: f64| samples[((samples.len() - 1) as f64 * p) as usize].as_secs_f64() * 1e6;
    println!(
        "{what}: p50 {:.1} us, p99 {:.1} us, max {:.1} us over {}",
        at(0.5),
        at(0.99),
        at(1.0),
        samples.len()
    );
}

fn tails() {
    let names = NAMES.map(String::from);
    for (width, height) in [(96u32, 96u32), (640, 480)] {
        let (engine, sink) = engine();
        let data = vec![7u8; (width * height * 3) as usize];
        for _ in 0..20 {
            push_all(&engine, &names, width, height, &data);
            engine.call(
                Command::Tick(TickRequest::default()),
                Duration::from_secs(5),
            );
        }
        let mut push = Vec::new();
        let mut joints = Vec::new();
        let mut tick = Vec::new();
        let mut publish = Vec::new();
        for _ in 0..2000 {
            let start = Instant::now();
            engine.push_image("workspace", frame(width, height, &data), 0);
            push.push(start.elapsed());
            engine.push_image("wrist", frame(width, height, &data), 0);
            let start = Instant::now();
            engine.push_joints(
                JointsRef {
                    names: &names,
                    positions: &[0.1; 6],
                },
                0,
            );
            joints.push(start.elapsed());
            let outcome = engine.call(
                Command::Tick(TickRequest::default()),
                Duration::from_secs(5),
            );
            assert!(outcome.code.is_ok(), "{outcome:?}");
            let done_ns = sink.clock.steady_ns();
            tick.push(Duration::from_secs_f64(outcome.latency_ms / 1e3));
            publish.push(Duration::from_nanos(done_ns - sink.chunk_ns.load(Relaxed)));
        }
        tail(&format!("cpu {width}x{height} image message to ring"), push);
        tail(
            &format!("cpu {width}x{height} joint message to ring"),
            joints,
        );
        tail(
            &format!("cpu {width}x{height} x2 ring to port bytes to encoded chunk, model excluded"),
            tick,
        );
        tail(
            &format!("cpu {width}x{height} chunk in sink to answer of tick"),
            publish,
        );
    }
}

fn data_path(c: &mut Criterion) {
    tails();
    let names = NAMES.map(String::from);
    let mut group = c.benchmark_group("message_to_ring");
    for (width, height) in [(96u32, 96u32), (640, 480)] {
        let (engine, _) = engine();
        let data = vec![7u8; (width * height * 3) as usize];
        group.throughput(Throughput::Bytes(data.len() as u64));
        group.bench_function(
            BenchmarkId::new("cpu_image", format!("{width}x{height}")),
            |b| {
                b.iter(|| engine.push_image("workspace", frame(width, height, &data), 0));
            },
        );
    }
    group.finish();
    let (engine, _) = engine();
    c.bench_function("message_to_ring/cpu_joints_6", |b| {
        b.iter(|| {
            engine.push_joints(
                JointsRef {
                    names: &names,
                    positions: &[0.1; 6],
                },
                0,
            )
        });
    });
    let data = [0.25f32; 16 * 6];
    let units = NAMES.map(|_| "rad".to_string());
    let chunk = ChunkRef {
        session: "main",
        epoch: 1,
        tick: 1,
        chunk_id: 1,
        stamp_ns: 1,
        observation_age_ns: 1,
        context_stamp_ns: 1,
        context_age_ticks: 0,
        dt_ns: 100_000_000,
        names: &names,
        units: &units,
        representation: "absolute",
        horizon: 16,
        execute_rows: 8,
        data: &data,
    };
    c.bench_function("chunk_to_bytes/cpu_16x6", |b| {
        b.iter(|| messages::encode_chunk(black_box(&chunk)))
    });
}

criterion_group!(benches, data_path);
criterion_main!(benches);
