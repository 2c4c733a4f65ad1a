//! Every quality-of-service profile of the node, with the reason for it. No depth is named anywhere else.

use rclrs::QoSProfile;

/// Images and joint states: only the newest counts, so one is kept.
///
/// Best effort matches every publisher. Reliable (by configuration) is for large images on one host, where best effort
/// loses fragments; it does not match a best-effort publisher.
pub fn newest_input(is_reliable: bool) -> QoSProfile {
    let profile = QoSProfile::topics_default().keep_last(1);
    if is_reliable {
        profile.reliable()
    } else {
        profile.best_effort()
    }
}

/// The prompt: a latched instruction that a late starter still gets. Wants a transient-local publisher.
pub fn latched_input() -> QoSProfile {
    QoSProfile::topics_default()
        .keep_last(1)
        .reliable()
        .transient_local()
}

/// Chunks and commands: reliable, so that tools which ask for it see them; short, since an old command is of no use.
pub fn actions() -> QoSProfile {
    QoSProfile::topics_default().keep_last(5).reliable()
}

/// The tick log: exact replay needs every entry, so a slow recorder gets time.
pub fn tick_log() -> QoSProfile {
    QoSProfile::topics_default().keep_last(200).reliable()
}

/// Status: latched, so that a tool that starts later sees the state at once.
pub fn status() -> QoSProfile {
    QoSProfile::topics_default()
        .keep_last(1)
        .reliable()
        .transient_local()
}

/// Diagnostics: what aggregators expect.
pub fn diagnostics() -> QoSProfile {
    QoSProfile::topics_default().keep_last(10).reliable()
}

/// Services: ten requests, the default, are soon lost when several clients call at once.
pub fn services() -> QoSProfile {
    QoSProfile::services_default().keep_last(100)
}

/// Transition events: as rcl_lifecycle publishes them.
pub fn transition_events() -> QoSProfile {
    QoSProfile::topics_default().keep_last(10).reliable()
}
