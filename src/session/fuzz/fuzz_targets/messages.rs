//! Any bytes as each message that replay reads. What decodes must survive encoding and decoding.
#![no_main]

use flashrt_session::messages::{
    decode_chunk, decode_tick_log, encode_tick_log, ImageMessage, JointsMessage,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(image) = ImageMessage::decode(bytes) {
        assert_eq!(ImageMessage::decode(&image.encode()), Ok(image));
    }
    if let Ok(joints) = JointsMessage::decode(bytes) {
        let again = JointsMessage::decode(&joints.encode()).expect("what was written can be read");
        assert_eq!(again.names, joints.names);
        assert_eq!(again.positions.len(), joints.positions.len());
    }
    if let Ok(record) = decode_tick_log(bytes) {
        let again = decode_tick_log(&encode_tick_log(&record)).expect("what was written can be read");
        assert_eq!(again.ports.len(), record.ports.len());
        assert_eq!(again.prompt, record.prompt);
    }
    let _ = decode_chunk(bytes);
});
