//! Assembly and life of `policy_node`.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use anyhow::{anyhow, bail, Context as _, Result};
use flashrt_session::config::TickMode;
use flashrt_session::Engine;
use rclrs::{
    log_info, log_warn, Context, CreateBasicExecutor, Executor, InitOptions, Node, SpinOptions,
};

use super::clock::NodeClock;
use super::lifecycle::{self, Lifecycle};
use super::params::Parameters;
use super::publishers::Publishers;
use super::services;
use super::status::Reporter;
use super::stop::Stop;
use crate::parameters::Overrides;

/// Name of the node unless it is remapped.
pub const NAME: &str = "policy_node";

/// Runs the node until a signal ends it.
///
/// # Errors
/// The node cannot start, or the executor ended by itself.
pub fn run(arguments: Vec<String>) -> Result<()> {
    // Before anything else: from here on a signal ends the process in order.
    let stop = Stop::install().context("cannot handle SIGINT and SIGTERM")?;
    let name = remapped_name(&arguments).unwrap_or_else(|| NAME.into());
    let overrides = Overrides::read(&arguments, &name)?;
    overrides.check_lists()?;

    let context = Context::new(arguments, InitOptions::default())
        .context("the ROS arguments are not valid")?;
    let mut executor = context.create_basic_executor();
    let node = create_node(&executor)?;
    let parameters = Arc::new(Parameters::declare(&node)?);
    let problem = overrides.first_unknown();
    if let Some(problem) = &problem {
        log_warn!(&*node, "{problem}: configure will fail");
    }

    let publishers = Arc::new(Publishers::new(&node)?);
    let engine = Engine::new(
        Arc::new(NodeClock::new(&node)),
        Arc::clone(&publishers) as Arc<dyn flashrt_session::Sink>,
    );
    let reporter = Reporter::start(&node, &engine, parameters.clock_jump_ns)?;
    publishers.set_listener(reporter.listener());
    let lifecycle = Arc::new(Lifecycle::new(
        &node,
        &engine,
        &publishers,
        &parameters,
        problem,
    ));
    follow_parameters(&node, &parameters, &engine);
    // Waits of service calls and nothing else; each parks a thread, so that the executor stays free.
    let waiters = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(128)
        .thread_name("waiter")
        .build()
        .context("cannot start the threads that wait for operations")?;
    let _lifecycle_services = lifecycle::offer(&node, &lifecycle)?;
    let _services = services::offer(&node, &engine, waiters.handle())?;

    let commands = Arc::clone(executor.commands());
    let ending = Arc::clone(&lifecycle);
    stop.on_signal(move || {
        // Outputs stop first; the executor still answers meanwhile.
        ending.shutdown_now();
        commands.halt_spinning();
    });
    if parameters.is_autostart {
        let starting = Arc::clone(&lifecycle);
        let _ = std::thread::Builder::new()
            .name("autostart".into())
            .spawn(move || starting.autostart());
    }
    log_info!(&*node, "started, {}", engine.state().label());

    let errors = if stop.is_asked() {
        Vec::new()
    } else {
        executor.spin(SpinOptions::default())
    };
    waiters.shutdown_background();
    drop(reporter);
    if stop.is_asked() {
        return Ok(());
    }
    let reasons: Vec<String> = errors.iter().map(ToString::to_string).collect();
    bail!("the executor stopped by itself: {}", reasons.join("; "))
}

/// What a `__node:=name` on the command line renames this node to.
fn remapped_name(arguments: &[String]) -> Option<String> {
    arguments
        .iter()
        .filter_map(|a| {
            a.strip_prefix("__node:=")
                .or_else(|| a.strip_prefix("policy_node:__node:="))
        })
        .map(str::to_string)
        .next_back()
}

/// The client library panics on a parameter override without a value.
fn create_node(executor: &Executor) -> Result<Node> {
    match catch_unwind(AssertUnwindSafe(|| executor.create_node(NAME))) {
        Ok(node) => node.context("cannot create the node"),
        Err(_) => Err(anyhow!(
            "the client library could not take a parameter override (an empty list, or no value): see the lines above"
        )),
    }
}

/// Changes of parameters while the node runs.
fn follow_parameters(node: &Node, parameters: &Parameters, engine: &Engine) {
    let (prompted, log) = (engine.clone(), Arc::clone(node));
    parameters.prompt.on_change(move |prompt| {
        if !prompt.is_empty() && prompted.config().is_some() {
            if let Err(error) = prompted.push_prompt(prompt) {
                log_warn!(&*log, "parameter prompt: refused, {error}");
            }
        }
    });
    let switched = engine.clone();
    parameters.tick_mode.on_change(move |name| {
        let configured = switched.config().map(|c| c.tick.mode);
        if let Some(mode) = TickMode::from_name(name).or(configured) {
            switched.set_tick_mode(mode);
        }
    });
}
