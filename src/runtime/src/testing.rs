//! A toy producer with hybrid state, for the tests of this crate and of the layers above.
//!
//! Its graphs consist of copies and fills only, so it runs on every backend, in microseconds, and its output bytes are exact.
//! Each output row mixes bytes of everything that a real policy keeps: a shifting key/value cache, a recurrent state, a
//! random-number ring that turns with every draw, the prompt, an input window, and the observed robot state.
//!
//! | Buffer | Bytes | Region class |
//! |---|---|---|
//! | `prompt` | 64 | continuation |
//! | `state` | 32 | continuation (input window) |
//! | `bias` | 64 | continuation (SWAP window) |
//! | `recurrent` | 128 | continuation |
//! | `kv` | 2048 | continuation |
//! | `rng` | 256 | continuation |
//! | `mirror` | 64 | continuation, although every tick rewrites it before it reads it: scratch that a verifier must find |
//! | `chunk` | 640 | output |
//! | `work_context`, `work_action` | 2048, 256 | scratch |
//! | `spare` | 512 | in no region, never touched by a graph |
//!
//! Graphs: `context` (key 0, stream `main`), `action` (keys 5 and 10, stream `action`), `full` (keys 5 and 10, stream `main`).
//! Plans: `full`, and `context_action` across both streams; both give the same bytes.

use crate::{
    Buffer, Context, Direction, Error, InputData, Layout, LiveSet, LiveSetBuilder, Modality,
    PortDType, PortId, PortSpec, Producer, Recorder, Role, SetParts, ShapeKey, Slice, Space,
    StageSpec, StateClass, Update, Verbs,
};

/// Rows of a chunk.
pub const ROWS: usize = 10;
/// Bytes of a row.
pub const ROW_BYTES: usize = 64;
/// Longest prompt in bytes.
pub const PROMPT_BYTES: usize = 64;
/// Elements of the `state` port.
pub const STATE_DIM: usize = 8;
/// Variants of `action` and `full`; the second is the default.
pub const KEYS: [ShapeKey; 2] = [5, 10];

const KV_ROWS: usize = 32;

/// Variations of the toy, most of them mistakes that a verifier must find.
#[derive(Clone, Debug)]
pub struct ToyOptions {
    /// Fills the random-number ring.
    pub seed: u64,
    /// Do not declare the region of this buffer.
    pub forget: Option<String>,
    /// Keep a call counter in a Rust field and mix it into the state input.
    pub hidden_counter: bool,
    /// Extra continuation regions, for benches: `(count, bytes of each)`.
    pub extra_regions: (usize, usize),
    /// An identity pair, to make two toys differ.
    pub revision: String,
    /// Additional SETUP input `gain` that copies 4 bytes into `bias`.
    pub setup_port: bool,
}

impl Default for ToyOptions {
    fn default() -> ToyOptions {
        ToyOptions {
            seed: 7,
            forget: None,
            hidden_counter: false,
            extra_regions: (0, 0),
            revision: "1".to_owned(),
            setup_port: false,
        }
    }
}

/// The toy.
pub struct ToyProducer {
    ctx: Context,
    options: ToyOptions,
}

impl ToyProducer {
    /// A toy on `ctx`.
    pub fn new(ctx: &Context, options: ToyOptions) -> ToyProducer {
        ToyProducer {
            ctx: ctx.clone(),
            options,
        }
    }
}

impl Producer for ToyProducer {
    fn name(&self) -> &str {
        "toy"
    }

