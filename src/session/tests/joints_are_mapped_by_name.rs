//! The joint boundary.

mod common;
use common::*;
use flashrt_session::config::{JointConfig, Unit};
use flashrt_session::*;
use proptest::prelude::*;

fn joint(name: &str, unit: Unit) -> JointConfig {
    JointConfig {
        name: name.into(),
        unit,
        scale: 1.0,
        offset: 0.0,
        limits: None,
    }
}

fn six() -> Vec<JointConfig> {
    ["a", "b", "c", "d", "e", "f"]
        .map(|n| joint(n, Unit::Rad))
        .to_vec()
}

fn map(
    names: &[String],
    positions: &[f64],
    joints: &[JointConfig],
) -> Result<Vec<f32>, SessionError> {
    let mut out = vec![9.0; joints.len() + 2];
    let mut topic = vec![9.0; joints.len()];
    joints::map(
        &JointsRef { names, positions },
        joints,
        &mut out,
        &mut topic,
    )?;
    Ok(out)
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![vec![]];
    }
    let mut all = Vec::new();
    for p in permutations(n - 1) {
        for at in 0..n {
            let mut q = p.clone();
            q.insert(at, n - 1);
            all.push(q);
        }
    }
    all
}

#[test]
fn case_40_every_order_of_names_gives_the_same_port_bytes() {
    let joints = six();
    let values = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6];
    let all = permutations(6);
    assert_eq!(all.len(), 720);
    for p in all {
        let names: Vec<String> = p.iter().map(|i| joints[*i].name.clone()).collect();
        let positions: Vec<f64> = p.iter().map(|i| values[*i]).collect();
        assert_eq!(
            map(&names, &positions, &joints).unwrap(),
            [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.0, 0.0]
        );
    }
}

#[test]
fn names_that_no_joint_has_are_ignored() {
    let joints = vec![joint("a", Unit::Rad)];
    let names = ["x", "a", "y"].map(String::from);
    assert_eq!(
        map(&names, &[7.0, 0.5, 7.0], &joints).unwrap(),
        [0.5, 0.0, 0.0]
    );
}

#[test]
fn case_44_lengths_that_differ_are_refused() {
    let joints = six();
    let names: Vec<String> = joints.iter().map(|j| j.name.clone()).collect();
    for count in [0, 5, 7] {
        let e = map(&names, &vec![0.0; count], &joints).unwrap_err();
        assert_eq!(e.code, ResultCode::Shape);
        assert_eq!(e.message, format!("6 names but {count} positions"));
    }
}

#[test]
fn missing_and_repeated_joints_are_refused() {
    let joints = vec![joint("a", Unit::Rad), joint("b", Unit::Rad)];
    let e = map(&["a".into()], &[0.0], &joints).unwrap_err();
    assert_eq!(e.message, "joint b is missing (1 names came)");
    let e = map(&["a", "b", "a"].map(String::from), &[0.0; 3], &joints).unwrap_err();
    assert_eq!(e.message, "joint a came twice");
}

#[test]
fn case_46_what_is_no_plausible_number_is_refused_and_the_last_good_state_kept() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    let names = JOINTS.map(String::from);
    for (value, code) in [
        (f64::NAN, ResultCode::NonFinite),
        (f64::INFINITY, ResultCode::NonFinite),
        (1e308, ResultCode::NonFinite),
    ] {
        rig.clock.advance_ms(1);
        let outcome = rig.engine.push_joints(
            JointsRef {
                names: &names,
                positions: &[0.0, value],
            },
            rig.now(),
        );
        let PushOutcome::Refused { code: got, reason } = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(got, code);
        assert!(reason.contains("elbow"), "{reason}");
    }
    // The core asserts that no such value arrives; the next tick uses the good state again.
    rig.ok(Command::Tick(TickRequest::default()));
    assert!(!rig.sink.records().pop().unwrap().ports[1].is_new);
    assert_eq!(rig.port("state").refused, 3);
}

#[test]
fn positions_outside_the_declared_limits_are_refused() {
    let mut j = joint("a", Unit::Deg);
    j.limits = Some((-1.5, 1.5));
    let e = map(&["a".into()], &[1.6], &[j.clone()]).unwrap_err();
    assert_eq!(e.message, "joint a is 1.6: expected -1.5..1.5");
    assert!(map(&["a".into()], &[1.5], &[j]).is_ok());
}

#[test]
fn case_48_units_are_per_joint() {
    let joints = vec![
        joint("deg", Unit::Deg),
        JointConfig {
            scale: 1.0 / 1.75,
            ..joint("gripper", Unit::Percent)
        },
        JointConfig {
            offset: 0.5,
            scale: -1.0,
            ..joint("flipped", Unit::Rad)
        },
    ];
    let names = ["deg", "gripper", "flipped"].map(String::from);
    let out = map(&names, &[std::f64::consts::PI, 1.75, 0.25], &joints).unwrap();
    assert!(
        (out[0] - 180.0).abs() < 1e-4
            && (out[1] - 100.0).abs() < 1e-4
            && (out[2] - 0.25).abs() < 1e-6,
        "{out:?}"
    );
}

proptest! {
    #[test]
    fn case_48_encode_after_decode_is_identity(
        value in -10.0f64..10.0,
        scale in prop_oneof![0.01f64..10.0, -10.0f64..-0.01],
        offset in -100.0f64..100.0,
        unit in prop_oneof![Just(Unit::Rad), Just(Unit::Deg), Just(Unit::Percent), Just(Unit::Metre)],
    ) {
        let j = JointConfig { name: "a".into(), unit, scale, offset, limits: None };
        prop_assert!((j.to_topic(j.to_model(value)) - value).abs() < 1e-6);
    }
}
