"""What the ROS tests share: a ROS graph of their own, the node as a process, a robot that publishes."""
