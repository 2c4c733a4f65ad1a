//! Every rule of the declaring calls: what is refused with -1, and what is let through.

mod runtime_support;

use flashrt_capi::abi::*;
use flashrt_capi::*;
use runtime_support::*;
use std::ptr::{null, null_mut};

/// The call failed, and says why with `part`.
fn refused(code: i32, part: &str) {
    assert_eq!(code, -1);
    assert!(
        last_error().contains(part),
        "'{}' has no '{part}'",
        last_error()
    );
}

/// Nothing was declared by the refused calls: the identity is the header alone.
fn is_untouched(b: Build) {
    let exp = b.finish();
    assert!(!exp.is_null(), "{}", last_error());
    assert_eq!(identity(exp).0, b"frt-runtime-identity-v1\n");
    release_export(exp);
}

#[test]
fn a_null_context_gives_no_builder() {
    assert!(frt_runtime_builder_create(null_mut()).is_null());
    assert_eq!(
        last_error(),
        "frt_runtime_builder_create: the context is null"
    );
}

#[test]
fn every_call_refuses_a_null_or_finished_builder() {
    let dead = Build::new();
    release_export(dead.finish());
    for b in [Build(null_mut()), dead, Build(fake(0x1000)), Build(fake(7))] {
        refused(b.stream("s", 0, 0, 0), "runtime builder");
        refused(b.graph("g", 1, &[], 0), "runtime builder");
        refused(b.buffer("b", 1, 1, 0), "runtime builder");
        refused(b.region("r", 1, 0, 1, 3), "runtime builder");
        refused(b.pair("k", "v"), "runtime builder");
        refused(b.manifest("{}"), "runtime builder");
        refused(b.port(&port("p")), "runtime builder");
        refused(b.stage(0, &[]), "runtime builder");
        refused(b.generic("s", 1, 0, &[]), "runtime builder");
        refused(b.runner(), "runtime builder");
        assert!(b.finish().is_null());
        assert!(b.finish_model(&all_verbs()).is_null());
        b.destroy();
    }
}

#[test]
fn a_null_name_is_refused_everywhere() {
    let b = Build::new();
    // SAFETY: null names are allowed and refused.
    unsafe {
        refused(
            frt_runtime_builder_add_stream(b.0, null(), 0, 0, null_mut()),
            "name is null",
        );
        refused(
            frt_runtime_builder_add_graph(b.0, null(), fake(1), 0, null(), 0, 0),
            "name is null",
        );
        refused(
            frt_runtime_builder_add_buffer(b.0, null(), fake(1), 1, 0),
            "name is null",
        );
        refused(
            frt_runtime_builder_add_region(b.0, null(), fake(1), 0, 1, 3),
            "name is null",
        );
        refused(
            frt_runtime_builder_add_identity(b.0, null(), c"v".as_ptr()),
            "key is null",
        );
        refused(
            frt_runtime_builder_add_identity(b.0, c"k".as_ptr(), null()),
            "value is null",
        );
        refused(
            frt_runtime_builder_set_manifest(b.0, null()),
            "manifest is null",
        );
        refused(
            frt_runtime_builder_add_port(
                b.0,
                null(),
                0,
                0,
                0,
                0,
                0,
                0,
                null(),
                0,
                0,
                null_mut(),
                0,
                0,
            ),
            "name is null",
        );
        refused(
            frt_runtime_builder_add_generic_stage(b.0, null(), 1, 0, null(), 0),
            "name is null",
        );
    }
    is_untouched(b);
}

#[test]
fn a_negative_stream_id_is_refused() {
    let b = Build::new();
    refused(b.stream("s", -1, 0, 0), "stream id -1 is negative");
    is_untouched(b);
}

#[test]
fn streams_may_repeat() {
    let b = Build::new();
    assert_eq!(b.stream("s", 0, 0, 0), 0);
    assert_eq!(b.stream("s", 0, 5, 0), 0);
    is_untouched(b);
}

