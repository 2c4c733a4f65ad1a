//! Any bytes as an MCAP file.
#![no_main]

use flashrt_session::bag::{BagSource, McapSource};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut source = McapSource::new(bytes);
    let mut count = 0_u64;
    let _ = source.for_each(&mut |message| {
        count += message.data.len() as u64;
        Ok(())
    });
});
