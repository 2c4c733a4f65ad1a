//! The two clocks of the engine, on the node: steady time of the machine, ROS time of the node (simulated with `use_sim_time`).

use std::time::Instant;

/// Steady and ROS time.
pub struct NodeClock {
    start: Instant,
    ros: rclrs::Clock,
}

impl NodeClock {
    /// The clocks of a node.
    pub fn new(node: &rclrs::Node) -> NodeClock {
        NodeClock {
            start: Instant::now(),
            ros: node.get_clock(),
        }
    }
}

impl flashrt_session::Clock for NodeClock {
    fn steady_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
    fn ros_ns(&self) -> i64 {
        self.ros.now().nsec
    }
}
