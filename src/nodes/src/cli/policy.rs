//! A deployment's policy without the engine: live sets that a command drives by itself, with made-up inputs.

use std::path::Path;

use anyhow::{anyhow, Context as _, Result};
use flashrt_exec::{BackendKind, Context, CpuOptions, StreamOrder};
use flashrt_models::pi05::Pi05Options;
use flashrt_runtime::{
    ImageView, InputData, LiveSet, Modality, Model, PixelFormat, PlanId, PortId,
};
use flashrt_session::Config;

/// A loaded deployment.
pub struct Policy {
    /// The deployment file.
    pub config: Config,
    /// Its model with live sets `a` and `b`.
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
    prompt: PortId,
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
        let port = |name: &str| {
            live.port(name)
                .with_context(|| format!("the model has no port '{name}'"))
        };
        let (images, state, prompt, actions) = (
            port("images")?,
            port("state")?,
            port("prompt")?,
            port("actions")?,
        );
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
        Ok(live.set_input(self.prompt, InputData::Text(text))?)
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
