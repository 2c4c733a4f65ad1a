//! The π0.5 architecture: a vision-language prefix and a flow-matching action expert.
//!
//! A SigLIP tower and the prompt's embeddings form a bidirectional prefix; the backbone turns it into keys
//! and values by layer; an action expert with adaptive RMS norms attends to them and integrates a flow from
//! noise (t = 1) to a chunk of actions (t = 0). All dimensions come from [`Pi05Config`].
//!
//! | Graph | Key | Reads | Writes |
//! |---|---|---|---|
//! | `context` | 0 | staged images, tokens, mask, state | keys and values, mask, latched state |
//! | `action` | flow steps | those, generator or noise | raw actions, actions |
//! | `full` | flow steps | both | both |
//!
//! | Plan | Stages |
//! |---|---|
//! | `full` | `full` |
//! | `context_action` | `context`, then `action` |
//! | `action` | `action` on the keys and values of an earlier context |
//!
//! `full` gives the same bytes as `context_action`. The actions are anchored to the state that their context
//! saw, however old that is.
//!
//! | Port | Payload |
//! |---|---|
//! | `images` | one view per camera by position, any size, colour 8 bits: stretched and normalised as in [`flashrt_ops::preprocess`] |
//! | `state` | `[robot_dim]` f32 |
//! | `prompt` | UTF-8 instruction; a tokenizer makes ids of it and of the state's bins whenever one of the two changes |
//! | `actions` | `[chunk, robot_dim]` f32 |
//! | `actions_raw` | `[chunk, adim]` f32, as integrated |
//! | `noise` | `[chunk, adim]` f32, with [`NoiseSource::External`] only |

mod config;
mod lower;
pub mod names;
mod options;
mod params;
mod set;
mod verbs;

use std::path::Path;
use std::sync::Arc;

pub use config::Pi05Config;
pub use options::{NoiseSource, Pi05Options, StagePlan, MAX_FLOW_STEPS};

use flashrt_exec::{Context, Graph, ShapeKey, StreamId};
use flashrt_runtime::{
    Direction, Layout, LiveSet, LiveSetBuilder, Modality, PortDType, PortSpec, Producer, StageSpec,
    Update,
};

use crate::stats::Stats;
use crate::weights::Weights;
use crate::{Error, Tokenizer, WordList};
use params::Params;
use set::{Noise, SetBuffers};
use verbs::{Pi05Verbs, Staging};

/// The only key of the graph `context`.
pub const CONTEXT_KEY: ShapeKey = 0;

/// Opens a weights file and checks it whole against the configuration: dimensions, names, shapes, types.
///
/// # Errors
/// Those of [`Weights::open`], [`names::cross_check`] and [`Weights::check`].
pub fn open_weights(config: &Pi05Config, path: &Path) -> Result<Weights, Error> {
    let mut weights = Weights::open(path, &names::canonical)?;
    names::tie(&mut weights);
    names::cross_check(config, &weights)?;
    weights.check(&names::all(config))?;
    Ok(weights)
}

/// What all live sets share; constant after the load.
struct Shared {
    config: Pi05Config,
    params: Params,
    stats: Stats,
    tokenizer: Arc<dyn Tokenizer>,
    /// Flow steps of the buckets, the keys of `action` and `full`.
    keys: Vec<ShapeKey>,
}

impl Shared {
    fn capture(
        &self,
        graph: &Graph,
        key: ShapeKey,
        b: &SetBuffers,
    ) -> Result<(), flashrt_runtime::Error> {
        let missing = || flashrt_runtime::Error::NoVariant {
            graph: graph.name().into(),
            key,
        };
        let (c, p) = (&self.config, &self.params);
        let steps = match (graph.name(), u32::try_from(key)) {
            ("context", Ok(0)) => 0,
            ("action" | "full", Ok(n)) if self.keys.contains(&key) => n,
            _ => return Err(missing()),
        };
        graph
            .capture(key, |r| {
                if graph.name() != "action" {
                    lower::context(r, c, p, b)?;
                }
                if graph.name() != "context" {
                    lower::action(r, c, p, b, steps)?;
                }
                Ok(())
            })
            .map_err(runtime)
    }
}