#[test]
fn a_graph_needs_a_handle_and_keys_where_it_counts_them() {
    let b = Build::new();
    refused(b.graph("g", 0, &[], 0), "the graph is null");
    // SAFETY: a null array with a count is allowed and refused.
    unsafe {
        let add = |n| frt_runtime_builder_add_graph(b.0, c"g".as_ptr(), fake(1), 0, null(), n, 0);
        refused(add(3), "its array is null, its count is 3");
    }
    is_untouched(b);
}

#[test]
fn a_graph_may_have_no_name_no_key_and_any_stream() {
    let b = Build::new();
    assert_eq!(b.graph("", 1, &[], -9), 0);
    // The default key need not be among the keys.
    let keys = [8u64, 9];
    // SAFETY: the array is as long as it says.
    let code = unsafe {
        frt_runtime_builder_add_graph(b.0, c"g".as_ptr(), fake(2), 7, keys.as_ptr(), 2, 40)
    };
    assert_eq!(code, 0);
    let exp = b.finish();
    assert_eq!(
        identity(exp).0,
        b"frt-runtime-identity-v1\ngraph::-9\ngraph:g:40\n"
    );
    release_export(exp);
}

#[test]
fn a_count_beyond_the_bound_is_refused_before_the_array_is_read() {
    let b = Build::new();
    let one = [1u64];
    // SAFETY: the counts are wrong on purpose: they are above the bound, so the array is not read.
    unsafe {
        for n in [(1 << 20) + 1, u64::MAX] {
            let code =
                frt_runtime_builder_add_graph(b.0, c"g".as_ptr(), fake(1), 0, one.as_ptr(), n, 0);
            refused(code, "at most 1048576 are read");
        }
        let shape = [1i64];
        let code = frt_runtime_builder_add_port(
            b.0,
            c"p".as_ptr(),
            0,
            0,
            0,
            0,
            0,
            0,
            shape.as_ptr(),
            u32::MAX,
            0,
            null_mut(),
            0,
            0,
        );
        refused(code, "4294967295 entries");
        let after = [0u32];
        refused(
            frt_runtime_builder_add_stage(b.0, 0, after.as_ptr(), u32::MAX),
            "4294967295 entries",
        );
        let code = frt_runtime_builder_add_generic_stage(
            b.0,
            c"s".as_ptr(),
            1,
            0,
            after.as_ptr(),
            u32::MAX,
        );
        refused(code, "4294967295 entries");
        // Nor is an array that no entry can stand in.
        let odd = one.as_ptr().byte_add(1);
        refused(
            frt_runtime_builder_add_graph(b.0, c"g".as_ptr(), fake(1), 0, odd, 1, 0),
            "not aligned",
        );
    }
    is_untouched(b);
}

#[test]
fn a_buffer_needs_a_handle_and_nothing_else() {
    let b = Build::new();
    refused(b.buffer("b", 0, 1, 0), "the buffer is null");
    assert_eq!(b.buffer("b", 1, 0, 0xffff_ffff), 0);
    assert_eq!(b.buffer("b", 1, u64::MAX, 0), 0);
    is_untouched(b);
}

#[test]
fn a_region_needs_a_buffer_and_bytes() {
    let b = Build::new();
    refused(b.region("r", 0, 0, 1, 3), "the buffer is null");
    refused(b.region("r", 1, 0, 0, 3), "0 bytes");
    is_untouched(b);
}

#[test]
fn a_region_may_lie_anywhere_with_any_flags() {
    let b = Build::new();
    assert_eq!(b.region("", 0xdead, u64::MAX, u64::MAX, u32::MAX), 0);
    let exp = b.finish();
    let expected = format!(
        "frt-runtime-identity-v1\nregion:0::{0}:{0}:{1}\n",
        u64::MAX,
        u32::MAX
    );
    assert_eq!(identity(exp).0, expected.as_bytes());
    release_export(exp);
}

