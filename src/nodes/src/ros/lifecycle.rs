//! The managed lifecycle over ROS: the five standard services, and the work of each transition that is the node's own
//! (reading the deployment file, subscriptions, the command publisher). State machine and device work are the engine's.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{anyhow, bail, Context as _, Result};
use flashrt_session::config::TickMode;
use flashrt_session::lifecycle::{self as machine, id, State, Transition};
use flashrt_session::{Config, Engine};
use rclrs::{log_error, log_info, log_warn, IntoPrimitiveOptions, Node, RclrsError};
use ros_env::lifecycle_msgs::{msg, srv};

use super::inputs::Inputs;
use super::params::Parameters;
use super::publishers::Publishers;
use super::qos;

/// Carries out transitions, one at a time.
pub struct Lifecycle {
    node: Node,
    engine: Engine,
    publishers: Arc<Publishers>,
    inputs: Mutex<Inputs>,
    parameters: Arc<Parameters>,
    /// Why the command line makes every configure fail.
    problem: Option<String>,
    is_busy: AtomicBool,
}

/// Marks the node as in transition for as long as it lives.
struct Busy<'a>(&'a AtomicBool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Lifecycle {
    /// In state Unconfigured. `problem` (an unknown parameter on the command line) makes each configure fail with it.
    pub fn new(
        node: &Node,
        engine: &Engine,
        publishers: &Arc<Publishers>,
        parameters: &Arc<Parameters>,
        problem: Option<String>,
    ) -> Lifecycle {
        Lifecycle {
            node: Arc::clone(node),
            engine: engine.clone(),
            publishers: Arc::clone(publishers),
            inputs: Mutex::new(Inputs::new(node, engine)),
            parameters: Arc::clone(parameters),
            problem,
            is_busy: AtomicBool::new(false),
        }
    }

