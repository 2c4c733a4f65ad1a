//! Wrapping an export: each condition by itself, and that a refusal retains nothing.

mod runtime_support;

use flashrt_capi::abi::*;
use flashrt_capi::*;
use runtime_support::*;
use std::ffi::{c_void, CStr};
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// An export with the two graphs, whose references are counted by hand.
struct Fixture {
    exp: frt_runtime_export_v1,
    ports: Vec<frt_runtime_port_desc>,
    stages: Vec<frt_runtime_stage_desc>,
    verbs: frt_model_runtime_verbs,
    refs: Arc<Counted>,
    wrapper: Arc<Counted>,
    real: *mut frt_runtime_export_v1,
}

static SHAPE: [i64; 2] = [2, -1];
static AFTER: [u32; 2] = [0, 0];

fn desc(name: &'static CStr, direction: u32, update: u32) -> frt_runtime_port_desc {
    frt_runtime_port_desc {
        name: name.as_ptr(),
        modality: 0,
        dtype: 1,
        layout: 0,
        direction,
        update,
        required: 0,
        shape: SHAPE.as_ptr(),
        rank: 2,
        cadence_hint_hz: 0,
        buffer: fake(0x30),
        offset: 1,
        bytes: 2,
    }
}

fn stage(graph: u32, n_after: u32) -> frt_runtime_stage_desc {
    frt_runtime_stage_desc {
        graph,
        n_after,
        after: AFTER.as_ptr(),
    }
}

impl Fixture {
    fn new() -> Fixture {
        let b = Build::new();
        b.graph("a", 0x10, &[0], 0);
        b.graph("b", 0x20, &[0], 0);
        let real = b.finish();
        let refs = Arc::new(Counted::default());
        // SAFETY: one reference is held.
        let mut exp = unsafe { *real };
        exp.owner = refs.pointer();
        exp.retain = Some(count_retain);
        exp.release = Some(count_release);
        Fixture {
            exp,
            ports: vec![desc(c"in", 0, 1), desc(c"out", 1, 0)],
            stages: vec![stage(1, 0), stage(0, 1), stage(0, 2)],
            verbs: all_verbs(),
            refs,
            wrapper: Arc::default(),
            real,
        }
    }

    fn wrap(&self) -> *mut frt_model_runtime_v1 {
        self.wrap_over(&self.exp)
    }

    fn wrap_over(&self, exp: *const frt_runtime_export_v1) -> *mut frt_model_runtime_v1 {
        let (n_ports, n_stages) = (self.ports.len() as u64, self.stages.len() as u64);
        let (owner, release) = (self.wrapper.pointer(), Some(count_release as _));
        // SAFETY: live arrays as long as they say; `exp` is what the test says.
        unsafe {
            frt_model_runtime_wrap(
                exp,
                self.ports.as_ptr(),
                n_ports,
                self.stages.as_ptr(),
                n_stages,
                &self.verbs,
                fake(0x66),
                owner,
                release,
            )
        }
    }

    #[track_caller]
    fn refuses(&self, part: &str) {
        assert!(self.wrap().is_null());
        assert!(
            last_error().contains(part),
            "'{}' has no '{part}'",
            last_error()
        );
        assert_eq!(
            (self.refs.counts(), self.wrapper.counts()),
            ((0, 0), (0, 0))
        );
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        release_export(self.real);
    }
}

#[test]
fn a_null_export_is_refused() {
    let f = Fixture::new();
    assert!(f.wrap_over(null()).is_null());
    assert!(last_error().contains("it is null"), "{}", last_error());
}

#[test]
fn a_misaligned_export_is_refused() {
    let f = Fixture::new();
    assert!(f
        .wrap_over((&raw const f.exp).wrapping_byte_add(1))
        .is_null());
    assert!(last_error().contains("not aligned"), "{}", last_error());
}

#[test]
fn an_export_without_context_is_refused() {
    let mut f = Fixture::new();
    f.exp.ctx = null_mut();
    f.refuses("no context");
}

#[test]
fn the_export_of_a_metadata_model_is_refused() {
    let owner = Counted::default();
    let model = opaque_model(&owner);
    let f = Fixture::new();
    // SAFETY: one reference is held.
    assert!(f.wrap_over(unsafe { (*model).exp }).is_null());
    release_model(model);
}

