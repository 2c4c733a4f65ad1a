//! From the first input to the last output byte, 200 ticks make no heap allocation, and no address or
//! variant changes.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use common::drive;
use flashrt_exec::KEY_INHERIT;
use flashrt_models::pi05::Pi05Options;
use flashrt_runtime::{ImageView, InputData, LiveSet, PlanId, PortId, Producer};

/// Counts every allocation of every thread.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(p, layout) }
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(p, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
    let count = ALLOCATIONS.load(Ordering::Relaxed);
    (0..200).for_each(|k| tick.run(k));
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - count, 0);
    assert_eq!(
        before.changes(&tick.set.hot_contract()),
        Vec::<String>::new()
    );
}
