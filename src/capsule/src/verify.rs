//! Proof by experiment that the declared continuation regions are the whole state of a live set.
//!
//! The caller brings the first set to a boundary and gives a drive function with fixed inputs. The verifier freezes the
//! boundary, takes the output bytes of the undisturbed run, and then, again and again: fills **everything** that the set's
//! arenas hold (every buffer, device and host) with a pattern, or leaves the leftovers of a run with other inputs there;
//! restores the capsule; drives; compares bytes.
//!
//! * With the whole capsule every comparison must be equal, in the same set and in a second one. Then no byte outside the
//!   saved regions matters, in whatever buffer it lies, and no state hides in the model's Rust fields.
//! * With one region left out at a time, some comparison must differ (or the run must be refused). If none does, the region is
//!   scratch, and the equal comparisons under every poison are the proof.
//!
//! What it cannot show: state that these inputs never make matter. Drive at least two chunk lengths, with prompts, views and
//! plans as deployed.

use std::fmt;

use flashrt_exec::StreamId;
use flashrt_runtime::{LiveSet, Space, StateClass};

use crate::store::{restore, restore_without};
use crate::{Boundary, Capsule, Error, SnapshotRequest, Store, StoreConfig, Tier};

/// What the drive function is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Bring the set to the boundary to freeze: prompt and inputs set, some ticks run. The bytes returned are not used.
    Warm,
    /// From the boundary on, run at least two chunk lengths with fixed inputs and return every output byte. Must not set again what the
    /// capsule has to carry (the prompt, for example).
    Measure,
    /// Run with another prompt and other inputs, to leave other leftovers. The bytes returned must differ from those of
    /// [`Phase::Measure`], or the experiment could not see a difference at all.
    Other,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Phase::Warm => "warm",
            Phase::Measure => "measure",
            Phase::Other => "other",
        })
    }
}

/// What the drive function gives: the output bytes, or why there are none.
pub type DriveResult = Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>>;

/// What lies in the arenas before a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poison {
    /// Every byte has this value. As `f32`: 0xA5 a tiny, 0x5A a huge number, 0xFF not a number.
    Pattern(u8),
    /// Whatever a run with another prompt and other inputs left.
    Leftovers,
}

/// The poisons of every check, in order.
pub const POISONS: [Poison; 4] = [
    Poison::Pattern(0xA5),
    Poison::Pattern(0x5A),
    Poison::Pattern(0xFF),
    Poison::Leftovers,
];

impl fmt::Display for Poison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Poison::Pattern(b) => f.pad(&format!("{b:#04X}")),
            Poison::Leftovers => f.pad("leftovers"),
        }
    }
}

/// What a comparison with the undisturbed run gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every byte is equal.
    Same,
    /// Bytes differ, or there are more or fewer.
    Differs {
        /// Index of the first one.
        first: usize,
        /// How many.
        count: usize,
    },
    /// The run was refused or failed; the text says how.
    Refused(String),
}

impl Outcome {
    fn of(reference: &[u8], got: &[u8]) -> Outcome {
        let unequal = |i: usize| reference.get(i) != got.get(i);
        let n = reference.len().max(got.len());
        match (0..n).find(|i| unequal(*i)) {
            None => Outcome::Same,
            Some(first) => Outcome::Differs {
                first,
                count: (first..n).filter(|i| unequal(*i)).count(),
            },
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Same => f.pad("same"),
            Outcome::Differs { first, count } => f.pad(&format!("{count} differ from {first}")),
            Outcome::Refused(_) => f.pad("refused"),
        }
    }
}

/// A restore of the whole capsule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeCheck {
    /// Live set that it was restored into.
    pub set: String,
    /// What lay there before.
    pub poison: Poison,
    /// The comparison; must be [`Outcome::Same`].
    pub outcome: Outcome,
}

/// What leaving one region out did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionVerdict {
    /// Region name.
    pub name: String,
    /// Its class.
    pub class: StateClass,
    /// Its bytes.
    pub bytes: u64,
    /// Some comparison differed or was refused: the region is state.
    pub caught: bool,
    /// The comparisons, one per entry of [`POISONS`]. When all are [`Outcome::Same`], they are the proof that it is scratch.
    pub outcomes: Vec<Outcome>,
}

impl RegionVerdict {
    /// Proved to make no difference.
    pub fn is_scratch(&self) -> bool {
        !self.caught
    }
}

/// Bytes of a buffer that no continuation region covers. They were poisoned in every check and never restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsavedBytes {
    /// Buffer name.
    pub buffer: String,
    /// Its space.
    pub space: Space,
    /// Size of the buffer.
    pub bytes: u64,
    /// Of these, not saved.
    pub unsaved: u64,
}

