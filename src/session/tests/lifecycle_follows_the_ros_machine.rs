//! The lifecycle machine alone.

use flashrt_session::lifecycle::{
    available, id, request_by_label, Callback, Machine, Refusal, State, TRANSITIONS,
};

fn settle(m: &mut Machine, transition: u8, result: Callback) -> Vec<u8> {
    let mut ids = vec![m.begin(transition).unwrap().id];
    ids.extend(m.finish(result).map(|t| t.id));
    ids
}

#[test]
fn the_round_trip_passes_every_primary_state() {
    let mut m = Machine::default();
    assert_eq!(settle(&mut m, id::CONFIGURE, Callback::Success), [1, 10]);
    assert_eq!(m.state(), State::Inactive);
    assert_eq!(settle(&mut m, id::ACTIVATE, Callback::Success), [3, 30]);
    assert_eq!(m.state(), State::Active);
    assert_eq!(settle(&mut m, id::DEACTIVATE, Callback::Success), [4, 40]);
    assert_eq!(settle(&mut m, id::CLEANUP, Callback::Success), [2, 20]);
    assert_eq!(
        settle(&mut m, id::UNCONFIGURED_SHUTDOWN, Callback::Success),
        [5, 50]
    );
    assert_eq!(m.state(), State::Finalized);
    assert_eq!(
        m.begin(id::CONFIGURE),
        Err(Refusal::NotPossible {
            state: State::Finalized,
            transition: 1
        })
    );
}

#[test]
fn failure_goes_back_and_error_needs_a_second_answer() {
    let mut m = Machine::default();
    settle(&mut m, id::CONFIGURE, Callback::Failure);
    assert_eq!(m.state(), State::Unconfigured);
    settle(&mut m, id::CONFIGURE, Callback::Error);
    assert_eq!(m.state(), State::ErrorProcessing);
    assert_eq!(
        m.begin(id::CONFIGURE),
        Err(Refusal::Busy(State::ErrorProcessing))
    );
    assert_eq!(m.finish(Callback::Success).map(|t| t.id), Some(60));
    assert_eq!(m.state(), State::Unconfigured);
}

#[test]
fn a_second_request_during_a_transition_is_answered_busy() {
    let mut m = Machine::default();
    m.begin(id::CONFIGURE).unwrap();
    assert_eq!(
        m.begin(id::CONFIGURE),
        Err(Refusal::Busy(State::Configuring))
    );
    assert_eq!(m.state(), State::Configuring);
}

#[test]
fn ids_and_labels_are_those_of_lifecycle_msgs() {
    let states: Vec<(u8, &str)> = State::ALL.iter().map(|s| (s.id(), s.label())).collect();
    assert_eq!(
        states,
        [
            (0, "unknown"),
            (1, "unconfigured"),
            (2, "inactive"),
            (3, "active"),
            (4, "finalized"),
            (10, "configuring"),
            (11, "cleaningup"),
            (12, "shuttingdown"),
            (13, "activating"),
            (14, "deactivating"),
            (15, "errorprocessing"),
        ]
    );
    let ids: Vec<u8> = TRANSITIONS.iter().map(|t| t.id).collect();
    assert_eq!(
        ids,
        [
            1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 20, 21, 22, 30, 31, 32, 40, 41, 42, 50, 51, 52, 60,
            61, 62
        ]
    );
}

#[test]
fn edges_leave_and_reach_the_right_kinds_of_states() {
    for t in &TRANSITIONS {
        let is_request = t.id < 10;
        assert_eq!(t.start.is_primary(), is_request, "{t:?}");
        assert!(
            t.goal.is_primary() || !t.start.is_primary() || is_request,
            "{t:?}"
        );
    }
    let from_inactive: Vec<&str> = available(State::Inactive).map(|t| t.label).collect();
    assert_eq!(from_inactive, ["cleanup", "activate", "shutdown"]);
    assert_eq!(
        request_by_label(State::Active, "shutdown").map(|t| t.id),
        Some(id::ACTIVE_SHUTDOWN)
    );
    assert_eq!(
        request_by_label(State::Configuring, "transition_success"),
        None
    );
}
