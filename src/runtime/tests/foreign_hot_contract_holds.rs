//! Five rounds of SWAP and STAGED updates between ticks: nothing moves, nothing is captured, nothing is allocated, and the
//! bytes are those of the description. For a built-in set and for a native one.

#[path = "../../../test/support/heap.rs"]
mod heap;
#[path = "../../../test/support/producers.rs"]
mod producers;

use flashrt_exec::CpuOptions;
use flashrt_runtime::testing::{ToyOptions, ToyProducer, ROWS, ROW_BYTES, STATE_DIM};
use flashrt_runtime::{
    Context, ForeignLibrary, ForeignProducer, ImageView, InputData, LiveSet, PixelFormat, Producer,
    KEY_INHERIT,
};
use producers::*;

/// Runs `rounds` rounds twice: the first lot may grow scratch space, the second must take nothing.
fn hot(set: &mut LiveSet, mut round: impl FnMut(&mut LiveSet, u8)) {
    set.warm().unwrap();
    set.set_hot(true);
    round(set, 0);
    let before = set.hot_contract();
    let taken = heap::taken();
    for number in 1..=5 {
        round(set, number);
    }
    assert_eq!(heap::taken() - taken, 0, "allocations");
    assert_eq!(before.changes(&set.hot_contract()), Vec::<String>::new());
}

fn native(which: Which, plan: &str) {
    let library = Library::of(which);
    let json = format!(r#"{{"plan": "{plan}", "seed": 1}}"#);
    let model = ForeignLibrary::open(&library.path, &json).unwrap();
    let mut set = ForeignProducer::new(model).build("main").unwrap();
    let port = ["images", "state", "prompt", "noise", "actions"].map(|n| set.port(n).unwrap());
    let plan = set.default_plan().unwrap();

    // Everything is computed before the clock of the heap runs.
    let mut oracle = Oracle::new(1);
    let mut rounds = Vec::new();
    for number in 0..6u8 {
        oracle.set_image(200 + number);
        oracle.state = (0..DIM)
            .map(|i| f32::from(number) + i as f32 / 4.0)
            .collect();
        oracle.prompt = vec![b'a' + number; 5];
        let swapped = (number % 2 == 0).then(|| {
            oracle.noise = (0..HORIZON * DIM)
                .map(|i| (i as i64 * 37 + i64::from(number)) % 1024)
                .collect();
            oracle.noise_bytes()
        });
        let inputs = (oracle.state.clone(), oracle.prompt.clone(), swapped);
        rounds.push((inputs, oracle.tick_bytes()));
    }
    let pixels: Vec<_> = (0..6u8).map(|n| [200 + n; SIDE * SIDE * 3]).collect();
    let mut out = vec![0; HORIZON * DIM * 4];
    hot(&mut set, |set, number| {
        let ((state, prompt, swapped), expected) = &rounds[number as usize];
        let view = ImageView {
            format: PixelFormat::Rgb8,
            width: SIDE as u32,
            height: SIDE as u32,
            stride_bytes: 0,
            data: &pixels[number as usize],
            timestamp_ns: 0,
        };
        set.set_input(port[0], InputData::Images(&[view])).unwrap();
        set.set_input(port[1], InputData::F32(state)).unwrap();
        set.set_input(
            port[2],
            InputData::Text(std::str::from_utf8(prompt).unwrap()),
        )
        .unwrap();
        if let Some(bytes) = swapped {
            set.swap_in(port[3], bytes).unwrap();
        }
        set.run(plan, KEY_INHERIT).unwrap();
        set.sync().unwrap();
        set.get_output(port[4], &mut out).unwrap();
        assert_eq!(out, *expected);
    });
}

fn builtin() {
    let ctx = Context::cpu(CpuOptions {
        threads: 1,
        ..CpuOptions::default()
    })
    .unwrap();
    let mut set = ToyProducer::new(&ctx, ToyOptions::default())
        .build("main")
        .unwrap();
    let port = ["state", "prompt", "bias", "actions"].map(|n| set.port(n).unwrap());
    let plan = set.plan("context_action").unwrap();
    let mut out = vec![0; ROWS * ROW_BYTES];
    hot(&mut set, |set, number| {
        let (bias, prompt) = ([number + 1; 64], [b'a' + number; 64]);
        set.swap_in(port[2], &bias).unwrap();
        set.set_input(port[0], InputData::F32(&[f32::from(number); STATE_DIM]))
            .unwrap();
        set.set_input(
            port[1],
            InputData::Text(std::str::from_utf8(&prompt).unwrap()),
        )
        .unwrap();
        set.run(plan, KEY_INHERIT).unwrap();
        set.sync().unwrap();
        set.get_output(port[3], &mut out).unwrap();
        // Of each row, bytes 48 to 55 are of the bias and the last 8 of the prompt.
        for row in out.chunks_exact(ROW_BYTES) {
            assert_eq!((&row[48..56], &row[56..]), (&bias[..8], &prompt[..8]));
        }
    });
}

#[test]
fn five_rounds_of_updates_change_nothing_but_contents() {
    heap::count_this_thread();
    builtin();
    for which in BOTH {
        for plan in PLANS {
            native(which, plan);
        }
    }
}
