//! Plans with stages that the producer executes itself: OPAQUE, mixed with graphs, and step.

use std::sync::{Arc, Mutex};

use flashrt_exec::{CpuOptions, StreamOrder};
use flashrt_runtime::{
    Context, Error, InputData, LiveSet, LiveSetBuilder, NoVerbs, PortId, Role, SetParts, ShapeKey,
    Space, StageExecutor, StageId, StageSpec, StateClass, StreamId, Verbs, KEY_INHERIT,
};

/// What the runner saw, and what it shall answer.
#[derive(Default)]
struct Log {
    calls: Vec<String>,
    fail: Option<&'static str>,
}

/// An OPAQUE stage `n` copies the first byte of buffer `a` to byte `n` of buffer `b`; `step` adds one to it.
struct Runner {
    set: SetParts,
    log: Arc<Mutex<Log>>,
}

impl Runner {
    fn peek(&self) -> u8 {
        // Host access waits for nothing: it sees what has run.
        let mut byte = [0];
        let a = self.set.buffer("a").unwrap();
        a.host_read(0, &mut byte).unwrap();
        byte[0]
    }

    fn answer(&self, call: String) -> Result<(), Error> {
        let mut log = self.log.lock().unwrap();
        log.calls.push(call);
        match log.fail {
            Some(text) => Err(Error::model("test", text)),
            None => Ok(()),
        }
    }
}

impl Verbs for Runner {
    fn set_input(&mut self, _: PortId, _: InputData<'_>) -> Result<(), Error> {
        Err(Error::Unsupported { verb: "set_input" })
    }
    fn get_output(&mut self, _: PortId, _: &mut [u8]) -> Result<usize, Error> {
        Err(Error::Unsupported { verb: "get_output" })
    }
    fn prepare(&mut self, _: &str, _: ShapeKey) -> Result<(), Error> {
        Ok(())
    }
    fn evict(&mut self, _: &str, _: ShapeKey) -> Result<(), Error> {
        Ok(())
    }
    fn warm(&mut self) -> Result<(), Error> {
        Ok(())
    }
    fn run_opaque(&mut self, executor_ref: u32) -> Result<(), Error> {
        let seen = self.peek();
        let b = self.set.buffer("b").unwrap();
        b.host_write(executor_ref as usize, &[seen]).unwrap();
        self.answer(format!("opaque {executor_ref} saw {seen}"))
    }
    fn step(&mut self) -> Result<(), Error> {
        let seen = self.peek();
        self.set
            .buffer("a")
            .unwrap()
            .host_write(0, &[seen + 1])
            .unwrap();
        self.answer(format!("step saw {seen}"))
    }
}

/// Host buffers `a` and `b`; graph `five` sets `a` to 5 on stream 1; graph `copy` copies `b[0]` to `a[1]` on stream 0.
fn build(order: StreamOrder, plans: &[(&str, Vec<StageSpec>)]) -> (LiveSet, Arc<Mutex<Log>>) {
    let (b, log) = started(order);
    let (mut b, set) = (b, log);
    for (name, stages) in plans {
        b.plan(name, stages).unwrap();
    }
    let verbs = Runner {
        set: b.parts(),
        log: set.clone(),
    };
    (b.finish(Box::new(verbs)).unwrap(), set)
}

fn started(order: StreamOrder) -> (LiveSetBuilder, Arc<Mutex<Log>>) {
    let ctx = Context::cpu(CpuOptions { threads: 1, order }).unwrap();
    let mut b = LiveSetBuilder::new(&ctx, "s").unwrap();
    let a = b.buffer("a", Space::Host, 8, Role::STATE).unwrap();
    let out = b.buffer("b", Space::Host, 8, Role::STATE).unwrap();
    b.region_all(&a, StateClass::Continuation).unwrap();
    let side = b.stream("side", 0).unwrap();
    let five = b.graph("five", 1, 0, &[0], side).unwrap();
    five.capture::<flashrt_exec::Error>(0, |r| r.fill(&a.slice(0, 1)?, 5))
        .unwrap();
    let copy = b.graph("copy", 1, 0, &[0], StreamId(0)).unwrap();
    copy.capture::<flashrt_exec::Error>(0, |r| r.copy(&a.slice(1, 1)?, &out.slice(0, 1)?))
        .unwrap();
    (b, Arc::default())
}

fn mixed() -> Vec<StageSpec> {
    vec![
        StageSpec::new("five"),
        StageSpec::opaque("think", 0).after(&[0]),
        StageSpec::new("copy").after(&[0, 1]),
    ]
}

fn bytes(set: &LiveSet, name: &str) -> [u8; 8] {
    let mut out = [0; 8];
    let b = set.buffer(name).unwrap();
    set.sync().unwrap();
    b.host_read(0, &mut out).unwrap();
    out
}

#[test]
fn an_opaque_stage_sees_what_the_graphs_before_it_wrote() {
    for seed in 0..20 {
        for order in [StreamOrder::Submission, StreamOrder::Adversarial { seed }] {
            let (mut set, log) = build(order, &[("mixed", mixed())]);
            let plan = set.default_plan().unwrap();
            for _ in 0..3 {
                set.run(plan, KEY_INHERIT).unwrap();
            }
            assert_eq!(bytes(&set, "b")[0], 5);
            assert_eq!(bytes(&set, "a")[..2], [5, 5]);
            assert_eq!(log.lock().unwrap().calls, ["opaque 0 saw 5"; 3]);
        }
    }
}

