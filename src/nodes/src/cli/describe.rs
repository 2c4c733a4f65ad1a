//! `flashrt describe`: what a deployment is, without running it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{anyhow, Result};
use flashrt_runtime::ForeignLibrary;
use flashrt_session::config::NativeConfig;
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
    let report = match (engine.configure(config.clone()), &config.model.native) {
        (Ok(report), _) => report,
        (Err(error), None) => return Err(error.into()),
        (Err(error), Some(native)) => {
            // What the library declares is worth a look all the same.
            if let Err(reason) = declared(native, is_identity_shown) {
                return Err(anyhow!("{error}").context(reason));
            }
            return Err(anyhow!("the node cannot run it: {error}"));
        }
    };
    let d = &report.description;

    match d.library.as_str() {
        "" => say!("model        {} on {} ({})", d.model, d.backend, d.isa),
        library => {
            say!("model        {} on {}", d.model, d.backend);
            say!("library      {library}");
            say!("execution    {}", d.exec_library);
        }
    }
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

/// Prints what a native library declares, whether or not the node could run it.
///
/// # Errors
/// The library cannot be opened.
fn declared(native: &NativeConfig, is_identity_shown: bool) -> Result<()> {
    let model = ForeignLibrary::open(&native.library, &native.config)?;
    let d = model.declaration();
    let kind = match model.is_export_only() {
        true => "export without ports and plan",
        false => "model",
    };
    let exec = model.exec_library().map(|p| p.display().to_string());
    say!("{kind:12} {}", model.name());
    say!("library      {}", native.library.display());
    say!("execution    {}", exec.as_deref().unwrap_or("none"));
    say!("fingerprint  {:016x}", model.fingerprint());
    let graphs = d.graphs.iter().map(|g| {
        let keys: Vec<String> = g.keys.iter().map(u64::to_string).collect();
        vec![g.name.clone(), g.stream_id.to_string(), keys.join(", ")]
    });
    say!("\n{}", table::plain(&["graph", "stream", "keys"], graphs));
    let buffers = d
        .buffers
        .iter()
        .map(|b| vec![b.name.clone(), table::bytes(b.bytes), b.role.to_string()]);
    say!("{}", table::plain(&["buffer", "size", "role"], buffers));
    let regions = d.regions.iter().map(|r| {
        vec![
            r.name.clone(),
            r.offset.to_string(),
            r.bytes.to_string(),
            r.flags.to_string(),
        ]
    });
    say!(
        "{}",
        table::plain(&["region", "offset", "bytes", "flags"], regions)
    );
    let ports = d.ports.iter().map(|p| {
        vec![
            p.name.clone(),
            p.modality.to_string(),
            p.dtype.to_string(),
            p.direction.to_string(),
            p.update.to_string(),
            format!("{:?}", p.shape),
        ]
    });
    let head = ["port", "modality", "dtype", "direction", "update", "shape"];
    say!("{}", table::plain(&head, ports));
    if is_identity_shown {
        say!("identity\n{}", String::from_utf8_lossy(model.identity()));
    }
    Ok(())
}
