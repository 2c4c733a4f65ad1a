//! An override of a foreign model that lies: null, a text that names the lie, and nothing retained.

mod runtime_support;

use flashrt_capi::abi::*;
use flashrt_capi::*;
use runtime_support::*;
use std::cell::Cell;
use std::ffi::{c_int, c_void, CString};
use std::ptr::{null, null_mut};

/// A model laid out by hand, with a generic plan that a query gives.
struct Foreign {
    model: frt_model_runtime_v1,
    exp: frt_runtime_export_v1,
    plan: frt_generic_stage_plan_ext_v1,
    answer: c_int,
    refs: Counted,
    over: Counted,
    verbs: frt_model_runtime_verbs,
}

unsafe extern "C" fn give_plan(
    rt: *const frt_model_runtime_v1,
    id: u64,
    min_version: u32,
    out: *mut *const c_void,
) -> c_int {
    // SAFETY: the model is the first field of a live `Foreign` at the address that its `self` has.
    unsafe {
        assert_eq!((id, min_version), (1, 1));
        let foreign = (*rt).self_.cast::<Foreign>();
        if (*foreign).answer == 0 {
            out.write((&raw const (*foreign).plan).cast());
        }
        (*foreign).answer
    }
}

unsafe extern "C" fn give_null(
    _: *const frt_model_runtime_v1,
    _: u64,
    _: u32,
    out: *mut *const c_void,
) -> c_int {
    // SAFETY: the caller's `out` is live.
    unsafe { out.write(null()) };
    0
}

const NO_STAGE: frt_generic_stage_desc_v1 = frt_generic_stage_desc_v1 {
    name: null(),
    executor_kind: 1,
    executor_ref: 0,
    n_after: 0,
    after: null(),
};

fn opaque(name: &'static std::ffi::CStr, after: &'static [u32]) -> frt_generic_stage_desc_v1 {
    frt_generic_stage_desc_v1 {
        name: name.as_ptr(),
        n_after: after.len() as u32,
        after: after.as_ptr(),
        ..NO_STAGE
    }
}

fn export() -> frt_runtime_export_v1 {
    frt_runtime_export_v1 {
        abi_version: 1,
        struct_size: 128,
        ctx: null_mut(),
        streams: null(),
        n_streams: 0,
        graphs: null(),
        n_graphs: 0,
        buffers: null(),
        n_buffers: 0,
        capsule_regions: null(),
        n_capsule_regions: 0,
        fingerprint: 7,
        identity: c"foreign".as_ptr(),
        manifest_json: null(),
        owner: null_mut(),
        retain: Some(count_retain),
        release: Some(count_release),
    }
}

/// Lays out a good model over `stages`, lets `change` spoil it, and overrides it.
fn with_stages(
    stages: &[frt_generic_stage_desc_v1],
    change: impl FnOnce(&mut Foreign),
    check: impl FnOnce(*mut frt_model_runtime_v1, &Foreign),
) {
    let mut foreign = Box::new(Foreign {
        model: frt_model_runtime_v1 {
            abi_version: 1,
            struct_size: 136,
            exp: null(),
            ports: null(),
            n_ports: 0,
            stages: null(),
            n_stages: 0,
            self_: null_mut(),
            verbs: all_verbs(),
            owner: null_mut(),
            retain: Some(count_retain),
            release: Some(count_release),
            query_extension: Some(give_plan),
        },
        exp: export(),
        plan: frt_generic_stage_plan_ext_v1 {
            abi_version: 1,
            struct_size: 40,
            stages: stages.as_ptr(),
            n_stages: stages.len() as u64,
            stage_self: null_mut(),
            run_opaque: Some(run_opaque),
        },
        answer: 0,
        refs: Counted::default(),
        over: Counted::default(),
        verbs: all_verbs(),
    });
    foreign.model.owner = foreign.refs.pointer();
    change(&mut foreign);
    let at = Box::into_raw(foreign);
    // SAFETY: live through the call; pointers into it are made after its last move.
    unsafe {
        (*at).model.self_ = at.cast();
        if (*at).model.exp.is_null() {
            (*at).model.exp = &raw const (*at).exp;
        } else {
            (*at).model.exp = null();
        }
        (*at).model.owner = (&raw mut (*at).refs).cast();
        let owner: *mut c_void = (&raw mut (*at).over).cast();
        let (retain, release) = (Some(count_retain as _), Some(count_release as _));
        let base = &raw const (*at).model;
        let model = frt_model_runtime_override_verbs(
            base,
            &raw const (*at).verbs,
            fake(0x99),
            owner,
            retain,
            release,
        );
        check(model, &*at);
        drop(Box::from_raw(at));
    }
}

