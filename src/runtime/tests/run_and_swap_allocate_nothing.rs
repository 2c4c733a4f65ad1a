//! Counts heap allocations of the hot calls.

#[path = "../../../test/support/heap.rs"]
mod heap;

use flashrt_exec::CpuOptions;
use flashrt_runtime::testing::{ToyOptions, ToyProducer, ROWS, ROW_BYTES};
use flashrt_runtime::{Context, Producer};

#[test]
fn a_thousand_ticks_allocate_nothing() {
    heap::count_this_thread();
    let ctx = Context::cpu(CpuOptions {
        threads: 2,
        ..CpuOptions::default()
    })
    .unwrap();
    let mut set = ToyProducer::new(&ctx, ToyOptions::default())
        .build("main")
        .unwrap();
    set.set_hot(true);
    let (bias, raw) = (set.port("bias").unwrap(), set.port("actions_raw").unwrap());
    let plans = [
        set.plan("full").unwrap(),
        set.plan("context_action").unwrap(),
    ];
    let stage = set.plans()[plans[1].0].stages[1];
    let mut out = vec![0; ROWS * ROW_BYTES];
    let mut hot = |n: usize| {
        for i in 0..n {
            set.swap_in(bias, &[i as u8; 64]).unwrap();
            set.run(plans[i % 2], if i % 3 == 0 { 5 } else { 10 })
                .unwrap();
            set.sync().unwrap();
            set.host_state().update(|h| h.tick += 1).unwrap();
            set.run_stage(stage, 5).unwrap_or(());
            set.swap_out(raw, &mut out).unwrap();
        }
    };
    hot(2);
    let before = heap::taken();
    drop(std::hint::black_box(Box::new(1u8)));
    assert_eq!(heap::taken() - before, 1, "the counter counts");
    let before = heap::taken();
    hot(1000);
    assert_eq!(heap::taken() - before, 0);
}
