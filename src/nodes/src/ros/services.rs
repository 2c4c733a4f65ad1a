//! The node's own services. Each puts a command into the engine's queue in the order of arrival and answers when it is
//! done, or after `wait_ms` with ACCEPTED and the operation's id. They exist from node start and answer in every state.

use std::any::Any;
use std::future::Future;
use std::time::Duration;

use flashrt_session::{
    CapsuleReport, Command, Engine, Operation, Outcome, ResultCode, RollbackTarget, TickRequest,
    Tier,
};
use rclrs::{IntoPrimitiveOptions, Node, RclrsError};
use ros_env::flashrt_ros::{msg, srv};

use super::{convert, qos};

/// How long an answer may take that has no `wait_ms` of its own (list, describe).
const PLAIN_WAIT_MS: u32 = 5_000;
/// Time for the tick itself, on top of the wait for its inputs.
const TICK_WAIT_MS: u32 = 10_000;

/// Runs commands and waits for them off the executor.
#[derive(Clone)]
struct Runner {
    engine: Engine,
    waiters: tokio::runtime::Handle,
}

impl Runner {
    /// Queues the command now (so that arrival order holds) and gives its outcome later.
    fn run(
        &self,
        command: Command,
        wait_ms: u32,
    ) -> impl Future<Output = Outcome> + Send + 'static {
        let kind = command.kind();
        let submitted = self.engine.submit(command);
        let waiters = self.waiters.clone();
        async move {
            match submitted {
                Ok(operation) => wait(waiters, operation, wait_ms).await,
                Err(error) => Outcome::new(0, kind, error.code, error.message),
            }
        }
    }
}

async fn wait(waiters: tokio::runtime::Handle, operation: Operation, wait_ms: u32) -> Outcome {
    if let Some(outcome) = operation.poll() {
        return outcome;
    }
    if wait_ms > 0 {
        let waiting = operation.clone();
        let limit = Duration::from_millis(wait_ms.into());
        if let Ok(Some(outcome)) = waiters.spawn_blocking(move || waiting.wait(limit)).await {
            return outcome;
        }
    }
    let (id, kind) = (operation.op_id(), operation.kind());
    let message =
        format!("{kind} still runs after {wait_ms} ms: ask ~/operation_status with op_id {id}");
    Outcome::new(id, kind, ResultCode::Accepted, message)
}

/// An answer that needs no queue.
fn refuse(kind: &'static str, message: impl Into<String>) -> Outcome {
    Outcome::new(0, kind, ResultCode::BadArgument, message)
}

fn capsule(report: &CapsuleReport) -> msg::CapsuleInfo {
    let stamp = convert::time(report.created_ns);
    msg::CapsuleInfo {
        name: report.name.clone(),
        tier: report.tier.name().into(),
        bytes: report.bytes,
        regions: report.regions,
        fingerprint: report.fingerprint.clone(),
        tick: report.tick,
        epoch: report.epoch,
        created: ros_env::builtin_interfaces::msg::Time {
            sec: stamp.sec,
            nanosec: stamp.nanosec,
        },
        age_s: report.age_s,
        is_pinned: report.is_pinned,
        is_partial: report.is_partial,
    }
}

/// Which of the three ways a rollback request names its target.
fn rollback_target(request: &srv::Rollback_Request) -> Result<RollbackTarget, String> {
    let (steps, name, age_s) = (request.steps, request.name.as_str(), request.age_s);
    match (steps > 0, !name.is_empty(), age_s != 0.0) {
        (true, false, false) => Ok(RollbackTarget::Steps(steps)),
        (false, true, false) => Ok(RollbackTarget::Name(name.into())),
        (false, false, true) if age_s.is_finite() && age_s > 0.0 => Ok(RollbackTarget::AgeS(age_s)),
        (false, false, true) => Err(format!("age_s must be a finite number > 0, is {age_s}")),
        _ => Err(format!("exactly one of steps, name and age_s must be set, got steps {steps}, name '{name}', age_s {age_s}")),
    }
}

fn snapshot_command(request: srv::Snapshot_Request) -> Result<Command, String> {
    let tier = match request.tier.as_str() {
        "" => None,
        name => Some(
            Tier::from_name(name)
                .ok_or_else(|| format!("tier must be device, host or empty, is '{name}'"))?,
        ),
    };
    Ok(Command::Snapshot {
        name: Some(request.name).filter(|name| !name.is_empty()),
        tier,
        overwrite: request.overwrite,
        exclude: request.exclude_regions,
    })
}