#[track_caller]
fn refused_with(
    stages: &[frt_generic_stage_desc_v1],
    change: impl FnOnce(&mut Foreign),
    part: &str,
) {
    let place = std::panic::Location::caller();
    with_stages(stages, change, |model, foreign| {
        assert!(model.is_null(), "{place}");
        assert!(
            last_error().contains(part),
            "{place}: '{}' has no '{part}'",
            last_error()
        );
        assert!(last_error().starts_with("frt_model_runtime_override_verbs: "));
        assert_eq!(
            (foreign.refs.counts(), foreign.over.counts()),
            ((0, 0), (0, 0)),
            "{place}"
        );
    });
}

#[track_caller]
fn refused(change: impl FnOnce(&mut Foreign), part: &str) {
    refused_with(&[opaque(c"only", &[])], change, part);
}

#[test]
fn a_good_one_is_taken() {
    with_stages(
        &[opaque(c"a", &[]), opaque(c"b", &[0])],
        |_| {},
        |model, foreign| {
            assert!(!model.is_null(), "{}", last_error());
            assert_eq!(
                (foreign.refs.counts(), foreign.over.counts()),
                ((1, 0), (1, 0))
            );
            release_model(model);
            assert_eq!(
                (foreign.refs.counts(), foreign.over.counts()),
                ((1, 1), (1, 1))
            );
        },
    );
}

#[test]
fn null_and_misaligned_bases() {
    let owner = Counted::default();
    let model = graph_model(&owner);
    for base in [null(), model.cast_const().wrapping_byte_add(1)] {
        // SAFETY: null and misaligned pointers are allowed and refused.
        let over = unsafe {
            frt_model_runtime_override_verbs(base, &all_verbs(), null_mut(), null_mut(), None, None)
        };
        assert!(over.is_null());
    }
    assert!(last_error().contains("not aligned"), "{}", last_error());
    release_model(model);
}

#[test]
fn another_version_or_a_size_below_the_base() {
    refused(|f| f.model.abi_version = 0, "version 0, expected 1");
    refused(|f| f.model.abi_version = 2, "version 2, expected 1");
    refused(
        |f| f.model.struct_size = 127,
        "127 bytes, expected at least 128",
    );
    refused(
        |f| f.model.struct_size = 0,
        "0 bytes, expected at least 128",
    );
}

#[test]
fn no_export_no_retain_or_no_release() {
    // The layout helper takes any export that is not null away.
    refused(
        |f| f.model.exp = fake::<frt_runtime_export_v1>(8),
        "its export is null",
    );
    refused(|f| f.model.retain = None, "no retain or no release");
    refused(|f| f.model.release = None, "no retain or no release");
}

#[test]
fn null_arrays_with_a_count() {
    refused(
        |f| f.model.n_ports = 1,
        "ports '': its array is null, its count is 1",
    );
    refused(
        |f| f.model.n_stages = u64::MAX,
        "stages '': its array is null, its count is 18446744073709551615",
    );
    refused(
        |f| f.plan.stages = null(),
        "generic plan '': its array is null, its count is 1",
    );
}

#[test]
fn wild_counts() {
    static PORT: [u64; 9] = [0; 9];
    for n in [(1 << 20) + 1, u64::MAX] {
        let text = format!("{n} entries, at most 1048576 are read");
        refused(
            |f| {
                f.model.ports = PORT.as_ptr().cast();
                f.model.n_ports = n;
            },
            &text,
        );
        refused(
            |f| {
                f.model.stages = PORT.as_ptr().cast();
                f.model.n_stages = n;
            },
            &text,
        );
        refused(|f| f.plan.n_stages = n, &text);
    }
    let mut wild = opaque(c"a", &[0]);
    wild.n_after = u32::MAX;
    refused_with(
        &[wild],
        |_| {},
        "4294967295 entries, at most 1048576 are read",
    );
}

#[test]
fn an_odd_answer_of_the_query() {
    for code in [-1, -2, -4, 1, c_int::MIN] {
        refused(
            |f| f.answer = code,
            &format!("the query for it answers {code}, expected 0 or -3"),
        );
    }
    refused(
        |f| f.model.query_extension = Some(give_null),
        "answers 0 with the pointer 0x0",
    );
    // -3 is no plan, and there is nothing else.
    refused(|f| f.answer = -3, "neither stages nor a generic plan");
}

