//! The image boundary.

mod common;
use common::*;
use flashrt_session::image::check;
use flashrt_session::*;
use proptest::prelude::*;

fn rgb() -> Vec<String> {
    vec!["rgb8".into(), "bgr8".into()]
}

fn refusal(image: ImageRef<'_>) -> String {
    check(&image, &rgb()).expect_err("must be refused").message
}

#[test]
fn case_2_short_data_is_refused_with_both_numbers() {
    let data = [0; 100];
    let e = refusal(image(640, 480, "rgb8", 1920, &data));
    assert_eq!(
        e,
        "data has 100 bytes, expected 921600 (rgb8 640x480, step 1920)"
    );
}

#[test]
fn case_2_padded_rows_give_the_same_port_bytes_as_tight_ones() {
    let tight: Vec<u8> = (0..24).collect();
    let mut padded = Vec::new();
    for row in tight.chunks(12) {
        padded.extend_from_slice(row);
        padded.extend_from_slice(&[255; 4]);
    }
    let checked = check(&image(4, 2, "rgb8", 16, &padded), &rgb()).unwrap();
    assert_eq!(
        checked.rows().flatten().copied().collect::<Vec<u8>>(),
        tight
    );
    // Through the whole way: equal hashes in the tick log.
    let mut hashes = Vec::new();
    for (step, data) in [(12, &tight), (16, &padded)] {
        let rig = Rig::active(toy_config());
        rig.engine
            .push_image("front", image(4, 2, "rgb8", step, data), rig.now());
        rig.push_state([0.0, 0.0], rig.now());
        rig.ok(Command::Tick(TickRequest::default()));
        hashes.push(rig.sink.records().pop().unwrap().ports[0].hash);
    }
    assert_eq!(hashes[0], hashes[1]);
}

#[test]
fn the_last_row_needs_no_padding() {
    let data = [1; 16 + 12];
    assert!(check(&image(4, 2, "rgb8", 16, &data), &rgb()).is_ok());
    assert!(check(&image(4, 2, "rgb8", 16, &data[..27]), &rgb()).is_err());
}

#[test]
fn case_4_a_step_smaller_than_a_row_is_refused() {
    let data = vec![0; 1280 * 720];
    assert_eq!(
        refusal(image(1280, 720, "16UC1", 1280, &data)),
        "step 1280 < 2560 (16UC1 1280x720)"
    );
    assert!(refusal(image(640, 480, "rgb8", 1919, &data)).starts_with("step 1919 < 1920"));
}

#[test]
fn case_6_empty_data_is_refused_and_counted() {
    let rig = Rig::active(toy_config());
    let outcome = rig
        .engine
        .push_image("front", image(640, 480, "16UC1", 1280, &[]), rig.now());
    let PushOutcome::Refused { code, reason } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(code, ResultCode::Shape);
    assert!(
        reason.contains("data has 0 bytes, expected 614400"),
        "{reason}"
    );
    let port = rig.port("images.front");
    assert_eq!((port.received, port.refused), (1, 1));
    assert_eq!(port.last_refusal, reason);
    assert_eq!(rig.engine.state(), lifecycle::State::Active);
}

#[test]
fn case_8_sizes_that_overflow_are_refused() {
    let m = u32::MAX;
    for encoding in ["rgb8", "mono8", "64FC4", "nonsense"] {
        assert!(check(&image(m, m, encoding, m, &[0; 8]), &rgb()).is_err());
    }
    assert!(refusal(image(m / 3, m, "rgb8", m, &[0; 8]))
        .starts_with("data has 8 bytes, expected 1844674406"));
    assert!(refusal(image(0, 4, "rgb8", 0, &[])).starts_with("size 0x4"));
}

#[test]
fn case_10_the_byte_order_flag_has_no_meaning_for_8_bit() {
    let data = [7; 12];
    let mut big = image(2, 2, "rgb8", 6, &data);
    big.is_bigendian = true;
    let a = check(&big, &rgb()).unwrap();
    let b = check(&image(2, 2, "rgb8", 6, &data), &rgb()).unwrap();
    assert!(a.rows().eq(b.rows()));
    assert_eq!(a.format, b.format);
}

#[test]
fn case_12_encodings_without_colour_meaning_are_refused() {
    let data = [0; 12];
    let e = refusal(image(2, 2, "8UC3", 6, &data));
    assert_eq!(
        e,
        "encoding \"8UC3\" is not accepted: expected rgb8 or bgr8"
    );
    assert!(check(&image(2, 2, "8UC1", 6, &data), &rgb()).is_err());
    assert!(check(&image(2, 2, "bgr8", 6, &data), &["rgb8".into()]).is_err());
}

#[test]
fn case_22_any_size_reaches_the_model_which_has_the_resize_rule() {
    let rig = Rig::active(toy_config());
    for (w, h) in [(640u32, 480u32), (480, 640), (1, 1), (4000, 3000)] {
        let data = vec![1; (w * h * 3) as usize];
        rig.clock.advance_ms(1);
        assert_eq!(
            rig.engine
                .push_image("front", image(w, h, "rgb8", w * 3, &data), rig.now()),
            PushOutcome::Accepted
        );
        rig.push_state([0.0, 0.0], rig.now());
        rig.ok(Command::Tick(TickRequest::default()));
    }
    // A size that the model refuses is a refused tick, and the next one goes on.
    let data = vec![1; 5000 * 3];
    rig.clock.advance_ms(1);
    rig.engine
        .push_image("front", image(5000, 1, "rgb8", 15000, &data), rig.now());
    let outcome = rig.call(Command::Tick(TickRequest::default()));
    assert_eq!(outcome.code, ResultCode::Shape);
    rig.clock.advance_ms(1);
    rig.tick(1);
}

#[test]
fn case_24_three_rows_are_three_rows() {
    let data: Vec<u8> = (0..3 * 5 * 3).collect();
    let checked = check(&image(5, 3, "rgb8", 15, &data), &rgb()).unwrap();
    assert_eq!(
        (checked.width, checked.height, checked.rows().count()),
        (5, 3, 3)
    );
}

#[test]
fn an_unknown_view_is_ignored() {
    let rig = Rig::active(toy_config());
    let data = [0; 12];
    assert_eq!(
        rig.engine
            .push_image("back", image(2, 2, "rgb8", 6, &data), 1),
        PushOutcome::Ignored
    );
}

proptest! {
    #[test]
    fn no_geometry_panics_and_what_passes_can_be_read(
        width in prop_oneof![0u32..9, any::<u32>()],
        height in prop_oneof![0u32..9, any::<u32>()],
        step in prop_oneof![0u32..40, any::<u32>()],
        length in 0usize..400,
        encoding in prop_oneof![Just("rgb8"), Just("bgr8"), Just("16UC1"), Just("8UC9"), Just("C"), Just("")],
    ) {
        let data = vec![3; length];
        if let Ok(checked) = check(&image(width, height, encoding, step, &data), &rgb()) {
            let rows: Vec<&[u8]> = checked.rows().collect();
            prop_assert_eq!(rows.len(), height as usize);
            prop_assert!(rows.iter().all(|r| r.len() == width as usize * 3));
        }
    }
}
