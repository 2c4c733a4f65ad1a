//! The example producers in C and Rust, with every kind of plan, against their description.

#[path = "../../../test/support/producers.rs"]
mod producers;

use flashrt_runtime::{
    ForeignLibrary, ForeignModel, ForeignProducer, ImageView, InputData, LiveSet, PixelFormat,
    Producer, ShapeKey, StageId, KEY_INHERIT,
};
use producers::*;

fn open(library: &Library, plan: &str) -> ForeignModel {
    let json = format!(r#"{{"plan": "{plan}", "seed": 3}}"#);
    ForeignLibrary::open(&library.path, &json).unwrap()
}

fn live(library: &Library, plan: &str) -> LiveSet {
    let mut set = ForeignProducer::new(open(library, plan))
        .build("main")
        .unwrap();
    set.warm().unwrap();
    set.set_hot(true);
    set
}

fn set_inputs(set: &mut LiveSet, oracle: &mut Oracle, number: u8) {
    let pixels = [number; SIDE * SIDE * 3];
    let view = ImageView {
        format: PixelFormat::Rgb8,
        width: SIDE as u32,
        height: SIDE as u32,
        stride_bytes: 0,
        data: &pixels,
        timestamp_ns: 1,
    };
    let port = |set: &LiveSet, name: &str| set.port(name).unwrap();
    oracle.set_image(number);
    oracle.state = (0..DIM)
        .map(|i| f32::from(number) / 8.0 - i as f32)
        .collect();
    oracle.prompt = format!("prompt {number}").into_bytes();
    set.set_input(port(set, "images"), InputData::Images(&[view]))
        .unwrap();
    set.set_input(port(set, "state"), InputData::F32(&oracle.state))
        .unwrap();
    let text = std::str::from_utf8(&oracle.prompt).unwrap();
    set.set_input(port(set, "prompt"), InputData::Text(text))
        .unwrap();
}

fn run(set: &mut LiveSet, key: ShapeKey) -> Vec<u8> {
    set.run(set.default_plan().unwrap(), key).unwrap();
    set.sync().unwrap();
    let mut out = vec![0; HORIZON * DIM * 4];
    let n = set
        .get_output(set.port("actions").unwrap(), &mut out)
        .unwrap();
    assert_eq!(n, out.len());
    out
}

#[test]
fn every_plan_of_both_producers_gives_the_bytes_of_the_description() {
    for which in BOTH {
        let library = Library::of(which);
        for plan in PLANS {
            let mut set = live(&library, plan);
            let mut oracle = Oracle::new(3);
            for number in 0..6 {
                set_inputs(&mut set, &mut oracle, number * 41);
                assert_eq!(
                    run(&mut set, KEY_INHERIT),
                    oracle.tick_bytes(),
                    "{which:?} {plan} {number}"
                );
            }
        }
    }
}

#[test]
fn a_library_with_the_published_symbols_alone_ticks_and_names_what_it_lacks() {
    let library = Library::of(Which::Published);
    for plan in PLANS {
        let mut set = live(&library, plan);
        let mut oracle = Oracle::new(3);
        for number in 0..3 {
            set_inputs(&mut set, &mut oracle, number * 41);
            assert_eq!(
                run(&mut set, KEY_INHERIT),
                oracle.tick_bytes(),
                "{plan} {number}"
            );
        }
        let noise = set.port("noise").unwrap();
        let e = set.swap_in(noise, &oracle.noise_bytes()).unwrap_err();
        assert!(e.to_string().contains("frt_buffer_upload"), "{e}");
        assert!(!set.is_poisoned());
    }
}

#[test]
fn images_of_another_size_and_order_are_sampled() {
    let library = Library::of(Which::C);
    let mut set = live(&library, "graph");
    let mut oracle = Oracle::new(3);
    set_inputs(&mut set, &mut oracle, 9);
    // 16 x 16 with padded rows: every second pixel of every second row is taken.
    let mut pixels = vec![0u8; 16 * 50];
    for y in (0..16).step_by(2) {
        for x in (0..16).step_by(2) {
            pixels[y * 50 + x * 3] = (y * 16 + x) as u8;
            oracle.image += (y * 16 + x) as u64 % 256;
        }
    }
    oracle.image -= 9 * (SIDE * SIDE * 3) as u64;
    let view = ImageView {
        format: PixelFormat::Bgr8,
        width: 16,
        height: 16,
        stride_bytes: 50,
        data: &pixels,
        timestamp_ns: 0,
    };
    let port = set.port("images").unwrap();
    set.set_input(port, InputData::Images(&[view])).unwrap();
    assert_eq!(run(&mut set, KEY_INHERIT), oracle.tick_bytes());
    let grey = ImageView {
        format: PixelFormat::Gray8,
        ..view
    };
    let e = set.set_input(port, InputData::Images(&[grey])).unwrap_err();
    assert_eq!(e.code(), -4);
    assert!(e.to_string().contains("neither rgb8 nor bgr8"), "{e}");
    let e = set
        .set_input(port, InputData::Images(&[view, view]))
        .unwrap_err();
    assert_eq!(e.code(), -4, "{e}");
}

#[test]
fn noise_is_swapped_through_the_producers_own_execution_library() {
    for which in BOTH {
        let library = Library::of(which);
        for plan in PLANS {
            let mut set = live(&library, plan);
            let mut oracle = Oracle::new(3);
            set_inputs(&mut set, &mut oracle, 5);
            oracle.noise = (0..HORIZON * DIM).map(|i| 1000 - i as i64).collect();
            let noise = set.port("noise").unwrap();
            set.swap_in(noise, &oracle.noise_bytes()).unwrap();
            assert_eq!(
                run(&mut set, KEY_INHERIT),
                oracle.tick_bytes(),
                "{which:?} {plan}"
            );
            let mut seen = vec![0; HORIZON * DIM * 4];
            let window = set.window(noise).unwrap().clone();
            set.context().download(&window, &mut seen).unwrap();
            assert_eq!(seen, oracle.noise_bytes(), "{which:?} {plan}");
            let e = set.swap_in(noise, &[0; 1000]).unwrap_err();
            assert!(e.is_bad_input(), "{e}");
        }
    }
}

#[test]
fn a_producers_declaration_is_what_it_says() {
    for which in BOTH {
        let library = Library::of(which);
        let model = open(&library, "mixed");
        let d = model.declaration();
        let ports: Vec<&str> = d.ports.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(ports, ["images", "state", "prompt", "noise", "actions"]);
        let stages: Vec<&str> = d.generic_stages.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(stages, ["context", "weigh", "action"]);
        assert_eq!(d.regions[0].name, "rollout");
        let name = match which {
            Which::Rust => "toy_policy_rust",
            _ => "toy_policy_c",
        };
        assert_eq!(model.name(), name);
        assert_eq!(
            d.pairs,
            [
                ("model".into(), name.into()),
                ("stage_plan".into(), "mixed".to_string())
            ]
        );
        // Handles apart, our own rules print the producer's text.
        assert_eq!(d.identity_bytes(), model.identity());
        assert_eq!(d.fingerprint(), model.fingerprint());
        let exec = model.exec_library().unwrap().to_str().unwrap().to_owned();
        match which {
            Which::C => assert!(exec.ends_with("libflashrt.so.0"), "{exec}"),
            _ => assert_eq!(exec, library.path.to_str().unwrap()),
        }
    }
}

#[test]
fn an_action_stage_runs_alone_on_an_old_context() {
    for which in BOTH {
        let library = Library::of(which);
        for plan in ["graph", "opaque"] {
            let mut set = live(&library, plan);
            let mut oracle = Oracle::new(3);
            set_inputs(&mut set, &mut oracle, 77);
            let action = StageId(1);
            let e = set.run_stage(action, KEY_INHERIT).unwrap_err();
            assert!(e.is_wrong_state(), "{e}");
            assert_eq!(run(&mut set, KEY_INHERIT), oracle.tick_bytes());
            let (image, prompt) = (oracle.image, oracle.prompt.clone());
            set_inputs(&mut set, &mut oracle, 78);
            // The state is read by the action stage, images and prompt are not.
            (oracle.image, oracle.prompt) = (image, prompt);
            set.run_stage(action, KEY_INHERIT).unwrap();
            set.sync().unwrap();
            let mut out = vec![0; HORIZON * DIM * 4];
            set.get_output(set.port("actions").unwrap(), &mut out)
                .unwrap();
            assert_eq!(out, oracle.tick_bytes(), "{which:?} {plan}");
        }
    }
}

#[test]
fn configurations_that_a_producer_refuses_come_back_with_its_code() {
    for which in BOTH {
        let library = Library::of(which);
        for json in [r#"{"plan": "none"}"#, r#"{"views": 0}"#, r#"{"seed": "x"}"#] {
            let e = ForeignLibrary::open(&library.path, json).err().unwrap();
            assert_eq!(e.code(), -1, "{json}: {e}");
        }
    }
}

#[test]
fn variants_that_are_not_there_are_refused_before_anything_runs() {
    let library = Library::of(Which::C);
    let mut set = live(&library, "graph");
    assert!(set.has_variant("action", 0).unwrap());
    let e = set.run(set.default_plan().unwrap(), 5).unwrap_err();
    assert!(e.is_not_found() && !set.is_poisoned(), "{e}");
    set.set_hot(false);
    assert_eq!(set.prepare("action", 0).map_err(|e| e.code()), Ok(()));
    assert_eq!(set.prepare("action", 5).unwrap_err().code(), -2);
    assert!(set.evict("action", 0).unwrap_err().is_unsupported());
}

#[test]
fn the_c_producer_leaves_the_process_with_its_last_part() {
    for plan in PLANS {
        let library = Library::of(Which::C);
        assert!(!library.is_loaded());
        let set = live(&library, plan);
        assert!(library.is_loaded());
        // A buffer outlives the set: the library stays as long as anything of it.
        let buffer = set.buffers()[0].clone();
        drop(set);
        assert!(library.is_loaded(), "{plan}");
        drop(buffer);
        assert!(!library.is_loaded(), "{plan}");
    }
}
