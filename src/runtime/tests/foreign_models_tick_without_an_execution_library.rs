//! Models that bring no graphs: their OPAQUE stages and their step are called; return codes and texts become errors.

mod foreign;
use flashrt_runtime::{
    Error, ForeignFault, ForeignModel, ForeignProducer, InputData, LiveSet, Model, Producer,
    StageExecutor, KEY_INHERIT,
};
use foreign::Native;

fn live(native: &Native, case: &str) -> LiveSet {
    set(native.open(case).unwrap())
}

fn set(model: ForeignModel) -> LiveSet {
    ForeignProducer::new(model).build("main").unwrap()
}

fn status(e: &Error) -> i32 {
    match e {
        Error::Foreign {
            fault: ForeignFault::Status(code),
            ..
        } => *code,
        other => panic!("{other}"),
    }
}

fn tick(set: &mut LiveSet) -> Result<[f32; 4], Error> {
    set.run(set.default_plan().unwrap(), KEY_INHERIT)?;
    set.sync()?;
    let mut out = [0; 16];
    let n = set.get_output(set.port("actions").unwrap(), &mut out)?;
    assert_eq!(n, 16);
    let mut values = [0.0; 4];
    for (v, b) in values.iter_mut().zip(out.chunks_exact(4)) {
        *v = f32::from_le_bytes(b.try_into().unwrap());
    }
    Ok(values)
}

fn put(set: &mut LiveSet, values: &[f32]) -> Result<(), Error> {
    set.set_input(set.port("state").unwrap(), InputData::F32(values))
}

#[test]
fn a_step_only_model_ticks_and_is_given_back_once() {
    let native = Native::fixture();
    let mut set = live(&native, "step");
    assert_eq!(set.stages().next().unwrap().executor, StageExecutor::Step);
    put(&mut set, &[1.0, 2.0, 3.0, 4.0]).unwrap();
    assert_eq!(tick(&mut set).unwrap(), [2.0, 3.0, 4.0, 5.0]);
    assert_eq!(tick(&mut set).unwrap(), [3.0, 4.0, 5.0, 6.0]);
    set.warm().unwrap();
    assert_eq!(
        tick(&mut set).unwrap(),
        [4.0, 5.0, 6.0, 7.0],
        "warm runs nothing"
    );
    assert!(native.is_loaded());
    drop(set);
    assert_eq!((native.count("open"), native.count("retain")), (1, 0));
    assert_eq!(
        (
            native.count("release"),
            native.count("free"),
            native.count("unload")
        ),
        (1, 1, 1)
    );
    assert!(!native.is_loaded());
}

#[test]
fn an_opaque_plan_calls_the_runner_in_order() {
    let native = Native::fixture();
    let mut set = live(&native, "opaque");
    let names: Vec<_> = set
        .stages()
        .map(|s| (s.name.clone(), s.executor.to_string()))
        .collect();
    assert_eq!(
        names,
        [
            ("context".into(), "opaque 4".into()),
            ("action".into(), "opaque 91".into())
        ]
    );
    put(&mut set, &[1.0, 0.0, 0.0, 0.0]).unwrap();
    assert_eq!(
        tick(&mut set).unwrap()[0],
        ((1.0 * 10.0) + 4.0) * 10.0 + 91.0
    );
}

#[test]
fn identity_and_fingerprint_are_the_producers_own() {
    let native = Native::fixture();
    let model = native.open("opaque").unwrap();
    let text = b"frt-runtime-identity-v1\nmodel=fixture\n";
    assert_eq!(model.identity(), text);
    assert_eq!(model.fingerprint(), flashrt_runtime::fnv1a64(text));
    assert_eq!(model.name(), "fixture");
    assert_eq!(
        model.library().unwrap(),
        native.library.canonicalize().unwrap()
    );
    assert_eq!(model.exec_library(), None);
    assert_eq!(model.declaration().manifest.as_deref(), Some("{}"));
    let set = set(model);
    assert_eq!(set.identity(), text);
    assert_eq!(set.fingerprint(), flashrt_runtime::fnv1a64(text));
}

#[test]
fn a_second_live_set_is_refused() {
    let native = Native::fixture();
    let producer = ForeignProducer::new(native.open("step").unwrap());
    let e = Model::open(Box::new(producer), &["a".into(), "b".into()])
        .err()
        .unwrap();
    assert!(
        e.is_unsupported() && e.to_string().contains("one live set, 'b'"),
        "{e}"
    );
    assert_eq!(native.count("release"), 1);
    assert!(!native.is_loaded());
}

#[test]
fn a_plan_of_graphs_without_an_execution_library_needs_a_real_step() {
    let native = Native::fixture();
    let e = ForeignProducer::new(native.open("graph-no-step").unwrap())
        .build("main")
        .err()
        .unwrap();
    assert!(
        e.is_unsupported() && e.to_string().contains("frt_graph_replay"),
        "{e}"
    );
    assert!(!native.is_loaded());

    let native = Native::fixture();
    let mut stub = live(&native, "graph-step-stub");
    let e = stub.warm().unwrap_err();
    assert!(e.is_unsupported(), "{e}");
    assert!(
        e.to_string().contains("frt_graph_replay") && e.to_string().contains("stub (-3)"),
        "{e}"
    );

    let native = Native::fixture();
    let mut real = live(&native, "graph-and-step");
    put(&mut real, &[0.0; 4]).unwrap();
    real.warm().unwrap();
    assert_eq!(tick(&mut real).unwrap(), [2.0; 4], "one try, one tick");
}

