//! The gate for structural cuts: a right cut passes, a wrong one is told by its first wrong byte, and the set is as before.

use flashrt_exec::{CpuOptions, StreamOrder};
use flashrt_runtime::testing::{ToyOptions, ToyProducer, KEYS};
use flashrt_runtime::{
    split_gate, Context, Direction, Error, InputData, Layout, LiveSet, LiveSetBuilder, Modality,
    NoVerbs, PortDType, PortSpec, Producer, Role, Space, SplitGate, SplitOutcome, StageSpec,
    StateClass, StreamId, Update,
};

fn context() -> Context {
    Context::cpu(CpuOptions {
        threads: 1,
        order: StreamOrder::Submission,
    })
    .unwrap()
}

fn toy() -> LiveSet {
    let mut set = ToyProducer::new(&context(), ToyOptions::default())
        .build("a")
        .unwrap();
    set.set_input(set.port("prompt").unwrap(), InputData::Text("left"))
        .unwrap();
    set.set_input(set.port("state").unwrap(), InputData::F32(&[0.5; 8]))
        .unwrap();
    set
}

fn bytes(set: &LiveSet) -> Vec<(String, Vec<u8>)> {
    let of = |b: &flashrt_runtime::Buffer| {
        let mut out = vec![0; b.bytes()];
        set.context().download(&b.all(), &mut out).unwrap();
        (b.name().to_owned(), out)
    };
    set.buffers().iter().map(of).collect()
}

fn gate(set: &LiveSet, split: &str, key: u64) -> SplitGate {
    SplitGate::of(
        set,
        set.plan("full").unwrap(),
        set.plan(split).unwrap(),
        key,
    )
}

#[test]
fn the_cut_of_the_toy_passes_from_several_states_and_changes_no_byte() {
    let mut set = toy();
    for tick in 0..3 {
        let before = bytes(&set);
        for key in KEYS {
            let gate = gate(&set, "context_action", key);
            let outcome = split_gate(&mut set, &gate).unwrap();
            assert!(
                matches!(outcome, SplitOutcome::Same { bytes } if bytes > 2000),
                "{tick}: {outcome:?}"
            );
        }
        assert_eq!(bytes(&set), before);
        set.run(set.plan("full").unwrap(), KEYS[0]).unwrap();
        set.sync().unwrap();
        assert_ne!(bytes(&set), before);
    }
}

#[test]
fn outputs_come_first_then_every_buffer_that_is_state() {
    let set = toy();
    let gate = gate(&set, "context_action", KEYS[0]);
    assert!(gate
        .outputs
        .iter()
        .all(|o| set.ports()[set.port(o).unwrap().0].direction == Direction::Out));
    assert!(!gate.outputs.is_empty());
    for name in ["kv", "rng", "recurrent", "chunk", "bias"] {
        assert!(gate.buffers.iter().any(|b| b == name), "{name}");
    }
    for name in ["work_context", "work_action", "spare"] {
        assert!(!gate.buffers.iter().any(|b| b == name), "{name}");
    }
}

/// `in` (4 bytes) → `mid` → `out`, cut in the middle. The wrong cuts: `late` copies three bytes only; `leak` also writes a state buffer.
fn copies() -> LiveSet {
    let ctx = context();
    let mut b = LiveSetBuilder::new(&ctx, "a").unwrap();
    let mut buffer = |name: &str, bytes, class| {
        let buffer = b.buffer(name, Space::Device, bytes, Role::STATE).unwrap();
        b.region_all(&buffer, class).unwrap();
        buffer
    };
    let input = buffer("in", 4, StateClass::Continuation);
    let mid = buffer("mid", 4, StateClass::Continuation);
    let out = buffer("out", 4, StateClass::Output);
    let memory = buffer("memory", 8, StateClass::Continuation);
    ctx.upload(&input.all(), &[1, 2, 3, 4]).unwrap();
    ctx.upload(&out.all(), &[9; 4]).unwrap();
    let main = StreamId(0);
    type Record<'a> = &'a dyn Fn(&mut flashrt_runtime::Recorder) -> Result<(), flashrt_exec::Error>;
    let mut graph = |name: &str, record: Record| {
        let g = b.graph(name, 1, 0, &[0], main).unwrap();
        g.capture(0, |r| record(r)).unwrap();
    };
    let first = |r: &mut flashrt_runtime::Recorder| r.copy(&mid.all(), &input.all());
    let second = |r: &mut flashrt_runtime::Recorder| r.copy(&out.all(), &mid.all());
    graph("whole", &|r| first(r).and_then(|()| second(r)));
    graph("first", &first);
    graph("second", &second);
    graph("late", &|r| r.copy(&out.slice(0, 3)?, &mid.slice(0, 3)?));
    graph("leak", &|r| {
        second(r)?;
        r.fill(&memory.slice(5, 1)?, 7)
    });
    let tensor = |name: &str, window| {
        let spec = PortSpec::new(
            name,
            Modality::Tensor,
            PortDType::U8,
            Layout::Flat,
            Direction::Out,
            Update::Swap,
            &[4],
        );
        spec.window(window)
    };
    b.port(tensor("result", out.all())).unwrap();
    b.plan("full", &[StageSpec::new("whole")]).unwrap();
    for last in ["second", "late", "leak"] {
        b.plan(
            &format!("cut_{last}"),
            &[StageSpec::new("first"), StageSpec::new(last).after(&[0])],
        )
        .unwrap();
    }
    b.plan("half", &[StageSpec::new("second")]).unwrap();
    b.finish(Box::new(NoVerbs)).unwrap()
}

