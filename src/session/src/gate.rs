//! The gate: may a tick at this time use these inputs? Pure.

use std::fmt;

use crate::code::ResultCode;

/// What the gate knows of one port or view.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatePort<'a> {
    /// Name for messages.
    pub name: &'a str,
    /// A tick needs it.
    pub is_required: bool,
    /// Oldest input allowed.
    pub max_age_ns: Option<i64>,
    /// Stamp of the input that the tick would use, ROS time.
    pub stamp_ns: Option<i64>,
}

/// Why a tick is refused. Ports are named; times are in nanoseconds, printed in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateRefusal<'a> {
    /// A required port has no input in this epoch.
    Missing {
        /// Port.
        port: &'a str,
    },
    /// The input is too old.
    Stale {
        /// Port.
        port: &'a str,
        /// Its age.
        age_ns: i64,
        /// The limit.
        max_age_ns: i64,
    },
    /// The input is older than the caller asked for.
    NotYet {
        /// Port.
        port: &'a str,
        /// How much newer it must be.
        behind_ns: i64,
    },
    /// Inputs too far apart.
    Skew {
        /// Port with the oldest input.
        oldest: &'a str,
        /// Port with the newest.
        newest: &'a str,
        /// Time between them.
        skew_ns: i64,
        /// The limit.
        max_skew_ns: i64,
    },
}

impl GateRefusal<'_> {
    /// Code on the wire.
    pub fn code(&self) -> ResultCode {
        match self {
            GateRefusal::Skew { .. } => ResultCode::Skew,
            _ => ResultCode::StaleInput,
        }
    }
}

fn ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}

impl fmt::Display for GateRefusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GateRefusal::Missing { port } => write!(f, "{port}: no input in this epoch"),
            GateRefusal::Stale {
                port,
                age_ns,
                max_age_ns,
            } => {
                write!(
                    f,
                    "{port}: age {:.1} ms > {:.1} ms",
                    ms(*age_ns),
                    ms(*max_age_ns)
                )
            }
            GateRefusal::NotYet { port, behind_ns } => {
                write!(
                    f,
                    "{port}: newest input is {:.1} ms too old",
                    ms(*behind_ns)
                )
            }
            GateRefusal::Skew {
                oldest,
                newest,
                skew_ns,
                max_skew_ns,
            } => {
                write!(
                    f,
                    "{newest} is {:.1} ms newer than {oldest}, limit {:.1} ms",
                    ms(*skew_ns),
                    ms(*max_skew_ns)
                )
            }
        }
    }
}

/// Checks, in this order: every required port has an input, it is at least as new as `not_before_ns`, no input is older
/// than its port allows, and all are within `max_skew_ns`. `Ok` holds the true skew in nanoseconds. Allocates nothing.
///
/// # Errors
/// The first problem in port order.
pub fn check<'a>(
    ports: impl Iterator<Item = GatePort<'a>> + Clone,
    tick_ns: i64,
    not_before_ns: Option<i64>,
    max_skew_ns: Option<i64>,
) -> Result<i64, GateRefusal<'a>> {
    for port in ports.clone() {
        match (port.stamp_ns, not_before_ns) {
            (None, _) if port.is_required => return Err(GateRefusal::Missing { port: port.name }),
            (Some(stamp), Some(bound)) if port.is_required && stamp < bound => {
                return Err(GateRefusal::NotYet {
                    port: port.name,
                    behind_ns: bound.saturating_sub(stamp),
                });
            }
            _ => {}
        }
    }
    for port in ports.clone() {
        if let (Some(stamp), Some(max_age_ns)) = (port.stamp_ns, port.max_age_ns) {
            let age_ns = tick_ns.saturating_sub(stamp);
            if age_ns > max_age_ns {
                return Err(GateRefusal::Stale {
                    port: port.name,
                    age_ns,
                    max_age_ns,
                });
            }
        }
    }
    let stamped = || {
        ports
            .clone()
            .filter_map(|p| p.stamp_ns.map(|s| (s, p.name)))
    };
    let (Some(oldest), Some(newest)) =
        (stamped().min_by_key(|p| p.0), stamped().max_by_key(|p| p.0))
    else {
        return Ok(0);
    };
    let skew_ns = newest.0.saturating_sub(oldest.0);
    match max_skew_ns {
        Some(max_skew_ns) if skew_ns > max_skew_ns => Err(GateRefusal::Skew {
            oldest: oldest.1,
            newest: newest.1,
            skew_ns,
            max_skew_ns,
        }),
        _ => Ok(skew_ns),
    }
}
