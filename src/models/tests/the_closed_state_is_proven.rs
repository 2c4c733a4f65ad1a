//! The verifier on a small network: every continuation region is caught when it is left out, and nothing else matters.

mod common;

use common::drive;
use flashrt_capsule::verify::{verify, Phase};
use flashrt_models::pi05::Pi05Options;
use flashrt_runtime::{LiveSet, Producer, StateClass};

/// Bytes of the outputs and of the host's fields after a run of `plan`.
fn observe(
    set: &mut LiveSet,
    plan: &str,
    key: u64,
    out: &mut Vec<u8>,
) -> Result<(), flashrt_runtime::Error> {
    set.run(set.plan(plan).unwrap(), key)?;
    set.sync()?;
    let fields = set.host_state().update(|f| f.tick += 1)?;
    out.extend(fields.encode());
    for port in ["actions", "actions_raw"] {
        out.extend(
            drive::output(set, port)
                .iter()
                .flat_map(|x| x.to_ne_bytes()),
        );
    }
    Ok(())
}

#[test]
fn the_closed_state_is_proven() {
    let ctx = drive::context(1);
    let mut producer =
        drive::golden_with(&ctx, Pi05Options::default(), |c| c.anchor_dims = 5, |_| ());
    let mut sets = vec![producer.build("a").unwrap(), producer.build("b").unwrap()];
    let report = verify(&mut sets, &mut |set, phase| {
        let mut out = Vec::new();
        match phase {
            Phase::Warm => {
                drive::set_text(set, "put the cube on the red pad")?;
                drive::set_state(set, &[0.1, -0.3, 0.5, 0.7, 0.9, -0.2])?;
                drive::set_pictures(set, 32, 1);
                observe(set, "full", 5, &mut out)?;
                // Staged, but not yet seen by a context: what is staged and what was latched differ.
                drive::set_text(set, "put the cube on the blue pad")?;
                drive::set_state(set, &[0.2, 0.3, -0.5, 0.1, 0.0, 0.8])?;
                drive::set_pictures(set, 32, 2);
            }
            Phase::Measure => {
                observe(set, "action", 5, &mut out)?;
                observe(set, "full", 10, &mut out)?;
                drive::set_state(set, &[-0.6, 0.2, 0.4, 0.3, 0.1, 0.5])?;
                observe(set, "context_action", 5, &mut out)?;
            }
            Phase::Other => {
                drive::set_text(set, "cube on the green pad")?;
                drive::set_state(set, &[0.9; 6])?;
                drive::set_pictures(set, 32, 3);
                observe(set, "full", 5, &mut out)?;
                observe(set, "full", 10, &mut out)?;
                observe(set, "full", 5, &mut out)?;
            }
        }
        Ok(out)
    })
    .unwrap();
    println!("{report}");
    assert!(report.closed, "{report}");
    for r in report.regions.iter() {
        assert_eq!(
            r.caught,
            r.class == StateClass::Continuation,
            "{}: {report}",
            r.name
        );
    }
}
