//! The real device side: a model, its live sets and their capsules. The model is built in, or comes out of a native library.

use flashrt_capsule as capsule;
use flashrt_exec::{BackendKind, Context, CpuOptions, StreamOrder};
use flashrt_models as models;
use flashrt_models::pi05::Pi05Options;
use flashrt_runtime as runtime;
use flashrt_runtime::{
    Direction, ForeignFault, ForeignLibrary, ForeignProducer, HostFields, ImageView, InputData,
    Layout, LiveSet, Modality, Model, PlanId, PortDType, PortDecl, PortId, StageId, StateClass,
    Update, HOST_STATE_NAME,
};

use crate::code::{ResultCode, SessionError};
use crate::command::{CapsuleReport, RollbackTarget, Tier};
use crate::config::{Config, NativeConfig};
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
    state: Port,
    prompt: Option<PortId>,
    actions: Port,
}

/// A port of raw f32 values.
#[derive(Clone, Copy)]
struct Port {
    id: PortId,
    /// Its bytes are exchanged with its window, without a verb.
    is_swap: bool,
}

/// What is said about a deployment beside its declaration.
struct Facts {
    backend: String,
    isa: String,
    library: String,
    exec_library: String,
    /// A native model: regions that it declares.
    native_regions: Option<usize>,
}

