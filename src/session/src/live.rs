//! The real device side: a built-in model, its live sets and their capsules.

use flashrt_capsule as capsule;
use flashrt_exec::{BackendKind, Context, CpuOptions, StreamOrder};
use flashrt_models as models;
use flashrt_models::pi05::Pi05Options;
use flashrt_runtime as runtime;
use flashrt_runtime::{
    Direction, HostFields, ImageView, InputData, Model, PlanId, PortId, StageId,
};

use crate::code::{ResultCode, SessionError};
use crate::command::{CapsuleReport, RollbackTarget, Tier};
use crate::config::Config;
use crate::core::{CapsuleList, Core, CoreInfo, Plan, Restored, SnapshotSpec};
use crate::status::{Description, PortDescription};

/// Most capsules at a time.
const CAPSULES: usize = 256;
/// Backings that configure reserves in the default tier, when the budget allows it.
const RESERVED: usize = 4;
/// Name of the warm start, in a store of its own.
const WARM_START: &str = "warm-start";

struct Ports {
    images: PortId,
    state: PortId,
    prompt: Option<PortId>,
    actions: PortId,
}

/// A [`Core`] over [`flashrt_runtime::Model`].
pub struct LiveCore {
    info: CoreInfo,
    ports: Ports,
    full: PlanId,
    context_action: PlanId,
    action: StageId,
    // Capsules hold memory of the context, sets hold graphs over the weights: stores go first.
    store: capsule::Store,
    warm: capsule::Store,
    model: Model,
}

/// Loads, allocates, captures and warms everything that `config` declares.
///
/// # Errors
/// What is missing or does not fit, with the numbers; nothing is left behind.
pub fn open(config: &Config) -> Result<Box<dyn Core>, SessionError> {
    LiveCore::open(config).map(|core| Box::new(core) as Box<dyn Core>)
}

impl LiveCore {
    /// As [`open`], with its own type.
    ///
    /// # Errors
    /// As [`open`].
    pub fn open(config: &Config) -> Result<LiveCore, SessionError> {
        let ctx = match config.backend {
            BackendKind::Cpu => {
                if config.device != 0 {
                    return Err(SessionError::new(
                        ResultCode::BadArgument,
                        format!(
                            "device: the cpu backend has one device, 0, got {}",
                            config.device
                        ),
                    ));
                }
                Context::cpu(CpuOptions {
                    threads: config.threads,
                    order: StreamOrder::Submission,
                })
            }
            BackendKind::Cuda => Context::cuda(config.device),
            BackendKind::Foreign => {
                return Err(SessionError::new(
                    ResultCode::BadArgument,
                    "backend: expected cpu or cuda, got foreign, which only a native model brings along",
                ))
            }
        }
        .map_err(exec_error)?;
        let options = Pi05Options {
            flow_steps: config.model.flow_steps.clone(),
            default_flow_steps: config.model.default_flow_steps,
            seed: config.model.seed,
            ..Pi05Options::default()
        };
        let dir = &config.model.weights;
        let producer = models::builtin::open(&config.model.builtin, &ctx, dir, options)
            .map_err(|e| model_error(&e))?;
        let model = Model::open(producer, &config.sessions).map_err(runtime_error)?;
        LiveCore::with_model(config, model, &ctx)
    }