#[test]
fn a_right_cut_passes() {
    let mut set = copies();
    let gate = gate(&set, "cut_second", 0);
    // 4 bytes of the output, 4 + 4 + 4 + 8 of the buffers, and the host's state block.
    let host = set.host_state().buffer().bytes();
    assert_eq!(
        split_gate(&mut set, &gate).unwrap(),
        SplitOutcome::Same { bytes: 24 + host }
    );
}

#[test]
fn a_cut_that_forgets_a_byte_is_told_by_that_byte() {
    let mut set = copies();
    let before = bytes(&set);
    let mut gate = gate(&set, "cut_late", 0);
    let differs = |what, name: &str| SplitOutcome::Differs {
        what,
        name: name.to_owned(),
        byte: 3,
        full: Some(4),
        split: Some(9),
    };
    assert_eq!(
        split_gate(&mut set, &gate).unwrap(),
        differs("output", "result")
    );
    gate.outputs.clear();
    assert_eq!(
        split_gate(&mut set, &gate).unwrap(),
        differs("buffer", "out")
    );
    // A cut that leaves the first half out: `mid` is behind.
    gate.split = set.plan("half").unwrap();
    gate.buffers = vec!["mid".to_owned()];
    let outcome = split_gate(&mut set, &gate).unwrap();
    assert!(
        matches!(
            outcome,
            SplitOutcome::Differs {
                byte: 0,
                full: Some(1),
                split: Some(0),
                ..
            }
        ),
        "{outcome:?}"
    );
    assert_eq!(bytes(&set), before);
}

#[test]
fn a_cut_with_the_same_outputs_and_another_state_is_told() {
    let mut set = copies();
    let mut gate = gate(&set, "cut_leak", 0);
    let outcome = split_gate(&mut set, &gate).unwrap();
    let expected = SplitOutcome::Differs {
        what: "buffer",
        name: "memory".to_owned(),
        byte: 5,
        full: Some(0),
        split: Some(7),
    };
    assert_eq!(outcome, expected);
    gate.buffers.retain(|b| b != "memory");
    assert!(matches!(
        split_gate(&mut set, &gate).unwrap(),
        SplitOutcome::Same { .. }
    ));
}

#[test]
fn the_gate_refuses_what_it_cannot_answer() {
    let mut set = copies();
    let good = gate(&set, "cut_second", 0);
    let with = |change: &dyn Fn(&mut SplitGate)| {
        let mut g = good.clone();
        change(&mut g);
        g
    };
    let nothing = with(&|g| {
        g.outputs.clear();
        g.buffers.clear();
    });
    let error = split_gate(&mut set, &nothing).unwrap_err().to_string();
    assert!(
        error.ends_with("no output and no buffer to compare"),
        "{error}"
    );
    let error = split_gate(&mut set, &with(&|g| g.outputs = vec!["nope".to_owned()])).unwrap_err();
    assert!(matches!(error, Error::NotFound { kind: "port", .. }));
    let error = split_gate(&mut set, &with(&|g| g.buffers = vec!["nope".to_owned()])).unwrap_err();
    assert!(matches!(error, Error::NotFound { kind: "buffer", .. }));
    let before = bytes(&set);
    let error = split_gate(&mut set, &with(&|g| g.key = 77)).unwrap_err();
    assert!(matches!(error, Error::NoVariant { key: 77, .. }), "{error}");
    assert_eq!(bytes(&set), before);
    set.set_hot(true);
    assert!(matches!(
        split_gate(&mut set, &good),
        Err(Error::Hot { .. })
    ));
}
