//! Stage plans by name: the registry, typed arguments, and every refusal with its own text.

use flashrt_runtime::stage_plan::{
    Arguments, Param, Stage, StagePlan, StagePlans, Value, ValueKind,
};
use flashrt_runtime::{Declaration, DeclarationBuilder, Error, StageDecl, VerbTable};

/// Graphs of the published policy, two streams.
fn export() -> DeclarationBuilder {
    let mut b = DeclarationBuilder::new();
    b.add_stream("main", 1, 0).unwrap();
    b.add_stream("side", 4, -1).unwrap();
    for (i, (name, stream)) in [
        ("infer", 1),
        ("decode_only", 1),
        ("context", 1),
        ("decode_rtc_prefix", 4),
        ("decode_rtc_vjp_guided", 1),
    ]
    .into_iter()
    .enumerate()
    {
        b.add_graph(name, i as u64 + 1, 0, &[0], stream).unwrap();
    }
    b
}

fn resolved(plan: &StagePlan) -> Vec<(u32, Vec<u32>)> {
    let stages = plan.resolve(export().declared()).unwrap();
    stages
        .into_iter()
        .map(|StageDecl { graph, after }| (graph, after))
        .collect()
}

fn refused(stages: Vec<Stage>, expected: &str) {
    let error = StagePlan::new("p", stages)
        .resolve(export().declared())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("declaration of stage plan 'p': {expected}")
    );
    assert_eq!(error.code(), -1);
}

fn s(name: &str) -> Stage {
    Stage::new(name, "infer")
}

#[test]
fn the_published_plans_give_their_graphs_and_dependencies() {
    let plans = StagePlans::builtin();
    let plan =
        |name, arguments: &Arguments| resolved(&plans.plan("pi05", name, arguments).unwrap());
    let none = Arguments::none();
    assert_eq!(plan("full", &none), [(0, vec![])]);
    assert_eq!(plan("context_action", &none), [(2, vec![]), (1, vec![0])]);
    let prefix = Arguments::none().with("prefix_len", 4);
    assert_eq!(
        plan("context_rtc_prefix_action", &prefix),
        [(2, vec![]), (3, vec![0])]
    );
    assert_eq!(
        plan("context_rtc_vjp_guided_action", &none),
        [(2, vec![]), (4, vec![0])]
    );
    assert_eq!(
        plans.names("pi05"),
        [
            "context_action",
            "context_rtc_prefix_action",
            "context_rtc_vjp_guided_action",
            "full"
        ]
    );
    assert_eq!(plans.names("another"), ["full"]);
}

#[test]
fn a_plan_declares_the_stages_of_the_published_example() {
    let plan = StagePlans::builtin()
        .plan("pi05", "context_action", &Arguments::none())
        .unwrap();
    let mut b = export();
    plan.declare(&mut b).unwrap();
    let verbs = VerbTable::default();
    let text = String::from_utf8(b.finish_model(verbs).unwrap().identity_bytes()).unwrap();
    assert!(text.ends_with("stage:0:2:\nstage:1:1:0\n"), "{text}");

    // A second plan does not go on top.
    let mut b = export();
    plan.declare(&mut b).unwrap();
    let error = plan.declare(&mut b).unwrap_err().to_string();
    assert!(error.ends_with("stages are declared already"), "{error}");
    assert_eq!(b.declared().stages.len(), 2);
}

#[test]
fn no_stage_is_refused() {
    refused(vec![], "it has 0 stages");
}

#[test]
fn a_stage_name_twice_is_refused() {
    refused(vec![s("a"), s("b"), s("a")], "stage 'a' is there twice");
}

#[test]
fn an_unknown_graph_is_refused() {
    refused(
        vec![s("a"), Stage::new("b", "decode")],
        "stage 'b' replays graph 'decode', which is not exported: there are 'infer', 'decode_only', 'context', \
         'decode_rtc_prefix', 'decode_rtc_vjp_guided'",
    );
    let error = StagePlan::new("p", vec![s("a")])
        .resolve(&Declaration::<String>::default())
        .unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("which is not exported: there are none"),
        "{error}"
    );
}