    fn with_model(
        config: &Config,
        mut model: Model,
        ctx: &Context,
    ) -> Result<LiveCore, SessionError> {
        let first = &model.sets[0];
        let find = |name: &str| {
            first.port(name).ok_or_else(|| {
                SessionError::new(
                    ResultCode::Unsupported,
                    format!("the model has no port named {name}"),
                )
            })
        };
        let ports = Ports {
            images: find("images")?,
            state: find("state")?,
            prompt: first.port("prompt"),
            actions: find("actions")?,
        };
        let plan = |name: &str| {
            first.plan(name).ok_or_else(|| {
                SessionError::new(
                    ResultCode::Unsupported,
                    format!("the model has no plan named {name}"),
                )
            })
        };
        let (full, context_action) = (plan("full")?, plan("context_action")?);
        let stages: Vec<_> = first.stages().collect();
        let action = first.plans()[context_action.0]
            .stages
            .iter()
            .copied()
            .find(|s| stages[s.0].name == "action")
            .ok_or_else(|| {
                SessionError::new(
                    ResultCode::Unsupported,
                    "plan context_action has no stage of graph action",
                )
            })?;
        let info = describe(config, &model, &ports, ctx);
        let budget = config.capsules.clone();
        let mut core = LiveCore {
            store: capsule::Store::new(capsule::StoreConfig {
                device_budget_bytes: budget.device_budget_mib << 20,
                host_budget_bytes: budget.host_budget_mib << 20,
                capacity: CAPSULES,
            }),
            // Outside the user's budget: reset must always work.
            warm: capsule::Store::new(capsule::StoreConfig {
                device_budget_bytes: 0,
                host_budget_bytes: u64::MAX,
                capacity: 1,
            }),
            info,
            ports,
            full,
            context_action,
            action,
            model: {
                // A warm-up advances generators and fills buffers: every set goes back to the state in which it was built.
                let mut built = capsule::Store::new(capsule::StoreConfig {
                    device_budget_bytes: 0,
                    host_budget_bytes: u64::MAX,
                    capacity: model.sets.len(),
                });
                for set in &mut model.sets {
                    let name = format!("built-{}", set.name());
                    let request = capsule::SnapshotRequest::new(
                        Some(&name),
                        capsule::Tier::Host,
                        capsule::Boundary::default(),
                    );
                    built.snapshot(set, &request).map_err(capsule_error)?;
                    set.warm().map_err(runtime_error)?;
                    for steps in &config.model.flow_steps {
                        for plan in [context_action, full] {
                            set.run(plan, u64::from(*steps)).map_err(runtime_error)?;
                            set.sync().map_err(runtime_error)?;
                        }
                    }
                    built.restore(&name, set, false).map_err(capsule_error)?;
                    capsule::clear_outputs(set).map_err(capsule_error)?;
                }
                model
            },
        };
        let (device, host) = core
            .store
            .capsule_bytes(&core.model.sets[0], capsule::Tier::Device);
        core.info.description.capsule_bytes = device + host;
        if core.info.has_prompt && !config.prompt.text.is_empty() {
            for set in 0..core.model.sets.len() {
                core.set_prompt(set, &config.prompt.text)?;
            }
        }
        let request = capsule::SnapshotRequest::new(
            Some(WARM_START),
            capsule::Tier::Host,
            capsule::Boundary::default(),
        );
        core.warm
            .snapshot(&core.model.sets[0], &request)
            .map_err(capsule_error)?;
        core.reserve(config)?;
        Ok(core)
    }

    /// Reserves as many backings as fit, up to a few per live set.
    fn reserve(&mut self, config: &Config) -> Result<(), SessionError> {
        let tier = store_tier(config.capsules.default_tier);
        for count in (1..=RESERVED).rev() {
            match self.store.reserve(&self.model.sets[0], tier, count) {
                Ok(()) => break,
                Err(e) if e.is_no_space() => {}
                Err(e) => return Err(capsule_error(e)),
            }
        }
        Ok(())
    }

    fn report(info: &capsule::CapsuleInfo, steady_ns: u64) -> CapsuleReport {
        CapsuleReport {
            name: info.name.to_string(),
            tier: if info.tier == capsule::Tier::Device {
                Tier::Device
            } else {
                Tier::Host
            },
            bytes: info.bytes,
            regions: info.regions as u32,
            fingerprint: format!("{:016x}", info.fingerprint),
            tick: info.boundary.tick,
            epoch: info.boundary.epoch,
            created_ns: info.boundary.ros_ns,
            age_s: steady_ns.saturating_sub(info.boundary.steady_ns) as f64 / 1e9,
            is_pinned: info.pinned,
            is_partial: info.partial,
        }
    }

    fn restored(report: capsule::RestoreReport) -> Restored {
        Restored {
            name: report.info.name.to_string(),
            bytes: report.bytes,
            promoted_bytes: report.promoted_bytes,
        }
    }

    /// The model, for verification and benchmarks.
    pub fn model_mut(&mut self) -> &mut Model {
        &mut self.model
    }
}

