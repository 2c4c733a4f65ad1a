//! `~/status` and `/diagnostics`, and the watch on ROS time that jumps back: one thread beside the tick path.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flashrt_session::lifecycle::State;
use flashrt_session::{Engine, Status};
use rclrs::{log_error, IntoPrimitiveOptions, Node, Publisher, RclrsError, ToLogParams};
use ros_env::diagnostic_msgs::msg::{DiagnosticArray, DiagnosticStatus, KeyValue};
use ros_env::flashrt_ros::msg;

use super::publishers::Listener;
use super::{convert, qos};

/// Time between two looks at the clock, and the finest step of the rates below.
const STEP: Duration = Duration::from_millis(50);
/// Time between two diagnostics; aggregators call a node stale after 5 s.
const DIAGNOSTICS_PERIOD: Duration = Duration::from_secs(1);
/// Time between two status messages while no deployment says otherwise.
const IDLE_STATUS_PERIOD: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Wake {
    is_changed: bool,
    is_ending: bool,
}

/// The thread and its wake-up.
pub struct Reporter {
    wake: Arc<(Mutex<Wake>, Condvar)>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Wakes the reporter at a state change.
struct Bell(Arc<(Mutex<Wake>, Condvar)>);

impl Listener for Bell {
    fn changed(&self) {
        self.0
             .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_changed = true;
        self.0 .1.notify_all();
    }
}

impl Reporter {
    /// Starts the thread. ROS time that goes back by more than `clock_jump_ns` is told to the engine.
    ///
    /// # Errors
    /// A publisher cannot be made.
    pub fn start(node: &Node, engine: &Engine, clock_jump_ns: i64) -> Result<Reporter, RclrsError> {
        let status = node.create_publisher::<msg::Status>("~/status".qos(qos::status()))?;
        let diagnostics =
            node.create_publisher::<DiagnosticArray>("/diagnostics".qos(qos::diagnostics()))?;
        let wake = Arc::new((Mutex::new(Wake::default()), Condvar::new()));
        let work = Work {
            node: Arc::clone(node),
            engine: engine.clone(),
            status,
            diagnostics,
            clock_jump_ns,
        };
        let woken = Arc::clone(&wake);
        let thread = std::thread::Builder::new()
            .name("status".into())
            .spawn(move || work.run(&woken))
            .ok();
        Ok(Reporter { wake, thread })
    }

    /// Hears of state changes.
    pub fn listener(&self) -> Arc<dyn Listener> {
        Arc::new(Bell(Arc::clone(&self.wake)))
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.wake
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_ending = true;
        self.wake.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there was printed there.
            let _ = thread.join();
        }
    }
}

struct Work {
    node: Node,
    engine: Engine,
    status: Publisher<msg::Status>,
    diagnostics: Publisher<DiagnosticArray>,
    clock_jump_ns: i64,
}

impl Work {
    fn run(&self, wake: &(Mutex<Wake>, Condvar)) {
        let mut next_status = Instant::now();
        let mut next_diagnostics = Instant::now();
        let mut last_ros_ns = i64::MIN;
        loop {
            let is_changed = {
                let guard = wake.0.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = wake
                    .1
                    .wait_timeout_while(guard, STEP, |w| !w.is_changed && !w.is_ending);
                let mut guard = waited.unwrap_or_else(PoisonError::into_inner).0;
                if guard.is_ending {
                    return;
                }
                std::mem::take(&mut guard.is_changed)
            };
            let ros_ns = self.node.get_clock().now().nsec;
            if last_ros_ns.saturating_sub(ros_ns) > self.clock_jump_ns {
                self.engine.time_jump(ros_ns - last_ros_ns);
            }
            last_ros_ns = ros_ns;
            let now = Instant::now();
            let (is_status, is_diagnostics) = (
                is_changed || now >= next_status,
                is_changed || now >= next_diagnostics,
            );
            if !(is_status || is_diagnostics) {
                continue;
            }
            let status = self.engine.status();
            if is_diagnostics {
                next_diagnostics = now + DIAGNOSTICS_PERIOD;
                self.sent(self.diagnostics.publish(self.diagnosis(&status, ros_ns)));
            }
            if is_status {
                let period = self
                    .engine
                    .config()
                    .map(|c| Duration::from_secs_f64(1.0 / c.status_rate_hz));
                next_status = now + period.unwrap_or(IDLE_STATUS_PERIOD);
                self.sent(self.status.publish(message(status, ros_ns)));
            }
        }
    }

    fn sent(&self, result: Result<(), RclrsError>) {
        if let Err(error) = result {
            log_error!(
                self.node.error().throttle(Duration::from_secs(5)),
                "cannot publish status: {error}"
            );
        }
    }