/// A failure while building, as the runtime's error.
fn runtime(e: Error) -> flashrt_runtime::Error {
    match e {
        Error::Runtime(e) => e,
        e => flashrt_runtime::Error::model_from("pi05", e),
    }
}

/// A loaded π0.5 policy: weights on the device, ready to build live sets.
pub struct Pi05 {
    ctx: Context,
    shared: Arc<Shared>,
    options: Pi05Options,
    default_steps: u32,
    weights_sha256: String,
    /// What identifies the kernels of a GPU.
    kernels: Option<String>,
}

impl Pi05 {
    /// Loads `config.json`, `stats.json` and `model.safetensors` of `dir`.
    ///
    /// # Errors
    /// Everything of [`Error`] that a broken folder or a failing device can cause.
    pub fn load(ctx: &Context, dir: &Path, options: Pi05Options) -> Result<Self, Error> {
        let config = Pi05Config::read(&dir.join("config.json"))?;
        let stats = Stats::read(&dir.join("stats.json"))?;
        let weights = open_weights(&config, &dir.join("model.safetensors"))?;
        Self::from_parts(ctx, config, stats, &weights, options)
    }

    /// As [`Pi05::load`], from parts; `weights` as [`open_weights`] gives them.
    ///
    /// # Errors
    /// [`Error::Value`] for parts that do not fit each other, and what loading and the device can cause.
    pub fn from_parts(
        ctx: &Context,
        config: Pi05Config,
        stats: Stats,
        weights: &Weights,
        options: Pi05Options,
    ) -> Result<Self, Error> {
        config.check()?;
        let (steps, default_steps) = options.buckets(&config)?;
        // Before anything is captured.
        let kernels = flashrt_ops::identity(ctx, flashrt_ops::KernelSet::F32)?;
        let tokenizer = Self::tokenizer(&config, &options)?;
        let fits = |key, got: usize, rule: String| -> Result<(), Error> {
            Err(Error::Value {
                key,
                got: got.to_string(),
                rule,
            })
        };
        let robot = config.robot_dim();
        if stats.state.len() != robot {
            fits(
                "slo",
                stats.state.len(),
                format!("expected as many elements as robot_dim = {robot}"),
            )?;
        }
        if stats.action.width != robot {
            fits(
                "am",
                stats.action.width,
                format!("expected as many columns as robot_dim = {robot}"),
            )?;
        }
        if stats.action.rows != 1 && stats.action.rows != config.chunk {
            fits(
                "am",
                stats.action.rows,
                format!("expected 1 row or chunk = {} rows", config.chunk),
            )?;
        }
        let params = Params::load(ctx, &config, weights, &stats, &steps, options.taps)?;
        let keys = steps.iter().map(|&n| ShapeKey::from(n)).collect();
        Ok(Pi05 {
            ctx: ctx.clone(),
            shared: Arc::new(Shared {
                config,
                params,
                stats,
                tokenizer,
                keys,
            }),
            options,
            default_steps,
            weights_sha256: weights.sha256().to_owned(),
            kernels,
        })
    }