fn describe_answer(outcome: Outcome) -> srv::Describe_Response {
    let mut answer = srv::Describe_Response {
        code: outcome.code.number(),
        message: outcome.message,
        ..Default::default()
    };
    if let Some(d) = outcome.description {
        answer.model = d.model.clone();
        answer.backend = d.backend.clone();
        answer.isa = d.isa.clone();
        answer.library = d.library.clone();
        answer.exec_library = d.exec_library.clone();
        answer.fingerprint = d.fingerprint.clone();
        answer.identity = d.identity.clone();
        answer.ports = d
            .ports
            .iter()
            .map(|port| msg::PortInfo {
                name: port.name.clone(),
                modality: port.modality.clone(),
                dtype: port.dtype.clone(),
                layout: port.layout.clone(),
                direction: port.direction.clone(),
                update: port.update.clone(),
                is_required: port.is_required,
                shape: port.shape.clone(),
                topics: port.topics.clone(),
            })
            .collect();
        answer.stages = d.stages.clone();
        answer.plans = d.plans.clone();
        answer.sessions = d.sessions.clone();
        answer.regions = d.regions.clone();
        answer.weights_bytes = d.weights_bytes;
        answer.live_bytes = d.live_bytes;
        answer.capsule_bytes = d.capsule_bytes;
        answer.closure = d.closure.clone();
    }
    answer
}