    fn diagnosis(&self, status: &Status, ros_ns: i64) -> DiagnosticArray {
        let name = self.node.fully_qualified_name();
        let (level, text) = if !status.error.is_empty() {
            (DiagnosticStatus::ERROR, status.error.clone())
        } else if status.state != State::Active {
            (DiagnosticStatus::OK, status.state.label().to_string())
        } else if status.chunk_state == "starved" {
            (
                DiagnosticStatus::ERROR,
                format!(
                    "starved: no commands; last refusal: {}",
                    status.last_refusal
                ),
            )
        } else if status.chunk_state == "holding" {
            (
                DiagnosticStatus::WARN,
                "holding the last command".to_string(),
            )
        } else {
            (DiagnosticStatus::OK, "active".to_string())
        };
        let value = |key: &str, value: String| KeyValue {
            key: key.into(),
            value,
        };
        let mut entries = vec![DiagnosticStatus {
            level,
            name: name.clone(),
            message: text,
            hardware_id: status.model.clone(),
            values: vec![
                value("epoch", status.epoch.to_string()),
                value("tick", status.tick.to_string()),
                value("tick ms p50", format!("{:.2}", status.tick_ms_p50)),
                value("tick ms p99", format!("{:.2}", status.tick_ms_p99)),
                value("tick ms max", format!("{:.2}", status.tick_ms_max)),
                value("deadline misses", status.deadline_misses.to_string()),
                value("ticks refused", status.ticks_refused.to_string()),
                value("last refusal", status.last_refusal.clone()),
                value("commands", status.commands.to_string()),
                value("holds", status.holds.to_string()),
                value("limited", status.limited.to_string()),
                value("capsules", status.capsules.to_string()),
            ],
        }];
        for port in &status.ports {
            let (level, text) = if port.is_stale && status.state == State::Active {
                (
                    DiagnosticStatus::ERROR,
                    format!(
                        "stale: {:.0} ms old, limit {:.0} ms",
                        port.age_ms, port.max_age_ms
                    ),
                )
            } else if port.is_unstamped {
                (
                    DiagnosticStatus::WARN,
                    "unstamped: receive time is used".to_string(),
                )
            } else {
                (DiagnosticStatus::OK, String::new())
            };
            entries.push(DiagnosticStatus {
                level,
                name: format!("{name}: {}", port.name),
                message: text,
                hardware_id: status.model.clone(),
                values: vec![
                    value("received", port.received.to_string()),
                    value("used", port.used.to_string()),
                    value("superseded", port.superseded.to_string()),
                    value("refused", port.refused.to_string()),
                    value("last refusal", port.last_refusal.clone()),
                    value("age ms", format!("{:.1}", port.age_ms)),
                ],
            });
        }
        DiagnosticArray {
            header: header(ros_ns),
            status: entries,
        }
    }
}

fn header(ros_ns: i64) -> ros_env::std_msgs::msg::Header {
    let stamp = convert::time(ros_ns);
    ros_env::std_msgs::msg::Header {
        stamp: ros_env::builtin_interfaces::msg::Time {
            sec: stamp.sec,
            nanosec: stamp.nanosec,
        },
        frame_id: String::new(),
    }
}

fn message(status: Status, ros_ns: i64) -> msg::Status {
    msg::Status {
        header: header(ros_ns),
        state: status.state.label().into(),
        session: status.session,
        epoch: status.epoch,
        tick: status.tick,
        model: status.model,
        fingerprint: status.fingerprint,
        prompt: status.prompt,
        tick_mode: status.tick_mode.into(),
        chunk_state: status.chunk_state.into(),
        rows_left: status.rows_left,
        chunks: status.chunks,
        commands: status.commands,
        holds: status.holds,
        deadline_misses: status.deadline_misses,
        ticks_refused: status.ticks_refused,
        last_refusal: status.last_refusal,
        tick_ms_last: status.tick_ms_last,
        tick_ms_p50: status.tick_ms_p50,
        tick_ms_p99: status.tick_ms_p99,
        tick_ms_max: status.tick_ms_max,
        boundary_jump: status.boundary_jump,
        ports: status
            .ports
            .into_iter()
            .map(|port| msg::PortStatus {
                name: port.name,
                received: port.received,
                used: port.used,
                superseded: port.superseded,
                refused: port.refused,
                pending: port.pending,
                last_refusal: port.last_refusal,
                age_ms: port.age_ms,
                max_age_ms: port.max_age_ms,
                is_stale: port.is_stale,
                is_unstamped: port.is_unstamped,
            })
            .collect(),
        capsules: status.capsules,
        capsule_device_bytes: status.capsule_device_bytes,
        capsule_host_bytes: status.capsule_host_bytes,
        limited: status.limited,
        error: status.error,
    }
}
