//! The gate for structural cuts: a plan that only cuts a model differently must give the same bytes.

use crate::{Buffer, Direction, Error, LiveSet, PlanId, PortId, ShapeKey, StateClass, Update};

/// What [`split_gate`] runs and compares.
#[derive(Clone, Debug)]
pub struct SplitGate {
    /// The plan that the cut is measured against.
    pub full: PlanId,
    /// The cut.
    pub split: PlanId,
    /// Variant of both.
    pub key: ShapeKey,
    /// Names of SWAP and STAGED outputs to compare, in this order.
    pub outputs: Vec<String>,
    /// Names of buffers to compare after the outputs, in this order.
    pub buffers: Vec<String>,
}

/// What [`split_gate`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitOutcome {
    /// So many bytes are all equal.
    Same {
        /// Bytes compared.
        bytes: usize,
    },
    /// The first byte that differs.
    Differs {
        /// `output` or `buffer`.
        what: &'static str,
        /// Its name.
        name: String,
        /// Position of the byte in it.
        byte: usize,
        /// What the full plan gives there; `None` when it gives fewer bytes.
        full: Option<u8>,
        /// What the cut gives there.
        split: Option<u8>,
    },
}

impl SplitGate {
    /// Compares every SWAP and STAGED output of `set`, then every buffer that is not scratch alone.
    pub fn of(set: &LiveSet, full: PlanId, split: PlanId, key: ShapeKey) -> SplitGate {
        let outputs = set
            .ports()
            .iter()
            .filter(|p| p.direction == Direction::Out && p.update != Update::Setup);
        let kept = |b: &&Buffer| {
            let mut regions = set
                .regions()
                .iter()
                .filter(|r| r.slice.buffer().id() == b.id());
            regions.any(|r| r.class != StateClass::Scratch)
        };
        SplitGate {
            full,
            split,
            key,
            outputs: outputs.map(|p| p.name.clone()).collect(),
            buffers: set
                .buffers()
                .iter()
                .filter(kept)
                .map(|b| b.name().to_owned())
                .collect(),
        }
    }
}

/// Runs the full plan and the cut from the same bytes of every buffer of `set`, inputs and noise as they are, and compares bit for bit.
///
/// Every buffer is as before afterwards, also after an error. Not for the hot path: it copies the set's arenas.
///
/// # Errors
/// The set is hot; nothing to compare; an unknown name; an output of unknown size; whatever a run or a copy fails with.
pub fn split_gate(set: &mut LiveSet, gate: &SplitGate) -> Result<SplitOutcome, Error> {
    if set.is_hot() {
        return Err(Error::Hot {
            set: set.name().to_owned(),
            what: "the gate for structural cuts".to_owned(),
        });
    }
    if gate.outputs.is_empty() && gate.buffers.is_empty() {
        return Err(Error::Declaration {
            what: "split gate",
            name: set.name().to_owned(),
            reason: "no output and no buffer to compare".to_owned(),
        });
    }
    let probes = probes(set, gate)?;
    set.sync()?;
    let start = save(set)?;
    let full = restored(set, &start, gate.full, gate.key, &probes)?;
    let split = restored(set, &start, gate.split, gate.key, &probes)?;
    Ok(compare(&probes, &full, &split))
}

enum Probe {
    Staged(PortId, String, usize),
    Swap(PortId, String, usize),
    Buffer(Buffer),
}

impl Probe {
    fn name(&self) -> (&'static str, &str) {
        match self {
            Probe::Staged(_, name, _) | Probe::Swap(_, name, _) => ("output", name),
            Probe::Buffer(b) => ("buffer", b.name()),
        }
    }
}

