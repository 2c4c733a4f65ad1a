//! Every worked example of the canonical identity: exact text and exact fingerprint.

use flashrt_runtime::{
    first_difference, fnv1a64, Declaration, DeclarationBuilder, Direction, ExecutorKind, Layout,
    Modality, PortDType, PortDecl, RegionFlags, Role, Update, VerbTable,
};
use Direction::{In, Out};
use Update::{Staged, Swap};

const BOTH: RegionFlags = RegionFlags(3);

fn all_verbs() -> VerbTable {
    VerbTable {
        set_input: true,
        get_output: true,
        step: true,
        last_error: true,
    }
}

#[allow(clippy::too_many_arguments)] // mirrors the record
fn port(
    name: &str,
    modality: Modality,
    dtype: PortDType,
    layout: Layout,
    direction: Direction,
    update: Update,
    required: u32,
    shape: &[i64],
    (buffer, offset, bytes): (u64, u64, u64),
) -> PortDecl {
    PortDecl {
        required,
        buffer,
        offset,
        bytes,
        ..PortDecl::new(name, modality, dtype, layout, direction, update, shape)
    }
}

fn check(d: &Declaration, text: &str, fingerprint: u64) {
    let bytes = d.identity_bytes();
    assert_eq!(String::from_utf8_lossy(&bytes), text);
    assert_eq!(d.fingerprint(), fingerprint, "{:016x}", d.fingerprint());
    assert_eq!(fnv1a64(text.as_bytes()), fingerprint);
}

#[test]
fn example_a_two_stage_model() {
    let mut b = DeclarationBuilder::new();
    b.add_identity("model", "unit").unwrap();
    b.add_graph("encode", 0x10, 0, &[0], 0).unwrap();
    b.add_graph("decode", 0x20, 0, &[0], 0).unwrap();
    // Ports come before their buffer: positions are looked up at the end.
    b.add_port(port(
        "images",
        Modality::Image,
        PortDType::BF16,
        Layout::Nhwc,
        In,
        Staged,
        1,
        &[3, 224, 224, 3],
        (0, 0, 0),
    ))
    .unwrap();
    b.add_port(port(
        "actions",
        Modality::Action,
        PortDType::BF16,
        Layout::Flat,
        Out,
        Staged,
        0,
        &[50, 32],
        (0x99, 0, 3200),
    ))
    .unwrap();
    b.add_buffer("actions", 0x99, 4096, Role::OUTPUT).unwrap();
    b.add_stage(0, &[]).unwrap();
    b.add_stage(1, &[0]).unwrap();
    check(
        &b.finish_model(all_verbs()).unwrap(),
        "frt-runtime-identity-v1\n\
         model=unit\n\
         graph:encode:0\n\
         graph:decode:0\n\
         port:0:images:1:3:2:0:1:1:3,224,224,3:-1:0:0\n\
         port:1:actions:4:3:0:1:1:0:50,32:0:0:3200\n\
         stage:0:0:\n\
         stage:1:1:0\n",
        0xd1393a80cdef15b3,
    );
}

#[test]
fn example_b_plain_export_with_two_regions() {
    let mut b = DeclarationBuilder::new();
    b.add_stream("main", 1, 0).unwrap();
    b.add_identity("model", "trivial").unwrap();
    b.add_identity("quant", "none").unwrap();
    b.add_graph("copy", 1, 0, &[], 1).unwrap();
    b.add_buffer("a", 2, 4096, Role::STATE).unwrap();
    b.add_buffer("b", 3, 4096, Role::STATE).unwrap();
    b.add_region("state_a", 2, 0, 4096, BOTH).unwrap();
    b.add_region("state_b", 3, 0, 4096, BOTH).unwrap();
    check(
        &b.finish().unwrap(),
        "frt-runtime-identity-v1\n\
         model=trivial\n\
         quant=none\n\
         graph:copy:1\n\
         region:0:state_a:0:4096:3\n\
         region:1:state_b:0:4096:3\n",
        0x62018b7dcf0c105e,
    );
}

