//! A node that hangs keeps a bounded number of commands and says so; a caller may wait as long as it likes.

mod common;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use common::*;
use flashrt_session::*;

#[test]
fn a_caller_may_wait_for_ever() {
    let rig = Rig::configured(toy_config());
    let operation = rig.engine.submit(snapshot("a")).unwrap();
    assert_eq!(operation.wait(Duration::MAX).unwrap().code, ResultCode::Ok);
    let outcome = rig.engine.call(restore("a"), Duration::MAX);
    assert_eq!(outcome.code, ResultCode::Ok);
}

#[test]
fn case_104_a_full_queue_answers_busy() {
    let rig = Rig::active(toy_config());
    let tick = rig.hang(1);
    let waiting: Vec<Operation> = (0..1024)
        .map(|_| rig.engine.submit(Command::List).unwrap())
        .collect();
    for command in [snapshot("a"), Command::Prompt("stop".into())] {
        let outcome = rig.engine.call(command, Duration::ZERO);
        assert_eq!(outcome.code, ResultCode::Busy, "{outcome:?}");
        assert_eq!(
            outcome.message,
            "1024 commands wait, that is the most: the device thread is behind"
        );
    }
    // What keeps outputs right is never turned away.
    rig.engine.time_jump(-1);
    rig.control.is_stuck.store(false, SeqCst);
    let wait = Duration::from_secs(20);
    assert_eq!(tick.wait(wait).unwrap().code, ResultCode::Ok);
    for operation in waiting {
        assert_eq!(operation.wait(wait).unwrap().code, ResultCode::Ok);
    }
    rig.wait_for("the jump", || rig.engine.status().epoch == 2);
    rig.ok(snapshot("a"));
}