#[test]
fn pairs_are_not_escaped() {
    let b = Build::new();
    for (key, value) in [("", ""), ("a=b", "c\nd"), ("a=b", "again")] {
        assert_eq!(b.pair(key, value), 0);
    }
    assert_eq!(b.pair(b"\xff".as_slice(), b"\xc0\x80".as_slice()), 0);
    let exp = b.finish();
    assert_eq!(
        identity(exp).0,
        b"frt-runtime-identity-v1\n=\na=b=c\nd\na=b=again\n\xff=\xc0\x80\n"
    );
    release_export(exp);
}

#[test]
fn the_last_manifest_wins_and_need_not_be_json() {
    let b = Build::new();
    assert_eq!(b.manifest("{}"), 0);
    assert_eq!(b.manifest("not json"), 0);
    let exp = b.finish();
    // SAFETY: one reference is held.
    assert_eq!(text_at(unsafe { (*exp).manifest_json }), "not json");
    release_export(exp);

    let exp = Build::new().finish();
    // SAFETY: one reference is held.
    assert!(unsafe { (*exp).manifest_json }.is_null());
    release_export(exp);
}

#[test]
fn a_port_has_a_name_a_direction_and_an_update_class() {
    let b = Build::new();
    refused(b.port(&port("")), "its name is empty");
    refused(b.port(&port("p").way(2, 0)), "direction 2, expected 0 or 1");
    refused(
        b.port(&port("p").way(0, 3)),
        "update class 3, expected 0, 1 or 2",
    );
    refused(
        b.port(&port("p").way(u32::MAX, u32::MAX)),
        "direction 4294967295",
    );
    is_untouched(b);
}

#[test]
fn a_port_has_a_shape_where_it_has_a_rank() {
    let b = Build::new();
    let add = |rank| {
        // SAFETY: a null shape is allowed; with a rank it is refused.
        unsafe {
            frt_runtime_builder_add_port(
                b.0,
                c"p".as_ptr(),
                0,
                0,
                0,
                0,
                2,
                0,
                null(),
                rank,
                0,
                null_mut(),
                0,
                0,
            )
        }
    };
    refused(add(1), "its array is null, its count is 1");
    assert_eq!(add(0), 0);
    b.destroy();
}

#[test]
fn unknown_numbers_of_a_port_go_through() {
    let b = Build::new();
    let mut p = port("p")
        .codes(99, 98, 97, 0, 0)
        .shape(&[i64::MIN, 0])
        .window(0xdead, u64::MAX, 1);
    p.required = 7;
    assert_eq!(b.port(&p), 0);
    assert_eq!(b.port(&p), 0);
    assert_eq!(b.graph("g", 1, &[], 0), 0);
    assert_eq!(b.stage(0, &[]), 0);
    let model = b.finish_model(&NO_VERBS);
    let line = format!("p:99:98:97:0:0:7:{},0:-1:{}:1\n", i64::MIN, u64::MAX);
    let expected =
        format!("frt-runtime-identity-v1\ngraph:g:0\nport:0:{line}port:1:{line}stage:0:0:\n");
    // SAFETY: one reference is held.
    assert_eq!(identity(unsafe { (*model).exp }).0, expected.as_bytes());
    release_model(model);
}

#[test]
fn a_graph_stage_needs_its_graph_and_earlier_stages() {
    let b = Build::new();
    refused(b.stage(0, &[]), "graph 0 of 0 does not exist");
    b.graph("g", 1, &[], 0);
    refused(b.stage(1, &[]), "graph 1 of 1 does not exist");
    refused(b.stage(0, &[0]), "depends on stage 0, which is not earlier");
    // SAFETY: a null array with a count is allowed and refused.
    refused(
        unsafe { frt_runtime_builder_add_stage(b.0, 0, null(), 1) },
        "its array is null, its count is 1",
    );
    assert_eq!(b.stage(0, &[]), 0);
    refused(
        b.stage(0, &[0, 1]),
        "depends on stage 1, which is not earlier",
    );
    // Not sorted, repeated.
    assert_eq!(b.stage(0, &[]), 0);
    assert_eq!(b.stage(0, &[1, 0, 1]), 0);
    b.destroy();
}

