//! Everything that the engine gives out, as messages. The messages are made once and reused: a steady stream of chunks,
//! commands and log entries allocates nothing here (the middleware's publish call may).

use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::Result;
use flashrt_session::{ChunkRef, CommandRef, Event, Outcome, Sink, TickRecord};
use rclrs::{
    log_error, log_info, log_warn, IntoPrimitiveOptions, Node, Publisher, RclrsError, ToLogParams,
};
use ros_env::flashrt_ros::msg::rmw as flashrt_msg;
use ros_env::lifecycle_msgs::msg::rmw as lifecycle_msg;
use ros_env::sensor_msgs::msg::rmw as sensor_msg;
use ros_env::std_msgs::msg::rmw as std_msg;
use ros_env::trajectory_msgs::msg::rmw as trajectory_msg;

use super::{convert, qos};
use flashrt_session::config::CommandType;

/// A publisher with the one message that it sends again and again.
struct Output<M: rosidl_runtime_rs::RmwMessage> {
    publisher: Publisher<M>,
    message: Mutex<M>,
}

impl<M: rosidl_runtime_rs::RmwMessage> Output<M> {
    fn new<'a>(
        node: &Node,
        options: impl Into<rclrs::PublisherOptions<'a>>,
    ) -> Result<Output<M>, RclrsError> {
        Ok(Output {
            publisher: node.create_publisher::<M>(options)?,
            message: Mutex::new(M::default()),
        })
    }

    fn publish(&self, node: &Node, fill: impl FnOnce(&mut M)) {
        let mut message = lock(&self.message);
        fill(&mut message);
        if let Err(error) = self.publisher.publish(&*message) {
            let topic = self.publisher.topic_name();
            log_error!(
                node.error().throttle(std::time::Duration::from_secs(1)),
                "cannot publish on {topic}: {error}"
            );
        }
    }
}

/// The command topic in the type that the deployment file asks for.
enum CommandOutput {
    Trajectory(Output<trajectory_msg::JointTrajectory>),
    Array(Output<std_msg::Float64MultiArray>),
    JointState(Output<sensor_msg::JointState>),
}

/// What the status thread must hear of.
pub trait Listener: Send + Sync {
    /// The lifecycle state or the error state changed.
    fn changed(&self);
}

