//! The joint boundary: names to model order, units, and refusal of anything that is not a plausible number.

use crate::code::{ResultCode, SessionError};
use crate::config::JointConfig;
use crate::io::JointsRef;

/// Writes the model's state vector into `out` (`joints.len()` values or more; the rest becomes 0) and the topic's values
/// into `topic` in the same order. Names that no joint has are ignored. Nothing is written unless all is well; nothing is
/// allocated unless the message is refused.
///
/// # Errors
/// `SHAPE` for lengths, missing or repeated names; `NON_FINITE` for NaN and infinity; `BAD_ARGUMENT` outside the limits.
pub fn map(
    message: &JointsRef<'_>,
    joints: &[JointConfig],
    out: &mut [f32],
    topic: &mut [f64],
) -> Result<(), SessionError> {
    let shape = |message: String| Err(SessionError::new(ResultCode::Shape, message));
    if message.names.len() != message.positions.len() {
        return shape(format!(
            "{} names but {} positions",
            message.names.len(),
            message.positions.len()
        ));
    }
    if out.len() < joints.len() || topic.len() < joints.len() {
        return Err(SessionError::new(
            ResultCode::Internal,
            "state buffer is smaller than the joint map",
        ));
    }
    let find = |name: &str| message.names.iter().position(|n| n == name);
    for joint in joints {
        let Some(at) = find(&joint.name) else {
            return shape(format!(
                "joint {} is missing ({} names came)",
                joint.name,
                message.names.len()
            ));
        };
        if message.names[at + 1..].contains(&joint.name) {
            return shape(format!("joint {} came twice", joint.name));
        }
        let value = message.positions[at];
        if !value.is_finite() || !(joint.to_model(value) as f32).is_finite() {
            return Err(SessionError::new(
                ResultCode::NonFinite,
                format!("joint {} is {value}: expected a finite number", joint.name),
            ));
        }
        if let Some((lo, hi)) = joint.limits.filter(|(lo, hi)| value < *lo || value > *hi) {
            return Err(SessionError::new(
                ResultCode::BadArgument,
                format!("joint {} is {value}: expected {lo}..{hi}", joint.name),
            ));
        }
    }
    for (index, joint) in joints.iter().enumerate() {
        if let Some(at) = find(&joint.name) {
            topic[index] = message.positions[at];
            out[index] = joint.to_model(message.positions[at]) as f32;
        }
    }
    out[joints.len()..].fill(0.0);
    Ok(())
}
