//! Live sets: plans, ports, independence, the hot contract, refusals.

use flashrt_exec::{CpuOptions, StreamOrder};
use flashrt_runtime::testing::{set_prompt, tick, ToyOptions, ToyProducer, ROWS, ROW_BYTES};
use flashrt_runtime::{
    Context, Direction, Error, InputData, Layout, LiveSet, LiveSetBuilder, Modality, Model,
    NoVerbs, PlanId, PortDType, PortId, PortSpec, Role, Space, StageId, StageSpec, StateClass,
    StreamId, Update, KEY_INHERIT,
};

fn context(order: StreamOrder) -> Context {
    Context::cpu(CpuOptions { threads: 1, order }).unwrap()
}

fn open(order: StreamOrder, names: &[&str]) -> Model {
    let producer = ToyProducer::new(&context(order), ToyOptions::default());
    let names: Vec<String> = names.iter().map(|n| n.to_string()).collect();
    Model::open(Box::new(producer), &names).unwrap()
}

fn one() -> LiveSet {
    open(StreamOrder::Submission, &["main"]).sets.remove(0)
}

fn run(live: &mut LiveSet, plan: &str, key: u64, ticks: std::ops::Range<u64>) -> Vec<u8> {
    ticks
        .flat_map(|t| tick(live, plan, key, t).unwrap())
        .collect()
}

#[test]
fn the_full_plan_and_the_staged_plan_give_the_same_bytes() {
    for key in [5, 10, KEY_INHERIT] {
        let (mut a, mut b) = (one(), one());
        set_prompt(&mut a, "pick the red cube").unwrap();
        set_prompt(&mut b, "pick the red cube").unwrap();
        let full = run(&mut a, "full", key, 0..5);
        assert_eq!(full, run(&mut b, "context_action", key, 0..5), "key {key}");
        assert!(full.iter().any(|v| *v != 0));
    }
}

#[test]
fn the_inherited_key_picks_the_variant() {
    let mut a = one();
    let five = run(&mut a, "full", 5, 0..1);
    assert!(five[5 * ROW_BYTES..].iter().all(|v| *v == 0));
    let ten = run(&mut one(), "full", 10, 0..1);
    assert!(ten[5 * ROW_BYTES..].iter().any(|v| *v != 0));
    assert_eq!(
        ten,
        run(&mut one(), "full", KEY_INHERIT, 0..1),
        "10 is the default"
    );
}

#[test]
fn stages_on_two_streams_keep_their_order_whatever_the_device_does() {
    let expected = run(&mut one(), "context_action", 10, 0..4);
    for seed in 0..40 {
        let mut set = open(StreamOrder::Adversarial { seed }, &["main"])
            .sets
            .remove(0);
        assert_eq!(
            run(&mut set, "context_action", 10, 0..4),
            expected,
            "seed {seed}"
        );
    }
}

#[test]
fn runs_without_a_wait_in_between_keep_their_order_too() {
    let many = |order| {
        let mut set = open(order, &["main"]).sets.remove(0);
        // Two plans that draw from one ring on different streams.
        let plans = ["context_action", "full"].map(|n| set.plan(n).unwrap());
        for i in 0..6 {
            set.run(plans[i % 2], 5).unwrap();
        }
        let mut out = vec![0; ROWS * ROW_BYTES];
        let port = set.port("actions_raw").unwrap();
        set.swap_out(port, &mut out).unwrap();
        out
    };
    let expected = many(StreamOrder::Submission);
    for seed in 0..40 {
        assert_eq!(
            many(StreamOrder::Adversarial { seed }),
            expected,
            "seed {seed}"
        );
    }
}