fn describe(config: &Config, model: &Model, ports: &Ports, ctx: &Context) -> CoreInfo {
    let set = &model.sets[0];
    let shape = |port: PortId| set.ports()[port.0].shape.clone();
    let dim = |shape: &[i64], at: usize| shape.get(at).copied().unwrap_or(0).max(0) as usize;
    let images = shape(ports.images);
    let actions = shape(ports.actions);
    let topics = |name: &str| match name {
        "images" => config.images.iter().map(|v| v.topic.clone()).collect(),
        "state" => vec![config.state.topic.clone()],
        "prompt" => vec![config.prompt.topic.clone()],
        "actions" => vec!["~/action_chunk".to_string(), config.command.topic.clone()],
        _ => Vec::new(),
    };
    let port_list = set
        .ports()
        .iter()
        .map(|p| PortDescription {
            name: p.name.clone(),
            modality: p.modality.to_string(),
            dtype: p.dtype.to_string(),
            layout: p.layout.to_string(),
            direction: p.direction.to_string(),
            update: p.update.to_string(),
            is_required: p.required != 0,
            shape: p.shape.clone(),
            topics: topics(&p.name),
        })
        .collect();
    let plans = set.plans();
    let stages = set
        .stages()
        .enumerate()
        .map(|(index, s)| {
            let after: Vec<String> = s.after.iter().map(|d| d.0.to_string()).collect();
            let after = if after.is_empty() {
                String::new()
            } else {
                format!(" after {}", after.join(","))
            };
            format!(
                "{index}: {}/{} stream {}{after}",
                plans[s.plan.0].name, s.name, s.stream.0
            )
        })
        .collect();
    let description = Description {
        model: model.name().to_string(),
        backend: config.backend.to_string(),
        isa: ctx.isa().to_string(),
        fingerprint: format!("{:016x}", model.fingerprint()),
        identity: String::from_utf8_lossy(set.identity()).into_owned(),
        ports: port_list,
        stages,
        plans: plans.iter().map(|p| p.name.clone()).collect(),
        sessions: config.sessions.clone(),
        regions: set
            .regions()
            .iter()
            .map(|r| format!("{}:{}:{}", r.name, r.slice.bytes(), r.class))
            .collect(),
        weights_bytes: model.weights_bytes() as u64,
        live_bytes: set.buffers().iter().map(|b| b.bytes() as u64).sum(),
        capsule_bytes: 0,
        closure: "declared regions".to_string(),
    };
    CoreInfo {
        description,
        views: dim(&images, 0),
        state_dim: dim(&shape(ports.state), 0),
        horizon: dim(&actions, 0),
        action_dim: dim(&actions, 1),
        image_bytes: dim(&images, 1) * dim(&images, 2) * 3,
        has_prompt: ports
            .prompt
            .is_some_and(|p| set.ports()[p.0].direction == Direction::In),
    }
}

impl Core for LiveCore {
    fn info(&self) -> &CoreInfo {
        &self.info
    }