    fn tokenizer(config: &Pi05Config, options: &Pi05Options) -> Result<Arc<dyn Tokenizer>, Error> {
        let tokenizer: Arc<dyn Tokenizer> = match (&options.tokenizer, &config.words) {
            (Some(t), _) => t.clone(),
            (None, Some(words)) => Arc::new(WordList::new(
                words,
                config.state_offset(),
                config.max_prompt_tokens,
            )?),
            (None, None) => {
                return Err(Error::Value {
                    key: "words",
                    got: "absent".into(),
                    rule: "expected the tokenizer's word list".into(),
                })
            }
        };
        if tokenizer.vocabulary() > config.vocab {
            return Err(Error::Value {
                key: "vocab",
                got: config.vocab.to_string(),
                rule: format!(
                    "expected at least the tokenizer's {} ids",
                    tokenizer.vocabulary()
                ),
            });
        }
        if tokenizer.max_tokens() > config.max_prompt_tokens {
            return Err(Error::Value {
                key: "max_prompt_tokens",
                got: config.max_prompt_tokens.to_string(),
                rule: format!(
                    "expected at least the tokenizer's {}",
                    tokenizer.max_tokens()
                ),
            });
        }
        Ok(tokenizer)
    }

    /// The dimensions.
    pub fn config(&self) -> &Pi05Config {
        &self.shared.config
    }

    /// Key of a run that names none.
    pub fn default_flow_steps(&self) -> u32 {
        self.default_steps
    }

    fn identity(&self, b: &mut LiveSetBuilder) -> Result<(), flashrt_runtime::Error> {
        let s = &self.shared;
        let buckets: Vec<String> = s.keys.iter().map(ShapeKey::to_string).collect();
        b.identity("model", "pi05")?;
        b.identity(
            "producer",
            concat!("flashrt-models ", env!("CARGO_PKG_VERSION")),
        )?;
        b.identity("dims", &s.config.dims())?;
        b.identity("precision", "f32")?;
        b.identity("numerics", flashrt_ops::NUMERICS)?;
        b.identity("backend", &self.ctx.backend().to_string())?;
        if let Some(kernels) = &self.kernels {
            b.identity("kernels", kernels)?;
        }
        b.identity("weights_sha256", &self.weights_sha256)?;
        b.identity("tokenizer_sha256", &s.tokenizer.digest())?;
        b.identity("normalization_sha256", &s.stats.digest())?;
        b.identity("preprocessing", "stretch-bilinear-f32,x/127.5-1,nhwc-rgb")?;
        b.identity("state_bins", "256,edges-1+2i/256")?;
        b.identity("flow_steps", &buckets.join(","))?;
        b.identity("flow_default", &self.default_steps.to_string())?;
        b.identity(
            "seed_policy",
            match self.options.noise {
                NoiseSource::Philox => "philox4x32-10,key-and-counter-in-rng",
                NoiseSource::External => "external-noise",
            },
        )?;
        b.identity("state_layout", set::STATE_LAYOUT)?;
        b.identity("stage_plan", self.options.stage_plan.name())?;
        if self.options.taps {
            b.identity("taps", "1")?;
        }
        Ok(())
    }

    fn ports(
        &self,
        b: &mut LiveSetBuilder,
        buffers: &SetBuffers,
    ) -> Result<(), flashrt_runtime::Error> {
        use Direction::{In, Out};
        use Update::{Staged, Swap};
        let c = &self.shared.config;
        let n = |x: usize| x as i64;
        let side = n(c.image);
        let images = PortSpec::new(
            "images",
            Modality::Image,
            PortDType::F32,
            Layout::Nhwc,
            In,
            Staged,
            &[n(c.num_views), side, side, 3],
        );
        let images = b.port(
            images
                .required()
                .window(buffers.in_images.slice().clone())
                .cadence_hz(30),
        )?;
        let state = PortSpec::new(
            "state",
            Modality::State,
            PortDType::F32,
            Layout::Flat,
            In,
            Staged,
            &[n(c.robot_dim())],
        );
        let state = b.port(state.required().window(buffers.in_state.slice().clone()))?;
        let prompt = PortSpec::new(
            "prompt",
            Modality::Text,
            PortDType::U8,
            Layout::Flat,
            In,
            Staged,
            &[-1],
        );
        let prompt = b.port(prompt.required())?;
        let shape = [n(c.chunk), n(c.robot_dim())];
        let actions = PortSpec::new(
            "actions",
            Modality::Action,
            PortDType::F32,
            Layout::Flat,
            Out,
            Staged,
            &shape,
        );
        let actions = b.port(actions.payload_bytes(buffers.out_actions.slice().bytes() as u64))?;
        debug_assert_eq!(
            [images, state, prompt, actions],
            [verbs::IMAGES, verbs::STATE, verbs::PROMPT, verbs::ACTIONS]
        );
        let raw = [n(c.chunk), n(c.adim)];
        let swap = |name: &str, way| {
            PortSpec::new(
                name,
                Modality::Tensor,
                PortDType::F32,
                Layout::Flat,
                way,
                Swap,
                &raw,
            )
        };
        b.port(swap("actions_raw", Out).window(buffers.x.slice().clone()))?;
        if let Noise::External(noise) = &buffers.noise {
            b.port(swap("noise", In).window(noise.slice().clone()))?;
        }
        Ok(())
    }