#[test]
fn live_sets_of_one_model_are_independent_and_have_one_identity() {
    let mut m = open(StreamOrder::Submission, &["a", "b", "c"]);
    assert_eq!(m.sets[0].identity(), m.sets[2].identity());
    assert_eq!(m.fingerprint(), m.sets[1].fingerprint());
    let ids = |s: &LiveSet| s.buffers().iter().map(|b| b.addr()).collect::<Vec<_>>();
    assert!(ids(&m.sets[0]).iter().all(|a| !ids(&m.sets[1]).contains(a)));

    set_prompt(&mut m.sets[0], "one").unwrap();
    set_prompt(&mut m.sets[1], "two").unwrap();
    let alone: Vec<u8> = {
        let mut s = one();
        set_prompt(&mut s, "one").unwrap();
        run(&mut s, "full", 10, 0..3)
    };
    let mut interleaved = Vec::new();
    for t in 0..3 {
        interleaved.extend(tick(m.set_mut("a").unwrap(), "full", 10, t).unwrap());
        tick(m.set_mut("b").unwrap(), "context_action", 5, t + 50).unwrap();
    }
    assert_eq!(interleaved, alone);
    assert!(m.set("d").err().unwrap().is_not_found());
}

#[test]
fn model_open_refuses_no_names_equal_names_and_bad_names() {
    let try_open = |names: &[&str]| {
        let producer = ToyProducer::new(&context(StreamOrder::Submission), ToyOptions::default());
        let names: Vec<String> = names.iter().map(|n| n.to_string()).collect();
        Model::open(Box::new(producer), &names)
            .err()
            .map(|e| e.to_string())
            .unwrap_or_default()
    };
    assert!(try_open(&[]).contains("0 live sets"));
    assert!(try_open(&["a", "a"]).contains("declared twice"));
    assert!(try_open(&["a:b"]).contains("':'"));
}

#[test]
fn a_failed_open_returns_all_memory() {
    let ctx = context(StreamOrder::Submission);
    let producer = ToyProducer::new(&ctx, ToyOptions::default());
    assert!(Model::open(Box::new(producer), &["a".into(), "bad\n".into()]).is_err());
    assert_eq!(ctx.memory().buffers, 0);
    let model = Model::open(
        Box::new(ToyProducer::new(&ctx, ToyOptions::default())),
        &["a".into()],
    )
    .unwrap();
    assert!(ctx.memory().buffers > 0);
    drop(model);
    assert_eq!(ctx.memory().buffers, 0);
}

#[test]
fn swap_windows_are_bounds_checked_and_honour_their_offset() {
    let ctx = context(StreamOrder::Submission);
    for space in [Space::Device, Space::Host] {
        let mut b = LiveSetBuilder::new(&ctx, "s").unwrap();
        let buffer = b.buffer("noise", space, 32, Role::STATE).unwrap();
        let g = b.graph("g", 1, 0, &[0], StreamId(0)).unwrap();
        g.capture::<flashrt_exec::Error>(0, |r| r.fill(&buffer.slice(0, 1)?, 9))
            .unwrap();
        let spec = |name: &str, way| {
            PortSpec::new(
                name,
                Modality::Tensor,
                PortDType::U8,
                Layout::Flat,
                way,
                Update::Swap,
                &[8],
            )
            .window(buffer.slice(16, 8).unwrap())
        };
        let put = b.port(spec("in", Direction::In)).unwrap();
        let get = b.port(spec("out", Direction::Out)).unwrap();
        b.plan("p", &[StageSpec::new("g")]).unwrap();
        let mut set = b.finish(Box::new(NoVerbs)).unwrap();

        set.swap_in(put, &[7; 8]).unwrap();
        set.swap_in(put, &[5; 3]).unwrap();
        set.swap_in(put, &[]).unwrap();
        let mut all = [0; 32];
        ctx.download(&buffer.all(), &mut all).unwrap();
        assert_eq!(all[..16], [0; 16]);
        assert_eq!(all[16..24], [5, 5, 5, 7, 7, 7, 7, 7]);
        assert_eq!(all[24..], [0; 8]);
        let mut out = [0; 4];
        set.swap_out(get, &mut out).unwrap();
        assert_eq!(out, [5, 5, 5, 7]);
        set.swap_out(get, &mut []).unwrap();

        let e = set.swap_in(put, &[1; 9]).unwrap_err();
        assert!(
            e.is_bad_input() && e.to_string().contains("0 + 9 bytes do not fit its 8 bytes"),
            "{e}"
        );
        assert!(set.swap_out(get, &mut [0; 9]).unwrap_err().is_bad_input());
        let e = set.swap_in(get, &[1]).unwrap_err();
        assert!(
            e.to_string()
                .contains("port 'out' is OUT SWAP: swap_in needs an input that is SWAP"),
            "{e}"
        );
        assert!(set.swap_out(put, &mut [0]).unwrap_err().is_bad_input());
        let e = set.set_input(put, InputData::Bytes(&[1])).unwrap_err();
        assert!(e.to_string().contains("STAGED or SETUP"), "{e}");
        assert!(set.swap_in(PortId(9), &[1]).unwrap_err().is_not_found());
    }
}