    fn set_images(&mut self, set: usize, views: &[ImageView<'_>]) -> Result<(), SessionError> {
        self.model.sets[set]
            .set_input(self.ports.images, InputData::Images(views))
            .map_err(runtime_error)
    }

    fn set_state(&mut self, set: usize, state: &[f32]) -> Result<(), SessionError> {
        self.model.sets[set]
            .set_input(self.ports.state, InputData::F32(state))
            .map_err(runtime_error)
    }

    fn set_prompt(&mut self, set: usize, text: &str) -> Result<(), SessionError> {
        match self.ports.prompt {
            Some(port) => self.model.sets[set]
                .set_input(port, InputData::Text(text))
                .map_err(runtime_error),
            None => Ok(()),
        }
    }

    fn run(&mut self, set: usize, plan: Plan, key: u64) -> Result<(), SessionError> {
        let live = &mut self.model.sets[set];
        match plan {
            Plan::Full => live.run(self.full, key),
            Plan::ContextAction => live.run(self.context_action, key),
            Plan::Action => live.run_stage(self.action, key),
        }
        .and_then(|()| live.sync())
        .map_err(runtime_error)
    }

    fn read_actions(&mut self, set: usize, out: &mut [u8]) -> Result<(), SessionError> {
        let got = self.model.sets[set]
            .get_output(self.ports.actions, out)
            .map_err(runtime_error)?;
        if got != out.len() {
            return Err(SessionError::new(
                ResultCode::Internal,
                format!("port actions: expected {} bytes, got {got}", out.len()),
            ));
        }
        Ok(())
    }

    fn fields(&self, set: usize) -> Result<HostFields, SessionError> {
        self.model.sets[set]
            .host_state()
            .read()
            .map_err(runtime_error)
    }

    fn set_fields(&mut self, set: usize, fields: &HostFields) -> Result<(), SessionError> {
        self.model.sets[set]
            .host_state()
            .write(fields)
            .map_err(runtime_error)
    }

    fn snapshot(
        &mut self,
        set: usize,
        spec: &SnapshotSpec<'_>,
    ) -> Result<CapsuleReport, SessionError> {
        let request = capsule::SnapshotRequest {
            name: spec.name,
            tier: store_tier(spec.tier),
            overwrite: spec.overwrite,
            exclude: spec.exclude,
            boundary: capsule::Boundary {
                tick: spec.tick,
                epoch: spec.epoch,
                steady_ns: spec.steady_ns,
                ros_ns: spec.ros_ns,
            },
        };
        let info = self
            .store
            .snapshot(&self.model.sets[set], &request)
            .map_err(capsule_error)?;
        Ok(LiveCore::report(&info, spec.steady_ns))
    }

    fn restore(
        &mut self,
        set: usize,
        name: &str,
        allow_partial: bool,
    ) -> Result<Restored, SessionError> {
        let live = &mut self.model.sets[set];
        let report = self
            .store
            .restore(name, live, allow_partial)
            .map_err(capsule_error)?;
        capsule::clear_outputs(live).map_err(capsule_error)?;
        Ok(LiveCore::restored(report))
    }

    fn rollback(
        &mut self,
        set: usize,
        target: &RollbackTarget,
        steady_ns: u64,
    ) -> Result<Restored, SessionError> {
        let target = match target {
            RollbackTarget::Steps(n) => capsule::Rollback::Steps(*n),
            RollbackTarget::Name(name) => capsule::Rollback::Name(name),
            RollbackTarget::AgeS(age_s) => capsule::Rollback::AgeMs((age_s * 1e3) as u64),
        };
        let live = &mut self.model.sets[set];
        let report = self
            .store
            .rollback(target, steady_ns, live)
            .map_err(capsule_error)?;
        capsule::clear_outputs(live).map_err(capsule_error)?;
        Ok(LiveCore::restored(report))
    }

    fn reset(&mut self, set: usize) -> Result<Restored, SessionError> {
        let live = &mut self.model.sets[set];
        let report = self
            .warm
            .restore(WARM_START, live, false)
            .map_err(capsule_error)?;
        capsule::clear_outputs(live).map_err(capsule_error)?;
        Ok(Restored {
            name: String::new(),
            ..LiveCore::restored(report)
        })
    }

    fn drop_capsule(&mut self, name: &str) -> Result<u64, SessionError> {
        self.store
            .drop_capsule(name)
            .map(|info| info.bytes)
            .map_err(capsule_error)
    }

    fn list(&self, set: usize, steady_ns: u64) -> CapsuleList {
        let capsules: Vec<CapsuleReport> = self
            .store
            .list()
            .iter()
            .map(|info| LiveCore::report(info, steady_ns))
            .collect();
        let (older, _) = self.store.history(self.model.sets[set].name());
        let cursor = older
            .first()
            .and_then(|name| capsules.iter().position(|c| c.name == **name));
        let used = self.store.usage();
        let config = self.store.config();
        CapsuleList {
            cursor: cursor.map_or(-1, |i| i as i32),
            device_bytes: used.device_bytes - used.device_free_bytes,
            device_budget_bytes: config.device_budget_bytes,
            host_bytes: used.host_bytes - used.host_free_bytes,
            host_budget_bytes: config.host_budget_bytes,
            capsules,
        }
    }

    fn prepare(&mut self, graph: &str, key: u64, evict: bool) -> Result<u32, SessionError> {
        let names: Vec<String> = {
            let declared = &self.model.sets[0].declaration().graphs;
            match graph {
                // Graphs with one variant have no buckets.
                "" => declared
                    .iter()
                    .filter(|g| g.keys.len() > 1)
                    .map(|g| g.name.clone())
                    .collect(),
                name if declared.iter().any(|g| g.name == name) => vec![name.to_string()],
                name => {
                    let known: Vec<&str> = declared.iter().map(|g| g.name.as_str()).collect();
                    return Err(SessionError::new(
                        ResultCode::NotFound,
                        format!("no graph named {name:?}: graphs are {}", known.join(", ")),
                    ));
                }
            }
        };
        if evict {
            // All or nothing: look before the first eviction.
            for name in &names {
                if !self.model.sets[0]
                    .has_variant(name, key)
                    .map_err(runtime_error)?
                {
                    return Err(SessionError::new(
                        ResultCode::NotFound,
                        format!("graph {name} has no variant for key {key}"),
                    ));
                }
            }
        }
        for live in &mut self.model.sets {
            for name in &names {
                match evict {
                    true => live.evict(name, key),
                    false => live.prepare(name, key),
                }
                .map_err(runtime_error)?;
            }
        }
        Ok(self.model.sets[0].variant_count() as u32)
    }

    fn set_hot(&mut self, is_hot: bool) {
        self.model.sets.iter_mut().for_each(|s| s.set_hot(is_hot));
    }

    fn poison(&self, set: usize) -> Option<String> {
        self.model.sets[set].usable().err().map(|e| e.to_string())
    }
}

fn store_tier(tier: Tier) -> capsule::Tier {
    match tier {
        Tier::Device => capsule::Tier::Device,
        Tier::Host => capsule::Tier::Host,
    }
}

fn exec_error(e: flashrt_exec::Error) -> SessionError {
    let code = match &e {
        flashrt_exec::Error::BackendUnavailable { .. } => ResultCode::Unsupported,
        _ => ResultCode::Device,
    };
    SessionError::new(code, e.to_string())
}

fn model_error(e: &models::Error) -> SessionError {
    use models::Error as E;
    let code = match e {
        E::Io { .. } => ResultCode::Io,
        E::Json { .. } | E::WeightsFormat { .. } => ResultCode::Format,
        E::UnknownPolicy { .. } => ResultCode::NotFound,
        E::PromptTooLong { .. } | E::PromptBytes { .. } => ResultCode::PromptTooLong,
        E::PromptEmpty => ResultCode::PromptEmpty,
        E::NonFinite { .. } | E::TensorValue { .. } => ResultCode::NonFinite,
        E::MissingTensor { .. }
        | E::UnexpectedTensor { .. }
        | E::TensorShape { .. }
        | E::TensorDType { .. }
        | E::Dimension { .. } => ResultCode::Shape,
        E::Value { .. } | E::UnknownWord { .. } | E::PromptEncoding { .. } | E::StateBin { .. } => {
            ResultCode::BadArgument
        }
        _ => ResultCode::Device,
    };
    SessionError::new(code, e.to_string())
}

fn runtime_error(e: runtime::Error) -> SessionError {
    use runtime::Error as E;
    let code = match &e {
        E::PortInput { source, .. } => {
            let typed = source.downcast_ref::<models::Error>();
            typed.map_or(ResultCode::BadArgument, |m| model_error(m).code)
        }
        E::PortBytes { .. }
        | E::PortFormat { .. }
        | E::PortClass { .. }
        | E::OutputTooSmall { .. } => ResultCode::Shape,
        E::PortValue { .. } => ResultCode::NonFinite,
        E::Hot { .. } | E::StageNotReady { .. } => ResultCode::WrongState,
        E::NotFound { .. } | E::BadIndex { .. } | E::NoVariant { .. } => ResultCode::NotFound,
        E::Poisoned { .. } => ResultCode::Poisoned,
        E::Unsupported { .. } => ResultCode::Unsupported,
        E::HostState { .. } => ResultCode::Format,
        E::Exec { .. } => ResultCode::Device,
        E::Model {
            source: Some(source),
            ..
        } => {
            let typed = source.downcast_ref::<models::Error>();
            typed.map_or(ResultCode::Device, |m| model_error(m).code)
        }
        _ => ResultCode::Internal,
    };
    SessionError::new(code, e.to_string())
}

fn capsule_error(e: capsule::Error) -> SessionError {
    use capsule::Error as E;
    let code = match &e {
        E::BadName { .. } => ResultCode::BadName,
        E::NotFound { .. } | E::NoHistory { .. } => ResultCode::NotFound,
        E::Exists { .. } => ResultCode::Exists,
        E::NoSpace { .. } | E::Full { .. } => ResultCode::NoSpace,
        E::Fingerprint { .. } => ResultCode::Fingerprint,
        E::Regions { .. } | E::HostState { .. } => ResultCode::Format,
        E::Partial { .. } => ResultCode::Partial,
        E::NoSuchRegion { .. } => ResultCode::BadArgument,
        E::Poisoned { .. } => ResultCode::Poisoned,
        E::Runtime { source, .. } if source.is_poisoned() => ResultCode::Poisoned,
        E::Runtime { .. } | E::Exec { .. } => ResultCode::Device,
        _ => ResultCode::Internal,
    };
    SessionError::new(code, e.to_string())
}
