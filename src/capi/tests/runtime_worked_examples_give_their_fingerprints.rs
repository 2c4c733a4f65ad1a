//! The published examples, driven through the C functions, give the published bytes and fingerprints.

mod runtime_support;

use flashrt_capi::abi::*;
use flashrt_capi::frt_runtime_fingerprint;
use runtime_support::*;

const BOTH: u32 = FRT_RT_REGION_SNAPSHOT | FRT_RT_REGION_RESTORE;

fn agrees(exp: *const frt_runtime_export_v1, expected: &[u8], fingerprint: u64) {
    let (text, hash) = identity(exp);
    assert_eq!(
        String::from_utf8_lossy(&text),
        String::from_utf8_lossy(expected)
    );
    assert_eq!(text, expected);
    assert_eq!(hash, fingerprint, "{hash:016x}");
    // SAFETY: the pointer and the length are those of a live vector.
    assert_eq!(
        unsafe { frt_runtime_fingerprint(text.as_ptr().cast(), text.len()) },
        fingerprint
    );
}

fn model_agrees(model: *mut frt_model_runtime_v1, expected: &[u8], fingerprint: u64) {
    assert!(!model.is_null(), "{}", last_error());
    // SAFETY: one reference is held.
    agrees(unsafe { (*model).exp }, expected, fingerprint);
    release_model(model);
}

#[test]
fn a_two_stage_model() {
    let b = Build::new();
    b.pair("model", "unit");
    b.graph("encode", 0xa0, &[0], 0);
    b.graph("decode", 0xa1, &[0], 0);
    b.buffer("out", 0xb0, 4096, FRT_RT_ROLE_OUTPUT);
    let images = port("images")
        .codes(1, 3, 2, 0, 1)
        .required()
        .shape(&[3, 224, 224, 3]);
    assert_eq!(b.port(&images), 0);
    let actions = port("actions")
        .codes(4, 3, 0, 1, 1)
        .shape(&[50, 32])
        .window(0xb0, 0, 3200);
    assert_eq!(b.port(&actions), 0);
    assert_eq!(b.stage(0, &[]), 0);
    assert_eq!(b.stage(1, &[0]), 0);
    let expected = b"frt-runtime-identity-v1\nmodel=unit\ngraph:encode:0\ngraph:decode:0\n\
        port:0:images:1:3:2:0:1:1:3,224,224,3:-1:0:0\nport:1:actions:4:3:0:1:1:0:50,32:0:0:3200\n\
        stage:0:0:\nstage:1:1:0\n";
    model_agrees(b.finish_model(&all_verbs()), expected, 0xd1393a80cdef15b3);
}

#[test]
fn b_plain_export_with_two_regions() {
    let b = Build::new();
    b.pair("model", "trivial");
    b.pair("quant", "none");
    b.stream("main", 1, 0, 0x5);
    b.graph("copy", 0xa0, &[0], 1);
    b.buffer("a", 0xb0, 4096, FRT_RT_ROLE_STATE);
    b.buffer("b", 0xb1, 4096, FRT_RT_ROLE_STATE);
    assert_eq!(b.region("state_a", 0xb0, 0, 4096, BOTH), 0);
    assert_eq!(b.region("state_b", 0xb1, 0, 4096, BOTH), 0);
    let exp = b.finish();
    assert!(!exp.is_null(), "{}", last_error());
    let expected = b"frt-runtime-identity-v1\nmodel=trivial\nquant=none\ngraph:copy:1\n\
        region:0:state_a:0:4096:3\nregion:1:state_b:0:4096:3\n";
    agrees(exp, expected, 0x62018b7dcf0c105e);
    release_export(exp);
}

#[test]
fn c_metadata_builder_with_an_opaque_plan() {
    let b = Build::metadata();
    b.pair("provider", "fixture");
    assert_eq!(
        b.port(&port("prompt").codes(2, 0, 0, 0, 1).required().shape(&[-1])),
        0
    );
    assert_eq!(b.port(&port("text").codes(2, 0, 0, 1, 1).shape(&[-1])), 0);
    assert_eq!(b.generic("prefill:main", 1, 91, &[]), 0);
    assert_eq!(b.generic("阶段", 1, 113, &[0]), 0);
    assert_eq!(b.generic("emit", 1, 7, &[0, 1]), 0);
    assert_eq!(b.runner(), 0);
    let expected =
        "frt-runtime-identity-v1\nprovider=fixture\nport:0:prompt:2:0:0:0:1:1:-1:-1:0:0\n\
        port:1:text:2:0:0:1:1:0:-1:-1:0:0\ngstage-v1:0:12:prefill:main:1:91:0:\n\
        gstage-v1:1:6:阶段:1:113:1:0\ngstage-v1:2:4:emit:1:7:2:0,1\n";
    model_agrees(
        b.finish_model(&all_verbs()),
        expected.as_bytes(),
        0x70a152f17f4e7dd6,
    );
}