    fn build(&mut self, set_name: &str) -> Result<LiveSet, Error> {
        let mut b = LiveSetBuilder::new(&self.ctx, set_name)?;
        b.identity("model", "toy")?;
        b.identity("revision", &self.options.revision)?;
        let action_stream = b.stream("action", -1)?;
        let main = crate::StreamId(0);

        let device = Space::Device;
        let state_role = Role::STATE;
        let parts = Parts {
            prompt: b.buffer("prompt", device, PROMPT_BYTES, Role::INPUT)?,
            state: b.buffer("state", device, 4 * STATE_DIM, Role::INPUT)?,
            bias: b.buffer("bias", device, 64, Role::INPUT)?,
            recurrent: b.buffer("recurrent", device, 128, state_role)?,
            kv: b.buffer("kv", device, KV_ROWS * ROW_BYTES, state_role)?,
            rng: b.buffer("rng", device, 256, state_role)?,
            mirror: b.buffer("mirror", device, 64, Role::SCRATCH)?,
            chunk: b.buffer("chunk", device, ROWS * ROW_BYTES, Role::OUTPUT)?,
            work_context: b.buffer("work_context", device, KV_ROWS * ROW_BYTES, Role::SCRATCH)?,
            work_action: b.buffer("work_action", device, 256, Role::SCRATCH)?,
        };
        b.buffer("spare", Space::Host, 512, Role::SCRATCH)?;
        for buffer in [
            &parts.prompt,
            &parts.state,
            &parts.bias,
            &parts.recurrent,
            &parts.kv,
            &parts.rng,
            &parts.mirror,
        ] {
            if self.options.forget.as_deref() != Some(buffer.name()) {
                b.region_all(buffer, StateClass::Continuation)?;
            }
        }
        b.region_all(&parts.chunk, StateClass::Output)?;
        b.region_all(&parts.work_context, StateClass::Scratch)?;
        let (count, bytes) = self.options.extra_regions;
        if count > 0 {
            let extra = b.buffer("extra", device, count * bytes, state_role)?;
            for i in 0..count {
                b.region(
                    &format!("extra_{i}"),
                    &extra,
                    i * bytes,
                    bytes,
                    StateClass::Continuation,
                )?;
            }
        }
        let mut ring = [0u8; 256];
        let mut x = self.options.seed;
        for v in &mut ring {
            x = x
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            *v = (x >> 56) as u8;
        }
        self.ctx
            .upload(&parts.rng.all(), &ring)
            .map_err(|e| Error::exec("fill the random-number ring", e))?;

        let context = b.graph("context", 1, 0, &[0], main)?;
        context.capture(0, |r| parts.record_context(r))?;
        let action = b.graph("action", 0, KEYS[1], &KEYS, action_stream)?;
        let full = b.graph("full", 0, KEYS[1], &KEYS, main)?;
        for key in KEYS {
            action.capture(key, |r| parts.record_action(r, key))?;
            full.capture(key, |r| {
                parts.record_context(r)?;
                parts.record_action(r, key)
            })?;
        }

        use {Direction::*, Modality as M, PortDType as D};
        b.port(
            PortSpec::new(
                "prompt",
                M::Text,
                D::U8,
                Layout::Flat,
                In,
                Update::Staged,
                &[-1],
            )
            .required(),
        )?;
        let dim = [STATE_DIM as i64];
        b.port(
            PortSpec::new(
                "state",
                M::State,
                D::F32,
                Layout::Flat,
                In,
                Update::Staged,
                &dim,
            )
            .required(),
        )?;
        b.port(
            PortSpec::new(
                "bias",
                M::Tensor,
                D::U8,
                Layout::Flat,
                In,
                Update::Swap,
                &[64],
            )
            .window(parts.bias.all()),
        )?;
        let shape = [ROWS as i64, ROW_BYTES as i64];
        b.port(
            PortSpec::new(
                "actions",
                M::Action,
                D::U8,
                Layout::Flat,
                Out,
                Update::Staged,
                &shape,
            )
            .payload_bytes((ROWS * ROW_BYTES) as u64),
        )?;
        b.port(
            PortSpec::new(
                "actions_raw",
                M::Tensor,
                D::U8,
                Layout::Flat,
                Out,
                Update::Swap,
                &shape,
            )
            .window(parts.chunk.all()),
        )?;
        if self.options.setup_port {
            b.port(PortSpec::new(
                "gain",
                M::Tensor,
                D::U8,
                Layout::Flat,
                In,
                Update::Setup,
                &[4],
            ))?;
        }
        b.plan("full", &[StageSpec::new("full")])?;
        b.plan(
            "context_action",
            &[
                StageSpec::new("context").key(0),
                StageSpec::new("action").after(&[0]),
            ],
        )?;
        let verbs = ToyVerbs {
            set: b.parts(),
            parts,
            hidden: self.options.hidden_counter.then_some(0),
        };
        b.finish(Box::new(verbs))
    }