#[test]
fn a_graph_name_that_is_exported_twice_is_refused() {
    let mut b = export();
    b.add_graph("infer", 9, 0, &[], 1).unwrap();
    let error = StagePlan::new("p", vec![s("a")])
        .resolve(b.declared())
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("stage 'a' replays graph 'infer', which is exported twice, as 0 and 5"),
        "{error}"
    );
}

#[test]
fn an_unknown_stream_is_refused() {
    refused(
        vec![s("a").on("fast")],
        "stage 'a' is for stream 'fast', which is not exported: there are 'main', 'side'",
    );
}

#[test]
fn a_graph_on_another_stream_is_refused() {
    refused(
        vec![s("a").on("side")],
        "stage 'a' is for stream 'side' (4), its graph 'infer' is on stream 1",
    );
    assert_eq!(
        resolved(&StagePlan::new("p", vec![s("a").on("main")])),
        [(0, vec![])]
    );
    let side = Stage::new("a", "decode_rtc_prefix").on("side");
    assert_eq!(resolved(&StagePlan::new("p", vec![side])), [(3, vec![])]);
}

#[test]
fn a_dependency_on_an_unknown_stage_is_refused() {
    refused(
        vec![s("a"), s("b").after(&["a", "c"])],
        "stage 'b' depends on stage 'c', which is not in the plan",
    );
}

#[test]
fn a_dependency_on_a_later_stage_is_refused() {
    refused(
        vec![s("a").after(&["b"]), s("b")],
        "stage 'a' depends on stage 'b', which comes later",
    );
}

#[test]
fn a_dependency_on_itself_is_refused() {
    refused(
        vec![s("a"), s("b").after(&["b"])],
        "stage 'b' depends on itself",
    );
}

#[test]
fn a_circle_is_refused_with_its_stages() {
    refused(
        vec![s("a").after(&["b"]), s("b").after(&["a"])],
        "stages depend on each other: 'a' on 'b' on 'a'",
    );
    refused(
        vec![
            s("a").after(&["c"]),
            s("b").after(&["a"]),
            s("c").after(&["d"]),
            s("d").after(&["b"]),
        ],
        "stages depend on each other: 'a' on 'c' on 'd' on 'b' on 'a'",
    );
    // A circle that the stage is not part of is told where it closes.
    refused(
        vec![
            s("a").after(&["b"]),
            s("b").after(&["c"]),
            s("c").after(&["b"]),
        ],
        "stage 'a' depends on stage 'b', which comes later",
    );
}

#[test]
fn an_unknown_plan_is_refused_with_the_known_ones() {
    let plans = StagePlans::builtin();
    let error = plans
        .plan("other", "context_action", &Arguments::none())
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "declaration of stage plan 'context_action': model 'other' has no such plan: there are 'full'"
    );
}

#[test]
fn arguments_are_refused_by_name() {
    let plans = StagePlans::builtin();
    let text = |name, arguments: Arguments| {
        let error = plans
            .plan("pi05", name, &arguments)
            .unwrap_err()
            .to_string();
        error
            .strip_prefix(&format!("declaration of stage plan '{name}': "))
            .unwrap()
            .to_owned()
    };
    let prefix = "context_rtc_prefix_action";
    assert_eq!(
        text(prefix, Arguments::none()),
        "argument 'prefix_len' is missing, expected a whole number"
    );
    assert_eq!(
        text(
            prefix,
            Arguments::none().with("prefix_len", 4).with("chunk", 5)
        ),
        "it takes no argument 'chunk': it takes 'prefix_len'"
    );
    assert_eq!(
        text(prefix, Arguments::none().with("prefix_len", 4.0)),
        "argument 'prefix_len' is 4.000000, expected a whole number"
    );
    assert_eq!(
        text(
            prefix,
            Arguments::none().with("prefix_len", "four".to_owned())
        ),
        "argument 'prefix_len' is four, expected a whole number"
    );
    assert_eq!(
        text(prefix, Arguments::none().with("prefix_len", -1)),
        "prefix_len is -1, expected 0 or more"
    );
    assert_eq!(
        text("full", Arguments::none().with("x", true)),
        "it takes no argument 'x': it takes none"
    );
}