/// Offers every service. What is returned keeps them alive.
///
/// # Errors
/// The client library cannot make one.
pub fn offer(
    node: &Node,
    engine: &Engine,
    waiters: &tokio::runtime::Handle,
) -> Result<Vec<Box<dyn Any + Send>>, RclrsError> {
    let runner = Runner {
        engine: engine.clone(),
        waiters: waiters.clone(),
    };
    let mut services: Vec<Box<dyn Any + Send>> = Vec::new();

    let run = runner.clone();
    services.push(Box::new(node.create_async_service::<srv::Snapshot, _>(
        "~/snapshot".qos(qos::services()),
        move |request: srv::Snapshot_Request| {
            let wait_ms = request.wait_ms;
            let outcome = snapshot_command(request).map(|command| run.run(command, wait_ms));
            async move {
                let outcome = match outcome {
                    Ok(pending) => pending.await,
                    Err(message) => refuse("snapshot", message),
                };
                srv::Snapshot_Response {
                    code: outcome.code.number(),
                    message: outcome.message,
                    op_id: outcome.op_id,
                    capsule: outcome.capsule.as_ref().map(capsule).unwrap_or_default(),
                    duration_us: outcome.duration_us,
                }
            }
        },
    )?));

    let run = runner.clone();
    services.push(Box::new(node.create_async_service::<srv::Restore, _>(
        "~/restore".qos(qos::services()),
        move |request: srv::Restore_Request| {
            let command = Command::Restore {
                name: request.name,
                allow_partial: request.allow_partial,
            };
            let pending = run.run(command, request.wait_ms);
            async move {
                let outcome = pending.await;
                srv::Restore_Response {
                    code: outcome.code.number(),
                    message: outcome.message,
                    op_id: outcome.op_id,
                    epoch: outcome.epoch,
                    tick: outcome.tick,
                    bytes: outcome.bytes,
                    promoted_bytes: outcome.promoted_bytes,
                    duration_us: outcome.duration_us,
                    prompt: outcome.prompt,
                }
            }
        },
    )?));

    let run = runner.clone();
    services.push(Box::new(node.create_async_service::<srv::Rollback, _>(
        "~/rollback".qos(qos::services()),
        move |request: srv::Rollback_Request| {
            let target = rollback_target(&request);
            let pending = target.map(|target| run.run(Command::Rollback(target), request.wait_ms));
            async move {
                let outcome = match pending {
                    Ok(pending) => pending.await,
                    Err(message) => refuse("rollback", message),
                };
                srv::Rollback_Response {
                    code: outcome.code.number(),
                    message: outcome.message,
                    op_id: outcome.op_id,
                    name: outcome.name,
                    epoch: outcome.epoch,
                    tick: outcome.tick,
                    bytes: outcome.bytes,
                    duration_us: outcome.duration_us,
                }
            }
        },
    )?));

    let run = runner.clone();
    services.push(Box::new(node.create_async_service::<srv::Fork, _>(
        "~/fork".qos(qos::services()),
        move |request: srv::Fork_Request| {
            let command = Command::Fork {
                name: request.name,
                session: request.session,
                switch_to: request.switch_to,
            };
            let pending = run.run(command, request.wait_ms);
            async move {
                let outcome = pending.await;
                srv::Fork_Response {
                    code: outcome.code.number(),
                    message: outcome.message,
                    op_id: outcome.op_id,
                    epoch: outcome.epoch,
                    bytes: outcome.bytes,
                    duration_us: outcome.duration_us,
                }
            }
        },
    )?));

    let run = runner.clone();
    services.push(Box::new(node.create_async_service::<srv::Reset, _>(
        "~/reset".qos(qos::services()),
        move |request: srv::Reset_Request| {
            let pending = run.run(
                Command::Reset {
                    keep_prompt: request.keep_prompt,
                },
                request.wait_ms,
            );
            async move {
                let outcome = pending.await;
                srv::Reset_Response {
                    code: outcome.code.number(),
                    message: outcome.message,
                    op_id: outcome.op_id,
                    epoch: outcome.epoch,
                }
            }
        },
    )?));

    let run = runner.clone();
    services.push(Box::new(node.create_async_service::<srv::DropCapsule, _>(
        "~/drop_capsule".qos(qos::services()),
        move |request: srv::DropCapsule_Request| {
            let pending = run.run(Command::Drop { name: request.name }, request.wait_ms);
            async move {
                let outcome = pending.await;
                srv::DropCapsule_Response {
                    code: outcome.code.number(),
                    message: outcome.message,
                    op_id: outcome.op_id,
                    freed_bytes: outcome.bytes,
                }
            }
        },
    )?));

    let run = runner.clone();
    services.push(Box::new(
        node.create_async_service::<srv::ListCapsules, _>(
            "~/list_capsules".qos(qos::services()),
            move |_: srv::ListCapsules_Request| {
                let pending = run.run(Command::List, PLAIN_WAIT_MS);
                async move {
                    let outcome = pending.await;
                    srv::ListCapsules_Response {
                        code: outcome.code.number(),
                        message: outcome.message,
                        capsules: outcome.capsules.iter().map(capsule).collect(),
                        cursor: outcome.cursor,
                        device_bytes: outcome.device_bytes,
                        device_budget_bytes: outcome.device_budget_bytes,
                        host_bytes: outcome.host_bytes,
                        host_budget_bytes: outcome.host_budget_bytes,
                    }
                }
            },
        )?,
    ));

    let run = runner.clone();
    services.push(Box::new(node.create_async_service::<srv::Prepare, _>(
        "~/prepare".qos(qos::services()),
        move |request: srv::Prepare_Request| {
            let command = Command::Prepare {
                graph: request.graph,
                key: request.key,
                evict: request.evict,
            };
            let pending = run.run(command, request.wait_ms);
            async move {
                let outcome = pending.await;
                srv::Prepare_Response {
                    code: outcome.code.number(),
                    message: outcome.message,
                    op_id: outcome.op_id,
                    variants: outcome.variants,
                }
            }
        },
    )?));

    let run = runner.clone();
    services.push(Box::new(node.create_async_service::<srv::Describe, _>(
        "~/describe".qos(qos::services()),
        move |_: srv::Describe_Request| {
            let pending = run.run(Command::Describe, PLAIN_WAIT_MS);
            async move { describe_answer(pending.await) }
        },
    )?));

    let run = runner.clone();
    services.push(Box::new(node.create_async_service::<srv::Tick, _>(
        "~/tick".qos(qos::services()),
        move |request: srv::Tick_Request| {
            let command = Command::Tick(TickRequest {
                stamp_ns: convert::nanoseconds(request.stamp.sec, request.stamp.nanosec),
                not_before_ns: convert::nanoseconds(
                    request.not_before.sec,
                    request.not_before.nanosec,
                ),
                wait_ms: request.wait_ms,
                action_only: request.action_only,
            });
            let pending = run.run(command, request.wait_ms.saturating_add(TICK_WAIT_MS));
            async move {
                let outcome = pending.await;
                srv::Tick_Response {
                    code: outcome.code.number(),
                    message: outcome.message,
                    op_id: outcome.op_id,
                    epoch: outcome.epoch,
                    tick: outcome.tick,
                    chunk_id: outcome.chunk_id,
                    latency_ms: outcome.latency_ms,
                }
            }
        },
    )?));

    let run = runner;
    services.push(Box::new(node.create_async_service::<srv::OperationStatus, _>(
        "~/operation_status".qos(qos::services()),
        move |request: srv::OperationStatus_Request| {
            let found = run.engine.operation_status(request.op_id);
            let waiters = run.waiters.clone();
            async move {
                let outcome = match found {
                    Some(operation) => wait(waiters, operation, request.wait_ms).await,
                    None => Outcome::new(
                        request.op_id,
                        "",
                        ResultCode::NotFound,
                        format!("no operation {}: never begun, or so old that its result is forgotten", request.op_id),
                    ),
                };
                srv::OperationStatus_Response {
                    code: outcome.code.number(),
                    message: outcome.message,
                    kind: outcome.kind.into(),
                    is_done: !matches!(outcome.code, ResultCode::Accepted) && !outcome.kind.is_empty(),
                    epoch: outcome.epoch,
                    name: outcome.name,
                    duration_us: outcome.duration_us,
                }
            }
        },
    )?));

    Ok(services)
}