#[test]
fn staged_inputs_are_checked_by_the_model_and_leave_the_port_alone_on_error() {
    let mut set = one();
    set_prompt(&mut set, "good").unwrap();
    let state = set.port("state").unwrap();
    set.set_input(state, InputData::F32(&[1.0; 8])).unwrap();
    let image = |s: &LiveSet| {
        let mut b = vec![0; 96];
        s.context()
            .download(&s.buffer("prompt").unwrap().all(), &mut b[..64])
            .unwrap();
        s.context()
            .download(&s.buffer("state").unwrap().all(), &mut b[64..])
            .unwrap();
        b
    };
    let before = image(&set);
    assert!(set_prompt(&mut set, &"x".repeat(65))
        .unwrap_err()
        .is_bad_input());
    for bad in [f32::NAN, f32::INFINITY] {
        let e = set
            .set_input(
                state,
                InputData::F32(&[0.0, 0.0, bad, 0.0, 0.0, 0.0, 0.0, 0.0]),
            )
            .unwrap_err();
        assert!(e.to_string().contains("element 2"), "{e}");
    }
    assert!(set
        .set_input(state, InputData::F32(&[0.0; 7]))
        .unwrap_err()
        .is_bad_input());
    assert!(set
        .set_input(state, InputData::Text("x"))
        .unwrap_err()
        .is_bad_input());
    assert_eq!(image(&set), before);
    let actions = set.port("actions").unwrap();
    let e = set.get_output(actions, &mut [0; 10]).unwrap_err();
    assert!(
        e.to_string().contains("needs 640 bytes, got room for 10"),
        "{e}"
    );
    assert!(set
        .get_output(state, &mut [0; 640])
        .unwrap_err()
        .is_bad_input());
}

#[test]
fn setup_ports_prepare_and_evict_are_refused_while_hot() {
    let ctx = context(StreamOrder::Submission);
    let mut producer = ToyProducer::new(
        &ctx,
        ToyOptions {
            setup_port: true,
            ..ToyOptions::default()
        },
    );
    use flashrt_runtime::Producer;
    let mut set = producer.build("main").unwrap();
    let gain = set.port("gain").unwrap();
    set.set_input(gain, InputData::Bytes(&[1; 4])).unwrap();
    set.evict("action", 5).unwrap();
    assert!(set.evict("action", 5).unwrap_err().is_not_found());
    assert!(tick(&mut set, "context_action", 5, 0)
        .unwrap_err()
        .is_not_found());
    set.prepare("action", 5).unwrap();
    tick(&mut set, "context_action", 5, 0).unwrap();

    set.set_hot(true);
    let contract = set.hot_contract();
    for e in [
        set.set_input(gain, InputData::Bytes(&[1; 4])).unwrap_err(),
        set.prepare("action", 5).unwrap_err(),
        set.evict("action", 5).unwrap_err(),
        set.warm().unwrap_err(),
    ] {
        assert!(
            e.is_wrong_state() && e.to_string().contains("refused while hot"),
            "{e}"
        );
    }
    assert!(set.prepare("nothing", 5).unwrap_err().is_not_found());
    set_prompt(&mut set, "staged ports stay open").unwrap();
    for t in 0..20 {
        tick(&mut set, "full", 5, t).unwrap();
    }
    assert_eq!(contract.changes(&set.hot_contract()), Vec::<String>::new());
    set.set_hot(false);
    set.evict("full", 5).unwrap();
    let changes = contract.changes(&set.hot_contract());
    assert_eq!(changes, ["graph 'full' had 2 variants, now 1"]);
}

