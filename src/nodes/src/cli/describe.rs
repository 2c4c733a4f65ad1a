//! `flashrt describe`: what a deployment is, without running it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{anyhow, Result};
use flashrt_session::{ChunkRef, CommandRef, Config, Engine, Event, Sink, SystemClock, TickRecord};

use super::output::{self, say};
use super::table;

/// Takes everything and keeps nothing.
struct Nowhere;

impl Sink for Nowhere {
    fn chunk(&self, _: &ChunkRef<'_>) {}
    fn command(&self, _: &CommandRef<'_>) {}
    fn tick_log(&self, _: &TickRecord) {}
    fn event(&self, _: Event) {}
}

/// Configures the deployment as the node would and prints what came of it.
///
/// # Errors
/// The file is not valid, or the deployment cannot be configured.
pub fn run(path: &Path, is_identity_shown: bool) -> Result<()> {
    let config =
        Config::load(path, crate::share::folder().as_deref()).map_err(|e| anyhow!("{e}"))?;
    let engine = Engine::new(Arc::new(SystemClock::default()), Arc::new(Nowhere));
    let report = engine.configure(config.clone())?;
    let d = &report.description;

    say!("model        {} on {} ({})", d.model, d.backend, d.isa);
    say!("fingerprint  {}", d.fingerprint);
    say!("closure      {}", d.closure);
    say!("ready after  {:.0} ms", report.duration_ms);
    for warning in &report.warnings {
        say!("warning      {warning}");
    }

    let ports = d.ports.iter().map(|p| {
        let shape: Vec<String> = p.shape.iter().map(i64::to_string).collect();
        let need = if p.is_required { "required" } else { "" };
        vec![
            p.name.clone(),
            p.modality.clone(),
            p.dtype.clone(),
            p.layout.clone(),
            format!("[{}]", shape.join(", ")),
            p.direction.clone(),
            p.update.clone(),
            need.into(),
            p.topics.join(", "),
        ]
    });
    let head = [
        "port",
        "modality",
        "dtype",
        "layout",
        "shape",
        "direction",
        "update",
        "",
        "topics",
    ];
    say!("\n{}", table::plain(&head, ports));

    say!("stages       {}", d.stages.join(", "));
    say!("plans        {}", d.plans.join(", "));
    say!("live sets    {}", d.sessions.join(", "));

    let regions = d.regions.iter().map(|r| {
        // name:bytes:class
        let mut parts = r.rsplitn(3, ':');
        let (class, bytes, name) = (parts.next(), parts.next(), parts.next());
        [name, bytes, class]
            .iter()
            .map(|p| p.unwrap_or("").to_string())
            .collect()
    });
    say!("\n{}", table::plain(&["region", "bytes", "class"], regions));

    let mib = |n: u64| table::bytes(n << 20);
    let sizes = [
        (
            "weights, shared by all live sets",
            table::bytes(d.weights_bytes),
        ),
        ("mutable memory of one live set", table::bytes(d.live_bytes)),
        ("one capsule", table::bytes(d.capsule_bytes)),
        (
            "budget of the device tier",
            mib(config.capsules.device_budget_mib),
        ),
        (
            "budget of the host tier",
            mib(config.capsules.host_budget_mib),
        ),
    ];
    output::print(format_args!(
        "{}",
        table::plain(
            &["memory", "size"],
            sizes.map(|(what, size)| vec![what.into(), size])
        )
    ))?;
    if is_identity_shown {
        say!("\nidentity\n{}", d.identity);
    }
    engine.cleanup()?;
    Ok(())
}
