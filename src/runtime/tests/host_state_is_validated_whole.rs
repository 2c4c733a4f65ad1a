//! The fixed block of continuation state on the host.

use flashrt_runtime::{HostFields, HOST_STATE_BYTES};
use proptest::prelude::*;

fn sample() -> HostFields {
    let mut f = HostFields {
        tick: 0x0102030405060708,
        ticks_since_context: 3,
        ..HostFields::default()
    };
    f.set_context_stamps(&[-2, 9_000_000_000]).unwrap();
    f
}

#[test]
fn fields_lie_at_their_documented_offsets_little_endian() {
    let b = sample().encode();
    assert_eq!(&b[0..4], b"FRHS");
    assert_eq!(b[4..8], [1, 0, 0, 0]);
    assert_eq!(b[8..16], [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(b[16..20], [3, 0, 0, 0]);
    assert_eq!(b[20..24], [2, 0, 0, 0]);
    assert_eq!(b[24..32], (-2i64).to_le_bytes());
    assert_eq!(b[32..40], 9_000_000_000i64.to_le_bytes());
    assert!(b[40..].iter().all(|x| *x == 0));
    assert_eq!(HostFields::decode(&b).unwrap(), sample());
}

#[test]
fn each_damaged_field_is_named() {
    let good = sample().encode();
    for (at, value, field) in [
        (0, 0, "magic"),
        (4, 2, "layout is 2, expected 1"),
        (20, 9, "stamp count is 9"),
        (40, 1, "unused stamp is 1"),
        (127, 1, "reserved byte is 1"),
    ] {
        let mut b = good;
        b[at] = value;
        let text = HostFields::decode(&b).unwrap_err().to_string();
        assert!(text.contains(field), "{at}: {text}");
    }
    let text = HostFields::decode(&good[..127]).unwrap_err().to_string();
    assert!(text.contains("size is 127, expected 128"), "{text}");
    assert!(HostFields::decode(&[0xA5; HOST_STATE_BYTES]).is_err());
    assert!(HostFields::decode(&[0; HOST_STATE_BYTES]).is_err());
}

#[test]
fn nine_stamps_are_refused_and_the_old_ones_stay() {
    let mut f = sample();
    assert!(f.set_context_stamps(&[1; 9]).is_err());
    assert_eq!(f, sample());
    assert_eq!(f.context_stamps(), [-2, 9_000_000_000]);
}

proptest! {
    #[test]
    fn whatever_decodes_encodes_to_the_same_bytes(
        mut b in prop::collection::vec(any::<u8>(), HOST_STATE_BYTES),
        count in 0u8..10,
        keep in any::<bool>(),
    ) {
        if keep {
            b[..8].copy_from_slice(&sample().encode()[..8]);
            b[20..24].copy_from_slice(&[count, 0, 0, 0]);
            let used = (24 + 8 * count as usize).min(88);
            b[used..].fill(0);
        }
        if let Ok(f) = HostFields::decode(&b) {
            prop_assert_eq!(&f.encode()[..], &b[..]);
        }
    }
}
