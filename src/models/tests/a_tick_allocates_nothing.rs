//! From the first input to the last output byte, 200 ticks make no heap allocation, and no address or
//! variant changes.

mod common;
#[path = "../../../test/support/heap.rs"]
mod heap;

use common::drive;
use flashrt_exec::KEY_INHERIT;
use flashrt_models::pi05::Pi05Options;
use flashrt_runtime::{ImageView, InputData, LiveSet, PlanId, PortId, Producer};

struct Tick {
    set: LiveSet,
    /// Camera frames larger than the model's, of two sizes, as they would come.
    data: Vec<u8>,
    out: Vec<u8>,
    ports: [PortId; 5],
    plans: [PlanId; 3],
}

impl Tick {
    fn run(&mut self, k: usize) {
        let [images, state, prompt, actions, raw] = self.ports;
        let texts = [
            "put the cube on the red pad",
            "put the cube on the green pad",
            "cube",
        ];
        let (w, h) = if k % 2 == 0 { (640, 480) } else { (100, 75) };
        let view = ImageView {
            width: w,
            height: h,
            ..drive::rgb(0, &self.data[k..])
        };
        let set = &mut self.set;
        set.set_input(images, InputData::Images(&[view, view]))
            .unwrap();
        set.set_input(prompt, InputData::Text(texts[k % 3]))
            .unwrap();
        set.set_input(state, InputData::F32(&[(k as f32 * 0.1).sin(); 6]))
            .unwrap();
        set.run(self.plans[k % 3], if k % 5 == 0 { 10 } else { KEY_INHERIT })
            .unwrap();
        set.sync().unwrap();
        assert_eq!(
            set.get_output(actions, &mut self.out).unwrap(),
            self.out.len()
        );
        set.swap_out(raw, &mut self.out).unwrap();
    }
}

#[test]
fn a_tick_allocates_nothing() {
    heap::count_this_thread();
    let ctx = drive::context(2);
    let set = drive::demo(&ctx, Pi05Options::default())
        .build("a")
        .unwrap();
    let out = vec![0; 4 * set.ports()[3].shape.iter().product::<i64>() as usize];
    let mut tick = Tick {
        data: drive::picture(1, 640 * 480 * 3 + 1000),
        out,
        ports: ["images", "state", "prompt", "actions", "actions_raw"]
            .map(|p| set.port(p).unwrap()),
        plans: ["full", "context_action", "action"].map(|p| set.plan(p).unwrap()),
        set,
    };
    (0..15).for_each(|k| tick.run(k));
    tick.set.set_hot(true);
    let before = tick.set.hot_contract();
    let count = heap::taken();
    (0..200).for_each(|k| tick.run(k));
    assert_eq!(heap::taken() - count, 0);
    assert_eq!(
        before.changes(&tick.set.hot_contract()),
        Vec::<String>::new()
    );
}
