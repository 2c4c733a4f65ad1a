//! ROS 2 shell and command line of flashrt.
#![warn(missing_docs)]
