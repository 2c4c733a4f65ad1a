//! Two policies that tick at once on one GPU, each in a context and a thread of its own, as two nodes in one container.

mod common;

use std::sync::Barrier;
use std::time::{Duration, Instant};

use common::drive::{self, bits, output, run};
use flashrt_exec::{Context, KEY_INHERIT};
use flashrt_models::pi05::Pi05Options;
use flashrt_runtime::{LiveSet, Producer};

fn set(ctx: &Context, seed: u64) -> LiveSet {
    let options = Pi05Options {
        seed,
        ..Pi05Options::default()
    };
    let mut set = drive::demo(ctx, options).build("main").unwrap();
    drive::set_text(&mut set, "put the cube on the blue pad").unwrap();
    drive::set_state(&mut set, &[0.1, -0.3, 0.5, 0.7, 0.9, 1.1]).unwrap();
    set
}

fn tick(set: &mut LiveSet, number: u32) -> Vec<u32> {
    drive::set_pictures(set, 96, number % 8);
    run(set, "full", KEY_INHERIT);
    bits(&output(set, "actions"))
}

/// Actions of each tick until `seconds` have gone, and the ticks' times, sorted.
fn ticks(set: &mut LiveSet, seconds: f64, start: &Barrier) -> (Vec<Vec<u32>>, Vec<Duration>) {
    let (mut actions, mut times) = (Vec::new(), Vec::new());
    start.wait();
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < seconds {
        let at = Instant::now();
        actions.push(tick(set, actions.len() as u32));
        times.push(at.elapsed());
    }
    times.sort();
    (actions, times)
}

/// FLASHRT_SHARE_SECONDS sets how long; 60 is the case's, and the GPU suite's.
#[test]
fn case_190_actions_are_those_of_running_alone() {
    let Some(gpu) = common::cuda() else { return };
    drop(gpu);
    let seconds = std::env::var("FLASHRT_SHARE_SECONDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(3.0);
    let start = Barrier::new(2);
    let (first, second) = std::thread::scope(|scope| {
        let policy = |seed| {
            let start = &start;
            scope.spawn(move || {
                let ctx = Context::cuda(0).unwrap();
                ticks(&mut set(&ctx, seed), seconds, start)
            })
        };
        let (first, second) = (policy(1), policy(2));
        (first.join().unwrap(), second.join().unwrap())
    });
    for (seed, (actions, times)) in [(1, first), (2, second)] {
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        println!(
            "policy {seed}: {} ticks beside the other, p50 {:?}, p99 {:?}, max {:?}",
            times.len(),
            at(0.5),
            at(0.99),
            at(1.0)
        );
        assert!(actions.len() > 10);
        let ctx = Context::cuda(0).unwrap();
        let mut alone = set(&ctx, seed);
        for (number, want) in actions.iter().enumerate() {
            assert_eq!(
                tick(&mut alone, number as u32),
                *want,
                "policy {seed}, tick {number}"
            );
        }
    }
}
