//! `flashrt verify`: is what a capsule holds the whole state? In the same live set, in a second one, and in a fresh process.

use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{bail, ensure, Context as _, Result};
use flashrt_capsule::verify::{verify, DriveResult, Phase};
use flashrt_capsule::{
    Boundary, CapsuleImage, RegionEntry, RegionImage, SnapshotRequest, Store, StoreConfig, Tier,
};
use flashrt_runtime::{LiveSet, KEY_INHERIT};

use super::output::say;
use super::policy::{plan, Inputs, Policy};

/// Name of the capsule that goes to the fresh process.
const NAME: &str = "fresh-process";

/// One live set driven with made-up inputs through every plan and shape bucket.
struct Drive {
    prompt: String,
    other_prompt: String,
    keys: Vec<u64>,
}

impl Drive {
    fn new(policy: &Policy) -> Drive {
        Drive {
            prompt: policy.config.prompt.text.clone(),
            other_prompt: policy.other_prompt(),
            keys: policy
                .config
                .model
                .flow_steps
                .iter()
                .map(|k| u64::from(*k))
                .collect(),
        }
    }

    fn run(&self, live: &mut LiveSet, phase: Phase) -> Result<Vec<u8>> {
        let mut inputs = Inputs::new(live)?;
        let mut output = Vec::new();
        match phase {
            Phase::Warm => {
                inputs.prompt(live, &self.prompt)?;
                for number in 0..2 {
                    inputs.set(live, number)?;
                    self.tick(live, &mut inputs, "full", KEY_INHERIT, &mut output)?;
                }
                // Staged and not yet ticked: what waits in the input windows is state too.
                inputs.set(live, 2)?;
            }
            Phase::Measure => {
                // The cached context, then the staged inputs, then new ones: each kind of state is read before it is replaced.
                self.tick(live, &mut inputs, "action", KEY_INHERIT, &mut output)?;
                self.tick(
                    live,
                    &mut inputs,
                    "context_action",
                    KEY_INHERIT,
                    &mut output,
                )?;
                for (number, key) in (3..).zip(&self.keys) {
                    inputs.set(live, number)?;
                    self.tick(live, &mut inputs, "full", *key, &mut output)?;
                    self.tick(live, &mut inputs, "action", *key, &mut output)?;
                }
            }
            Phase::Other => {
                inputs.prompt(live, &self.other_prompt)?;
                for number in 100..102 {
                    inputs.set(live, number)?;
                    self.tick(live, &mut inputs, "full", KEY_INHERIT, &mut output)?;
                    self.tick(live, &mut inputs, "action", KEY_INHERIT, &mut output)?;
                }
            }
        }
        Ok(output)
    }

    /// One tick with the bookkeeping that the engine keeps in the set; actions and bookkeeping are appended.
    fn tick(
        &self,
        live: &mut LiveSet,
        inputs: &mut Inputs,
        name: &str,
        key: u64,
        output: &mut Vec<u8>,
    ) -> Result<()> {
        let id = plan(live, name)?;
        inputs.tick(live, id, key)?;
        let is_context_new = name != "action";
        let fields = live.host_state().update(|fields| {
            fields.tick += 1;
            fields.ticks_since_context = if is_context_new {
                0
            } else {
                fields.ticks_since_context + 1
            };
        })?;
        output.extend_from_slice(&inputs.output);
        output.extend_from_slice(&fields.encode());
        Ok(())
    }

    fn boxed(&self, live: &mut LiveSet, phase: Phase) -> DriveResult {
        // The alternate form names the causes too.
        self.run(live, phase).map_err(|e| format!("{e:#}").into())
    }
}

/// Runs every check and prints the tables. Exit code 3 if the state is not closed.
///
/// # Errors
/// The experiment itself could not be made.
pub fn run(path: &Path) -> Result<ExitCode> {
    let mut policy = Policy::load(path)?;
    if let Some(native) = &policy.config.model.native {
        bail!(
            "{} is a native model: verify overwrites every buffer of two live sets, and a native model has one, whose \
             buffers only its producer knows; what its capsules hold is what it declares",
            native.library.display()
        );
    }
    ensure!(
        !policy.config.prompt.text.is_empty(),
        "ports.prompt.text is empty: verify needs an instruction to run with"
    );
    let drive = Drive::new(&policy);
    let report = verify(&mut policy.model.sets, &mut |live, phase| {
        drive.boxed(live, phase)
    })?;
    say!("{report}");

    let is_same = fresh_process(path, &mut policy, &drive)?;
    say!(
        "fresh process: {}",
        if is_same { "same bytes" } else { "OTHER BYTES" }
    );
    Ok(if report.closed && is_same {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(super::EXIT_NO)
    })
}