    /// What a fresh set holds: only the image tokens are valid, no instruction, the generator at its start.
    fn reset(&self, buffers: &SetBuffers) -> Result<(), Error> {
        let c = &self.shared.config;
        let mut mask = vec![1; c.image_tokens()];
        mask.resize(c.prefix_tokens(), 0);
        self.ctx.upload(buffers.in_mask.slice(), &mask)?;
        self.ctx.upload(buffers.key_mask.slice(), &mask)?;
        if let Noise::Philox(rng) = &buffers.noise {
            let mut state = self.options.seed.to_ne_bytes().to_vec();
            state.extend(0u64.to_ne_bytes());
            self.ctx.upload(rng.slice(), &state)?;
        }
        Ok(())
    }

    fn build_set(&self, name: &str) -> Result<LiveSet, flashrt_runtime::Error> {
        let s = &self.shared;
        let mut b = LiveSetBuilder::new(&self.ctx, name)?;
        self.identity(&mut b)?;
        let max_steps = s.keys.iter().max().map_or(1, |&n| n as u32);
        let buffers = SetBuffers::new(
            &mut b,
            &s.config,
            self.options.noise,
            max_steps,
            self.options.taps,
        )
        .map_err(runtime)?;
        self.ports(&mut b, &buffers)?;
        self.reset(&buffers).map_err(runtime)?;

        let main = StreamId(0);
        let default = ShapeKey::from(self.default_steps);
        let context = b.graph("context", 1, CONTEXT_KEY, &[CONTEXT_KEY], main)?;
        let action = b.graph("action", s.keys.len(), default, &s.keys, main)?;
        let full = b.graph("full", s.keys.len(), default, &s.keys, main)?;
        s.capture(&context, CONTEXT_KEY, &buffers)?;
        for &key in &s.keys {
            s.capture(&action, key, &buffers)?;
            s.capture(&full, key, &buffers)?;
        }
        b.plan("full", &[StageSpec::new("full")])?;
        let after = [
            StageSpec::new("context").key(CONTEXT_KEY),
            StageSpec::new("action").after(&[0]),
        ];
        b.plan("context_action", &after)?;
        b.plan("action", &[StageSpec::new("action")])?;
        b.default_plan(self.options.stage_plan.name())?;

        let verbs = Pi05Verbs {
            shared: s.clone(),
            ctx: self.ctx.clone(),
            mutable: b.parts().buffers,
            scratch: Staging::new(s, &buffers),
            buffers: Arc::new(buffers),
            context,
            action,
            full,
            last_error: String::new(),
        };
        let mut set = b.finish(Box::new(verbs))?;
        set.warm()?;
        Ok(set)
    }
}

impl Producer for Pi05 {
    fn name(&self) -> &str {
        "pi05"
    }

    /// Allocates, captures every bucket and runs each once; the set starts without an instruction.
    fn build(&mut self, set_name: &str) -> Result<LiveSet, flashrt_runtime::Error> {
        self.build_set(set_name)
    }

    fn weights_bytes(&self) -> usize {
        self.shared.params.bytes
    }
}