    fn weights_bytes(&self) -> usize {
        0
    }
}

struct Parts {
    prompt: Buffer,
    state: Buffer,
    bias: Buffer,
    recurrent: Buffer,
    kv: Buffer,
    rng: Buffer,
    mirror: Buffer,
    chunk: Buffer,
    work_context: Buffer,
    work_action: Buffer,
}

fn cp(
    r: &mut Recorder<'_>,
    dst: (&Buffer, usize),
    src: (&Buffer, usize),
    n: usize,
) -> Result<(), Error> {
    r.copy(&dst.0.slice(dst.1, n)?, &src.0.slice(src.1, n)?)?;
    Ok(())
}

/// Moves everything from `by` on to the front, through `work`, and leaves the last `by` bytes for the caller.
fn shift(r: &mut Recorder<'_>, b: &Buffer, work: &Buffer, by: usize) -> Result<(), Error> {
    let n = b.bytes() - by;
    cp(r, (work, 0), (b, by), n)?;
    cp(r, (b, 0), (work, 0), n)
}

impl Parts {
    fn record_context(&self, r: &mut Recorder<'_>) -> Result<(), Error> {
        let last = self.kv.bytes() - ROW_BYTES;
        shift(r, &self.kv, &self.work_context, ROW_BYTES)?;
        cp(r, (&self.kv, last), (&self.recurrent, 0), 32)?;
        cp(r, (&self.kv, last + 32), (&self.state, 0), 32)?;
        shift(r, &self.recurrent, &self.work_context, 32)?;
        cp(r, (&self.recurrent, 96), (&self.prompt, 0), 8)?;
        cp(r, (&self.recurrent, 104), (&self.kv, 0), 8)?;
        cp(r, (&self.recurrent, 112), (&self.state, 0), 16)
    }

    fn record_action(&self, r: &mut Recorder<'_>, steps: ShapeKey) -> Result<(), Error> {
        r.fill(&self.chunk.all(), 0)?;
        cp(r, (&self.mirror, 0), (&self.recurrent, 64), 64)?;
        for row in 0..(steps as usize).min(ROWS) {
            // One draw: the ring turns by 16 bytes.
            cp(r, (&self.work_action, 0), (&self.rng, 0), 16)?;
            cp(r, (&self.work_action, 16), (&self.rng, 16), 240)?;
            cp(r, (&self.rng, 0), (&self.work_action, 16), 240)?;
            cp(r, (&self.rng, 240), (&self.work_action, 0), 16)?;
            let at = row * ROW_BYTES;
            cp(r, (&self.chunk, at), (&self.rng, 0), 16)?;
            cp(
                r,
                (&self.chunk, at + 16),
                (&self.kv, row * 3 * ROW_BYTES),
                16,
            )?;
            cp(r, (&self.chunk, at + 32), (&self.recurrent, row * 12), 8)?;
            cp(r, (&self.chunk, at + 40), (&self.mirror, row * 5), 8)?;
            cp(r, (&self.chunk, at + 48), (&self.bias, row * 6), 8)?;
            cp(r, (&self.chunk, at + 56), (&self.prompt, row * 5), 8)?;
        }
        Ok(())
    }
}

struct ToyVerbs {
    set: SetParts,
    parts: Parts,
    /// The mistake: continuation state outside the buffers.
    hidden: Option<u8>,
}

impl ToyVerbs {
    fn put(&self, dst: &Slice, bytes: &[u8]) -> Result<(), Error> {
        self.set
            .ctx
            .upload(dst, bytes)
            .map_err(|e| Error::exec("toy input", e))
    }
}

fn kind_error(port: &str, expected: &str, data: &InputData<'_>) -> Error {
    Error::PortFormat {
        port: port.to_owned(),
        expected: expected.to_owned(),
        got: data.kind().to_owned(),
    }
}