/// Everything that a verification found. `Display` prints it as a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// Fingerprint of the model.
    pub fingerprint: u64,
    /// Output bytes compared in each run.
    pub reference_bytes: usize,
    /// Bytes of the capsule.
    pub capsule_bytes: u64,
    /// Bytes poisoned in each check: all buffers of the set.
    pub poisoned_bytes: u64,
    /// Restores of the whole capsule.
    pub whole: Vec<WholeCheck>,
    /// One verdict per continuation region, in declaration order.
    pub regions: Vec<RegionVerdict>,
    /// Buffers with bytes outside the saved regions.
    pub unsaved: Vec<UnsavedBytes>,
    /// A second live set took part.
    pub second_set: bool,
    /// The declared regions are the whole state, as far as these inputs can show.
    pub closed: bool,
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "model {:016x}: capsule of {} bytes, {} bytes poisoned, {} output bytes compared per run",
            self.fingerprint, self.capsule_bytes, self.poisoned_bytes, self.reference_bytes
        )?;
        writeln!(f, "\nwhole capsule restored over poison (must be the same)")?;
        writeln!(f, "  {:<16} {:<10} result", "live set", "poison")?;
        for w in &self.whole {
            write!(f, "  {:<16} {:<10} {}", w.set, w.poison, w.outcome)?;
            match &w.outcome {
                Outcome::Refused(why) => writeln!(f, ": {why}")?,
                _ => writeln!(f)?,
            }
        }
        if !self.second_set {
            writeln!(
                f,
                "  (one live set only: restoring into another one was not tried)"
            )?;
        }
        let width = self
            .regions
            .iter()
            .map(|r| r.name.len())
            .max()
            .unwrap_or(0)
            .max(6);
        writeln!(
            f,
            "\none region left out (state must be caught; scratch is the same under every poison)"
        )?;
        write!(f, "  {:<width$} {:>10} {:<8}", "region", "bytes", "verdict")?;
        for p in POISONS {
            write!(f, " {p:>20}")?;
        }
        writeln!(f)?;
        for r in &self.regions {
            let verdict = if r.caught { "state" } else { "scratch" };
            write!(f, "  {:<width$} {:>10} {verdict:<8}", r.name, r.bytes)?;
            for o in &r.outcomes {
                write!(f, " {o:>20}")?;
            }
            writeln!(f)?;
        }
        if !self.unsaved.is_empty() {
            writeln!(
                f,
                "\nnot in the capsule (poisoned each time, never restored)"
            )?;
            let width = self
                .unsaved
                .iter()
                .map(|u| u.buffer.len())
                .max()
                .unwrap_or(0)
                .max(6);
            writeln!(
                f,
                "  {:<width$} {:<6} {:>10} {:>10}",
                "buffer", "space", "bytes", "unsaved"
            )?;
            for u in &self.unsaved {
                let space = match u.space {
                    Space::Device => "device",
                    Space::Host => "host",
                };
                writeln!(
                    f,
                    "  {:<width$} {space:<6} {:>10} {:>10}",
                    u.buffer, u.bytes, u.unsaved
                )?;
            }
        }
        let state = self.regions.iter().filter(|r| r.caught).count();
        let scratch = self.regions.len() - state;
        let word = if self.closed { "closed" } else { "NOT closed" };
        write!(
            f,
            "\n{word}: {state} regions are state, {scratch} proved scratch"
        )
    }
}