#[test]
fn d_pi05_with_context_and_action() {
    let b = Build::new();
    for (key, value) in [
        ("model", "pi05"),
        ("producer", "native"),
        ("precision", "bf16"),
        ("stage_plan", "context_action"),
    ] {
        b.pair(key, value);
    }
    for (i, name) in ["infer", "decode_only", "context"].into_iter().enumerate() {
        b.graph(name, 0xa0 + i, &[0], 1);
    }
    b.buffer("images", 0xb0, 602_112, FRT_RT_ROLE_INPUT);
    b.buffer("noise", 0xb1, 640, FRT_RT_ROLE_INPUT | FRT_RT_ROLE_OUTPUT);
    assert_eq!(b.region("rollout_boundary", 0xb1, 0, 640, BOTH), 0);
    for p in [
        port("prompt").codes(2, 0, 0, 0, 1).required().shape(&[-1]),
        port("state").codes(3, 1, 0, 0, 1).required().shape(&[8]),
        port("images")
            .codes(1, 3, 2, 0, 1)
            .required()
            .shape(&[2, 224, 224, 3])
            .window(0xb0, 0, 602_112),
        port("noise")
            .codes(0, 3, 0, 0, 0)
            .shape(&[10, 32])
            .window(0xb1, 0, 640),
        port("actions")
            .codes(4, 1, 0, 1, 1)
            .shape(&[10, 7])
            .window(0, 0, 280),
        port("actions_raw")
            .codes(0, 3, 0, 1, 0)
            .shape(&[10, 32])
            .window(0xb1, 0, 640),
    ] {
        assert_eq!(b.port(&p), 0, "{}", last_error());
    }
    assert_eq!(b.stage(2, &[]), 0);
    assert_eq!(b.stage(1, &[0]), 0);
    let expected = b"frt-runtime-identity-v1\nmodel=pi05\nproducer=native\nprecision=bf16\n\
        stage_plan=context_action\ngraph:infer:1\ngraph:decode_only:1\ngraph:context:1\n\
        region:0:rollout_boundary:0:640:3\nport:0:prompt:2:0:0:0:1:1:-1:-1:0:0\n\
        port:1:state:3:1:0:0:1:1:8:-1:0:0\nport:2:images:1:3:2:0:1:1:2,224,224,3:0:0:602112\n\
        port:3:noise:0:3:0:0:0:0:10,32:1:0:640\nport:4:actions:4:1:0:1:1:0:10,7:-1:0:280\n\
        port:5:actions_raw:0:3:0:1:0:0:10,32:1:0:640\nstage:0:2:\nstage:1:1:0\n";
    model_agrees(b.finish_model(&all_verbs()), expected, 0xb945e2db0f975ab4);
}

#[test]
fn e_step_only_over_no_resources() {
    let b = Build::metadata();
    b.pair("provider", "step");
    let expected = b"frt-runtime-identity-v1\nprovider=step\n";
    model_agrees(b.finish_model(&all_verbs()), expected, 0x4763a0bc8c01be17);
}

#[test]
fn f_odd_values() {
    let b = Build::new();
    b.pair("k", "v");
    b.graph("g", 0xa0, &[], -3);
    // Ports may come before the buffers that they are bound to.
    assert_eq!(b.port(&port("x").window(0xdead, 8, 16)), 0);
    assert_eq!(b.port(&port("scalar").shape(&[]).window(0xb0, 0, 4)), 0);
    b.buffer("late", 0xb0, 4, 0);
    b.stage(0, &[]);
    let expected = b"frt-runtime-identity-v1\nk=v\ngraph:g:-3\nport:0:x:0:1:0:0:0:0:4:-1:8:16\n\
        port:1:scalar:0:1:0:0:0:0::0:0:4\nstage:0:0:\n";
    model_agrees(b.finish_model(&NO_VERBS), expected, 0xbbc2ea915302d822);
}

#[test]
fn g_long_region_and_port_names_are_cut_at_191_bytes() {
    let (region, name) = ("r".repeat(200), "p".repeat(200));
    let b = Build::new();
    b.pair("k", "v");
    b.graph("g", 0xa0, &[0], 0);
    b.buffer("io", 0xb0, 64, 0);
    assert_eq!(b.region(&region, 0xb0, 0, 16, BOTH), 0);
    assert_eq!(b.port(&port(&name).window(0xb0, 0, 16)), 0);
    b.stage(0, &[]);
    let mut expected = b"frt-runtime-identity-v1\nk=v\ngraph:g:0\n".to_vec();
    expected.extend_from_slice(&format!("region:0:{region}").as_bytes()[..191]);
    expected.extend_from_slice(&format!("port:0:{name}").as_bytes()[..191]);
    expected.extend_from_slice(b"4:0:0:16\nstage:0:0:\n");
    let model = b.finish_model(&NO_VERBS);
    assert!(!model.is_null());
    // The cut is in the identity only.
    // SAFETY: one reference is held.
    let (exp, ports) = unsafe { (&*(*model).exp, slice((*model).ports, 1)) };
    assert_eq!(text_at(slice(exp.capsule_regions, 1)[0].name), region);
    assert_eq!(text_at(ports[0].name), name);
    model_agrees(model, &expected, 0x383148499d913c6a);
}

#[test]
fn h_repeated_dependencies_of_graph_stages() {
    let b = Build::new();
    b.graph("g", 0xa0, &[0], 0);
    b.graph("h", 0xa1, &[0], 0);
    assert_eq!(b.stage(0, &[]), 0);
    assert_eq!(b.stage(1, &[0, 0]), 0);
    let expected = b"frt-runtime-identity-v1\ngraph:g:0\ngraph:h:0\nstage:0:0:\nstage:1:1:0,0\n";
    model_agrees(b.finish_model(&NO_VERBS), expected, 0xb8be32fab6829d50);
}

#[test]
fn the_cut_may_fall_inside_a_character_and_bytes_that_are_no_text_stay() {
    let b = Build::new();
    b.buffer("io", 0xb0, 64, 0);
    let name = "字".repeat(80);
    b.region(&name, 0xb0, 0, 16, BOTH);
    b.region(b"\xff\xfe".as_slice(), 0xb0, 0, 1, 0);
    let exp = b.finish();
    let mut expected = b"frt-runtime-identity-v1\n".to_vec();
    expected.extend_from_slice(&format!("region:0:{name}").as_bytes()[..191]);
    expected.extend_from_slice(b"region:1:\xff\xfe:0:1:0\n");
    assert!(std::str::from_utf8(&expected).is_err());
    assert_eq!(identity(exp).0, expected);
    release_export(exp);
}