fn probes(set: &LiveSet, gate: &SplitGate) -> Result<Vec<Probe>, Error> {
    let mut out = Vec::new();
    for name in &gate.outputs {
        let port = set.port(name).ok_or_else(|| missing("port", name))?;
        let p = &set.ports()[port.0];
        let refuse = |reason: String| {
            Err(Error::PortValue {
                port: name.clone(),
                reason,
            })
        };
        if p.direction != Direction::Out {
            return refuse("it is no output".to_owned());
        }
        match (p.update, set.window(port), p.payload_bytes()) {
            (Update::Swap, Some(w), _) => out.push(Probe::Swap(port, name.clone(), w.bytes())),
            (Update::Swap, None, _) => return refuse("it is SWAP and has no window".to_owned()),
            (_, _, Some(bytes)) => out.push(Probe::Staged(port, name.clone(), bytes as usize)),
            (_, _, None) => return refuse(format!("the size of shape {:?} is not known", p.shape)),
        }
    }
    for name in &gate.buffers {
        let buffer = set.buffer(name).ok_or_else(|| missing("buffer", name))?;
        out.push(Probe::Buffer(buffer.clone()));
    }
    Ok(out)
}

/// What a run gives; the set's bytes are those of `start` afterwards. A failure of the run is told before one of putting back.
fn restored(
    set: &mut LiveSet,
    start: &[Vec<u8>],
    plan: PlanId,
    key: ShapeKey,
    probes: &[Probe],
) -> Result<Vec<Vec<u8>>, Error> {
    let observed = observe(set, plan, key, probes);
    let put_back = put_back(set, start);
    let observed = observed?;
    put_back?;
    Ok(observed)
}

fn observe(
    set: &mut LiveSet,
    plan: PlanId,
    key: ShapeKey,
    probes: &[Probe],
) -> Result<Vec<Vec<u8>>, Error> {
    set.run(plan, key)?;
    set.sync()?;
    let mut out = Vec::with_capacity(probes.len());
    // Buffers first: reading an output may go through buffers.
    for probe in probes.iter().rev() {
        out.push(match probe {
            Probe::Buffer(b) => download(set, b)?,
            Probe::Swap(port, _, bytes) => {
                let mut data = vec![0; *bytes];
                set.swap_out(*port, &mut data)?;
                data
            }
            Probe::Staged(port, _, bytes) => {
                let mut data = vec![0; *bytes];
                let written = set.get_output(*port, &mut data)?;
                data.truncate(written);
                data
            }
        });
    }
    out.reverse();
    Ok(out)
}

fn compare(probes: &[Probe], full: &[Vec<u8>], split: &[Vec<u8>]) -> SplitOutcome {
    for (probe, (full, split)) in probes.iter().zip(full.iter().zip(split)) {
        let n = full.len().max(split.len());
        if let Some(byte) = (0..n).find(|i| full.get(*i) != split.get(*i)) {
            let (what, name) = probe.name();
            return SplitOutcome::Differs {
                what,
                name: name.to_owned(),
                byte,
                full: full.get(byte).copied(),
                split: split.get(byte).copied(),
            };
        }
    }
    SplitOutcome::Same {
        bytes: full.iter().map(Vec::len).sum(),
    }
}

fn save(set: &LiveSet) -> Result<Vec<Vec<u8>>, Error> {
    set.buffers().iter().map(|b| download(set, b)).collect()
}

fn put_back(set: &LiveSet, saved: &[Vec<u8>]) -> Result<(), Error> {
    set.sync()?;
    for (buffer, bytes) in set
        .buffers()
        .iter()
        .zip(saved)
        .filter(|(_, bytes)| !bytes.is_empty())
    {
        let copied = set.context().upload(&buffer.all(), bytes);
        copied.map_err(|e| Error::exec(format!("put buffer '{}' back", buffer.name()), e))?;
    }
    Ok(())
}

fn download(set: &LiveSet, buffer: &Buffer) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; buffer.bytes()];
    if !bytes.is_empty() {
        let copied = set.context().download(&buffer.all(), &mut bytes);
        copied.map_err(|e| Error::exec(format!("read buffer '{}'", buffer.name()), e))?;
    }
    Ok(bytes)
}

fn missing(kind: &'static str, name: &str) -> Error {
    Error::NotFound {
        kind,
        name: name.to_owned(),
    }
}
