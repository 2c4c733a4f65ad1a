//! A deployment's policy without the engine: live sets that a command drives by itself, with made-up inputs.

use std::path::Path;

use anyhow::{anyhow, bail, Context as _, Result};
use flashrt_exec::{BackendKind, Context, CpuOptions, StreamOrder};
use flashrt_models::pi05::Pi05Options;
use flashrt_runtime::{
    Direction, ForeignLibrary, ForeignProducer, ImageView, InputData, LiveSet, Modality, Model,
    PixelFormat, PlanId, PortDType, PortId, Update, KEY_INHERIT,
};
use flashrt_session::Config;

/// A loaded deployment.
pub struct Policy {
    /// The deployment file.
    pub config: Config,
    /// Its model with live sets `a` and `b`; a native one with `a` alone.
    pub model: Model,
    /// Where it runs.
    pub context: Context,
}

impl Policy {
    /// Loads the model and captures two live sets.
    ///
    /// # Errors
    /// The file or the weights are not valid, or the backend is not there.
    pub fn load(path: &Path) -> Result<Policy> {
        let config =
            Config::load(path, crate::share::folder().as_deref()).map_err(|e| anyhow!("{e}"))?;
        if let Some(native) = &config.model.native {
            let opened = ForeignLibrary::open(&native.library, &native.config)?;
            let producer = ForeignProducer::new(opened);
            let mut model = Model::open(Box::new(producer), &["a".to_string()])?;
            if model.sets[0].default_plan().is_none() {
                bail!("{} has no plan to run", native.library.display());
            }
            model.sets[0].warm()?;
            let context = model.sets[0].context().clone();
            return Ok(Policy {
                config,
                model,
                context,
            });
        }
        let context = match config.backend {
            BackendKind::Cpu => Context::cpu(CpuOptions {
                threads: config.threads,
                order: StreamOrder::Submission,
            })?,
            BackendKind::Cuda => Context::cuda(config.device)?,
            BackendKind::Foreign => {
                return Err(anyhow!("backend: expected cpu or cuda, got foreign"))
            }
        };
        let options = Pi05Options {
            flow_steps: config.model.flow_steps.clone(),
            default_flow_steps: config.model.default_flow_steps,
            seed: config.model.seed,
            ..Pi05Options::default()
        };
        let producer = flashrt_models::builtin::open(
            &config.model.builtin,
            &context,
            &config.model.weights,
            options,
        )?;
        let model = Model::open(producer, &["a".to_string(), "b".to_string()])?;
        Ok(Policy {
            config,
            model,
            context,
        })
    }

    /// Shape keys to run with, each with its name for people.
    pub fn keys(&self) -> Vec<(u64, String)> {
        let steps = self.config.model.flow_steps.iter();
        match self.config.model.native {
            Some(_) => vec![(KEY_INHERIT, "default keys".into())],
            None => steps
                .map(|k| (u64::from(*k), format!("{k} flow steps")))
                .collect(),
        }
    }

    /// Plans to time: by name, and whether they take new inputs.
    pub fn plans(&self) -> Vec<(String, bool)> {
        let live = &self.model.sets[0];
        match (&self.config.model.native, live.default_plan()) {
            (Some(_), Some(plan)) => vec![(live.plans()[plan.0].name.clone(), true)],
            _ => vec![("full".into(), true), ("action".into(), false)],
        }
    }

    /// A prompt of the same words in another order, which every vocabulary that has the one has too.
    pub fn other_prompt(&self) -> String {
        let words: Vec<&str> = self.config.prompt.text.split_whitespace().rev().collect();
        words.join(" ")
    }
}

/// Made-up inputs: the same bytes for the same number in every process.
pub struct Inputs {
    images: PortId,
    state: PortId,
    prompt: Option<PortId>,
    actions: PortId,
    width: u32,
    height: u32,
    pixels: Vec<Vec<u8>>,
    positions: Vec<f32>,
    /// Bytes of one output of port `actions`.
    pub output: Vec<u8>,
}