#[test]
fn graph_stages_and_a_generic_plan_exclude_each_other() {
    let b = Build::new();
    b.graph("g", 1, &[], 0);
    assert_eq!(b.stage(0, &[]), 0);
    refused(b.generic("s", 1, 0, &[]), "graph stages are present");
    refused(b.runner(), "graph stages are present");
    b.destroy();

    for with in [|b: Build| b.generic("s", 1, 0, &[]), |b: Build| b.runner()] {
        let b = Build::new();
        b.graph("g", 1, &[], 0);
        assert_eq!(with(b), 0);
        refused(b.stage(0, &[]), "a generic plan is present");
        b.destroy();
    }
}

#[test]
fn a_generic_stage_has_a_name_of_1_to_255_bytes_of_text() {
    let b = Build::new();
    refused(b.generic("", 1, 0, &[]), "0 bytes where 1 to 255");
    refused(
        b.generic("n".repeat(256), 1, 0, &[]),
        "256 bytes where 1 to 255",
    );
    assert_eq!(b.generic("n".repeat(255), 1, 0, &[]), 0);
    for bad in [
        b"a\x1fb".as_slice(),
        b"\x01",
        b"tab\t",
        b"del\x7f",
        b"line\n",
    ] {
        refused(b.generic(bad, 1, 0, &[]), "control character");
    }
    b.destroy();
}

#[test]
fn a_generic_stage_name_is_well_formed_utf8() {
    let b = Build::new();
    for bad in [
        b"\x80".as_slice(),
        b"a\xc3",
        b"\xc0\xaf",
        b"\xe0\x80\xaf",
        b"\xf0\x80\x80\xaf",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xff",
    ] {
        refused(b.generic(bad, 1, 0, &[]), "is not UTF-8 from byte");
    }
    for good in ["é", "字", "\u{10ffff}", "\u{d7ff}", "\u{80}", "a:b=c d"] {
        assert_eq!(b.generic(good, 1, 0, &[]), 0, "{good}");
    }
    b.destroy();
}

#[test]
fn a_generic_stage_has_a_known_executor() {
    let b = Build::new();
    refused(
        b.generic("s", 2, 0, &[]),
        "executor kind 2, expected 0 or 1",
    );
    refused(b.generic("s", 0, 0, &[]), "graph 0 of 0 does not exist");
    b.graph("g", 1, &[], 0);
    assert_eq!(b.generic("s", 0, 0, &[]), 0);
    assert_eq!(b.generic("o", 1, u32::MAX, &[]), 0);
    b.destroy();
}

#[test]
fn a_generic_stage_name_is_taken_once() {
    let b = Build::new();
    assert_eq!(b.generic("s", 1, 0, &[]), 0);
    refused(b.generic("s", 1, 1, &[]), "the name is taken");
    assert_eq!(b.generic("S", 1, 1, &[]), 0);
    b.destroy();
}

#[test]
fn generic_dependencies_increase_and_come_earlier() {
    let b = Build::new();
    refused(
        b.generic("a", 1, 0, &[0]),
        "depends on stage 0, which is not earlier",
    );
    for name in ["a", "b", "c"] {
        assert_eq!(b.generic(name, 1, 0, &[]), 0);
    }
    refused(
        b.generic("d", 1, 0, &[0, 0]),
        "0 then 0 are not strictly increasing",
    );
    refused(
        b.generic("d", 1, 0, &[2, 1]),
        "2 then 1 are not strictly increasing",
    );
    refused(
        b.generic("d", 1, 0, &[1, 3]),
        "depends on stage 3, which is not earlier",
    );
    // SAFETY: a null array with a count is allowed and refused.
    let code =
        unsafe { frt_runtime_builder_add_generic_stage(b.0, c"d".as_ptr(), 1, 0, null(), 2) };
    refused(code, "its array is null, its count is 2");
    assert_eq!(b.generic("d", 1, 0, &[0, 2]), 0);
    b.destroy();
}

