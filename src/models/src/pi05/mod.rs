//! The π0.5 architecture.

mod config;
pub mod names;
mod options;

use std::path::Path;

pub use config::Pi05Config;
pub use options::{NoiseSource, Pi05Options, StagePlan, MAX_FLOW_STEPS};

use flashrt_exec::Context;
use flashrt_runtime::{LiveSet, Producer};

use crate::weights::Weights;
use crate::Error;

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

/// A loaded π0.5 policy: weights on the device, ready to build live sets.
pub struct Pi05 {
    config: Pi05Config,
    weights: Weights,
}

impl Pi05 {
    /// Loads `config.json`, `stats.json` and `model.safetensors` of `dir`.
    ///
    /// # Errors
    /// Everything of [`Error`] that a broken folder or a failing device can cause.
    pub fn load(_ctx: &Context, dir: &Path, _options: Pi05Options) -> Result<Self, Error> {
        let config = Pi05Config::read(&dir.join("config.json"))?;
        let weights = open_weights(&config, &dir.join("model.safetensors"))?;
        Ok(Pi05 { config, weights })
    }

    /// The dimensions.
    pub fn config(&self) -> &Pi05Config {
        &self.config
    }
}

impl Producer for Pi05 {
    fn name(&self) -> &str {
        "pi05"
    }
    fn build(&mut self, _set_name: &str) -> Result<LiveSet, flashrt_runtime::Error> {
        Err(flashrt_runtime::Error::Unsupported { verb: "build" })
    }
    fn weights_bytes(&self) -> usize {
        self.weights.bytes() as usize
    }
}
