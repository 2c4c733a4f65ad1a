//! From gate to the filled ROS message, publish call included, no thread of the engine takes memory from the Rust heap:
//! counted over 1000 ticks of the demo policy with the node's own publishers. What the middleware takes in C++ is its own;
//! that the messages keep their sequences in place is a test beside the code that fills them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flashrt_nodes::ros::clock::NodeClock;
use flashrt_nodes::ros::publishers::Publishers;
use flashrt_session::config::TickMode;
use flashrt_session::{
    ChunkRef, CommandRef, Config, Engine, Event, ImageRef, JointsRef, PushOutcome, Sink, TickRecord,
};
use rclrs::CreateBasicExecutor;

#[path = "../../../test/support/heap.rs"]
mod heap;

const WARM: u64 = 20;
const TICKS: u64 = 1000;

/// The node's publishers, with a look at the counter after each chunk went out.
struct Meter {
    publishers: Publishers,
    chunks: AtomicU64,
    commands: AtomicU64,
    records: AtomicU64,
    at_first: AtomicU64,
    at_last: AtomicU64,
    is_done: AtomicBool,
}

impl Sink for Meter {
    fn chunk(&self, chunk: &ChunkRef<'_>) {
        self.publishers.chunk(chunk);
        let n = self.chunks.fetch_add(1, SeqCst) + 1;
        if n == WARM {
            self.at_first.store(heap::taken(), SeqCst);
        }
        if n == WARM + TICKS {
            self.at_last.store(heap::taken(), SeqCst);
            self.is_done.store(true, SeqCst);
        }
    }
    fn command(&self, command: &CommandRef<'_>) {
        self.publishers.command(command);
        self.commands.fetch_add(1, SeqCst);
    }
    fn tick_log(&self, record: &TickRecord) {
        self.publishers.tick_log(record);
        self.records.fetch_add(1, SeqCst);
    }
    fn event(&self, event: Event) {
        assert!(!matches!(event, Event::Error { .. }), "{event:?}");
    }
}

fn demo_config() -> Config {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/so101_demo.yaml");
    let mut config = Config::load(file.as_ref(), None).unwrap();
    config.tick.mode = TickMode::Rate;
    config.tick.rate_hz = 1000.0;
    // Warnings are texts: what would be warned about on a busy machine is switched off.
    config.tick.deadline_ms = None;
    config.command.limits = None;
    config.max_skew_ms = None;
    config.chunk.max_hold_ms = 60_000.0;
    for view in &mut config.images {
        view.max_age_ms = 60_000.0;
    }
    config.state.max_age_ms = 60_000.0;
    config
}

#[test]
fn a_thousand_ticks_into_ros_messages_allocate_nothing() {
    // Before the first node: nothing leaves this machine.
    std::env::set_var("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST");
    std::env::set_var("ROS_DOMAIN_ID", (1 + std::process::id() % 100).to_string());
    let executor = rclrs::Context::default().create_basic_executor();
    let node = executor.create_node("hot_path").unwrap();
    let config = demo_config();
    let publishers = Publishers::new(&node).unwrap();
    publishers
        .open(&config.command.topic, config.command.kind, true)
        .unwrap();
    let meter = Arc::new(Meter {
        publishers,
        chunks: 0.into(),
        commands: 0.into(),
        records: 0.into(),
        at_first: 0.into(),
        at_last: 0.into(),
        is_done: false.into(),
    });
    heap::count_new_threads();
    let engine = Engine::new(Arc::new(NodeClock::new(&node)), meter.clone());
    let names = config.joint_names();
    let views: Vec<String> = config.images.iter().map(|i| i.view.clone()).collect();
    engine.configure(config).unwrap();
    engine.activate().unwrap();

    let mut data = vec![0_u8; 96 * 96 * 3];
    let mut fill = 0_u8;
    let end = Instant::now() + Duration::from_secs(900);
    while !meter.is_done.load(SeqCst) {
        let ticks = meter.chunks.load(SeqCst);
        assert!(Instant::now() < end, "{ticks} ticks in 900 s");
        fill = fill.wrapping_add(1);
        data.fill(fill);
        for view in &views {
            let image = ImageRef {
                width: 96,
                height: 96,
                encoding: "rgb8",
                is_bigendian: false,
                step: 288,
                data: &data,
            };
            assert_eq!(engine.push_image(view, image, 0), PushOutcome::Accepted);
        }
        let positions = [f64::from(fill) / 300.0; 6];
        let joints = JointsRef {
            names: &names,
            positions: &positions,
        };
        assert_eq!(engine.push_joints(joints, 0), PushOutcome::Accepted);
        std::thread::sleep(Duration::from_millis(5));
    }
    let status = engine.status();
    engine.deactivate().unwrap();
    assert_eq!(meter.at_last.load(SeqCst) - meter.at_first.load(SeqCst), 0);
    assert!(meter.at_first.load(SeqCst) > 0, "the counter counts");
    // The measurement was about something: new inputs were used, commands and log entries went out meanwhile.
    assert!(status.ports.iter().all(|port| port.used > 100));
    assert!(meter.commands.load(SeqCst) > 10);
    assert!(meter.records.load(SeqCst) >= WARM + TICKS);
}