    fn edge(&self, request: &msg::Transition) -> Option<&'static Transition> {
        let state = self.engine.state();
        // As rcl_lifecycle does: a label, if there is one, decides.
        if request.label.is_empty() {
            machine::request_by_id(state, request.id)
        } else {
            machine::request_by_label(state, &request.label)
        }
    }

    /// Carries out a transition and says whether it succeeded. Blocks as long as that takes; the node's state and the
    /// reason in the log tell the rest. A second call meanwhile fails at once.
    pub fn change(&self, edge: &Transition) -> bool {
        if self.is_busy.swap(true, Ordering::AcqRel) {
            log_warn!(
                &*self.node,
                "{} refused: busy, another transition is still running",
                edge.label
            );
            return false;
        }
        let _busy = Busy(&self.is_busy);
        let done = match edge.id {
            id::CONFIGURE => self.configure(),
            id::CLEANUP => self.cleanup(),
            id::ACTIVATE => self.engine.activate().map_err(Into::into),
            id::DEACTIVATE => self.engine.deactivate().map_err(Into::into),
            _ => self.shutdown(),
        };
        match &done {
            Ok(()) => log_info!(
                &*self.node,
                "{}: {}",
                edge.label,
                self.engine.state().label()
            ),
            Err(error) => log_error!(&*self.node, "{} failed: {error:#}", edge.label),
        }
        done.is_ok()
    }

    /// The deployment as file and parameters give it.
    fn read_config(&self) -> Result<Config> {
        if let Some(problem) = &self.problem {
            bail!("{problem}");
        }
        let path = self.parameters.config.get();
        if path.is_empty() {
            bail!("parameter config is empty: set it to a deployment file, for instance share/flashrt_ros/config/so101_demo.yaml");
        }
        let path: PathBuf = Path::new(&*path).into();
        let mut config =
            Config::load(&path, crate::share::folder().as_deref()).map_err(|e| anyhow!("{e}"))?;
        let prompt = self.parameters.prompt.get();
        if !prompt.is_empty() {
            config.prompt.text = prompt.to_string();
        }
        if let Some(mode) = TickMode::from_name(&self.parameters.tick_mode.get()) {
            config.tick.mode = mode;
        }
        Ok(config)
    }

    /// Publishes the events of a configure that failed before it reached the engine.
    fn failed_configure_events(&self) {
        for wanted in [id::CONFIGURE, id::CONFIGURE + 10] {
            if let Some(edge) = machine::TRANSITIONS.iter().find(|t| t.id == wanted) {
                self.publishers.transition(edge);
            }
        }
    }

    fn configure(&self) -> Result<()> {
        let mut inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        let prepared = self.read_config().and_then(|config| {
            let command = &config.command;
            self.publishers
                .open(&command.topic, command.kind, config.tick_log)
                .with_context(|| format!("command.topic {}", command.topic))?;
            // Before the engine is configured it ignores what comes in.
            inputs
                .open(&config)
                .context("a topic of the deployment file")?;
            Ok(config)
        });
        let configured = match prepared {
            Ok(config) => self.engine.configure(config).map_err(anyhow::Error::from),
            Err(error) => {
                self.failed_configure_events();
                Err(error)
            }
        };
        match configured {
            Ok(report) => {
                inputs.configured();
                for warning in &report.warnings {
                    log_warn!(&*self.node, "{warning}");
                }
                let d = &report.description;
                log_info!(
                    &*self.node,
                    "{} on {} ({}), fingerprint {}, ready after {:.0} ms",
                    d.model,
                    d.backend,
                    d.isa,
                    d.fingerprint,
                    report.duration_ms
                );
                Ok(())
            }
            Err(error) => {
                inputs.close();
                self.publishers.close();
                Err(error)
            }
        }
    }

    fn cleanup(&self) -> Result<()> {
        self.engine.cleanup()?;
        self.close_topics();
        Ok(())
    }

    fn close_topics(&self) {
        self.inputs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .close();
        self.publishers.close();
    }

    fn shutdown(&self) -> Result<()> {
        self.engine.shutdown()?;
        self.close_topics();
        Ok(())
    }

    /// Goes to Finalized, waiting while another transition runs. For the end of the process.
    pub fn shutdown_now(&self) {
        loop {
            let state = self.engine.state();
            if state == State::Finalized {
                return;
            }
            let edge = machine::TRANSITIONS
                .iter()
                .find(|t| t.start == state && t.goal == State::ShuttingDown);
            let is_free = !self.is_busy.load(Ordering::Acquire);
            if is_free && edge.is_some_and(|edge| self.change(edge)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Configures and activates; a failure is in the log and leaves the node where it is.
    pub fn autostart(&self) {
        for wanted in [id::CONFIGURE, id::ACTIVATE] {
            let Some(edge) = machine::request_by_id(self.engine.state(), wanted) else {
                return;
            };
            if !self.change(edge) {
                log_error!(&*self.node, "autostart ends here");
                return;
            }
        }
    }
}

fn state_message(state: State) -> msg::State {
    msg::State {
        id: state.id(),
        label: state.label().into(),
    }
}

fn description(edge: &Transition) -> msg::TransitionDescription {
    msg::TransitionDescription {
        transition: msg::Transition {
            id: edge.id,
            label: edge.label.into(),
        },
        start_state: state_message(edge.start),
        goal_state: state_message(edge.goal),
    }
}

/// Offers the five standard services. What is returned keeps them alive.
///
/// # Errors
/// The client library cannot make one.
pub fn offer(
    node: &Node,
    lifecycle: &Arc<Lifecycle>,
) -> Result<Vec<Box<dyn std::any::Any + Send>>, RclrsError> {
    let engine = lifecycle.engine.clone();
    let get_state =
        node.create_service::<srv::GetState, _>("~/get_state".qos(qos::services()), {
            let engine = engine.clone();
            move |_: srv::GetState_Request| srv::GetState_Response {
                current_state: state_message(engine.state()),
            }
        })?;
    let get_states = node.create_service::<srv::GetAvailableStates, _>(
        "~/get_available_states".qos(qos::services()),
        |_: srv::GetAvailableStates_Request| srv::GetAvailableStates_Response {
            available_states: State::ALL.iter().map(|s| state_message(*s)).collect(),
        },
    )?;
    let get_transitions = node.create_service::<srv::GetAvailableTransitions, _>(
        "~/get_available_transitions".qos(qos::services()),
        move |_: srv::GetAvailableTransitions_Request| srv::GetAvailableTransitions_Response {
            available_transitions: machine::available(engine.state())
                .map(description)
                .collect(),
        },
    )?;
    let get_graph = node.create_service::<srv::GetAvailableTransitions, _>(
        "~/get_transition_graph".qos(qos::services()),
        |_: srv::GetAvailableTransitions_Request| srv::GetAvailableTransitions_Response {
            available_transitions: machine::TRANSITIONS.iter().map(description).collect(),
        },
    )?;
    let change_state =
        node.create_async_service::<srv::ChangeState, _>("~/change_state".qos(qos::services()), {
            let lifecycle = Arc::clone(lifecycle);
            move |request: srv::ChangeState_Request| {
                change_off_thread(&lifecycle, request.transition)
            }
        })?;
    Ok(vec![
        Box::new(get_state),
        Box::new(get_states),
        Box::new(get_transitions),
        Box::new(get_graph),
        Box::new(change_state),
    ])
}

/// A transition on a thread of its own: a configure that takes seconds must not hold up the executor.
fn change_off_thread(
    lifecycle: &Arc<Lifecycle>,
    request: msg::Transition,
) -> impl Future<Output = srv::ChangeState_Response> + Send + 'static {
    let (answer, answered) = tokio::sync::oneshot::channel();
    match lifecycle.edge(&request) {
        None => {
            log_warn!(
                &*lifecycle.node,
                "no transition {} '{}' from state {}",
                request.id,
                request.label,
                lifecycle.engine.state().label()
            );
            let _ = answer.send(false);
        }
        Some(edge) => {
            let lifecycle = Arc::clone(lifecycle);
            let work = move || {
                // The caller may have gone.
                let _ = answer.send(lifecycle.change(edge));
            };
            // Without a thread the answer is dropped, which reads as failure.
            let _ = std::thread::Builder::new()
                .name("transition".into())
                .spawn(work);
        }
    }
    async move {
        srv::ChangeState_Response {
            success: answered.await.unwrap_or(false),
        }
    }
}