/// A [`Core`] over [`flashrt_runtime::Model`].
pub struct LiveCore {
    info: CoreInfo,
    ports: Ports,
    full: PlanId,
    context_action: Option<PlanId>,
    action: Option<StageId>,
    /// Why there can be no capsules; `None`: there can.
    no_capsules: Option<String>,
    /// One state as bytes, for a SWAP port.
    state_bytes: Vec<u8>,
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

fn unsupported(text: impl Into<String>) -> SessionError {
    SessionError::new(ResultCode::Unsupported, text)
}

fn open_builtin(config: &Config) -> Result<(Model, Facts), SessionError> {
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
        BackendKind::Foreign => return Err(SessionError::new(
            ResultCode::BadArgument,
            "backend: expected cpu or cuda, got foreign, which only a native model brings along",
        )),
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
    let facts = Facts {
        backend: config.backend.to_string(),
        isa: ctx.isa().to_string(),
        library: String::new(),
        exec_library: String::new(),
        native_regions: None,
    };
    Ok((model, facts))
}

fn open_native(config: &Config, native: &NativeConfig) -> Result<(Model, Facts), SessionError> {
    let foreign = ForeignLibrary::open(&native.library, &native.config).map_err(runtime_error)?;
    let shown =
        |path: Option<&std::path::Path>| path.map_or("none".into(), |p| p.display().to_string());
    let facts = Facts {
        backend: "native".to_string(),
        isa: String::new(),
        library: shown(foreign.library()),
        exec_library: shown(foreign.exec_library()),
        native_regions: Some(foreign.declaration().regions.len()),
    };
    if foreign.is_export_only() {
        return Err(unsupported(format!(
            "{} is an export without ports and without a plan: it can be described, not run",
            facts.library
        )));
    }
    let producer = ForeignProducer::new(foreign);
    let model = Model::open(Box::new(producer), &config.sessions).map_err(runtime_error)?;
    Ok((model, facts))
}

/// The ports of a built-in model have names, those of a native one are found by modality.
fn find_ports(first: &LiveSet, is_native: bool) -> Result<Ports, SessionError> {
    let all = first.ports();
    let of = |modality: Modality, direction: Direction| {
        let at = all
            .iter()
            .position(|p| p.modality == modality && p.direction == direction);
        at.map(PortId)
    };
    let find = |name: &str, modality: Modality, direction: Direction| {
        match is_native {
        false => first
            .port(name)
            .ok_or_else(|| unsupported(format!("the model has no port named {name}"))),
        true => of(modality, direction).ok_or_else(|| {
            unsupported(format!(
                "the native model has no {direction} port of modality {modality}, the node needs one"
            ))
        }),
    }
    };
    let images = find("images", Modality::Image, Direction::In)?;
    let state = find("state", Modality::State, Direction::In)?;
    let actions = find("actions", Modality::Action, Direction::Out)?;
    let prompt = match is_native {
        false => first.port("prompt"),
        true => of(Modality::Text, Direction::In),
    };
    if is_native {
        check_native_ports(first, [images, state, actions], prompt)?;
    }
    let port = |id: PortId| Port {
        id,
        is_swap: all[id.0].update == Update::Swap,
    };
    Ok(Ports {
        images,
        state: port(state),
        prompt,
        actions: port(actions),
    })
}

/// Views, height and width of an image port with fixed dimensions and three channels. One image alone is one view.
fn image_shape(p: &PortDecl) -> Option<[usize; 3]> {
    let at = |i: usize| {
        p.shape
            .get(i)
            .and_then(|d| usize::try_from(*d).ok())
            .filter(|d| *d > 0)
    };
    let (rank, shape, channels) = match p.layout {
        Layout::Hwc => (3, [Some(1), at(0), at(1)], at(2)),
        Layout::Chw => (3, [Some(1), at(1), at(2)], at(0)),
        Layout::Nchw => (4, [at(0), at(2), at(3)], at(1)),
        _ => (4, [at(0), at(1), at(2)], at(3)),
    };
    let [views, height, width] = shape;
    (p.shape.len() == rank && channels == Some(3))
        .then_some(())
        .and(views.zip(height).zip(width))
        .map(|((views, height), width)| [views, height, width])
}

/// What the node cannot feed or read is refused now, not in a tick.
fn check_native_ports(
    set: &LiveSet,
    [images, state, actions]: [PortId; 3],
    prompt: Option<PortId>,
) -> Result<(), SessionError> {
    let all = set.ports();
    let refuse = |p: &PortDecl, text: String| unsupported(format!("port '{}' {text}", p.name));
    for id in [Some(images), prompt].into_iter().flatten() {
        if all[id.0].update == Update::Swap {
            let text = "is SWAP, but the node needs the model's own transform (STAGED)";
            return Err(refuse(&all[id.0], text.into()));
        }
    }
    for (id, rank) in [(state, 1), (actions, 2)] {
        let p = &all[id.0];
        if p.dtype != PortDType::F32 {
            return Err(refuse(
                p,
                format!("has {} values, the node has F32", p.dtype),
            ));
        }
        if p.shape.len() != rank || p.shape.iter().any(|d| *d < 1) {
            let text = format!("has shape {:?}, expected {rank} fixed dimensions", p.shape);
            return Err(refuse(p, text));
        }
        let window = set.window(id).map_or(0, |w| w.bytes() as u64);
        if p.update == Update::Swap && p.payload_bytes() != Some(window) {
            let text = format!(
                "has shape {:?} in a window of {window} bytes, expected {} bytes",
                p.shape,
                p.payload_bytes().unwrap_or(0)
            );
            return Err(refuse(p, text));
        }
    }
    if image_shape(&all[images.0]).is_none() {
        let p = &all[images.0];
        let text = format!(
            "has layout {} and shape {:?}, expected views, height, width and 3 channels",
            p.layout, p.shape
        );
        return Err(refuse(p, text));
    }
    let fed = [Some(images), Some(state), prompt];
    for (i, p) in all.iter().enumerate() {
        let is_fed = fed.contains(&Some(PortId(i)));
        if p.direction == Direction::In && p.is_required() && !is_fed {
            return Err(refuse(
                p,
                format!(
                    "({} {}) is required, but no topic of the node feeds it",
                    p.modality, p.update
                ),
            ));
        }
    }
    Ok(())
}

/// Plans and stages that ticks use.
struct Plans {
    full: PlanId,
    context_action: Option<PlanId>,
    action: Option<StageId>,
}

fn find_plans(set: &LiveSet, config: &Config) -> Result<Plans, SessionError> {
    let stages: Vec<_> = set.stages().collect();
    let name = |id: &StageId| stages[id.0].name.as_str();
    if config.model.native.is_none() {
        let plan = |name: &str| {
            set.plan(name)
                .ok_or_else(|| unsupported(format!("the model has no plan named {name}")))
        };
        let (full, context_action) = (plan("full")?, plan("context_action")?);
        let own = &set.plans()[context_action.0].stages;
        let action = own.iter().copied().find(|s| name(s) == "action");
        let action = action
            .ok_or_else(|| unsupported("plan context_action has no stage of graph action"))?;
        return Ok(Plans {
            full,
            context_action: Some(context_action),
            action: Some(action),
        });
    }
    let full = set
        .default_plan()
        .ok_or_else(|| unsupported("the native model has no plan to run"))?;
    let own = &set.plans()[full.0].stages;
    // The published names of the two halves.
    let action = match own.as_slice() {
        [context, action]
            if name(context) == "context"
                && ["action", "decode_only"].contains(&name(action))
                && stages[action.0].after == [*context] =>
        {
            Some(*action)
        }
        _ => None,
    };
    let every = config.tick.context_every;
    if action.is_none() && every > 1 {
        let names: Vec<&str> = own.iter().map(name).collect();
        return Err(unsupported(format!(
            "tick.context_every is {every}, which needs a plan of a stage context and a stage action after it; the native \
             model has {}",
            names.join(", ")
        )));
    }
    Ok(Plans {
        full,
        context_action: action.map(|_| full),
        action,
    })
}

/// Why a native model has no capsules; `None`: it has.
fn capsule_gap(set: &LiveSet, facts: &Facts) -> Option<String> {
    let declared = facts.native_regions?;
    let saved = set
        .regions()
        .iter()
        .filter(|r| r.class == StateClass::Continuation && r.name != HOST_STATE_NAME);
    if saved.count() > 0 {
        return None;
    }
    Some(match declared {
        0 => "the native model declares no regions, so that its state cannot be saved".to_string(),
        n if set.regions().len() > 1 => format!(
            "none of the {n} regions of the native model may be both saved and restored"
        ),
        n => format!(
            "the {n} regions of the native model are out of reach: its execution library has not all that is needed ({})",
            facts.exec_library
        ),
    })
}

/// Freezes a set in host memory; in device memory when its execution library cannot reach host memory.
fn freeze(store: &mut capsule::Store, set: &LiveSet, name: &str) -> Result<(), SessionError> {
    let request =
        |tier| capsule::SnapshotRequest::new(Some(name), tier, capsule::Boundary::default());
    store
        .snapshot(set, &request(capsule::Tier::Host))
        .or_else(|e| match set.context().backend() {
            BackendKind::Foreign => store.snapshot(set, &request(capsule::Tier::Device)),
            _ => Err(e),
        })
        .map(drop)
        .map_err(capsule_error)
}

/// A store outside the user's budget: what must always work.
fn own_store(capacity: usize) -> capsule::Store {
    capsule::Store::new(capsule::StoreConfig {
        device_budget_bytes: u64::MAX,
        host_budget_bytes: u64::MAX,
        capacity,
    })
}

impl LiveCore {
    /// As [`open`], with its own type.
    ///
    /// # Errors
    /// As [`open`].
    pub fn open(config: &Config) -> Result<LiveCore, SessionError> {
        let (model, facts) = match &config.model.native {
            Some(native) => open_native(config, native)?,
            None => open_builtin(config)?,
        };
        LiveCore::with_model(config, model, facts)
    }