/// The engine's sink: publishers of the node.
pub struct Publishers {
    node: Node,
    chunk: Output<flashrt_msg::ActionChunk>,
    tick_log: Output<flashrt_msg::TickLog>,
    transition_event: Output<lifecycle_msg::TransitionEvent>,
    /// Exists from configure to cleanup; its topic and type come from the deployment file.
    command: Mutex<Option<CommandOutput>>,
    is_tick_log_on: std::sync::atomic::AtomicBool,
    listener: Mutex<Option<Arc<dyn Listener>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while filling a message leaves a message that is filled again before its next use.
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Publishers {
    /// Creates the publishers that exist from node start.
    ///
    /// # Errors
    /// The client library cannot make one.
    pub fn new(node: &Node) -> Result<Publishers, RclrsError> {
        Ok(Publishers {
            chunk: Output::new(node, "~/action_chunk".qos(qos::actions()))?,
            tick_log: Output::new(node, "~/tick_log".qos(qos::tick_log()))?,
            transition_event: Output::new(
                node,
                "~/transition_event".qos(qos::transition_events()),
            )?,
            command: Mutex::new(None),
            is_tick_log_on: false.into(),
            listener: Mutex::new(None),
            node: Arc::clone(node),
        })
    }

    /// Who hears of state changes.
    pub fn set_listener(&self, listener: Arc<dyn Listener>) {
        *lock(&self.listener) = Some(listener);
    }

    /// Makes the command publisher of a deployment.
    ///
    /// # Errors
    /// The topic name is not valid, or the client library cannot make the publisher.
    pub fn open(
        &self,
        topic: &str,
        kind: CommandType,
        is_tick_log_on: bool,
    ) -> Result<(), RclrsError> {
        let options = topic.qos(qos::actions());
        let output = match kind {
            CommandType::JointTrajectory => {
                CommandOutput::Trajectory(Output::new(&self.node, options)?)
            }
            CommandType::Float64MultiArray => {
                CommandOutput::Array(Output::new(&self.node, options)?)
            }
            CommandType::JointState => CommandOutput::JointState(Output::new(&self.node, options)?),
        };
        *lock(&self.command) = Some(output);
        self.is_tick_log_on
            .store(is_tick_log_on, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    /// Drops the command publisher.
    pub fn close(&self) {
        *lock(&self.command) = None;
    }

    /// Publishes one edge of the lifecycle machine.
    pub fn transition(&self, edge: &flashrt_session::lifecycle::Transition) {
        let stamp = self.node.get_clock().now().nsec;
        self.transition_event.publish(&self.node, |message| {
            message.timestamp = u64::try_from(stamp).unwrap_or(0);
            message.transition.id = edge.id;
            convert::set_text(&mut message.transition.label, edge.label);
            message.start_state.id = edge.start.id();
            convert::set_text(&mut message.start_state.label, edge.start.label());
            message.goal_state.id = edge.goal.id();
            convert::set_text(&mut message.goal_state.label, edge.goal.label());
        });
        self.notify();
    }

    fn notify(&self) {
        if let Some(listener) = lock(&self.listener).as_ref() {
            listener.changed();
        }
    }
}

impl Sink for Publishers {
    fn chunk(&self, chunk: &ChunkRef<'_>) {
        self.chunk
            .publish(&self.node, |message| fill_chunk(message, chunk));
    }

    fn command(&self, command: &CommandRef<'_>) {
        match lock(&self.command).as_ref() {
            None => {}
            Some(CommandOutput::Trajectory(output)) => {
                output.publish(&self.node, |message| fill_trajectory(message, command));
            }
            Some(CommandOutput::Array(output)) => {
                output.publish(&self.node, |message| fill_array(message, command));
            }
            Some(CommandOutput::JointState(output)) => {
                output.publish(&self.node, |message| fill_joint_state(message, command));
            }
        }
    }

    fn tick_log(&self, record: &TickRecord) {
        if self
            .is_tick_log_on
            .load(std::sync::atomic::Ordering::Relaxed)
        {
            self.tick_log
                .publish(&self.node, |message| fill_tick_log(message, record));
        }
    }

    fn event(&self, event: Event) {
        match event {
            Event::Transition(edge) => self.transition(&edge),
            Event::Error { code, message } => {
                log_error!(&*self.node, "{code}: {message}");
                self.notify();
            }
            Event::Warning(message) => log_warn!(&*self.node, "{message}"),
            Event::Info(message) => log_info!(&*self.node, "{message}"),
            Event::OperationDone(outcome) => self.operation_done(&outcome),
        }
    }
}

fn fill_chunk(message: &mut flashrt_msg::ActionChunk, chunk: &ChunkRef<'_>) {
    message.header.stamp = convert::time(chunk.stamp_ns);
    convert::set_text(&mut message.session, chunk.session);
    message.epoch = chunk.epoch;
    message.tick = chunk.tick;
    message.chunk_id = chunk.chunk_id;
    message.observation_age = convert::duration(chunk.observation_age_ns);
    message.context_stamp = convert::time(chunk.context_stamp_ns);
    message.context_age_ticks = chunk.context_age_ticks;
    message.dt = convert::duration(chunk.dt_ns);
    convert::set_texts(&mut message.names, chunk.names);
    convert::set_texts(&mut message.units, chunk.units);
    convert::set_text(&mut message.representation, chunk.representation);
    message.horizon = chunk.horizon;
    message.execute_rows = chunk.execute_rows;
    convert::set_values(&mut message.data, chunk.data);
}

fn fill_trajectory(message: &mut trajectory_msg::JointTrajectory, command: &CommandRef<'_>) {
    message.header.stamp = convert::time(command.stamp_ns);
    convert::set_texts(&mut message.joint_names, command.names);
    convert::resize(&mut message.points, 1);
    let point = &mut message.points[0];
    convert::set_values(&mut point.positions, command.positions);
    point.time_from_start = convert::duration(command.dt_ns);
}

fn fill_array(message: &mut std_msg::Float64MultiArray, command: &CommandRef<'_>) {
    convert::set_values(&mut message.data, command.positions);
}

fn fill_joint_state(message: &mut sensor_msg::JointState, command: &CommandRef<'_>) {
    message.header.stamp = convert::time(command.stamp_ns);
    convert::set_texts(&mut message.name, command.names);
    convert::set_values(&mut message.position, command.positions);
}

fn fill_tick_log(message: &mut flashrt_msg::TickLog, record: &TickRecord) {
    message.header.stamp = convert::time(record.stamp_ns);
    convert::set_text(&mut message.session, &record.session);
    message.epoch = record.epoch;
    message.tick = record.tick;
    message.code = record.code.number();
    convert::set_text(&mut message.plan, record.plan);
    message.key = record.key;
    convert::resize(&mut message.ports, record.ports.len());
    for (slot, port) in message.ports.iter_mut().zip(&record.ports) {
        convert::set_text(&mut slot.name, &port.name);
        slot.stamp = convert::time(port.stamp_ns);
        slot.hash = port.hash;
        slot.is_new = port.is_new;
    }
    convert::set_text(&mut message.prompt, &record.prompt);
    message.actions_hash = record.actions_hash;
    message.latency_ms = record.latency_ms;
    message.chunk_id = record.chunk_id;
    convert::set_text(&mut message.operation, record.operation);
    convert::set_text(&mut message.capsule, &record.capsule);
    convert::set_text(&mut message.target, &record.target);
    convert::set_text(&mut message.options, &record.options);
}

impl Publishers {
    fn operation_done(&self, outcome: &Outcome) {
        if !outcome.code.is_ok() {
            log_warn!(
                &*self.node,
                "{} {}: {}: {}",
                outcome.kind,
                outcome.name,
                outcome.code,
                outcome.message
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashrt_session::{ResultCode, TickPortRecord};

    /// Where a message keeps its texts and sequences: the client library's C allocator gave these, not Rust's.
    fn places(
        chunk: &flashrt_msg::ActionChunk,
        log: &flashrt_msg::TickLog,
        command: &trajectory_msg::JointTrajectory,
    ) -> Vec<usize> {
        let mut all = vec![
            chunk.session.as_ptr() as usize,
            chunk.names.as_ptr() as usize,
            chunk.units.as_ptr() as usize,
            chunk.representation.as_ptr() as usize,
            chunk.data.as_ptr() as usize,
            log.session.as_ptr() as usize,
            log.plan.as_ptr() as usize,
            log.ports.as_ptr() as usize,
            log.prompt.as_ptr() as usize,
            command.joint_names.as_ptr() as usize,
            command.points.as_ptr() as usize,
            command.points[0].positions.as_ptr() as usize,
        ];
        all.extend(chunk.names.iter().map(|name| name.as_ptr() as usize));
        all.extend(chunk.units.iter().map(|unit| unit.as_ptr() as usize));
        all.extend(log.ports.iter().map(|port| port.name.as_ptr() as usize));
        all.extend(
            command
                .joint_names
                .iter()
                .map(|name| name.as_ptr() as usize),
        );
        all
    }

    #[test]
    fn a_thousand_ticks_keep_every_sequence_where_it_is() {
        let names: Vec<String> = ["shoulder_pan", "gripper"].map(String::from).into();
        let units: Vec<String> = ["rad", "percent"].map(String::from).into();
        let mut record = TickRecord::with_capacity(2);
        (record.session, record.prompt) = ("main".into(), "put the cube on the red pad".into());
        (record.plan, record.code) = ("full", ResultCode::Ok);
        let mut messages = (
            flashrt_msg::ActionChunk::default(),
            flashrt_msg::TickLog::default(),
            trajectory_msg::JointTrajectory::default(),
        );
        let mut first = Vec::new();
        for tick in 0..1000_u32 {
            let data: Vec<f32> = (0..32).map(|i| (i * tick) as f32).collect();
            let positions = [f64::from(tick), 0.5];
            fill_chunk(
                &mut messages.0,
                &ChunkRef {
                    session: "main",
                    epoch: 1,
                    tick: tick.into(),
                    chunk_id: tick.into(),
                    stamp_ns: i64::from(tick) * 100_000_000,
                    observation_age_ns: 5,
                    context_stamp_ns: 7,
                    context_age_ticks: 0,
                    dt_ns: 100_000_000,
                    names: &names,
                    units: &units,
                    representation: "absolute",
                    horizon: 16,
                    execute_rows: 8,
                    data: &data,
                },
            );
            record.tick = tick.into();
            record.ports.clear();
            for name in ["images.workspace", "state"] {
                record.ports.push(TickPortRecord {
                    name: name.into(),
                    stamp_ns: tick.into(),
                    hash: u64::from(tick) + 3,
                    is_new: tick % 2 == 0,
                });
            }
            fill_tick_log(&mut messages.1, &record);
            let command = CommandRef {
                session: "main",
                epoch: 1,
                chunk_id: tick.into(),
                row: 0,
                is_hold: false,
                stamp_ns: tick.into(),
                dt_ns: 100_000_000,
                names: &names,
                positions: &positions,
            };
            fill_trajectory(&mut messages.2, &command);
            // They carry this tick, not an earlier one.
            assert_eq!(messages.0.data.as_slice(), data);
            assert_eq!(messages.1.ports[1].hash, u64::from(tick) + 3);
            assert_eq!(messages.2.points[0].positions.as_slice(), positions);
            let now = places(&messages.0, &messages.1, &messages.2);
            if tick == 0 {
                first = now;
            } else {
                assert_eq!(now, first, "tick {tick}");
            }
        }
    }
}