#[test]
fn a_plan_of_version_0_or_too_small() {
    refused(|f| f.plan.abi_version = 0, "version 0, expected at least 1");
    refused(
        |f| f.plan.struct_size = 39,
        "39 bytes, expected at least 40",
    );
    refused(|f| f.plan.struct_size = 0, "0 bytes, expected at least 40");
}

#[test]
fn a_newer_and_larger_plan_is_taken() {
    let newer = |f: &mut Foreign| {
        f.plan.abi_version = 3;
        f.plan.struct_size = 4000;
    };
    with_stages(&[opaque(c"a", &[])], newer, |model, _| {
        assert!(!model.is_null(), "{}", last_error());
        release_model(model);
    });
}

#[test]
fn a_plan_without_stages_runner_or_error_text() {
    refused(|f| f.plan.n_stages = 0, "it has 0 stages");
    refused(|f| f.plan.run_opaque = None, "it has no runner");
    refused(
        |f| f.model.verbs.last_error = None,
        "there is no last_error",
    );
    refused(|f| f.model.verbs.struct_size = 47, "there is no last_error");
}

#[test]
fn a_plan_over_a_bad_export() {
    refused(
        |f| f.exp.abi_version = 9,
        "export '': version 9, expected 1",
    );
    refused(
        |f| f.exp.struct_size = 127,
        "export '': 127 bytes, expected at least 128",
    );
    refused(
        |f| f.exp.release = None,
        "export '': it has no retain or no release",
    );
    refused(|f| f.exp.n_graphs = 2, "graphs is null, its count is 2");
}

#[test]
fn bad_names() {
    refused_with(&[NO_STAGE], |_| {}, "generic stage '0': its name is null");
    for (name, part) in [
        (c"", "0 bytes where 1 to 255"),
        (c"\xff", "is not UTF-8 from byte 0 on"),
        (c"ok\xc0\x80", "is not UTF-8 from byte 2 on"),
        (c"\xed\xa0\x80", "is not UTF-8"),
        (c"a\nb", "control character 0x0a at byte 1"),
        (c"a\x7f", "control character 0x7f at byte 1"),
    ] {
        refused_with(&[opaque(name, &[])], |_| {}, part);
    }
}

#[test]
fn an_endless_name_is_not_read_to_its_end() {
    thread_local!(static NAME: Cell<[u8; 256]> = const { Cell::new([b'x'; 256]) });
    // 256 bytes without a NUL: reading one more would be out of bounds.
    let bytes = Box::leak(Box::new(NAME.get()));
    let mut stage = opaque(c"a", &[]);
    stage.name = bytes.as_ptr().cast();
    refused_with(&[stage], |_| {}, "256 bytes where 1 to 255");
    // A longer one is not told by its length: nobody counted it.
    let longer = CString::new([b'x'; 4000]).unwrap();
    stage.name = longer.as_ptr();
    refused_with(&[stage], |_| {}, "256 bytes where 1 to 255");
    // SAFETY: leaked above, and nobody points to it any more.
    drop(unsafe { Box::from_raw(bytes) });
}

#[test]
fn duplicate_names() {
    refused_with(
        &[opaque(c"a", &[]), opaque(c"b", &[]), opaque(c"a", &[])],
        |_| {},
        "'a': the name is taken",
    );
}

#[test]
fn unknown_executors_and_graphs_that_are_not_there() {
    let kind = |executor_kind| frt_generic_stage_desc_v1 {
        executor_kind,
        ..opaque(c"a", &[])
    };
    refused_with(&[kind(2)], |_| {}, "executor kind 2, expected 0 or 1");
    refused_with(&[kind(u32::MAX)], |_| {}, "executor kind 4294967295");
    refused_with(
        &[kind(0), opaque(c"b", &[])],
        |_| {},
        "graph 0 of 0 does not exist",
    );
}

#[test]
fn a_plan_of_graphs_alone_or_with_a_graph_stage() {
    static GRAPH: frt_graphs = frt_graphs([0; 6]);
    let graph = frt_generic_stage_desc_v1 {
        executor_kind: 0,
        ..opaque(c"g", &[])
    };
    let one_graph = |f: &mut Foreign| {
        f.exp.graphs = GRAPH.0.as_ptr().cast();
        f.exp.n_graphs = 1;
    };
    refused_with(&[graph], one_graph, "it has no OPAQUE stage");
    refused_with(
        &[graph, opaque(c"b", &[])],
        one_graph,
        "'g' of the generic plan is a GRAPH stage",
    );
}

