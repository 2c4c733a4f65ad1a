//! What the CUDA tests share: a context, or the reason why there is none.
#![allow(dead_code)]

use flashrt_exec::{Buffer, Context, Error, Graph, Slice, Space, StreamId};
use std::io::Write;
use std::sync::OnceLock;

pub const S0: StreamId = StreamId(0);

/// A context on device 0; `None` where there is no device, after saying so once. With
/// `FLASHRT_REQUIRE_CUDA` set that is a failure.
pub fn open() -> Option<Context> {
    static SAID: OnceLock<()> = OnceLock::new();
    match Context::cuda(0) {
        Ok(context) => Some(context),
        Err(error @ Error::BackendUnavailable { .. })
            if std::env::var_os("FLASHRT_REQUIRE_CUDA").is_none() =>
        {
            // Not `eprintln`, whose text the harness keeps to itself when a test passes.
            SAID.get_or_init(|| {
                let _ = writeln!(std::io::stderr(), "the cuda tests are skipped: {error}");
            });
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// As `open`, and holds one more context to the end of the process: otherwise the device would be set up
/// anew for each test.
pub fn open_held() -> Option<Context> {
    static HELD: OnceLock<Option<Context>> = OnceLock::new();
    HELD.get_or_init(open).as_ref()?;
    open()
}

pub fn device(ctx: &Context, name: &str, bytes: usize) -> Buffer {
    ctx.alloc(name, Space::Device, bytes).unwrap()
}

pub fn host(ctx: &Context, name: &str, bytes: usize) -> Buffer {
    ctx.alloc(name, Space::Host, bytes).unwrap()
}

pub fn read(ctx: &Context, slice: &Slice) -> Vec<u8> {
    let mut out = vec![0xEE; slice.bytes()];
    ctx.download(slice, &mut out).unwrap();
    out
}

/// A graph whose variant 0 sets all of `dst` to `value`.
pub fn fill_graph(ctx: &Context, name: &str, dst: &Buffer, value: u8) -> Graph {
    let graph = ctx.graph(name, 0).unwrap();
    graph
        .capture::<Error>(0, |r| r.fill(&dst.all(), value))
        .unwrap();
    graph
}
