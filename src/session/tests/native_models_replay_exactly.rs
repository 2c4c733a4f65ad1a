//! A recorded run of a native model follows its tick log offline and gives the same chunks.

mod common;
#[path = "../../../test/support/producers.rs"]
mod producers;

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use common::bag::Bag;
use common::*;
use flashrt_session::bag::{BagSource, McapSink, McapSource};
use flashrt_session::messages::*;
use flashrt_session::replay::{replay, ReplayOptions};
use flashrt_session::*;
use producers::*;

const WAIT: Duration = Duration::from_secs(60);

fn deployment(library: &Library) -> Config {
    let joints: String = (0..DIM)
        .map(|i| format!("      - {{name: j{i}}}\n"))
        .collect();
    config(&format!(
        "model:\n  library: {}\n  config: {{plan: mixed, seed: 9}}\n\
         ports:\n  images:\n    - {{view: front, topic: camera/image, max_age_ms: 100}}\n\
         \x20 state:\n    topic: joint_states\n    max_age_ms: 100\n    joints:\n{joints}\
         \x20 prompt: {{text: go}}\n\
         tick: {{mode: trigger}}\nchunk: {{control_rate_hz: 10}}\n\
         command: {{topic: c, limits: 'off', max_step: 'off'}}\n",
        library.path.display()
    ))
}

#[test]
fn a_bag_of_ticks_snapshots_and_restores_gives_the_same_chunks() {
    for which in BOTH {
        let library = Library::of(which);
        let (clock, bag) = (FakeClock::new(), Arc::new(Bag::new("/policy_node")));
        let engine = Engine::new(clock.clone(), bag.clone());
        engine.configure(deployment(&library)).unwrap();
        engine.activate().unwrap();
        let ok = |command: Command| {
            let outcome = engine.call(command, WAIT);
            assert_eq!(outcome.code, ResultCode::Ok, "{outcome:?}");
        };
        let tick = |n: u8| {
            clock.advance_ms(50);
            let now = clock.ros_ns();
            let data = vec![n; SIDE * SIDE * 3];
            let side = SIDE as u32;
            let m = ImageMessage {
                stamp_ns: now,
                width: side,
                height: side,
                encoding: "rgb8",
                is_bigendian: false,
                step: side * 3,
                data: &data,
            };
            bag.put("/camera/image", IMAGE, m.encode());
            engine.push_image("front", image(side, side, "rgb8", side * 3, &data), now);
            let m = JointsMessage {
                stamp_ns: now,
                names: (0..DIM).map(|i| format!("j{i}")).collect(),
                positions: (0..DIM).map(|i| f64::from(n) * 0.01 + i as f64).collect(),
            };
            bag.put("/joint_states", JOINT_STATE, m.encode());
            engine.push_joints(
                JointsRef {
                    names: &m.names,
                    positions: &m.positions,
                },
                now,
            );
            ok(Command::Tick(TickRequest {
                not_before_ns: now,
                wait_ms: 1000,
                ..TickRequest::default()
            }));
        };
        tick(1);
        ok(snapshot("a"));
        tick(2);
        tick(3);
        ok(restore("a"));
        tick(4);
        ok(Command::Reset { keep_prompt: false });
        tick(5);
        engine.deactivate().unwrap();
        engine.cleanup().unwrap();

        let mut out = McapSink::new(Cursor::new(Vec::new())).unwrap();
        let mut source = McapSource::new(bag.mcap());
        let options = ReplayOptions::default();
        let report = replay(deployment(&library), &options, &mut source, &mut out).unwrap();
        assert_eq!((report.mismatches.len(), report.ticks), (0, 5), "{which:?}");
        let mut chunks = Vec::new();
        McapSource::new(out.into_inner().into_inner())
            .for_each(&mut |m| {
                chunks.push(m.data.to_vec());
                Ok(())
            })
            .unwrap();
        assert_eq!(chunks, bag.chunks(), "{which:?}");
    }
}
