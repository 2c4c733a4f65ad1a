//! Latency of the demo policy's tick on this machine.
//!
//! ```text
//! cargo run --release -p flashrt-models --example tick -- [ticks] [threads] [policy folder]
//! ```
//!
//! Times a whole tick (RGB frames of the model's size, state, graph replay, output
//! bytes), its context and action halves, and the inputs alone. Threads 0 takes every core.

use std::path::PathBuf;
use std::time::Instant;

use flashrt_exec::{Context, CpuOptions, StreamOrder, KEY_INHERIT};
use flashrt_models::builtin;
use flashrt_models::pi05::Pi05Options;
use flashrt_runtime::{ImageView, InputData, LiveSet, PixelFormat};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let ticks: usize = args.next().map_or(Ok(300), |a| a.parse())?;
    let threads: usize = args.next().map_or(Ok(0), |a| a.parse())?;
    let folder = args
        .next()
        .map_or_else(|| PathBuf::from("config/so101_policy"), PathBuf::from);

    let ctx = Context::cpu(CpuOptions {
        threads,
        order: StreamOrder::Submission,
    })?;
    let start = Instant::now();
    let mut producer = builtin::open("pi05", &ctx, &folder, Pi05Options::default())?;
    let loaded = start.elapsed();
    let mut set = producer.build("bench")?;
    println!(
        "pi05 {} on {}, {} threads (0 = all); load {:.0} ms, build and warm {:.0} ms, weights {} kB",
        folder.display(),
        ctx.isa(),
        threads,
        loaded.as_secs_f64() * 1e3,
        (start.elapsed() - loaded).as_secs_f64() * 1e3,
        producer.weights_bytes() / 1000,
    );

    let shape = set.ports()[0].shape.clone();
    let (views, side) = (shape[0] as usize, shape[1] as u32);
    let pixels: Vec<u8> = (0..side * side * 3)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let view = ImageView {
        format: PixelFormat::Rgb8,
        width: side,
        height: side,
        stride_bytes: 0,
        data: &pixels,
        timestamp_ns: 0,
    };
    let frames = vec![view; views];
    let state = vec![0.1; set.ports()[1].shape[0] as usize];
    let mut out = vec![0; 4 * set.ports()[3].shape.iter().product::<i64>() as usize];
    let port = |set: &LiveSet, name: &str| set.port(name).ok_or_else(|| format!("no port {name}"));
    let (images, joints, prompt, actions) = (
        port(&set, "images")?,
        port(&set, "state")?,
        port(&set, "prompt")?,
        port(&set, "actions")?,
    );
    set.set_input(prompt, InputData::Text("put the cube on the red pad"))?;

    let feed = |set: &mut LiveSet| -> Result<(), Failure> {
        set.set_input(images, InputData::Images(&frames))?;
        Ok(set.set_input(joints, InputData::F32(&state))?)
    };
    let mut replay = |set: &mut LiveSet, plan: &str, key: u64| -> Result<(), Failure> {
        let plan = set.plan(plan).ok_or("no such plan")?;
        set.run(plan, key)?;
        set.sync()?;
        set.get_output(actions, &mut out)?;
        Ok(())
    };
    println!(
        "{:<34} {:>9} {:>9} {:>9}",
        "milliseconds", "p50", "p99", "max"
    );
    time("inputs (images, state, tokens)", ticks, || feed(&mut set))?;
    time("full tick, default flow steps", ticks, || {
        feed(&mut set)?;
        replay(&mut set, "full", KEY_INHERIT)
    })?;
    time("action on cached context, default", ticks, || {
        replay(&mut set, "action", KEY_INHERIT)
    })?;
    time("full tick, 10 flow steps", ticks, || {
        feed(&mut set)?;
        replay(&mut set, "full", 10)
    })?;
    time("action on cached context, 10", ticks, || {
        replay(&mut set, "action", 10)
    })?;
    Ok(())
}

/// Prints the quantiles of `ticks` calls after a tenth as many unmeasured ones.
fn time(
    name: &str,
    ticks: usize,
    mut f: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    for _ in 0..ticks / 10 + 1 {
        f()?;
    }
    let mut ms = Vec::with_capacity(ticks);
    for _ in 0..ticks {
        let start = Instant::now();
        f()?;
        ms.push(start.elapsed().as_secs_f64() * 1e3);
    }
    ms.sort_by(f64::total_cmp);
    let at = |q: f64| ms[((ms.len() - 1) as f64 * q).round() as usize];
    println!(
        "{name:<34} {:>9.3} {:>9.3} {:>9.3}",
        at(0.5),
        at(0.99),
        at(1.0)
    );
    Ok(())
}
