//! The gate: required, age, order of checks, skew.

use flashrt_session::gate::{check, GatePort, GateRefusal};
use flashrt_session::ResultCode;

const MS: i64 = 1_000_000;

fn port(name: &str, stamp_ms: Option<i64>) -> GatePort<'_> {
    GatePort {
        name,
        is_required: true,
        max_age_ns: Some(100 * MS),
        stamp_ns: stamp_ms.map(|s| s * MS),
    }
}

#[test]
fn fresh_inputs_pass_with_their_true_skew() {
    let ports = [port("a", Some(960)), port("b", Some(990))];
    assert_eq!(
        check(ports.into_iter(), 1000 * MS, None, Some(30 * MS)),
        Ok(30 * MS)
    );
}

#[test]
fn case_30_skew_over_the_limit_names_both_ports() {
    let ports = [port("a", Some(960)), port("b", Some(993))];
    let refusal = check(ports.into_iter(), 1000 * MS, None, Some(25 * MS)).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "b is 33.0 ms newer than a, limit 25.0 ms"
    );
    assert_eq!(refusal.code(), ResultCode::Skew);
}

#[test]
fn a_missing_required_port_is_named_and_an_optional_one_is_not_missed() {
    let refusal = check([port("a", None)].into_iter(), 0, None, None).unwrap_err();
    assert_eq!(refusal, GateRefusal::Missing { port: "a" });
    assert_eq!(refusal.code(), ResultCode::StaleInput);
    let optional = GatePort {
        is_required: false,
        ..port("a", None)
    };
    assert_eq!(check([optional].into_iter(), 0, None, None), Ok(0));
}

#[test]
fn the_age_limit_itself_is_allowed() {
    assert!(check([port("a", Some(900))].into_iter(), 1000 * MS, None, None).is_ok());
    let refusal = check([port("a", Some(899))].into_iter(), 1000 * MS, None, None).unwrap_err();
    assert_eq!(refusal.to_string(), "a: age 101.0 ms > 100.0 ms");
}

#[test]
fn inputs_older_than_asked_for_are_refused() {
    let refusal = check(
        [port("a", Some(950))].into_iter(),
        1000 * MS,
        Some(960 * MS),
        None,
    )
    .unwrap_err();
    assert_eq!(refusal.to_string(), "a: newest input is 10.0 ms too old");
    assert!(check(
        [port("a", Some(960))].into_iter(),
        1000 * MS,
        Some(960 * MS),
        None
    )
    .is_ok());
}

#[test]
fn extreme_stamps_do_not_overflow() {
    let a = GatePort {
        name: "a",
        is_required: true,
        max_age_ns: Some(1),
        stamp_ns: Some(i64::MIN),
    };
    assert!(matches!(
        check([a].into_iter(), i64::MAX, None, None),
        Err(GateRefusal::Stale { .. })
    ));
    let b = GatePort {
        name: "b",
        stamp_ns: Some(i64::MAX),
        max_age_ns: None,
        ..a
    };
    let a = GatePort {
        max_age_ns: None,
        ..a
    };
    assert!(matches!(
        check([a, b].into_iter(), i64::MAX, None, Some(5)),
        Err(GateRefusal::Skew { .. })
    ));
}