/// One step of a small generator (splitmix64): enough to make pictures, the same everywhere.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Inputs {
    /// Room for the inputs and the output of a live set.
    ///
    /// # Errors
    /// The model lacks a port that this needs.
    pub fn new(live: &LiveSet) -> Result<Inputs> {
        // By name in built-in models; the first of its kind in native ones, as the node does it.
        let find = |name: &str, modality: Modality, direction: Direction| {
            let first = || {
                let ports = live.ports().iter();
                ports
                    .enumerate()
                    .find(|(_, p)| p.modality == modality && p.direction == direction)
                    .map(|(i, _)| PortId(i))
            };
            live.port(name)
                .or_else(first)
                .with_context(|| format!("the model has no port '{name}'"))
        };
        let images = find("images", Modality::Image, Direction::In)?;
        let state = find("state", Modality::State, Direction::In)?;
        let prompt = find("prompt", Modality::Text, Direction::In).ok();
        let actions = find("actions", Modality::Action, Direction::Out)?;
        for id in [state, actions] {
            let p = &live.ports()[id.0];
            anyhow::ensure!(
                p.dtype == PortDType::F32 && p.update == Update::Staged,
                "port '{}' is {} {}, expected STAGED F32",
                p.name,
                p.update,
                p.dtype
            );
        }
        let shape = &live.ports()[images.0].shape;
        let dimension = |i: usize| {
            let d = shape.get(i).copied().unwrap_or(0);
            u32::try_from(d)
                .ok()
                .filter(|d| *d > 0)
                .with_context(|| format!("port 'images' has shape {shape:?}"))
        };
        let (views, height, width) = (dimension(0)?, dimension(1)?, dimension(2)?);
        debug_assert_eq!(live.ports()[images.0].modality, Modality::Image);
        let elements = |id: PortId| {
            live.ports()[id.0]
                .elements()
                .context("a port without a fixed shape")
        };
        let pixels = vec![vec![0; (width * height * 3) as usize]; views as usize];
        Ok(Inputs {
            images,
            state,
            prompt,
            actions,
            width,
            height,
            pixels,
            positions: vec![0.0; elements(state)? as usize],
            output: vec![0; elements(actions)? as usize * 4],
        })
    }

    /// Sets images and state number `number`.
    ///
    /// # Errors
    /// The live set refuses them.
    pub fn set(&mut self, live: &mut LiveSet, number: u64) -> Result<()> {
        for (view, pixels) in self.pixels.iter_mut().enumerate() {
            // Smooth across, different by number and view.
            let phase = mix(number * 64 + view as u64);
            for (i, value) in pixels.iter_mut().enumerate() {
                let (x, y) = ((i / 3) as u32 % self.width, (i / 3) as u32 / self.width);
                *value = ((x * 2 + y * 3 + (i % 3) as u32 * 70) as u64 + phase % 256) as u8;
            }
        }
        for (i, position) in self.positions.iter_mut().enumerate() {
            *position = (mix(number * 1000 + i as u64) % 1000) as f32 / 1000.0 - 0.5;
        }
        let stamp = 1_000_000_000 + number * 100_000_000;
        let views: Vec<ImageView<'_>> = self
            .pixels
            .iter()
            .map(|data| ImageView {
                format: PixelFormat::Rgb8,
                width: self.width,
                height: self.height,
                stride_bytes: self.width * 3,
                data,
                timestamp_ns: stamp,
            })
            .collect();
        live.set_input(self.images, InputData::Images(&views))?;
        live.set_input(self.state, InputData::F32(&self.positions))?;
        Ok(())
    }

    /// Sets the instruction.
    ///
    /// # Errors
    /// The live set refuses it.
    pub fn prompt(&self, live: &mut LiveSet, text: &str) -> Result<()> {
        match self.prompt {
            Some(port) => Ok(live.set_input(port, InputData::Text(text))?),
            None => Ok(()),
        }
    }

    /// Runs a plan to its end and reads the actions into `output`.
    ///
    /// # Errors
    /// The run or the read fails.
    pub fn tick(&mut self, live: &mut LiveSet, plan: PlanId, key: u64) -> Result<()> {
        live.run(plan, key)?;
        live.sync()?;
        let got = live.get_output(self.actions, &mut self.output)?;
        anyhow::ensure!(
            got == self.output.len(),
            "actions: {got} bytes, expected {}",
            self.output.len()
        );
        Ok(())
    }
}

/// The plan of this name.
///
/// # Errors
/// The model does not have it.
pub fn plan(live: &LiveSet, name: &str) -> Result<PlanId> {
    live.plan(name).with_context(|| {
        let known: Vec<&str> = live.plans().iter().map(|p| p.name.as_str()).collect();
        format!(
            "the model has no plan '{name}', it has {}",
            known.join(", ")
        )
    })
}