/// Runs the experiment on `sets[0]`, and restores into `sets[1]` too when there is one.
///
/// The sets must be idle and of one model. Afterwards the first one stands at the frozen boundary; the others hold leftovers. An error means
/// that the experiment itself could not be made; a model that is not closed is a report with `closed` false.
pub fn verify(
    sets: &mut [LiveSet],
    drive: &mut dyn FnMut(&mut LiveSet, Phase) -> DriveResult,
) -> Result<VerifyReport, Error> {
    let (first, others) = sets.split_first_mut().ok_or_else(|| Error::Vacuous {
        reason: "0 live sets given".to_owned(),
    })?;
    let mut must = |live: &mut LiveSet, phase: Phase| {
        drive(live, phase).map_err(|source| Error::Drive {
            phase: phase.to_string(),
            source,
        })
    };

    must(first, Phase::Warm)?;
    let mut store = Store::new(StoreConfig {
        device_budget_bytes: u64::MAX,
        host_budget_bytes: u64::MAX,
        capacity: 1,
    });
    store.snapshot(
        first,
        &SnapshotRequest::new(Some("verify"), Tier::Host, Boundary::default()),
    )?;
    let capsule = store.get("verify")?;
    let reference = must(first, Phase::Measure)?;
    if reference.is_empty() {
        return Err(Error::Vacuous {
            reason: "the drive function returned 0 output bytes to compare".to_owned(),
        });
    }
    restore(&capsule, first, false)?;
    if must(first, Phase::Other)? == reference {
        return Err(Error::Vacuous {
            reason: format!(
                "a run with another prompt and other inputs gave the same {} output bytes",
                reference.len()
            ),
        });
    }

    let mut whole = Vec::new();
    let mut second = others.first_mut();
    for poison in POISONS {
        for live in std::iter::once(&mut *first).chain(second.as_deref_mut()) {
            let outcome = trial(&capsule, live, poison, None, &reference, drive)?;
            whole.push(WholeCheck {
                set: live.name().to_owned(),
                poison,
                outcome,
            });
        }
    }

    let layout = capsule.frozen.layout.clone();
    let mut regions = Vec::new();
    for (i, r) in layout.regions.iter().enumerate() {
        let mut outcomes = Vec::new();
        for poison in POISONS {
            outcomes.push(trial(&capsule, first, poison, Some(i), &reference, drive)?);
        }
        regions.push(RegionVerdict {
            name: r.name.clone(),
            class: StateClass::Continuation,
            bytes: r.bytes,
            caught: outcomes.iter().any(|o| *o != Outcome::Same),
            outcomes,
        });
    }
    restore(&capsule, first, false)?;

    Ok(VerifyReport {
        fingerprint: first.fingerprint(),
        reference_bytes: reference.len(),
        capsule_bytes: capsule.info.bytes,
        poisoned_bytes: first.buffers().iter().map(|b| b.bytes() as u64).sum(),
        closed: whole.iter().all(|w| w.outcome == Outcome::Same),
        second_set: second.is_some(),
        unsaved: unsaved(first),
        whole,
        regions,
    })
}

/// Poison, restore (without one region), drive, compare.
fn trial(
    capsule: &Capsule,
    live: &mut LiveSet,
    poison: Poison,
    without: Option<usize>,
    reference: &[u8],
    drive: &mut dyn FnMut(&mut LiveSet, Phase) -> DriveResult,
) -> Result<Outcome, Error> {
    match poison {
        Poison::Pattern(byte) => fill_arenas(live, byte)?,
        Poison::Leftovers => {
            restore(capsule, live, false)?;
            drive(live, Phase::Other).map_err(|source| Error::Drive {
                phase: Phase::Other.to_string(),
                source,
            })?;
        }
    }
    match without {
        Some(region) => restore_without(capsule, live, region)?,
        None => restore(capsule, live, false)?,
    };
    // What a tick would refuse to run on is caught, whether or not this drive function looks at it.
    if let Err(e) = live.host_state().read() {
        return Ok(Outcome::Refused(e.to_string()));
    }
    let outcome = match drive(live, Phase::Measure) {
        Ok(bytes) => Outcome::of(reference, &bytes),
        Err(e) => Outcome::Refused(e.to_string()),
    };
    live.usable().map_err(|source| Error::Runtime {
        context: "verification cannot go on".to_owned(),
        source: Box::new(source),
    })?;
    Ok(outcome)
}

/// Sets every byte of every buffer of the set, device and host.
fn fill_arenas(live: &LiveSet, byte: u8) -> Result<(), Error> {
    live.sync().map_err(|source| Error::Runtime {
        context: "poison".to_owned(),
        source: Box::new(source),
    })?;
    let ctx = live.context();
    for b in live.buffers() {
        ctx.fill(&b.all(), byte, StreamId(0))
            .map_err(|e| Error::exec(format!("poison buffer '{}'", b.name()), e))?;
    }
    ctx.synchronize(StreamId(0))
        .map_err(|e| Error::exec("poison", e))
}

fn unsaved(live: &LiveSet) -> Vec<UnsavedBytes> {
    let mut out = Vec::new();
    for b in live.buffers() {
        let saved: u64 = live
            .regions()
            .iter()
            .filter(|r| r.class == StateClass::Continuation && r.slice.buffer().id() == b.id())
            .map(|r| r.slice.bytes() as u64)
            .sum();
        let unsaved = (b.bytes() as u64).saturating_sub(saved);
        if unsaved > 0 {
            out.push(UnsavedBytes {
                buffer: b.name().to_owned(),
                space: b.space(),
                bytes: b.bytes() as u64,
                unsaved,
            });
        }
    }
    out
}
