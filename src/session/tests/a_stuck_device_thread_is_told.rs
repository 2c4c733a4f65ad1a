//! A tick that never returns: cleanup gives up with a code, the node keeps its state, and goes on when the tick ends after all.

mod common;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use common::*;
use flashrt_session::lifecycle::State;
use flashrt_session::*;

#[test]
fn cleanup_gives_up_with_a_code_and_works_later() {
    let rig = Rig::active(toy_config());
    let tick = rig.hang(1);
    let behind = rig.engine.submit(snapshot("a")).unwrap();
    rig.engine.deactivate().unwrap();
    let error = rig.engine.cleanup().unwrap_err();
    assert_eq!(error.code, ResultCode::Device, "{error}");
    assert!(error.message.contains("stuck"), "{error}");
    assert_eq!(rig.engine.state(), State::Inactive);
    assert_eq!(rig.control.alive.load(SeqCst), 1, "nothing half-freed");
    // What comes now is answered, not kept waiting, and says the same.
    let late = rig.engine.call(snapshot("b"), Duration::from_secs(1));
    assert_eq!(late.code, ResultCode::Cancelled, "{late:?}");
    let error = rig.engine.activate().unwrap_err();
    assert_eq!(error.code, ResultCode::Device, "{error}");
    assert_eq!(rig.engine.state(), State::Inactive);
    // The tick ends after all.
    rig.control.is_stuck.store(false, SeqCst);
    let wait = Duration::from_secs(20);
    assert_eq!(tick.wait(wait).unwrap().code, ResultCode::Cancelled);
    assert_eq!(behind.wait(wait).unwrap().code, ResultCode::Cancelled);
    rig.engine.cleanup().unwrap();
    assert_eq!(rig.control.alive.load(SeqCst), 0);
    assert!(rig.sink.chunks().is_empty());
    rig.configure(toy_config(), JOINTS.len()).unwrap();
    rig.engine.activate().unwrap();
    rig.tick(1);
}