/// A flow cut into equal pieces, as a customer registers it.
fn chunked(plans: &mut StagePlans) {
    let params = vec![
        Param::required("chunk_size", ValueKind::Int),
        Param::optional("total_steps", 10),
        Param::optional("scale", 1.5),
    ];
    let make = |a: &Arguments| {
        let (chunk, total) = (
            *a.int("chunk_size").unwrap(),
            *a.int("total_steps").unwrap(),
        );
        assert!(a.float("scale").is_some() && a.int("scale").is_none() && a.text("none").is_none());
        let mut stages = vec![Stage::new("context", "context")];
        for i in 0..total / chunk {
            let before = stages.last().unwrap().name.clone();
            stages.push(Stage::new(&format!("denoise_{i}"), "decode_only").after(&[&before]));
        }
        Ok(stages)
    };
    plans
        .register_factory(Some("my"), "denoise_chunks", params, make)
        .unwrap();
}

#[test]
fn a_factory_gets_checked_arguments_with_defaults() {
    let mut plans = StagePlans::empty();
    chunked(&mut plans);
    let plan = plans
        .plan(
            "my",
            "denoise_chunks",
            &Arguments::none().with("chunk_size", 5),
        )
        .unwrap();
    assert_eq!(resolved(&plan), [(2, vec![]), (1, vec![0]), (1, vec![1])]);
    // A whole number serves as a number.
    let more = Arguments::none()
        .with("chunk_size", 5)
        .with("total_steps", 15)
        .with("scale", 2);
    let plan = plans.plan("my", "denoise_chunks", &more).unwrap();
    assert_eq!(plan.stages.len(), 4);
    assert_eq!(plan.arguments.float("scale"), Some(&2.0));
}

#[test]
fn the_identity_pairs_have_the_name_and_every_argument() {
    let mut plans = StagePlans::empty();
    chunked(&mut plans);
    let plan = plans
        .plan(
            "my",
            "denoise_chunks",
            &Arguments::none().with("chunk_size", 5),
        )
        .unwrap();
    let pairs = plan.identity_pairs();
    let pairs: Vec<(&str, &str)> = pairs
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    assert_eq!(
        pairs,
        [
            ("stage_plan", "denoise_chunks"),
            ("stage_plan.chunk_size", "5"),
            ("stage_plan.scale", "1.500000"),
            ("stage_plan.total_steps", "10")
        ]
    );
    let full = StagePlans::builtin()
        .plan("any", "full", &Arguments::none())
        .unwrap();
    assert_eq!(
        full.identity_pairs(),
        [("stage_plan".to_owned(), "full".to_owned())]
    );
    assert_eq!(Value::from(false).to_string(), "false");
}

#[test]
fn a_plan_of_the_model_goes_before_one_for_all() {
    let mut plans = StagePlans::builtin();
    plans
        .register(
            Some("mine"),
            StagePlan::new("full", vec![Stage::new("all", "context")]),
        )
        .unwrap();
    let graph = |model| {
        plans
            .plan(model, "full", &Arguments::none())
            .unwrap()
            .stages[0]
            .graph
            .clone()
    };
    assert_eq!(graph("mine"), "context");
    assert_eq!(graph("pi05"), "infer");
    assert_eq!(plans.names("mine"), ["full"]);
}

#[test]
fn a_name_is_registered_once_for_each_model() {
    let mut plans = StagePlans::builtin();
    let plan = || StagePlan::new("context_action", vec![s("a")]);
    let taken = plans.register(Some("pi05"), plan());
    assert!(matches!(
        taken,
        Err(Error::Duplicate {
            kind: "stage plan",
            ..
        })
    ));
    plans.register(Some("other"), plan()).unwrap();
    plans.register(None, plan()).unwrap();
    assert!(matches!(
        plans.register(None, plan()),
        Err(Error::Duplicate { .. })
    ));
    let twice = vec![Param::optional("n", 1), Param::optional("n", 2)];
    let error = plans
        .register_factory(None, "f", twice, |_| Ok(vec![]))
        .unwrap_err();
    assert!(
        error.to_string().ends_with("parameter 'n' is there twice"),
        "{error}"
    );
}

#[test]
fn a_failing_factory_is_told() {
    let mut plans = StagePlans::empty();
    let make = |_: &Arguments| Err(Error::Unsupported { verb: "cutting" });
    plans.register_factory(None, "f", vec![], make).unwrap();
    let failed = plans.plan("m", "f", &Arguments::none());
    assert!(matches!(
        failed,
        Err(Error::Unsupported { verb: "cutting" })
    ));
}