#[test]
fn another_version_is_refused() {
    for version in [0, 2] {
        let mut f = Fixture::new();
        f.exp.abi_version = version;
        f.refuses(&format!("version {version}, expected 1"));
    }
}

#[test]
fn an_export_below_128_bytes_is_refused_and_a_larger_one_taken() {
    let mut f = Fixture::new();
    f.exp.struct_size = 127;
    f.refuses("127 bytes, expected at least 128");
    f.exp.struct_size = 4096;
    let model = f.wrap();
    assert!(!model.is_null(), "{}", last_error());
    release_model(model);
}

#[test]
fn an_export_without_retain_or_release_is_refused() {
    let mut f = Fixture::new();
    f.exp.retain = None;
    f.refuses("no retain or no release");
    f.exp.retain = Some(count_retain);
    f.exp.release = None;
    f.refuses("no retain or no release");
}

#[test]
fn no_stage_is_refused() {
    let mut f = Fixture::new();
    f.stages.clear();
    f.refuses("0 stages, at least 1 is needed");
}

#[test]
fn null_arrays_with_a_count_are_refused() {
    let f = Fixture::new();
    let (exp, verbs, stages) = (&raw const f.exp, &raw const f.verbs, f.stages.as_ptr());
    let check = |model: *mut frt_model_runtime_v1| {
        assert!(model.is_null());
        assert!(
            last_error().contains("its array is null, its count is"),
            "{}",
            last_error()
        );
        assert_eq!(f.refs.counts(), (0, 0));
    };
    // SAFETY: null arrays with a count are allowed and refused.
    unsafe {
        check(frt_model_runtime_wrap(
            exp,
            null(),
            2,
            stages,
            3,
            verbs,
            null_mut(),
            null_mut(),
            None,
        ));
        check(frt_model_runtime_wrap(
            exp,
            null(),
            0,
            null(),
            3,
            verbs,
            null_mut(),
            null_mut(),
            None,
        ));
    }
    let mut f = Fixture::new();
    f.ports[1].shape = null();
    f.refuses("'out': its array is null, its count is 2");
    let mut f = Fixture::new();
    f.stages[2].after = null();
    f.refuses("'2': its array is null, its count is 2");
    let mut f = Fixture::new();
    f.exp.graphs = null();
    f.refuses("graphs is null, its count is 2");
}

#[test]
fn wild_counts_are_refused_before_anything_is_read() {
    let f = Fixture::new();
    let (exp, verbs) = (&raw const f.exp, &raw const f.verbs);
    for n in [(1 << 20) + 1, u64::MAX] {
        // SAFETY: the counts are wrong on purpose: they are above the bound, so the arrays are not read.
        unsafe {
            let (ports, stages) = (f.ports.as_ptr(), f.stages.as_ptr());
            for (n_ports, n_stages) in [(n, 1), (1, n)] {
                let model = frt_model_runtime_wrap(
                    exp,
                    ports,
                    n_ports,
                    stages,
                    n_stages,
                    verbs,
                    null_mut(),
                    null_mut(),
                    None,
                );
                assert!(model.is_null());
                assert!(
                    last_error().contains(&format!("{n} entries, at most 1048576")),
                    "{}",
                    last_error()
                );
            }
        }
    }
    assert_eq!(f.refs.counts(), (0, 0));
}

#[test]
fn ports_pass_the_checks_of_the_builder() {
    let with = |change: fn(&mut frt_runtime_port_desc), part: &str| {
        let mut f = Fixture::new();
        change(&mut f.ports[1]);
        f.refuses(part);
    };
    with(|p| p.name = null(), "its name is null");
    with(|p| p.name = c"".as_ptr(), "its name is empty");
    with(|p| p.direction = 2, "direction 2, expected 0 or 1");
    with(|p| p.update = 3, "update class 3, expected 0, 1 or 2");
    with(|p| p.rank = u32::MAX, "4294967295 entries, at most");
}

