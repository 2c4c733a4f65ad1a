//! The node.

pub mod clock;
pub mod convert;
pub mod inputs;
pub mod lifecycle;
pub mod node;
pub mod params;
pub mod publishers;
pub mod qos;
pub mod services;
pub mod status;
pub mod stop;