#[test]
fn an_opaque_stage_without_a_dependency_waits_for_the_run_before() {
    let graph = vec![StageSpec::new("five")];
    let opaque = vec![StageSpec::opaque("think", 3)];
    let (mut set, log) = build(
        StreamOrder::Submission,
        &[("graph", graph), ("opaque", opaque)],
    );
    let plans = ["graph", "opaque"].map(|n| set.plan(n).unwrap());
    set.run(plans[0], KEY_INHERIT).unwrap();
    assert!(set.is_in_flight());
    set.run(plans[1], KEY_INHERIT).unwrap();
    assert_eq!(log.lock().unwrap().calls, ["opaque 3 saw 5"]);
    assert_eq!(bytes(&set, "b")[3], 5);
}

#[test]
fn a_step_is_the_whole_tick_and_comes_after_the_run_before() {
    let plans = [
        ("step", vec![StageSpec::step()]),
        ("graph", vec![StageSpec::new("five")]),
    ];
    let (mut set, log) = build(StreamOrder::Submission, &plans);
    let (step, graph) = (set.plan("step").unwrap(), set.plan("graph").unwrap());
    set.run(step, KEY_INHERIT).unwrap();
    set.run(graph, KEY_INHERIT).unwrap();
    set.run(step, KEY_INHERIT).unwrap();
    assert_eq!(log.lock().unwrap().calls, ["step saw 0", "step saw 5"]);
    assert_eq!(bytes(&set, "a")[0], 6);
    assert_eq!(set.runs(), 3);
}

#[test]
fn one_stage_of_a_mixed_plan_runs_alone_once_its_dependencies_have_run() {
    let (mut set, log) = build(StreamOrder::Submission, &[("mixed", mixed())]);
    let early = set.run_stage(StageId(1), KEY_INHERIT).unwrap_err();
    assert!(early.to_string().contains("stage 0"), "{early}");
    assert!(log.lock().unwrap().calls.is_empty());
    set.run_stage(StageId(0), KEY_INHERIT).unwrap();
    set.run_stage(StageId(1), KEY_INHERIT).unwrap();
    set.run_stage(StageId(2), KEY_INHERIT).unwrap();
    assert_eq!(bytes(&set, "a")[..2], [5, 5]);
}

#[test]
fn a_failed_opaque_stage_poisons_the_set_and_skips_the_rest() {
    let (mut set, log) = build(StreamOrder::Submission, &[("mixed", mixed())]);
    log.lock().unwrap().fail = Some("out of ideas");
    let plan = set.default_plan().unwrap();
    let e = set.run(plan, KEY_INHERIT).unwrap_err();
    assert!(e.to_string().contains("out of ideas"), "{e}");
    assert!(set.is_poisoned());
    assert_eq!(log.lock().unwrap().calls.len(), 1);
    assert!(set.run(plan, KEY_INHERIT).unwrap_err().is_poisoned());
    assert_eq!(log.lock().unwrap().calls.len(), 1, "nothing ran after it");
}

#[test]
fn verbs_without_a_runner_or_a_step_answer_unsupported() {
    for (spec, verb) in [
        (StageSpec::opaque("think", 1), "run_opaque"),
        (StageSpec::step(), "step"),
    ] {
        let (mut b, _) = started(StreamOrder::Submission);
        b.plan("p", &[spec]).unwrap();
        let mut set = b.finish(Box::new(NoVerbs)).unwrap();
        let e = set
            .run(set.default_plan().unwrap(), KEY_INHERIT)
            .unwrap_err();
        assert!(e.is_unsupported() && e.to_string().contains(verb), "{e}");
    }
}

#[test]
fn a_mixed_plan_is_declared_as_generic_stages() {
    let (set, _) = build(StreamOrder::Submission, &[("mixed", mixed())]);
    let text = String::from_utf8(set.identity().to_vec()).unwrap();
    assert!(text.ends_with(
        "gstage-v1:0:4:five:0:0:0:\ngstage-v1:1:5:think:1:0:1:0\ngstage-v1:2:4:copy:0:1:2:0,1\n"
    ));
    assert!(
        text.contains("plan.mixed=five:;:opaque:0:think:0;copy:0,1\n"),
        "{text}"
    );
    assert!(set.declaration().stages.is_empty());
    let executors: Vec<String> = set.stages().map(|s| s.executor.to_string()).collect();
    assert_eq!(executors, ["graph five", "opaque 0", "graph copy"]);
    let graphs: Vec<_> = set.stages().map(|s| s.executor.graph()).collect();
    assert_eq!(graphs, [Some("five"), None, Some("copy")]);

    let (set, _) = build(
        StreamOrder::Submission,
        &[("step", vec![StageSpec::step()])],
    );
    assert!(set.declaration().generic_stages.is_empty() && set.declaration().stages.is_empty());
    assert_eq!(set.stages().next().unwrap().executor, StageExecutor::Step);
}

#[test]
fn plans_that_make_no_sense_are_refused() {
    let (mut b, _) = started(StreamOrder::Submission);
    let text = |r: Result<flashrt_runtime::PlanId, Error>| r.unwrap_err().to_string();
    let two = [StageSpec::step(), StageSpec::new("five")];
    assert!(text(b.plan("p", &two)).contains("among 2 stages"));
    assert!(text(b.plan("p", &[StageSpec::opaque("", 0)])).contains("is empty"));
    let late = [StageSpec::opaque("x", 0).after(&[0])];
    assert!(text(b.plan("p", &late)).contains("not earlier"));
    // Two stages of one name cannot be declared.
    let twice = [StageSpec::opaque("x", 0), StageSpec::opaque("x", 1)];
    b.plan("p", &twice).unwrap();
    let e = b.finish(Box::new(NoVerbs)).err().unwrap().to_string();
    assert!(e.contains("the name is taken"), "{e}");
}