#[test]
fn a_missing_variant_is_refused_before_anything_is_enqueued() {
    let mut set = one();
    let plan = set.plan("context_action").unwrap();
    let before = run(&mut one(), "full", 10, 0..2);
    let e = set.run(plan, 7).unwrap_err();
    assert_eq!(e.to_string(), "graph 'action' has no variant for key 7");
    assert_eq!(set.runs(), 0);
    assert!(set.run(PlanId(9), 5).unwrap_err().is_not_found());
    assert_eq!(
        run(&mut set, "context_action", 10, 0..2),
        before,
        "the context stage did not run"
    );
}

#[test]
fn a_stage_alone_reuses_an_old_context_but_not_a_missing_one() {
    let mut set = one();
    let (context, action) = {
        let p = set.plan("context_action").unwrap();
        let s = &set.plans()[p.0].stages;
        (s[0], s[1])
    };
    let e = set.run_stage(action, 5).unwrap_err();
    assert!(
        e.is_wrong_state() && e.to_string().contains("has never run"),
        "{e}"
    );
    set.run_stage(context, KEY_INHERIT).unwrap();
    let raw = set.port("actions_raw").unwrap();
    let mut chunks = Vec::new();
    for _ in 0..2 {
        set.run_stage(action, 5).unwrap();
        let mut out = vec![0; ROWS * ROW_BYTES];
        set.swap_out(raw, &mut out).unwrap();
        chunks.push(out);
    }
    assert_ne!(chunks[0][..16], chunks[1][..16], "noise moves on");
    assert_eq!(chunks[0][16..64], chunks[1][16..64], "the context does not");
    assert!(set.run_stage(StageId(99), 5).unwrap_err().is_not_found());
}

#[test]
fn a_poisoned_set_refuses_everything_and_says_why() {
    let mut set = one();
    set.poison("the copy failed");
    set.poison("a later reason");
    let port = set.port("bias").unwrap();
    for e in [
        set.run(PlanId(0), 5).unwrap_err(),
        set.swap_in(port, &[1]).unwrap_err(),
        set_prompt(&mut set, "x").unwrap_err(),
        set.prepare("full", 5).unwrap_err(),
        set.usable().unwrap_err(),
    ] {
        assert!(
            e.is_poisoned() && e.to_string().contains("(the copy failed): rebuild it"),
            "{e}"
        );
    }
}