/// Room for one graph descriptor, all zero: the library does not look into it.
#[allow(non_camel_case_types)]
struct frt_graphs([u64; 6]);

#[test]
fn dependencies_on_itself_later_stages_or_out_of_order() {
    refused_with(
        &[opaque(c"a", &[0])],
        |_| {},
        "depends on stage 0, which is not earlier",
    );
    refused_with(
        &[opaque(c"a", &[]), opaque(c"b", &[1])],
        |_| {},
        "depends on stage 1, which is not earlier",
    );
    refused_with(
        &[opaque(c"a", &[u32::MAX])],
        |_| {},
        "depends on stage 4294967295",
    );
    let three = [opaque(c"a", &[]), opaque(c"b", &[]), opaque(c"c", &[1, 0])];
    refused_with(&three, |_| {}, "1 then 0 are not strictly increasing");
    let three = [opaque(c"a", &[]), opaque(c"b", &[]), opaque(c"c", &[1, 1])];
    refused_with(&three, |_| {}, "1 then 1 are not strictly increasing");
    let mut stage = opaque(c"a", &[]);
    (stage.after, stage.n_after) = (null(), 1);
    refused_with(&[stage], |_| {}, "its array is null, its count is 1");
}

struct Stages([frt_runtime_stage_desc; 2]);
// SAFETY: read only.
unsafe impl Sync for Stages {}
static ZERO: u32 = 0;
static ONE: u32 = 1;

const fn graph_stage(n_after: u32, after: *const u32) -> frt_runtime_stage_desc {
    frt_runtime_stage_desc {
        graph: 0,
        n_after,
        after,
    }
}

fn with_graph_stages(stages: &'static Stages) -> impl FnOnce(&mut Foreign) {
    |f| {
        f.model.stages = stages.0.as_ptr();
        f.model.n_stages = 2;
    }
}

#[test]
fn graph_stages_beside_a_generic_plan() {
    static BOTH: Stages = Stages([graph_stage(0, null()), graph_stage(1, &ZERO)]);
    refused(
        with_graph_stages(&BOTH),
        "both graph stages and a generic plan",
    );
}

#[test]
fn graph_stages_with_bad_dependencies() {
    static LATER: Stages = Stages([graph_stage(0, null()), graph_stage(1, &ONE)]);
    refused(
        with_graph_stages(&LATER),
        "stage '1': it depends on stage 1, which is not earlier",
    );
    static NULL: Stages = Stages([graph_stage(0, null()), graph_stage(3, null())]);
    refused(
        with_graph_stages(&NULL),
        "stage '1': its array is null, its count is 3",
    );
}

#[test]
fn ports_that_could_not_have_been_declared() {
    struct Port(frt_runtime_port_desc);
    // SAFETY: read only.
    unsafe impl Sync for Port {}
    const GOOD: frt_runtime_port_desc = frt_runtime_port_desc {
        name: c"p".as_ptr(),
        modality: 0,
        dtype: 0,
        layout: 0,
        direction: 0,
        update: 0,
        required: 0,
        shape: null(),
        rank: 0,
        cadence_hint_hz: 0,
        buffer: null_mut(),
        offset: 0,
        bytes: 0,
    };
    static NAMELESS: Port = Port(frt_runtime_port_desc {
        name: null(),
        ..GOOD
    });
    static SHAPELESS: Port = Port(frt_runtime_port_desc { rank: 2, ..GOOD });
    static SIDEWAYS: Port = Port(frt_runtime_port_desc {
        direction: 2,
        ..GOOD
    });
    static STAGED: Port = Port(frt_runtime_port_desc { update: 1, ..GOOD });
    let with = |port: &'static Port| {
        move |f: &mut Foreign| {
            f.model.ports = &port.0;
            f.model.n_ports = 1;
            f.verbs.set_input = None;
        }
    };
    refused(with(&NAMELESS), "its name is null");
    refused(with(&SHAPELESS), "'p': its array is null, its count is 2");
    refused(with(&SIDEWAYS), "direction 2, expected 0 or 1");
    refused(with(&STAGED), "it is STAGED, but there is no set_input");
}