#[test]
fn example_c_metadata_builder_with_an_opaque_plan() {
    let mut b = DeclarationBuilder::metadata();
    b.add_identity("provider", "fixture").unwrap();
    let text = |name, direction, required| {
        port(
            name,
            Modality::Text,
            PortDType::U8,
            Layout::Flat,
            direction,
            Staged,
            required,
            &[-1],
            (0, 0, 0),
        )
    };
    b.add_port(text("prompt", In, 1)).unwrap();
    b.add_port(text("text", Out, 0)).unwrap();
    b.add_generic_stage("prefill:main", ExecutorKind::Opaque, 91, &[])
        .unwrap();
    b.add_generic_stage("阶段", ExecutorKind::Opaque, 113, &[0])
        .unwrap();
    b.add_generic_stage("emit", ExecutorKind::Opaque, 7, &[0, 1])
        .unwrap();
    b.set_generic_stage_runner().unwrap();
    check(
        &b.finish_model(all_verbs()).unwrap(),
        "frt-runtime-identity-v1\n\
         provider=fixture\n\
         port:0:prompt:2:0:0:0:1:1:-1:-1:0:0\n\
         port:1:text:2:0:0:1:1:0:-1:-1:0:0\n\
         gstage-v1:0:12:prefill:main:1:91:0:\n\
         gstage-v1:1:6:阶段:1:113:1:0\n\
         gstage-v1:2:4:emit:1:7:2:0,1\n",
        0x70a152f17f4e7dd6,
    );
}

#[test]
fn example_d_pi05_shape_with_a_context_action_plan() {
    let mut b = DeclarationBuilder::new();
    for (k, v) in [
        ("model", "pi05"),
        ("producer", "native"),
        ("precision", "bf16"),
        ("stage_plan", "context_action"),
    ] {
        b.add_identity(k, v).unwrap();
    }
    for (i, name) in ["infer", "decode_only", "context"].iter().enumerate() {
        b.add_graph(*name, i as u64 + 1, 0, &[0], 1).unwrap();
    }
    b.add_buffer("observation_images_normalized", 71, 602112, Role::INPUT)
        .unwrap();
    b.add_buffer("diffusion_noise", 72, 640, Role::STATE)
        .unwrap();
    b.add_region("rollout_boundary", 72, 0, 640, BOTH).unwrap();
    use {Layout as L, Modality as M, PortDType as D};
    let ports = [
        port(
            "prompt",
            M::Text,
            D::U8,
            L::Flat,
            In,
            Staged,
            1,
            &[-1],
            (0, 0, 0),
        ),
        port(
            "state",
            M::State,
            D::F32,
            L::Flat,
            In,
            Staged,
            1,
            &[8],
            (0, 0, 0),
        ),
        port(
            "images",
            M::Image,
            D::BF16,
            L::Nhwc,
            In,
            Staged,
            1,
            &[2, 224, 224, 3],
            (71, 0, 602112),
        ),
        port(
            "noise",
            M::Tensor,
            D::BF16,
            L::Flat,
            In,
            Swap,
            0,
            &[10, 32],
            (72, 0, 640),
        ),
        port(
            "actions",
            M::Action,
            D::F32,
            L::Flat,
            Out,
            Staged,
            0,
            &[10, 7],
            (0, 0, 280),
        ),
        port(
            "actions_raw",
            M::Tensor,
            D::BF16,
            L::Flat,
            Out,
            Swap,
            0,
            &[10, 32],
            (72, 0, 640),
        ),
    ];
    for p in ports {
        b.add_port(p).unwrap();
    }
    b.add_stage(2, &[]).unwrap();
    b.add_stage(1, &[0]).unwrap();
    check(
        &b.finish_model(all_verbs()).unwrap(),
        "frt-runtime-identity-v1\n\
         model=pi05\n\
         producer=native\n\
         precision=bf16\n\
         stage_plan=context_action\n\
         graph:infer:1\n\
         graph:decode_only:1\n\
         graph:context:1\n\
         region:0:rollout_boundary:0:640:3\n\
         port:0:prompt:2:0:0:0:1:1:-1:-1:0:0\n\
         port:1:state:3:1:0:0:1:1:8:-1:0:0\n\
         port:2:images:1:3:2:0:1:1:2,224,224,3:0:0:602112\n\
         port:3:noise:0:3:0:0:0:0:10,32:1:0:640\n\
         port:4:actions:4:1:0:1:1:0:10,7:-1:0:280\n\
         port:5:actions_raw:0:3:0:1:0:0:10,32:1:0:640\n\
         stage:0:2:\n\
         stage:1:1:0\n",
        0xb945e2db0f975ab4,
    );
}

#[test]
fn example_e_step_only_model() {
    let mut b = DeclarationBuilder::metadata();
    b.add_identity("provider", "step").unwrap();
    check(
        &b.finish_model(VerbTable {
            step: true,
            ..VerbTable::default()
        })
        .unwrap(),
        "frt-runtime-identity-v1\nprovider=step\n",
        0x4763a0bc8c01be17,
    );
}

