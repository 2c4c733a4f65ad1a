//! The execution contract, tested once for every backend.
//!
//! `suite` uses nothing but the contract (copies and fills, no kernels of one device), so each test
//! there runs unchanged on the CPU in submission order, on the CPU in many adversarial orders, and on
//! CUDA where there is one.

#[path = "../support/cuda.rs"]
mod gpu;
mod suite;

use flashrt_exec::{Context, CpuOptions, Error, Graph, StreamOrder};
use suite::Step;

/// Makes a fresh context for one run of one test.
pub type Factory<'a> = &'a dyn Fn() -> Context;

/// A graph without variants.
pub fn new_graph(ctx: &Context, name: &str, max_variants: usize) -> Graph {
    ctx.graph(name, max_variants).expect("a graph")
}

/// Captures `steps` under `key`.
pub fn record(graph: &Graph, key: u64, steps: &[Step]) {
    graph
        .capture::<Error>(key, |r| {
            steps.iter().try_for_each(|step| match step {
                Step::Copy(dst, src) => r.copy(dst, src),
                Step::Fill(dst, value) => r.fill(dst, *value),
            })
        })
        .expect("a capture");
}

fn cpu(order: StreamOrder) -> Context {
    Context::cpu(CpuOptions { threads: 1, order }).expect("a CPU context")
}

fn in_submission_order(test: fn(Factory)) {
    test(&|| cpu(StreamOrder::Submission));
}

fn in_adversarial_orders(test: fn(Factory)) {
    for seed in 0..16 {
        test(&|| cpu(StreamOrder::Adversarial { seed }));
    }
}

fn on_cuda(test: fn(Factory)) {
    if gpu::open_held().is_some() {
        test(&|| Context::cuda(0).expect("a CUDA context"));
    }
}

macro_rules! conformance {
    ($($name:ident),* $(,)?) => {
        conformance!(@module cpu_submission in_submission_order $($name)*);
        conformance!(@module cpu_adversarial in_adversarial_orders $($name)*);
        conformance!(@module cuda on_cuda $($name)*);
    };
    (@module $module:ident $run:ident $($name:ident)*) => {
        mod $module {
            $(#[test] fn $name() { super::$run(super::suite::$name) })*
        }
    };
}

conformance! {
    stream_0_exists_and_ids_count_up,
    priorities_are_clamped,
    a_wrapped_stream_is_a_stream_like_any_other,
    buffers_are_zeroed_aligned_and_at_home,
    buffers_of_no_bytes_or_too_many_are_refused,
    windows_are_checked_without_overflow,
    copies_cross_all_spaces,
    many_copies_are_each_exact_at_any_length_and_alignment,
    many_copies_are_all_checked_before_the_first_is_submitted,
    many_copies_on_a_side_stream_are_ordered_by_events,
    windowed_copies_touch_nothing_else,
    empty_copies_succeed,
    bad_copies_are_refused,
    objects_of_another_context_are_refused,
    host_access_is_for_host_space_and_checked,
    memory_returns_when_the_last_handle_goes,
    wrapped_memory_is_used_in_place_and_never_freed,
    wrapped_memory_may_be_empty_but_not_null_or_endless,
    copies_between_two_names_of_the_same_bytes_are_refused,
    capture_runs_nothing_and_replay_runs_it,
    graphs_hand_over_through_a_shared_buffer,
    streams_are_ordered_by_an_event,
    waiting_for_an_event_never_recorded_does_nothing,
    a_wait_keeps_the_mark_that_it_saw,
    polling_an_event_ends,
    more_work_than_a_queue_holds_still_runs_in_order,
    a_third_variant_evicts_the_least_recent_of_two,
    replay_refreshes_a_variant_and_looking_does_not,
    replacing_a_variant_evicts_nothing,
    eviction_answers_for_missing_keys,
    a_missing_variant_is_told_before_a_bad_stream,
    all_ones_is_a_key_like_any_other,
    an_evicted_variant_in_flight_runs_to_its_end,
    binding_never_redirects_captured_work,
    an_adopted_variant_replays_like_its_owner,
    a_raw_executable_names_one_variant_while_it_lives,
    a_raw_executable_is_adopted_where_the_driver_has_one,
    a_failed_capture_changes_nothing_and_names_its_phase,
    an_empty_capture_is_refused_at_its_end,
    an_empty_capture_is_legal_where_the_caller_says_so,
    a_swallowed_failure_still_fails_the_capture,
    a_capture_inside_a_capture_is_refused_at_its_begin,
    a_panicking_callback_ends_its_recording,
    case_150_a_graph_owns_everything_it_touches,
    case_152_commands_inside_a_capture_are_refused_and_temporaries_may_drop,
    eager_work_is_queued_whole_or_not_at_all,
    a_plan_chains_vision_encoder_action,
    a_plan_fans_out_and_in,
    a_plan_refuses_bad_nodes_and_edges,
    a_forward_edge_is_accepted_and_validate_refuses_it,
    a_plan_stops_at_the_first_missing_variant,
    an_empty_plan_succeeds,
}

#[test]
fn cuda_says_why_it_is_not_available() {
    match Context::cuda(0) {
        Ok(_) => {}
        Err(error) => {
            assert!(error.is_unavailable(), "{error}");
            assert_eq!(error.code(), -5);
            assert!(
                error
                    .to_string()
                    .starts_with("cuda backend is not available: "),
                "{error}"
            );
        }
    }
    assert_eq!(Context::cuda(-1).unwrap_err().code(), -1);
    // More than any machine has: an answer, with or without a driver.
    for ordinal in [4096, i32::MAX] {
        let error = Context::cuda(ordinal).unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        assert!(
            error.to_string().contains(&format!("device {ordinal} ")),
            "{error}"
        );
    }
}
