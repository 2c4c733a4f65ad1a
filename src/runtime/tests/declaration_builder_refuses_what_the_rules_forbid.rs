//! The construction rules, call by call, and the order of the final checks.

use flashrt_runtime::{
    DeclarationBuilder, Direction, Error, ExecutorKind, Layout, Modality, PortDType, PortDecl,
    RegionFlags, Role, Update, VerbTable,
};

fn reason(r: Result<impl Sized, Error>) -> String {
    match r {
        Ok(_) => "accepted".to_owned(),
        Err(e) => e.to_string(),
    }
}

fn port(name: &str, direction: Direction, update: Update) -> PortDecl {
    PortDecl::new(
        name,
        Modality::Tensor,
        PortDType::F32,
        Layout::Flat,
        direction,
        update,
        &[4],
    )
}

fn with_graph() -> DeclarationBuilder {
    let mut b = DeclarationBuilder::new();
    b.add_graph("g", 1, 0, &[], 0).unwrap();
    b
}

#[test]
fn null_handles_negative_streams_and_empty_regions_are_refused() {
    let mut b = DeclarationBuilder::new();
    assert!(reason(b.add_stream("s", -1, 0)).contains("stream id -1 is negative"));
    assert!(reason(b.add_graph("g", 0, 0, &[], 0)).contains("handle is null"));
    assert!(reason(b.add_buffer("b", 0, 4, Role::INPUT)).contains("handle is null"));
    assert!(reason(b.add_region("r", 0, 0, 4, RegionFlags::SNAPSHOT)).contains("handle is null"));
    assert!(reason(b.add_region("r", 1, 0, 0, RegionFlags::SNAPSHOT)).contains("0 bytes"));
    assert!(reason(b.add_port(port("", Direction::In, Update::Staged))).contains("name is empty"));
    assert_eq!(
        *b.declared(),
        Default::default(),
        "a refused call changes nothing"
    );
}

#[test]
fn what_the_interface_does_not_check_is_accepted() {
    let mut b = DeclarationBuilder::new();
    b.add_graph("", 1, 9, &[1, 2], -7).unwrap();
    b.add_graph("", 1, 9, &[], 3).unwrap();
    b.add_region("r", 99, u64::MAX, 1, RegionFlags(0xf0))
        .unwrap();
    b.add_identity("", "=\n").unwrap();
    let mut odd = port("p", Direction::Out, Update::Setup);
    odd.modality = Modality::from_code(77);
    odd.required = 5;
    b.add_port(odd).unwrap();
    b.add_stage(1, &[]).unwrap();
    let d = b
        .finish_model(VerbTable::default())
        .expect("SETUP ports need no verb");
    assert!(d
        .records()
        .contains(&"port:0:p:77:1:0:1:2:5:4:-1:0:0".to_owned()));
}

#[test]
fn metadata_builders_take_only_what_needs_no_resources() {
    let mut b = DeclarationBuilder::metadata();
    for refused in [
        reason(b.add_stream("s", 0, 0)),
        reason(b.add_graph("g", 1, 0, &[], 0)),
        reason(b.add_buffer("b", 1, 4, Role::INPUT)),
        reason(b.add_region("r", 1, 0, 4, RegionFlags::SNAPSHOT)),
        reason(b.add_stage(0, &[])),
        reason(b.add_port(port("p", Direction::In, Update::Swap))),
        reason(b.add_port(PortDecl {
            bytes: 1,
            ..port("p", Direction::In, Update::Staged)
        })),
        reason(b.add_generic_stage("s", ExecutorKind::Graph, 0, &[])),
    ] {
        assert!(refused.contains("a metadata builder takes no"), "{refused}");
    }
    assert!(reason(b.finish()).contains("no export to finish"));
    assert!(matches!(
        b.add_identity("k", "v"),
        Err(Error::BuilderConsumed)
    ));
}

#[test]
fn stages_must_name_graphs_and_stages_that_exist_already() {
    let mut b = with_graph();
    assert!(reason(b.add_stage(1, &[])).contains("graph 1 of 1"));
    assert!(reason(b.add_stage(0, &[0])).contains("depends on stage 0"));
    b.add_stage(0, &[]).unwrap();
    b.add_stage(0, &[0, 0]).unwrap();
    assert!(
        reason(b.add_generic_stage("s", ExecutorKind::Opaque, 0, &[]))
            .contains("graph stages are present")
    );
    assert!(reason(b.set_generic_stage_runner()).contains("graph stages are present"));
}