    fn with_model(
        config: &Config,
        mut model: Model,
        facts: Facts,
    ) -> Result<LiveCore, SessionError> {
        let first = &model.sets[0];
        let ports = find_ports(first, config.model.native.is_some())?;
        let plans = find_plans(first, config)?;
        let no_capsules = capsule_gap(first, &facts);
        let info = describe(config, &model, &ports, facts);
        let budget = config.capsules.clone();

        // A warm-up advances generators and fills buffers: every set goes back to the state in which it was built.
        let mut built = own_store(model.sets.len());
        for set in &mut model.sets {
            let name = format!("built-{}", set.name());
            if no_capsules.is_none() {
                freeze(&mut built, set, &name)?;
            }
            set.warm().map_err(runtime_error)?;
            for steps in &config.model.flow_steps {
                for plan in plans.context_action.into_iter().chain([plans.full]) {
                    set.run(plan, u64::from(*steps)).map_err(runtime_error)?;
                    set.sync().map_err(runtime_error)?;
                }
            }
            if no_capsules.is_none() {
                built.restore(&name, set, false).map_err(capsule_error)?;
                capsule::clear_outputs(set).map_err(capsule_error)?;
            }
        }
        drop(built);
        let mut core = LiveCore {
            store: capsule::Store::new(capsule::StoreConfig {
                device_budget_bytes: budget.device_budget_mib << 20,
                host_budget_bytes: budget.host_budget_mib << 20,
                capacity: CAPSULES,
            }),
            warm: own_store(1),
            state_bytes: Vec::with_capacity(info.state_dim * 4),
            info,
            ports,
            full: plans.full,
            context_action: plans.context_action,
            action: plans.action,
            no_capsules,
            model,
        };
        if core.info.has_prompt && !config.prompt.text.is_empty() {
            for set in 0..core.model.sets.len() {
                core.set_prompt(set, &config.prompt.text)?;
            }
        }
        if core.no_capsules.is_none() {
            let (device, host) = core
                .store
                .capsule_bytes(&core.model.sets[0], capsule::Tier::Device);
            core.info.description.capsule_bytes = device + host;
            freeze(&mut core.warm, &core.model.sets[0], WARM_START)?;
            core.reserve(config)?;
        }
        Ok(core)
    }