impl Verbs for ToyVerbs {
    fn set_input(&mut self, port: PortId, data: InputData<'_>) -> Result<(), Error> {
        match (port.0, data) {
            (0, InputData::Text(text)) => {
                if text.len() > PROMPT_BYTES {
                    return Err(Error::PortBytes {
                        port: "prompt".to_owned(),
                        expected: PROMPT_BYTES as u64,
                        got: text.len() as u64,
                    });
                }
                let mut block = [0; PROMPT_BYTES];
                block[..text.len()].copy_from_slice(text.as_bytes());
                self.put(&self.parts.prompt.all(), &block)
            }
            (1, InputData::F32(values)) => {
                if values.len() != STATE_DIM {
                    return Err(Error::PortBytes {
                        port: "state".to_owned(),
                        expected: 4 * STATE_DIM as u64,
                        got: 4 * values.len() as u64,
                    });
                }
                let mut block = [0; 4 * STATE_DIM];
                for (i, v) in values.iter().enumerate() {
                    if !v.is_finite() {
                        return Err(Error::PortValue {
                            port: "state".to_owned(),
                            reason: format!("element {i} is {v}"),
                        });
                    }
                    block[4 * i..4 * i + 4].copy_from_slice(&v.to_le_bytes());
                }
                if let Some(calls) = &mut self.hidden {
                    *calls = calls.wrapping_add(1);
                    block[0] ^= *calls;
                }
                self.put(&self.parts.state.all(), &block)
            }
            (5, InputData::Bytes(bytes)) if bytes.len() == 4 => {
                self.put(&self.parts.bias.slice(60, 4)?, bytes)
            }
            (0, other) => Err(kind_error("prompt", "text", &other)),
            (1, other) => Err(kind_error("state", "f32 values", &other)),
            (_, other) => Err(kind_error("gain", "4 bytes", &other)),
        }
    }

    fn get_output(&mut self, _: PortId, out: &mut [u8]) -> Result<usize, Error> {
        let chunk = &self.parts.chunk;
        let needed = chunk.bytes();
        let got = out.len();
        let target = out.get_mut(..needed).ok_or_else(|| Error::OutputTooSmall {
            port: "actions".to_owned(),
            needed: needed as u64,
            got: got as u64,
        })?;
        self.set
            .ctx
            .download(&chunk.all(), target)
            .map_err(|e| Error::exec("toy output", e))?;
        Ok(needed)
    }

    fn prepare(&mut self, graph: &str, key: ShapeKey) -> Result<(), Error> {
        let g = self.set.graph(graph)?;
        let is_known = if graph == "context" {
            key == 0
        } else {
            KEYS.contains(&key)
        };
        if !is_known {
            return Err(Error::NoVariant {
                graph: graph.to_owned(),
                key,
            });
        }
        if g.has_variant(key) {
            return Ok(());
        }
        g.capture(key, |r| {
            if graph != "action" {
                self.parts.record_context(r)?;
            }
            if graph != "context" {
                self.parts.record_action(r, key)?;
            }
            Ok(())
        })
    }

    fn evict(&mut self, graph: &str, key: ShapeKey) -> Result<(), Error> {
        self.set
            .graph(graph)?
            .evict(key)
            .map_err(|e| Error::exec(format!("evict key {key} of '{graph}'"), e))
    }

    fn warm(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// One tick of a toy set: state input from `tick`, then the plan, then the chunk.
pub fn tick(live: &mut LiveSet, plan: &str, key: ShapeKey, tick: u64) -> Result<Vec<u8>, Error> {
    let mut state = [0.0; STATE_DIM];
    for (i, v) in state.iter_mut().enumerate() {
        *v = (tick as f32) * 0.5 + i as f32;
    }
    let find = |name: &str| {
        live.port(name).ok_or_else(|| Error::NotFound {
            kind: "port",
            name: name.to_owned(),
        })
    };
    let (port, actions) = (find("state")?, find("actions")?);
    let plan = live.plan(plan).ok_or_else(|| Error::NotFound {
        kind: "plan",
        name: plan.to_owned(),
    })?;
    live.set_input(port, InputData::F32(&state))?;
    live.run(plan, key)?;
    live.sync()?;
    live.host_state().update(|h| {
        h.tick += 1;
        h.ticks_since_context = 0;
    })?;
    let mut out = vec![0; ROWS * ROW_BYTES];
    live.get_output(actions, &mut out)?;
    Ok(out)
}

/// Sets the prompt of a toy set.
pub fn set_prompt(live: &mut LiveSet, text: &str) -> Result<(), Error> {
    live.set_input(PortId(0), InputData::Text(text))
}