#[test]
fn regions_and_windows_without_an_execution_library_are_out_of_reach() {
    let native = Native::fixture();
    let mut set = live(&native, "regions-out-of-reach");
    assert_eq!(set.declaration().regions.len(), 1);
    let names: Vec<_> = set.regions().iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["host_state"]);
    let noise = set.port("noise").unwrap();
    assert!(set.swap_in(noise, &[0; 16]).is_err());
    put(&mut set, &[0.0; 4]).unwrap();
    assert_eq!(tick(&mut set).unwrap(), [1.0; 4]);
}

#[test]
fn return_codes_become_errors_with_the_producers_text() {
    let native = Native::fixture();
    let e = put(&mut live(&native, "input-shape"), &[0.0; 4]).unwrap_err();
    assert_eq!((status(&e), e.code()), (-4, -4));
    assert!(
        e.to_string().contains(
            "set_input of port 'state' answers -4 (shape or format mismatch): the fixture says so"
        ),
        "{e}"
    );
    let e = put(&mut live(&native, "input-positive"), &[0.0; 4]).unwrap_err();
    assert_eq!((status(&e), e.code()), (7, -6));
    assert!(e.to_string().contains("a code without a meaning"), "{e}");
}

#[test]
fn error_texts_may_be_anything() {
    let native = Native::fixture();
    for (case, words) in [
        ("text-null", "no text (null)"),
        ("text-endless", "without an end within 65536 bytes"),
        ("text-latin", "caf\u{fffd}"),
    ] {
        let mut set = live(&native, case);
        let e = put(&mut set, &[0.0; 4]).unwrap_err().to_string();
        assert!(e.contains(words), "{case}: {e}");
        assert!(set.last_error().contains(words), "{case}");
    }
}

#[test]
fn outputs_that_lie_about_their_length_are_refused() {
    let native = Native::fixture();
    let mut out = [0; 16];
    let mut get = |case: &str| {
        let mut set = live(&native, case);
        let port = set.port("actions").unwrap();
        set.get_output(port, &mut out).unwrap_err()
    };
    let e = get("output-overrun").to_string();
    assert!(e.contains("wrote 17 bytes into 16"), "{e}");
    let e = get("output-small");
    assert!(
        matches!(
            e,
            Error::OutputTooSmall {
                needed: 999,
                got: 16,
                ..
            }
        ),
        "{e}"
    );
    assert_eq!(status(&get("output-min")), i32::MIN);
    let mut set = live(&native, "step");
    let port = set.port("actions").unwrap();
    let e = set.get_output(port, &mut [0; 4]).unwrap_err();
    assert!(
        matches!(
            e,
            Error::OutputTooSmall {
                needed: 16,
                got: 4,
                ..
            }
        ),
        "{e}"
    );
}

#[test]
fn a_failed_stage_poisons_the_set() {
    for (case, code) in [
        ("opaque-fails", -1),
        ("step-fails", -6),
        ("step-positive", 3),
    ] {
        let native = Native::fixture();
        let mut set = live(&native, case);
        let e = tick(&mut set).unwrap_err();
        assert_eq!(status(&e), code, "{e}");
        assert!(
            set.is_poisoned() && tick(&mut set).unwrap_err().is_poisoned(),
            "{case}"
        );
    }
}

#[test]
fn payloads_of_a_wrong_kind_or_size_do_not_reach_the_producer() {
    let native = Native::fixture();
    let mut set = live(&native, "input-shape");
    let state = set.port("state").unwrap();
    let e = set.set_input(state, InputData::F32(&[1.0])).unwrap_err();
    assert!(
        matches!(
            e,
            Error::PortBytes {
                expected: 16,
                got: 4,
                ..
            }
        ),
        "{e}"
    );
    let e = set.set_input(state, InputData::Text("x")).unwrap_err();
    assert!(matches!(e, Error::PortFormat { .. }), "{e}");
    let e = set.set_input(state, InputData::Images(&[])).unwrap_err();
    assert!(matches!(e, Error::PortFormat { .. }), "{e}");
}

#[test]
fn verbs_that_a_model_lacks_answer_unsupported() {
    let native = Native::fixture();
    let mut set = live(&native, "verbs-null");
    let e = put(&mut set, &[0.0; 4]).unwrap_err();
    assert!(
        e.is_unsupported() && e.to_string().contains("set_input"),
        "{e}"
    );
    let e = tick(&mut set).unwrap_err();
    assert!(e.to_string().contains("no text (no last_error)"), "{e}");

    let native = Native::fixture();
    let mut set = live(&native, "step");
    assert!(set.prepare("g", 0).unwrap_err().is_not_found());
    assert!(set.evict("g", 0).unwrap_err().is_not_found());
}