#[test]
fn generic_stages_have_strict_names_and_dependencies() {
    let mut b = with_graph();
    let mut add =
        |name: &str, kind, r, after: &[u32]| reason(b.add_generic_stage(name, kind, r, after));
    use ExecutorKind::{Graph, Opaque};
    assert!(add("", Opaque, 0, &[]).contains("0 bytes"));
    assert!(add(&"x".repeat(256), Opaque, 0, &[]).contains("256 bytes"));
    assert_eq!(add(&"x".repeat(255), Opaque, 0, &[]), "accepted");
    assert!(add("a\u{1f}", Opaque, 0, &[]).contains("control"));
    assert!(add("a\u{7f}", Opaque, 0, &[]).contains("control"));
    assert!(add("g", Graph, 1, &[]).contains("graph 1 of 1"));
    assert_eq!(add("g", Graph, 0, &[0]), "accepted");
    assert!(add("g", Opaque, 0, &[]).contains("taken"));
    assert!(add("late", Opaque, 0, &[2]).contains("not earlier"));
    assert!(add("twice", Opaque, 0, &[0, 0]).contains("strictly increasing"));
    assert!(add("down", Opaque, 0, &[1, 0]).contains("strictly increasing"));
    assert_eq!(add("ok", Opaque, u32::MAX, &[0, 1]), "accepted");
    assert!(reason(b.add_stage(0, &[])).contains("generic plan is present"));
}

#[test]
fn a_runner_alone_marks_a_generic_plan_as_present() {
    let mut b = with_graph();
    b.set_generic_stage_runner().unwrap();
    assert!(reason(b.set_generic_stage_runner()).contains("set already"));
    assert!(reason(b.add_stage(0, &[])).contains("generic plan is present"));
    let verbs = VerbTable {
        step: true,
        last_error: true,
        ..VerbTable::default()
    };
    assert!(reason(b.finish_model(verbs)).contains("0 stages"));
    assert!(reason(b.finish()).contains("finish it as a model"));
}

#[test]
fn final_checks_come_in_order_and_leave_the_builder_usable() {
    let mut b = DeclarationBuilder::new();
    b.add_port(port("in", Direction::In, Update::Staged))
        .unwrap();
    b.add_port(port("out", Direction::Out, Update::Staged))
        .unwrap();
    let mut verbs = VerbTable::default();
    assert!(reason(b.finish_model(verbs)).contains("'in': it is STAGED, but there is no set_input"));
    verbs.set_input = true;
    assert!(
        reason(b.finish_model(verbs)).contains("'out': it is STAGED, but there is no get_output")
    );
    verbs.get_output = true;
    assert!(reason(b.finish_model(verbs)).contains("neither a stage nor a step"));
    b.add_graph("g", 1, 0, &[], 0).unwrap();
    b.add_generic_stage("a", ExecutorKind::Graph, 0, &[])
        .unwrap();
    assert!(reason(b.finish_model(verbs)).contains("no OPAQUE stage"));
    b.add_generic_stage("b", ExecutorKind::Opaque, 0, &[])
        .unwrap();
    assert!(reason(b.finish_model(verbs)).contains("no runner"));
    b.set_generic_stage_runner().unwrap();
    assert!(reason(b.finish_model(verbs)).contains("no last_error"));
    verbs.last_error = true;
    let d = b.finish_model(verbs).unwrap();
    assert_eq!((d.ports.len(), d.generic_stages.len()), (2, 2));
    assert!(matches!(b.finish_model(verbs), Err(Error::BuilderConsumed)));
}

#[test]
fn a_plain_finish_with_ports_is_refused_and_a_model_finish_can_follow() {
    let mut b = with_graph();
    b.add_port(port("p", Direction::In, Update::Setup)).unwrap();
    assert!(reason(b.finish()).contains("finish it as a model"));
    b.add_stage(0, &[]).unwrap();
    b.set_manifest("{}").unwrap();
    b.set_manifest("{\"v\":2}").unwrap();
    let d = b.finish_model(VerbTable::default()).unwrap();
    assert_eq!(
        d.manifest.as_deref(),
        Some("{\"v\":2}"),
        "the last manifest wins"
    );
}
