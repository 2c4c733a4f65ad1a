//! The closed-state verifier, on models that are closed and on models that are not.

mod common;

use common::*;
use flashrt_capsule::verify::{verify, DriveResult, Outcome, Phase, Poison, VerifyReport, POISONS};
use flashrt_runtime::testing::{set_prompt, tick, ToyOptions};
use flashrt_runtime::LiveSet;

fn drive(live: &mut LiveSet, phase: Phase) -> DriveResult {
    let bias = live.port("bias").ok_or("no port")?;
    let (first, ticks) = match phase {
        Phase::Warm => {
            set_prompt(live, "put the cube in the bowl")?;
            live.swap_in(bias, &[3; 64])?;
            (0, 3)
        }
        Phase::Measure => (10, 4),
        Phase::Other => {
            set_prompt(live, "open the drawer")?;
            live.swap_in(bias, &[77; 64])?;
            (500, 4)
        }
    };
    let mut out = Vec::new();
    for t in first..first + ticks {
        out.extend(tick(live, "context_action", 10, t)?);
    }
    Ok(out)
}

fn report(options: ToyOptions, names: &[&str]) -> VerifyReport {
    verify(&mut open_with(options, names).sets, &mut drive).unwrap()
}

#[test]
fn a_closed_model_passes_and_each_region_is_caught_or_proved_scratch() {
    let r = report(ToyOptions::default(), &["a", "b"]);
    println!("{r}");
    assert!(r.closed && r.second_set);
    assert_eq!(r.whole.len(), 2 * POISONS.len());
    assert_eq!(r.reference_bytes, 4 * 640);
    let verdict = |name: &str| r.regions.iter().find(|v| v.name == name).unwrap();
    for state in ["prompt", "bias", "recurrent", "kv", "rng"] {
        let v = verdict(state);
        assert!(v.caught, "{state}");
        assert!(
            v.outcomes.iter().all(|o| *o != Outcome::Same),
            "{state}: every poison shows it"
        );
    }
    // Rewritten before it is read in each tick: the input window of a required port, and a cache of nothing.
    for scratch in ["state", "mirror"] {
        let v = verdict(scratch);
        assert!(v.is_scratch(), "{scratch}");
        assert_eq!(
            v.outcomes,
            vec![Outcome::Same; POISONS.len()],
            "{scratch}: the proof"
        );
    }
    let host = verdict("host_state");
    assert!(host.caught);
    assert!(matches!(&host.outcomes[0], Outcome::Refused(why) if why.contains("magic")));
    assert_eq!(r.regions.len(), 8);
    assert_eq!(
        r.regions.iter().map(|v| v.bytes).sum::<u64>(),
        r.capsule_bytes
    );

    let unsaved: Vec<_> = r
        .unsaved
        .iter()
        .map(|u| (u.buffer.as_str(), u.unsaved))
        .collect();
    for b in [
        ("chunk", 640),
        ("work_context", 2048),
        ("work_action", 256),
        ("spare", 512),
    ] {
        assert!(unsaved.contains(&b), "{unsaved:?}");
    }
    let text = r.to_string();
    assert!(
        text.ends_with("closed: 6 regions are state, 2 proved scratch"),
        "{text}"
    );
}

#[test]
fn a_state_buffer_in_no_region_is_found() {
    for forgotten in ["rng", "kv", "recurrent", "prompt", "bias"] {
        let options = ToyOptions {
            forget: Some(forgotten.to_owned()),
            ..ToyOptions::default()
        };
        let r = report(options, &["a", "b"]);
        assert!(!r.closed, "{forgotten}");
        assert!(
            r.whole.iter().all(|w| w.outcome != Outcome::Same),
            "{forgotten}: {r}"
        );
        assert!(r.to_string().contains("NOT closed"));
        assert!(r.unsaved.iter().any(|u| u.buffer == forgotten));
    }
}

#[test]
fn a_scratch_buffer_in_no_region_is_no_matter() {
    let options = ToyOptions {
        forget: Some("mirror".to_owned()),
        ..ToyOptions::default()
    };
    assert!(report(options, &["a"]).closed);
}

#[test]
fn state_hidden_in_a_rust_field_is_found() {
    let options = ToyOptions {
        hidden_counter: true,
        ..ToyOptions::default()
    };
    let r = report(options, &["a", "b"]);
    assert!(!r.closed);
}

#[test]
fn one_set_is_enough_but_the_report_says_so() {
    let r = report(ToyOptions::default(), &["only"]);
    assert!(r.closed && !r.second_set);
    assert_eq!(r.whole.len(), POISONS.len());
    assert!(r.to_string().contains("one live set only"));
}

#[test]
fn a_blind_drive_function_proves_nothing_and_is_refused() {
    let mut m = open(&["a"]);
    let e = verify(&mut m.sets, &mut |_, _| Ok(vec![1, 2, 3])).unwrap_err();
    assert!(
        e.to_string().contains("gave the same 3 output bytes"),
        "{e}"
    );
    let e = verify(&mut m.sets, &mut |_, _| Ok(vec![])).unwrap_err();
    assert!(e.to_string().contains("0 output bytes"), "{e}");
    assert!(verify(&mut [], &mut |_, _| Ok(vec![1])).is_err());
    let e = verify(&mut m.sets, &mut |_, p| match p {
        Phase::Measure => Err("camera unplugged".into()),
        _ => Ok(vec![1]),
    })
    .unwrap_err();
    assert_eq!(e.to_string(), "verification, measure: camera unplugged");
}

#[test]
fn a_run_that_fails_on_poison_counts_as_caught() {
    let mut m = open(&["a"]);
    let r = verify(&mut m.sets, &mut |live, phase| {
        if phase == Phase::Measure {
            let mut prompt = [0; 64];
            live.context()
                .download(&live.buffer("prompt").ok_or("gone")?.all(), &mut prompt)?;
            if !prompt.is_ascii() {
                return Err("prompt is no text".into());
            }
        }
        drive(live, phase)
    })
    .unwrap();
    let prompt = r.regions.iter().find(|v| v.name == "prompt").unwrap();
    assert_eq!(
        prompt.outcomes[0],
        Outcome::Refused("prompt is no text".into())
    );
    assert!(prompt.caught && r.closed);
}

#[test]
fn the_first_set_stands_at_the_boundary_afterwards() {
    let mut m = open(&["a"]);
    let mut twin = one();
    drive(&mut twin, Phase::Warm).unwrap();
    verify(&mut m.sets, &mut drive).unwrap();
    let expected = drive(&mut twin, Phase::Measure).unwrap();
    assert_eq!(drive(&mut m.sets[0], Phase::Measure).unwrap(), expected);
    assert_eq!(POISONS[3], Poison::Leftovers);
}