#[test]
fn staged_ports_need_their_verb() {
    let mut f = Fixture::new();
    f.verbs.set_input = None;
    f.refuses("'in': it is STAGED, but there is no set_input");
    let mut f = Fixture::new();
    f.ports[1].update = 1;
    f.verbs.get_output = None;
    f.refuses("'out': it is STAGED, but there is no get_output");
    let mut f = Fixture::new();
    f.verbs.struct_size = 47;
    f.refuses("there is no set_input");
}

#[test]
fn a_stage_needs_its_graph_and_earlier_stages() {
    let mut f = Fixture::new();
    f.stages[0].graph = 2;
    f.refuses("graph 2 of 2 does not exist");
    let mut f = Fixture::new();
    f.stages[0].n_after = 1;
    f.refuses("'0': it depends on stage 0, which is not earlier");
}

#[test]
fn everything_is_copied_and_one_reference_is_taken() {
    let mut f = Fixture::new();
    let mut name = *b"in\0";
    f.ports[0].name = name.as_ptr().cast();
    let model = f.wrap();
    assert!(!model.is_null(), "{}", last_error());
    assert_eq!((f.refs.counts(), f.wrapper.counts()), ((1, 0), (0, 0)));
    name = *b"XX\0";
    f.ports[0].update = 9;
    f.stages[1].graph = 9;
    // SAFETY: one reference is held.
    let m = unsafe { &*model };
    assert_eq!(
        (m.abi_version, m.struct_size, m.exp),
        (1, 136, &raw const f.exp)
    );
    assert_eq!(m.self_, fake(0x66));
    let ports = slice(m.ports, m.n_ports);
    assert_eq!(
        [text_at(ports[0].name), text_at(ports[1].name)],
        ["in", "out"]
    );
    assert_eq!(
        (ports[0].update, ports[0].buffer.addr(), ports[0].bytes),
        (1, 0x30, 2)
    );
    assert_eq!(slice(ports[1].shape, 2), SHAPE);
    assert_ne!(ports[1].shape, SHAPE.as_ptr());
    let stages = slice(m.stages, m.n_stages);
    assert_eq!([stages[0].graph, stages[1].graph], [1, 0]);
    // Repeated dependencies are legal.
    assert_eq!(slice(stages[2].after, 2), AFTER);
    release_model(model);
    assert_eq!((f.refs.counts(), f.wrapper.counts()), ((1, 1), (0, 1)));
    assert_eq!(name, *b"XX\0");
}

#[test]
fn identity_stays_the_exports_and_there_is_no_extension() {
    let f = Fixture::new();
    let model = f.wrap();
    // SAFETY: one reference is held.
    let exp = unsafe { (*model).exp };
    assert_eq!(identity(exp), identity(f.real));
    assert_eq!(
        identity(exp).0,
        b"frt-runtime-identity-v1\ngraph:a:0\ngraph:b:0\n"
    );
    assert_eq!(query(model, FRT_EXT_GENERIC_STAGE_PLAN_V1, 1), (-3, NO_OUT));
    assert_eq!(query(model, FRT_EXT_GENERIC_STAGE_PLAN_V1, 0), (-1, NO_OUT));
    release_model(model);
}

#[test]
fn the_wrapper_goes_before_the_export() {
    static ORDER: std::sync::Mutex<Vec<&str>> = std::sync::Mutex::new(Vec::new());
    unsafe extern "C" fn nothing(_: *mut c_void) {}
    unsafe extern "C" fn export_gone(_: *mut c_void) {
        ORDER.lock().unwrap().push("export");
    }
    unsafe extern "C" fn wrapper_gone(_: *mut c_void) {
        ORDER.lock().unwrap().push("wrapper");
    }
    let mut f = Fixture::new();
    f.exp.retain = Some(nothing);
    f.exp.release = Some(export_gone);
    // SAFETY: live arrays as long as they say.
    let model = unsafe {
        let (stages, verbs) = (f.stages.as_ptr(), &raw const f.verbs);
        frt_model_runtime_wrap(
            &f.exp,
            null(),
            0,
            stages,
            1,
            verbs,
            null_mut(),
            null_mut(),
            Some(wrapper_gone),
        )
    };
    release_model(model);
    assert_eq!(*ORDER.lock().unwrap(), ["wrapper", "export"]);
}
