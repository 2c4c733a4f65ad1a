//! Tick engine without ROS: inputs, commands, chunks, lifecycle, replay.
#![warn(missing_docs)]
