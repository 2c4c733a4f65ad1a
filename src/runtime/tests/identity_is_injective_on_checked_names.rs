//! Properties of the identity text and of the hash.

use flashrt_runtime::{
    first_difference, fnv1a64, Declaration, DeclarationBuilder, Direction, Layout, Modality,
    PortDType, PortDecl, RegionFlags, Role, Update, VerbTable,
};
use proptest::prelude::*;

/// Name, modality, dtype, direction, update, required, shape, buffer, offset.
type Port = (String, u32, u32, u32, u32, u32, Vec<i64>, usize, u32);

#[derive(Clone, Debug, PartialEq)]
struct Model {
    pairs: Vec<(String, String)>,
    graphs: Vec<(String, i32)>,
    regions: Vec<(String, u32, u32, u32)>,
    ports: Vec<Port>,
    stages: Vec<(u32, Vec<u32>)>,
}

/// Names without the delimiters of the text, short enough not to be cut.
fn name() -> impl Strategy<Value = String> {
    "[a-z0-9_.é-]{1,20}"
}

fn model() -> impl Strategy<Value = Model> {
    let pairs = prop::collection::vec((name(), "[ -~]{0,12}"), 0..4);
    let graphs = prop::collection::vec((name(), -4i32..9), 1..4);
    let regions = prop::collection::vec((name(), 0u32..5000, 1u32..5000, 0u32..4), 0..4);
    let port = (
        name(),
        0u32..9,
        0u32..6,
        0u32..2,
        0u32..3,
        0u32..2,
        prop::collection::vec(-1i64..300, 0..4),
        0usize..4,
        0u32..999,
    );
    let ports = prop::collection::vec(port, 0..4);
    let stages = prop::collection::vec((0u32..1, prop::collection::vec(0u32..1, 0..3)), 1..4);
    (pairs, graphs, regions, ports, stages).prop_map(
        |(pairs, graphs, regions, ports, mut stages)| {
            stages[0].1.clear();
            Model {
                pairs,
                graphs,
                regions,
                ports,
                stages,
            }
        },
    )
}

fn declare(m: &Model) -> Declaration {
    let mut b = DeclarationBuilder::new();
    for (k, v) in &m.pairs {
        b.add_identity(k, v).unwrap();
    }
    for (n, s) in &m.graphs {
        b.add_graph(n, 1, 0, &[], *s).unwrap();
    }
    for i in 1..3 {
        b.add_buffer("b", i, 64, Role::STATE).unwrap();
    }
    for (n, o, bytes, f) in &m.regions {
        b.add_region(n, 1, (*o).into(), (*bytes).into(), RegionFlags(*f))
            .unwrap();
    }
    for (n, modality, dtype, direction, update, required, shape, buffer, offset) in &m.ports {
        b.add_port(PortDecl {
            required: *required,
            buffer: *buffer as u64,
            offset: (*offset).into(),
            bytes: 4,
            ..PortDecl::new(
                n,
                Modality::from_code(*modality),
                PortDType::from_code(*dtype),
                Layout::Flat,
                Direction::from_code(*direction).unwrap(),
                Update::from_code(*update).unwrap(),
                shape,
            )
        })
        .unwrap();
    }
    for (g, after) in &m.stages {
        b.add_stage(*g, after).unwrap();
    }
    let all = VerbTable {
        set_input: true,
        get_output: true,
        step: true,
        last_error: true,
    };
    b.finish_model(all).unwrap()
}

/// What the text can tell apart: an undeclared buffer (3) prints like none (0).
fn visible(m: &Model) -> Model {
    let mut m = m.clone();
    for p in &mut m.ports {
        if p.7 == 3 {
            p.7 = 0;
        }
    }
    m
}

proptest! {
    #[test]
    fn different_declarations_print_different_text(a in model(), b in model()) {
        let (da, db) = (declare(&a), declare(&b));
        let (ta, tb) = (da.identity_bytes(), db.identity_bytes());
        // Pair keys have no '=' here, and a pair cannot look like another record: those start with "<kind>:<...>:" and
        // their kind has no '='. Equal text therefore means an equal visible declaration.
        prop_assert_eq!(ta == tb, visible(&a) == visible(&b));
        prop_assert_eq!(first_difference(&ta, &tb).is_none(), ta == tb);
        prop_assert_eq!(da.fingerprint(), fnv1a64(&ta));
    }

    #[test]
    fn every_record_is_one_line(m in model()) {
        let d = declare(&m);
        let n = 1 + d.pairs.len() + d.graphs.len() + d.regions.len() + d.ports.len() + d.stages.len();
        prop_assert_eq!(d.records().len(), n);
        let text = String::from_utf8(d.identity_bytes()).unwrap();
        prop_assert_eq!(text.lines().count(), n);
        prop_assert!(text.ends_with('\n'));
    }

    #[test]
    fn a_changed_field_changes_the_fingerprint(m in model(), pick in 0usize..6) {
        let mut other = m.clone();
        match pick {
            0 => other.pairs.push(("k".into(), "v".into())),
            1 => other.graphs[0].1 += 1,
            2 => other.regions.push(("r".into(), 0, 1, 3)),
            3 => other.ports.push(("p".into(), 0, 1, 0, 0, 0, vec![], 1, 0)),
            4 => other.stages.push((0, vec![0])),
            _ => other.graphs[0].0.push('x'),
        }
        prop_assert_ne!(declare(&m).fingerprint(), declare(&other).fingerprint());
    }

    #[test]
    fn the_hash_is_fnv1a_in_wide_arithmetic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut h: u128 = 0xcbf29ce484222325;
        for b in &bytes {
            h ^= u128::from(*b);
            h = (h * 0x100000001b3) & u128::from(u64::MAX);
        }
        prop_assert_eq!(u128::from(fnv1a64(&bytes)), h);
    }
}