#[test]
fn the_runner_is_set_once_and_is_not_null() {
    let b = Build::new();
    // SAFETY: a null function is allowed and refused.
    refused(
        unsafe { frt_runtime_builder_set_generic_stage_runner(b.0, null_mut(), None) },
        "the function is null",
    );
    assert_eq!(b.runner(), 0);
    refused(b.runner(), "it was set already");
    b.destroy();
}

#[test]
fn a_metadata_builder_takes_no_resources() {
    let b = Build::metadata();
    for code in [
        b.stream("s", 0, 0, 0),
        b.graph("g", 1, &[], 0),
        b.buffer("b", 1, 1, 0),
        b.region("r", 1, 0, 1, 3),
        b.stage(0, &[]),
        b.generic("s", 0, 0, &[]),
    ] {
        refused(code, "metadata builder");
    }
    assert_eq!(b.pair("k", "v"), 0);
    assert_eq!(b.manifest("{}"), 0);
    b.destroy();
}

#[test]
fn a_metadata_builder_takes_no_swap_port_and_no_window() {
    let b = Build::metadata();
    refused(b.port(&port("p")), "no SWAP port");
    for window in [(1, 0, 0), (0, 1, 0), (0, 0, 1)] {
        let p = Port {
            window,
            ..port("p").way(0, 1)
        };
        refused(b.port(&p), "no port with a window");
    }
    for update in [FRT_RT_PORT_STAGED, FRT_RT_PORT_SETUP] {
        assert_eq!(b.port(&port("p").way(0, update)), 0);
    }
    b.destroy();
}

#[test]
fn finish_with_ports_or_stages_keeps_the_builder_for_finish_model() {
    type Declare = fn(Build);
    let declare: [Declare; 4] = [
        |b| assert_eq!(b.port(&port("p")), 0),
        |b| assert_eq!(b.stage(0, &[]), 0),
        |b| assert_eq!(b.generic("s", 1, 0, &[]), 0),
        |b| assert_eq!(b.runner(), 0),
    ];
    for (i, declare) in declare.into_iter().enumerate() {
        let owner = Counted::default();
        let b = Build::new();
        b.graph("g", 1, &[], 0);
        declare(b);
        assert!(b.finish_for(&owner).is_null(), "{i}");
        assert!(
            last_error().contains("finish it as a model"),
            "{}",
            last_error()
        );
        assert_eq!(owner.counts(), (0, 0));
        // Still usable.
        match i {
            2 => assert_eq!(b.runner(), 0),
            3 => assert_eq!(b.generic("s", 1, 0, &[]), 0),
            _ => {}
        }
        let model = b.finish_model(&all_verbs());
        assert!(!model.is_null(), "{i}: {}", last_error());
        release_model(model);
        refused(b.pair("k", "v"), "runtime builder");
    }
}

#[test]
fn finish_of_a_metadata_builder_is_refused_and_destroys_it() {
    let owner = Counted::default();
    let b = Build::metadata();
    assert!(b.finish_for(&owner).is_null());
    assert!(
        last_error().contains("metadata builder"),
        "{}",
        last_error()
    );
    assert_eq!(owner.counts(), (0, 0));
    refused(b.pair("k", "v"), "no live handle");
}

#[test]
fn a_finished_builder_is_consumed() {
    let b = Build::new();
    release_export(b.finish());
    assert!(b.finish().is_null());
    refused(b.pair("k", "v"), "no live handle");
}

#[test]
fn destroy_ends_a_builder_of_either_kind() {
    for b in [Build::new(), Build::metadata()] {
        b.pair("k", "v");
        b.destroy();
        refused(b.pair("k", "v"), "no live handle");
        b.destroy();
    }
}

#[test]
fn a_text_of_a_refusal_may_hold_bytes_that_are_no_text() {
    let b = Build::new();
    refused(b.region(b"\xff\xfe".as_slice(), 1, 0, 0, 3), "0 bytes");
    assert!(last_error().contains('\u{fffd}'));
    b.destroy();
}