/// Carries the capsule into a new process of this program and compares the output there with the output here.
fn fresh_process(path: &Path, policy: &mut Policy, drive: &Drive) -> Result<bool> {
    let live = &mut policy.model.sets[0];
    drive.run(live, Phase::Warm)?;
    let mut store = Store::new(StoreConfig {
        device_budget_bytes: 0,
        host_budget_bytes: u64::MAX,
        capacity: 1,
    });
    store.snapshot(
        live,
        &SnapshotRequest::new(Some(NAME), Tier::Host, Boundary::default()),
    )?;
    let image = store.export(NAME, live)?;
    let here = drive.run(live, Phase::Measure)?;

    let folder = std::env::temp_dir().join(format!("flashrt-verify-{}", std::process::id()));
    std::fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let there = (|| {
        let (capsule, out) = (folder.join("capsule"), folder.join("output"));
        write_image(&capsule, &image)?;
        let program = std::env::current_exe().context("where is this program?")?;
        let status = std::process::Command::new(program)
            .arg("verify")
            .arg(path)
            .arg("--measure")
            .args([&capsule, &out])
            .status()
            .context("cannot start a fresh process")?;
        ensure!(status.success(), "the fresh process ended with {status}");
        std::fs::read(&out).with_context(|| format!("cannot read {}", out.display()))
    })();
    std::fs::remove_dir_all(&folder)
        .with_context(|| format!("cannot remove {}", folder.display()))?;
    Ok(there? == here)
}

/// The half of the check that runs in the fresh process.
///
/// # Errors
/// The capsule cannot be restored, or a tick fails.
pub fn measure(path: &Path, capsule: &Path, out: &Path) -> Result<()> {
    let mut policy = Policy::load(path)?;
    let drive = Drive::new(&policy);
    let live = &mut policy.model.sets[0];
    let mut store = Store::new(StoreConfig {
        device_budget_bytes: 0,
        host_budget_bytes: u64::MAX,
        capacity: 1,
    });
    store.import(NAME, &read_image(capsule)?, Tier::Host, live)?;
    store.restore(NAME, live, false)?;
    let output = drive.run(live, Phase::Measure)?;
    std::fs::write(out, output).with_context(|| format!("cannot write {}", out.display()))
}

/// Between two processes of this very program: a JSON line with the identity and the region table, then the raw bytes.
fn write_image(path: &Path, image: &CapsuleImage) -> Result<()> {
    let regions: Vec<_> = image
        .regions
        .iter()
        .map(|r| serde_json::json!([r.entry.name, r.entry.buffer, r.entry.offset, r.entry.bytes]))
        .collect();
    let head = serde_json::json!({
        "identity": String::from_utf8_lossy(&image.identity),
        "fingerprint": image.fingerprint,
        "regions": regions,
    });
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    writeln!(file, "{head}")?;
    for region in &image.regions {
        file.write_all(&region.data)?;
    }
    Ok(file.flush()?)
}

fn read_image(path: &Path) -> Result<CapsuleImage> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|mut f| f.read_to_end(&mut bytes))
        .with_context(|| format!("cannot read {}", path.display()))?;
    let end = bytes
        .iter()
        .position(|b| *b == b'\n')
        .context("no head line")?;
    let head: serde_json::Value = serde_json::from_slice(&bytes[..end])?;
    let mut rest = &bytes[end + 1..];
    let mut regions = Vec::new();
    for region in head["regions"].as_array().context("no region table")? {
        let (Some(name), Some(buffer), Some(offset), Some(bytes)) = (
            region[0].as_str(),
            region[1].as_str(),
            region[2].as_u64(),
            region[3].as_u64(),
        ) else {
            bail!("bad region {region}");
        };
        let size = usize::try_from(bytes)?;
        ensure!(
            rest.len() >= size,
            "region {name}: {size} bytes expected, {} left",
            rest.len()
        );
        let (data, after) = rest.split_at(size);
        rest = after;
        let entry = RegionEntry {
            name: name.into(),
            buffer: buffer.into(),
            offset,
            bytes,
        };
        regions.push(RegionImage {
            entry,
            data: data.to_vec(),
        });
    }
    Ok(CapsuleImage {
        identity: head["identity"]
            .as_str()
            .context("no identity")?
            .as_bytes()
            .to_vec(),
        fingerprint: head["fingerprint"].as_u64().context("no fingerprint")?,
        boundary: Boundary::default(),
        regions,
    })
}