#[test]
fn example_f_negative_stream_undeclared_buffer_and_a_scalar() {
    let mut b = DeclarationBuilder::new();
    b.add_identity("k", "v").unwrap();
    b.add_graph("g", 1, 0, &[], -3).unwrap();
    let tensor = |name, shape: &[i64], window| {
        port(
            name,
            Modality::Tensor,
            PortDType::F32,
            Layout::Flat,
            In,
            Swap,
            0,
            shape,
            window,
        )
    };
    b.add_port(tensor("x", &[4], (0xdead, 8, 16))).unwrap();
    b.add_port(tensor("scalar", &[], (2, 0, 4))).unwrap();
    b.add_buffer("declared", 2, 4, Role::INPUT).unwrap();
    b.add_stage(0, &[]).unwrap();
    check(
        &b.finish_model(VerbTable::default()).unwrap(),
        "frt-runtime-identity-v1\n\
         k=v\n\
         graph:g:-3\n\
         port:0:x:0:1:0:0:0:0:4:-1:8:16\n\
         port:1:scalar:0:1:0:0:0:0::0:0:4\n\
         stage:0:0:\n",
        0xbbc2ea915302d822,
    );
}

#[test]
fn example_g_records_are_cut_at_191_bytes() {
    let mut b = DeclarationBuilder::new();
    b.add_identity("k", "v").unwrap();
    b.add_graph("g", 1, 0, &[], 0).unwrap();
    b.add_buffer("b", 2, 16, Role::STATE).unwrap();
    b.add_region("r".repeat(200), 2, 0, 16, BOTH).unwrap();
    b.add_port(port(
        &"p".repeat(200),
        Modality::Tensor,
        PortDType::F32,
        Layout::Flat,
        In,
        Swap,
        0,
        &[4],
        (2, 0, 16),
    ))
    .unwrap();
    b.add_stage(0, &[]).unwrap();
    let text = format!(
        "frt-runtime-identity-v1\nk=v\ngraph:g:0\nregion:0:{}port:0:{}4:0:0:16\nstage:0:0:\n",
        "r".repeat(191 - "region:0:".len()),
        "p".repeat(191 - "port:0:".len()),
    );
    check(
        &b.finish_model(VerbTable::default()).unwrap(),
        &text,
        0x383148499d913c6a,
    );
}

#[test]
fn example_h_duplicate_dependencies_are_legal() {
    let mut b = DeclarationBuilder::new();
    b.add_graph("g", 1, 0, &[], 0).unwrap();
    b.add_graph("h", 2, 0, &[], 0).unwrap();
    b.add_stage(0, &[]).unwrap();
    b.add_stage(1, &[0, 0]).unwrap();
    let d = b.finish_model(VerbTable::default()).unwrap();
    check(
        &d,
        "frt-runtime-identity-v1\ngraph:g:0\ngraph:h:0\nstage:0:0:\nstage:1:1:0,0\n",
        0xb8be32fab6829d50,
    );
    assert_eq!(d.records()[4], "stage:1:1:0,0");
}

#[test]
fn a_cut_may_fall_inside_a_character() {
    let mut b = DeclarationBuilder::new();
    // 9 + 3·60 = 189 bytes, so the cut keeps two bytes of the next three-byte character.
    b.add_region("字".repeat(80), 2, 0, 16, BOTH).unwrap();
    let bytes = b.finish().unwrap().identity_bytes();
    assert_eq!(bytes.len(), "frt-runtime-identity-v1\n".len() + 191);
    assert!(String::from_utf8(bytes).is_err());
}

#[test]
fn the_first_differing_record_is_named_for_both_sides() {
    let a = b"h\nmodel=a\nx=1\n";
    assert_eq!(first_difference(a, a), None);
    assert_eq!(
        first_difference(a, b"h\nmodel=b\nx=2\n"),
        Some(("model=a".into(), "model=b".into()))
    );
    assert_eq!(
        first_difference(b"h\nx=1", b"h\nx=1\n"),
        Some(("<end>".into(), "<end>".into()))
    );
    assert_eq!(
        first_difference(a, b"h\n"),
        Some(("model=a".into(), "<end>".into()))
    );
    assert_eq!(
        first_difference(b"", b"\xff"),
        Some(("<end>".into(), "\u{fffd}".into()))
    );
}