#[test]
fn the_builder_refuses_windows_names_and_plans_that_do_not_hold() {
    let ctx = context(StreamOrder::Submission);
    let mut b = LiveSetBuilder::new(&ctx, "s").unwrap();
    let buffer = b.buffer("kv", Space::Device, 64, Role::STATE).unwrap();
    let foreign = ctx.alloc("kv", Space::Device, 64).unwrap();
    let text = |r: Result<(), Error>| r.unwrap_err().to_string();
    use StateClass::Continuation as C;

    assert!(
        text(b.buffer("kv", Space::Device, 4, Role::STATE).map(drop)).contains("declared twice")
    );
    assert!(text(
        b.buffer("host_state", Space::Host, 4, Role::STATE)
            .map(drop)
    )
    .contains("declared twice"));
    assert!(text(b.buffer("a:b", Space::Device, 4, Role::STATE).map(drop)).contains("':'"));
    assert!(text(
        b.buffer(&"x".repeat(97), Space::Device, 4, Role::STATE)
            .map(drop)
    )
    .contains("96"));
    assert!(
        text(b.buffer("empty", Space::Device, 0, Role::STATE).map(drop)).contains("of 0 bytes")
    );

    b.region("lo", &buffer, 0, 32, C).unwrap();
    assert!(text(b.region("lo", &buffer, 32, 4, C)).contains("declared twice"));
    assert!(text(b.region("hi", &buffer, 31, 4, C)).contains("overlap region 'lo' at 0..32"));
    assert!(
        text(b.region("hi", &buffer, 32, 33, C)).contains("32 + 33 bytes do not fit its 64 bytes")
    );
    assert!(text(b.region("hi", &buffer, usize::MAX, 2, C)).contains("do not fit"));
    assert!(text(b.region("none", &buffer, 32, 0, C)).contains("do not fit"));
    assert!(text(b.region("host_state", &buffer, 32, 4, C)).contains("declared twice"));
    assert!(text(b.region("foreign", &foreign, 0, 4, C)).contains("buffer of this live set"));

    assert!(text(b.identity("k=", "v")).contains("has '='"));
    assert!(text(b.identity("k", "a\nb")).contains("line end"));
    b.identity("k", "v").unwrap();
    assert!(text(b.identity("k", "w")).contains("declared twice"));

    let g = |b: &mut LiveSetBuilder, keys: &[u64], max, stream| {
        b.graph("g", max, 5, keys, StreamId(stream)).map(drop)
    };
    assert!(text(g(&mut b, &[1], 0, 0)).contains("default key 5 is not among"));
    assert!(text(g(&mut b, &[5, 6], 1, 0)).contains("2 keys do not fit 1 variants"));
    assert!(text(g(&mut b, &[5], 1, 3)).contains("stream 3 is not one of this set"));
    g(&mut b, &[5, 6], 0, 0).unwrap();
    assert!(text(b.plan("p", &[]).map(drop)).contains("0 stages"));
    assert!(text(b.plan("p", &[StageSpec::new("h")]).map(drop)).contains("graph 'h'"));
    assert!(text(b.plan("p", &[StageSpec::new("g").key(7)]).map(drop)).contains("key 7"));
    assert!(
        text(b.plan("p", &[StageSpec::new("g").after(&[0])]).map(drop)).contains("not earlier")
    );
    assert!(b.default_plan("p").unwrap_err().is_not_found());
    b.plan("p", &[StageSpec::new("g")]).unwrap();

    let port = |name: &str, update, shape: &[i64]| {
        PortSpec::new(
            name,
            Modality::Tensor,
            PortDType::F32,
            Layout::Flat,
            Direction::In,
            update,
            shape,
        )
    };
    assert!(text(b.port(port("x", Update::Swap, &[4])).map(drop)).contains("has no window"));
    let small = port("x", Update::Swap, &[4]).window(buffer.slice(0, 8).unwrap());
    assert!(text(b.port(small).map(drop)).contains("needs 16 bytes, its window has 8"));
    assert!(text(b.port(port("x", Update::Staged, &[0])).map(drop)).contains("dimension 0"));
    assert!(text(
        b.port(port("x", Update::Staged, &[1]).window(foreign.all()))
            .map(drop)
    )
    .contains("not one of this set"));

    let e = b.finish(Box::new(NoVerbs)).err().unwrap();
    assert_eq!(e.to_string(), "graph 'g' has no variant for key 5");
    drop((buffer, foreign));
    assert_eq!(ctx.memory().buffers, 0, "a failed build frees everything");
}

#[test]
fn classes_plans_and_the_host_state_layout_are_in_the_identity() {
    let set = one();
    let records = set.declaration().records();
    for line in [
        "revision=1",
        "plan.full=full:",
        "plan.context_action=context@0:;action:0",
        "region.kv=continuation:kv",
        "region.chunk=output:chunk",
        "region.host_state=continuation:host_state",
        "host_state_layout=1",
        "graph:context:0",
        "graph:action:1",
        "region:7:chunk:0:640:0",
        "region:9:host_state:0:128:3",
        "port:2:bias:0:0:0:0:0:0:64:3:0:64",
        "stage:0:2:",
    ] {
        assert!(
            records.iter().any(|r| r == line),
            "{line} not in\n{}",
            records.join("\n")
        );
    }
    assert_eq!(set.regions().last().unwrap().name, "host_state");
    assert_eq!(set.default_plan(), set.plan("full"));
}
