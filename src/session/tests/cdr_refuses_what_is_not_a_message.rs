//! The decoder of untrusted bytes.

mod common;
use std::sync::Arc;

use flashrt_session::messages::*;
use flashrt_session::*;
use proptest::prelude::*;

fn record() -> TickRecord {
    TickRecord {
        stamp_ns: 12_345_678_901,
        session: Arc::from("main"),
        epoch: 3,
        tick: 17,
        code: ResultCode::StaleInput,
        plan: "context_action",
        key: 10,
        ports: vec![TickPortRecord {
            name: Arc::from("state"),
            stamp_ns: -1,
            hash: u64::MAX,
            is_new: true,
        }],
        prompt: Arc::from("put the cube"),
        actions_hash: 5,
        chunk_id: 9,
        latency_ms: 1.5,
        operation: "snapshot",
        capsule: Arc::from("a"),
        target: Arc::from(""),
        options: Arc::from("tier=host,overwrite"),
    }
}

/// Written out by hand from the CDR rules: `JointState(name=["a", "bc"], position=[1.0, -2.5])`, stamp 3 s 4 ns.
#[test]
fn a_message_of_known_layout_is_read() {
    let mut bytes = vec![0, 1, 0, 0];
    bytes.extend([3, 0, 0, 0, 4, 0, 0, 0]); // stamp
    bytes.extend([1, 0, 0, 0, 0]); // frame_id ""
    bytes.extend([0; 3]); // to 4
    bytes.extend([2, 0, 0, 0]); // two names
    bytes.extend([2, 0, 0, 0, b'a', 0, 0, 0]); // "a", to 4
    bytes.extend([3, 0, 0, 0, b'b', b'c', 0, 0]); // "bc", to 4
    bytes.extend([2, 0, 0, 0]); // two positions, at offset 36
    assert_eq!((bytes.len() - 4) % 8, 0);
    bytes.extend(1.0f64.to_le_bytes());
    bytes.extend((-2.5f64).to_le_bytes());
    bytes.extend([0; 8]); // velocity, effort
    let m = JointsMessage::decode(&bytes).unwrap();
    assert_eq!(
        m,
        JointsMessage {
            stamp_ns: 3_000_000_004,
            names: vec!["a".into(), "bc".into()],
            positions: vec![1.0, -2.5]
        }
    );
    assert_eq!(m.encode(), bytes);
}

#[test]
fn every_message_survives_the_round_trip() {
    let data = [9; 12];
    let image = ImageMessage {
        stamp_ns: 5_000_000_001,
        width: 2,
        height: 2,
        encoding: "rgb8",
        is_bigendian: false,
        step: 6,
        data: &data,
    };
    assert_eq!(ImageMessage::decode(&image.encode()).unwrap(), image);
    assert_eq!(
        decode_tick_log(&encode_tick_log(&record())).unwrap(),
        record()
    );
    let (names, units) = (vec!["a".to_string()], vec!["rad".to_string()]);
    let chunk = ChunkRef {
        session: "main",
        epoch: 1,
        tick: 2,
        chunk_id: 3,
        stamp_ns: 4,
        observation_age_ns: 5,
        context_stamp_ns: 6,
        context_age_ticks: 7,
        dt_ns: 100_000_000,
        names: &names,
        units: &units,
        representation: "absolute",
        horizon: 2,
        execute_rows: 1,
        data: &[0.5, f32::MIN_POSITIVE],
    };
    let back = decode_chunk(&encode_chunk(&chunk)).unwrap();
    assert_eq!((back.chunk_id, back.data.as_slice()), (3, chunk.data));
}

#[test]
fn every_truncation_is_refused() {
    let bytes = encode_tick_log(&record());
    for length in 0..bytes.len() {
        assert_eq!(
            decode_tick_log(&bytes[..length]).unwrap_err().code,
            ResultCode::Format,
            "{length}"
        );
    }
}

#[test]
fn lengths_that_cannot_fit_allocate_nothing() {
    let mut bytes = JointsMessage {
        stamp_ns: 0,
        names: vec![],
        positions: vec![],
    }
    .encode();
    bytes[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
    let e = JointsMessage::decode(&bytes).unwrap_err();
    assert!(
        e.message
            .contains("sequence of 4294967295 elements, but 12 bytes are left"),
        "{e}"
    );
}

#[test]
fn other_encapsulations_are_refused() {
    let mut bytes = encode_tick_log(&record());
    bytes[1] = 0;
    assert!(decode_tick_log(&bytes)
        .unwrap_err()
        .message
        .contains("expected [00, 01, 00, 00]"));
}

#[test]
fn unknown_words_of_the_log_are_refused() {
    for (from, to) in [
        ("context_action", "context_acteon"),
        ("snapshot", "snapshop"),
    ] {
        let bytes = encode_tick_log(&record());
        let at = bytes
            .windows(from.len())
            .position(|w| w == from.as_bytes())
            .unwrap();
        let mut bad = bytes.clone();
        bad[at..at + to.len()].copy_from_slice(to.as_bytes());
        assert!(decode_tick_log(&bad).unwrap_err().message.contains(to));
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoders_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), good_header in any::<bool>()) {
        if good_header && bytes.len() >= 4 {
            bytes[..4].copy_from_slice(&[0, 1, 0, 0]);
        }
        let _ = ImageMessage::decode(&bytes);
        let _ = JointsMessage::decode(&bytes);
        let _ = decode_tick_log(&bytes);
        let _ = decode_chunk(&bytes);
    }

    #[test]
    fn no_change_of_a_good_message_makes_the_decoder_panic(at in 0usize..400, value in any::<u8>()) {
        let mut bytes = encode_tick_log(&record());
        let at = at % bytes.len();
        bytes[at] = value;
        let _ = decode_tick_log(&bytes);
    }

    #[test]
    fn times_survive(ns in -2_147_483_648_000_000_000i64..2_147_483_647_999_999_999) {
        let mut e = flashrt_session::cdr::Encoder::default();
        e.time(ns);
        let bytes = e.finish();
        prop_assert_eq!(flashrt_session::cdr::Decoder::new(&bytes).unwrap().time().unwrap(), ns);
    }
}
