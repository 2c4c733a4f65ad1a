//! MCAP files from somebody who means harm: CORRUPT in bounded memory and time, never a panic.

use std::io::Cursor;

use flashrt_session::bag::{BagMessage, BagSink, BagSource, McapSink, McapSource};
use flashrt_session::{ResultCode, SessionError};
use proptest::prelude::*;

const MAGIC: &[u8] = b"\x89MCAP0\r\n";

fn read(bytes: &[u8]) -> Result<usize, SessionError> {
    let mut count = 0;
    McapSource::new(bytes).for_each(&mut |m| {
        count += m.data.len();
        Ok(())
    })?;
    Ok(count)
}

fn text(s: &str) -> Vec<u8> {
    let mut out = (s.len() as u32).to_le_bytes().to_vec();
    out.extend(s.as_bytes());
    out
}

/// Opcode, claimed length, body.
fn record(opcode: u8, length: u64, body: &[u8]) -> Vec<u8> {
    let mut out = vec![opcode];
    out.extend(length.to_le_bytes());
    out.extend(body);
    out
}

fn chunk(compression: &str, uncompressed: u64, compressed: u64, data: &[u8]) -> Vec<u8> {
    let mut body = [0; 16].to_vec();
    body.extend(uncompressed.to_le_bytes());
    body.extend(0u32.to_le_bytes());
    body.extend(text(compression));
    body.extend(compressed.to_le_bytes());
    body.extend(data);
    let length = body.len() as u64;
    record(6, length, &body)
}

fn file(records: &[Vec<u8>]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend(record(1, 8, &[0; 8]));
    records.iter().for_each(|r| out.extend(r));
    out
}

/// A well-formed bag of three messages.
fn good() -> Vec<u8> {
    let mut sink = McapSink::new(Cursor::new(Vec::new())).unwrap();
    for (i, topic) in ["/a", "/b", "/a"].into_iter().enumerate() {
        let message = BagMessage {
            topic,
            type_name: "x/msg/Y",
            log_time_ns: i as u64,
            data: &[0, 1, 0, 0, 7],
        };
        sink.write(&message, "int32 a").unwrap();
    }
    sink.finish().unwrap();
    sink.into_inner().into_inner()
}

#[test]
fn lengths_that_no_file_has_are_corrupt() {
    assert_eq!(read(&good()).unwrap(), 15);
    let message = |length| record(5, length, &[0; 30]);
    for (what, records) in [
        ("a message of 2^64 - 1 bytes", vec![message(u64::MAX)]),
        ("a message of 2^63 bytes", vec![message(1 << 63)]),
        ("a message of 2^40 bytes", vec![message(1 << 40)]),
        (
            "a footer of 2^64 - 1 bytes",
            vec![record(2, u64::MAX, &[0; 20])],
        ),
        (
            "a data end of 2^64 - 1 bytes",
            vec![record(15, u64::MAX, &[0; 4])],
        ),
        (
            "an unknown record of 2^64 - 1 bytes",
            vec![record(200, u64::MAX, &[0; 4])],
        ),
        (
            "a chunk shorter than its header",
            vec![record(6, 3, &[0; 40])],
        ),
        (
            "a chunk of 2^64 - 1 bytes",
            vec![record(6, u64::MAX, &[0; 60])],
        ),
        (
            "chunk data of 2^64 - 1 bytes",
            vec![chunk("", u64::MAX, u64::MAX, &message(22))],
        ),
        (
            "a record longer than its chunk",
            vec![chunk("", 39, 39, &message(1 << 40))],
        ),
        (
            "a record a little longer than its chunk",
            vec![chunk("", 39, 39, &message(60)), vec![0; 200]],
        ),
        (
            "a message of 2^64 - 1 bytes in a chunk",
            vec![chunk("", 39, 39, &message(u64::MAX))],
        ),
        (
            "half a record head in a chunk",
            vec![chunk("", 4, 4, &[5, 0, 0, 0]), vec![0; 40]],
        ),
        (
            "zstd that is none",
            vec![chunk("zstd", 1 << 40, 30, &[7; 30])],
        ),
        (
            "lz4 that is none",
            vec![chunk("lz4", 1 << 40, 30, &[7; 30])],
        ),
        (
            "a compression that nobody knows",
            vec![chunk("rot13", 30, 30, &[7; 30])],
        ),
        ("a message of no channel", vec![record(5, 30, &[0; 30])]),
    ] {
        let whole = file(&records);
        // Cut too: the reader looks into a chunk before its end has come.
        for length in 0..whole.len() {
            let cut = std::panic::catch_unwind(|| read(&whole[..length]));
            assert!(cut
                .unwrap_or_else(|_| panic!("{what}, cut at {length}: panicked"))
                .is_err());
        }
        let result = std::panic::catch_unwind(|| read(&whole));
        let error = result
            .unwrap_or_else(|_| panic!("{what}: panicked"))
            .expect_err(what);
        assert_eq!(error.code, ResultCode::Corrupt, "{what}: {error}");
    }
}

#[test]
fn a_few_bytes_that_unpack_to_gigabytes_are_corrupt() {
    // One message of 1 GiB, zeros after its head, as zstd: run-length blocks of 128 KiB, four bytes each.
    let size: u64 = 1 << 30;
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58];
    let mut head = record(5, size, &[0; 22]);
    head.resize(64, 0);
    frame.extend([(64 << 3) as u8, (64 >> 5) as u8, 0]);
    frame.extend(&head);
    for _ in 0..(size >> 17) {
        // Type 1 (run length), 128 KiB, of zeros.
        let block: u32 = (1 << 17) << 3 | 1 << 1;
        frame.extend(&block.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame.extend([1, 0, 0]);
    assert!(frame.len() < 50_000);
    let bomb = file(&[chunk("zstd", size + 64, frame.len() as u64, &frame)]);
    let error = read(&bomb).unwrap_err();
    assert_eq!(error.code, ResultCode::Corrupt);
    assert!(
        error.message.contains("length"),
        "the limit must have stopped it: {error}"
    );
}

#[test]
fn texts_of_four_gigabytes_are_corrupt() {
    let long = u32::MAX.to_le_bytes();
    let schema = [&[1, 0], &long[..], &[0; 20]].concat();
    let topic = [&[1, 0, 0, 0], &long[..], &[0; 20]].concat();
    let length = |body: &[u8]| body.len() as u64;
    for (what, body) in [(3, schema), (4, topic)] {
        for in_chunk in [false, true] {
            let mut hostile = record(what, length(&body), &body);
            if in_chunk {
                hostile = chunk("", length(&hostile), length(&hostile), &hostile);
            }
            let error = read(&file(&[hostile])).unwrap_err();
            assert!(error.message.contains("4294967295"), "{error}");
        }
    }
}

#[test]
fn every_cut_of_a_bag_is_corrupt_or_whole_messages() {
    let whole = good();
    for length in 0..whole.len() {
        let error = read(&whole[..length]).expect_err("a cut file is not complete");
        assert_eq!(error.code, ResultCode::Corrupt, "{length}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn changed_bytes_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = good();
        for (at, value) in changes {
            let i = at.index(bytes.len());
            bytes[i] = value;
        }
        if let Err(error) = read(&bytes) {
            prop_assert_eq!(error.code, ResultCode::Corrupt);
        }
    }
}