    /// The error of every command that needs a capsule, when there can be none.
    fn needs_capsules(&self, command: &str) -> Result<(), SessionError> {
        match &self.no_capsules {
            None => Ok(()),
            Some(reason) => Err(unsupported(format!("{command}: {reason}"))),
        }
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

fn describe(config: &Config, model: &Model, ports: &Ports, facts: Facts) -> CoreInfo {
    let set = &model.sets[0];
    let shape = |port: PortId| set.ports()[port.0].shape.clone();
    let dim = |shape: &[i64], at: usize| shape.get(at).copied().unwrap_or(0).max(0) as usize;
    let [views, height, width] = image_shape(&set.ports()[ports.images.0]).unwrap_or_default();
    let actions = shape(ports.actions.id);
    let topics = |id: PortId| match id {
        id if id == ports.images => config.images.iter().map(|v| v.topic.clone()).collect(),
        id if id == ports.state.id => vec![config.state.topic.clone()],
        id if Some(id) == ports.prompt => vec![config.prompt.topic.clone()],
        id if id == ports.actions.id => {
            vec!["~/action_chunk".to_string(), config.command.topic.clone()]
        }
        _ => Vec::new(),
    };
    let port_list = set
        .ports()
        .iter()
        .enumerate()
        .map(|(i, p)| PortDescription {
            name: p.name.clone(),
            modality: p.modality.to_string(),
            dtype: p.dtype.to_string(),
            layout: p.layout.to_string(),
            direction: p.direction.to_string(),
            update: p.update.to_string(),
            is_required: p.required != 0,
            shape: p.shape.clone(),
            topics: topics(PortId(i)),
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
            let place = match s.executor.graph() {
                Some(_) => format!("stream {}", s.stream.0),
                None => s.executor.to_string(),
            };
            format!(
                "{index}: {}/{} {place}{after}",
                plans[s.plan.0].name, s.name
            )
        })
        .collect();
    let description = Description {
        model: model.name().to_string(),
        backend: facts.backend,
        isa: facts.isa,
        library: facts.library,
        exec_library: facts.exec_library,
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
        views,
        state_dim: dim(&shape(ports.state.id), 0),
        horizon: dim(&actions, 0),
        action_dim: dim(&actions, 1),
        image_bytes: height * width * 3,
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
        let live = &mut self.model.sets[set];
        if !self.ports.state.is_swap {
            return live
                .set_input(self.ports.state.id, InputData::F32(state))
                .map_err(runtime_error);
        }
        self.state_bytes.clear();
        self.state_bytes
            .extend(state.iter().flat_map(|v| v.to_le_bytes()));
        live.swap_in(self.ports.state.id, &self.state_bytes)
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
        let missing = || {
            unsupported(format!(
                "plan {}: the native model's plan is not a stage context and a stage action after it",
                plan.name()
            ))
        };
        let live = &mut self.model.sets[set];
        let result = match plan {
            Plan::Full => live.run(self.full, key),
            Plan::ContextAction => live.run(self.context_action.ok_or_else(missing)?, key),
            Plan::Action => live.run_stage(self.action.ok_or_else(missing)?, key),
        }
        .and_then(|()| live.sync())
        .map_err(runtime_error);
        match result {
            // Whatever a producer answers: a run that broke off midway is a failed device.
            Err(mut e) if live.is_poisoned() && e.code != ResultCode::Poisoned => {
                e.code = ResultCode::Device;
                Err(e)
            }
            other => other,
        }
    }

    fn read_actions(&mut self, set: usize, out: &mut [u8]) -> Result<(), SessionError> {
        let live = &mut self.model.sets[set];
        let port = self.ports.actions;
        if port.is_swap {
            return live.swap_out(port.id, out).map_err(runtime_error);
        }
        let got = live.get_output(port.id, out).map_err(runtime_error)?;
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
        self.needs_capsules("snapshot")?;
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
        self.needs_capsules("restore")?;
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
        self.needs_capsules("rollback")?;
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
        self.needs_capsules("reset")?;
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
        E::Foreign { fault, .. } => match fault {
            ForeignFault::Open => ResultCode::Io,
            ForeignFault::Object => ResultCode::Format,
            ForeignFault::Unsupported | ForeignFault::Status(-3) => ResultCode::Unsupported,
            ForeignFault::Status(-1) => ResultCode::BadArgument,
            ForeignFault::Status(-2) => ResultCode::NotFound,
            ForeignFault::Status(-4 | -5) => ResultCode::Shape,
            ForeignFault::Status(_) => ResultCode::Device,
        },
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
