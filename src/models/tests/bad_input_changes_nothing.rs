//! Every refused input names what was expected and what came, and leaves every byte of the set as it was.

mod common;

use common::drive::{self, picture, rgb};
use flashrt_models::pi05::{NoiseSource, Pi05Options};
use flashrt_models::Error as ModelError;
use flashrt_runtime::{Error, ImageView, InputData, LiveSet, PixelFormat, Producer};

const TEXT: &str = "put the cube on the red pad";
const STATE: [f32; 6] = [0.1, -0.3, 0.5, 0.7, 0.9, -0.2];

fn ready() -> LiveSet {
    let ctx = drive::context(1);
    let options = Pi05Options {
        noise: NoiseSource::External,
        ..Pi05Options::default()
    };
    let mut set = drive::golden(&ctx, options).build("a").unwrap();
    drive::set_text(&mut set, TEXT).unwrap();
    drive::set_state(&mut set, &STATE).unwrap();
    drive::set_pictures(&mut set, 32, 1);
    drive::tick(&mut set);
    set
}

/// Feeds a payload that must be refused.
fn refuse(set: &mut LiveSet, port: &str, data: InputData<'_>) -> Error {
    let before = drive::all_buffers(set);
    let error = set
        .set_input(set.port(port).unwrap(), data)
        .expect_err("accepted");
    assert!(error.is_bad_input(), "{error:?}");
    assert_eq!(set.last_error(), error.to_string());
    assert_eq!(drive::all_buffers(set), before, "{error}");
    error
}

fn model(error: &Error) -> &ModelError {
    match error {
        Error::PortInput { source, .. } => source.downcast_ref().expect("the crate's error"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn case_46_a_state_that_is_not_finite_is_refused_and_the_last_good_one_kept() {
    let mut set = ready();
    // 1e308 is infinite as f32.
    for (index, bad) in [
        (2, f32::NAN),
        (0, f32::INFINITY),
        (5, f32::NEG_INFINITY),
        (2, 1e308f64 as f32),
    ] {
        let mut state = STATE;
        state[index] = bad;
        let error = refuse(&mut set, "state", InputData::F32(&state));
        assert!(
            matches!(model(&error), ModelError::NonFinite { index: i, .. } if *i == index),
            "{error}"
        );
        refuse(
            &mut set,
            "state",
            InputData::Bytes(&common::f32_bytes(&state)),
        );
    }
    assert_eq!(drive::floats(&drive::buffer(&set, "in_state")), STATE);
}

#[test]
fn case_44_a_state_that_is_too_short_or_too_long_is_refused() {
    let mut set = ready();
    for n in [0, 5, 7] {
        let error = refuse(&mut set, "state", InputData::F32(&vec![0.0; n]));
        assert!(
            matches!(error, Error::PortBytes { expected: 24, got, .. } if got == 4 * n as u64),
            "{error}"
        );
    }
    let error = refuse(&mut set, "state", InputData::Bytes(&[0; 23]));
    assert!(
        matches!(
            error,
            Error::PortBytes {
                expected: 24,
                got: 23,
                ..
            }
        ),
        "{error}"
    );
    let error = refuse(&mut set, "state", InputData::Text("0 0 0 0 0 0"));
    assert!(
        error
            .to_string()
            .contains("expected 6 f32 values, got text"),
        "{error}"
    );
}

#[test]
fn case_160_a_refused_prompt_leaves_the_previous_one() {
    let mut set = ready();
    let error = refuse(&mut set, "prompt", InputData::Text(&"cube ".repeat(300)));
    assert!(
        matches!(
            model(&error),
            ModelError::PromptTooLong {
                tokens: 309,
                limit: 18
            }
        ),
        "{error}"
    );
    for empty in ["", " \n_", "\0put the cube"] {
        let error = refuse(&mut set, "prompt", InputData::Text(empty));
        assert!(matches!(model(&error), ModelError::PromptEmpty), "{error}");
    }
    let error = refuse(
        &mut set,
        "prompt",
        InputData::Text("put the cube under the red pad"),
    );
    assert!(
        matches!(model(&error), ModelError::UnknownWord { word, position: 3 } if word == "under"),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("unknown word `under` at position 3"),
        "{error}"
    );
    let error = refuse(&mut set, "prompt", InputData::Bytes(&[b'p', b'u', 0xff]));
    assert!(
        matches!(model(&error), ModelError::PromptEncoding { valid_up_to: 2 }),
        "{error}"
    );
    let error = refuse(&mut set, "prompt", InputData::F32(&[0.0]));
    assert!(
        error
            .to_string()
            .contains("expected UTF-8 text, got f32 values"),
        "{error}"
    );

    // A new state is tokenised with the previous instruction.
    drive::set_state(&mut set, &[0.0; 6]).unwrap();
    let kept = drive::buffer(&set, "in_prompt");
    assert_eq!(&kept[..4], (TEXT.len() as u32).to_le_bytes());
    assert_eq!(&kept[4..4 + TEXT.len()], TEXT.as_bytes());
}

#[test]
fn images_of_a_wrong_count_kind_or_geometry_are_refused() {
    let mut set = ready();
    let data = picture(1, 32 * 32 * 4);
    let good = rgb(32, &data[..32 * 32 * 3]);
    for views in [vec![], vec![good], vec![good; 3]] {
        let n = views.len();
        let error = refuse(&mut set, "images", InputData::Images(&views));
        assert!(
            error
                .to_string()
                .contains(&format!("expected 2 image views, got {n}")),
            "{error}"
        );
    }
    let error = refuse(&mut set, "images", InputData::Bytes(&data));
    assert!(
        error
            .to_string()
            .contains("expected 2 image views, got bytes"),
        "{error}"
    );

    // The bad view is the second: the first must not have been written either.
    let other = picture(9, 32 * 32 * 3);
    let first = rgb(32, &other);
    let mut bad = |change: &dyn Fn(&mut ImageView<'_>)| {
        let mut second = good;
        change(&mut second);
        refuse(&mut set, "images", InputData::Images(&[first, second]))
    };
    for format in [PixelFormat::Gray8, PixelFormat::Other(17)] {
        let error = bad(&|v| v.format = format);
        assert!(
            matches!(&error, Error::PortFormat { got, .. } if got.contains("in view 1")),
            "{error}"
        );
    }
    for (width, height) in [
        (0, 32),
        (32, 0),
        (40_000, 1),
        (1, u32::MAX),
        (u32::MAX, u32::MAX),
    ] {
        let error = bad(&|v| (v.width, v.height) = (width, height));
        assert!(
            matches!(&error, Error::PortFormat { got, .. } if got.contains("in view 1")),
            "{error}"
        );
    }
    let error = bad(&|v| v.stride_bytes = 95);
    assert!(error.to_string().contains("stride 95"), "{error}");
    let error = bad(&|v| v.data = &v.data[..32 * 32 * 3 - 1]);
    assert!(
        matches!(
            error,
            Error::PortBytes {
                expected: 3072,
                got: 3071,
                ..
            }
        ),
        "{error}"
    );
    let error = bad(&|v| v.stride_bytes = 1000);
    assert!(
        matches!(
            error,
            Error::PortBytes {
                expected: 31_096,
                got: 3072,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn outputs_and_windows_are_bounds_checked() {
    let mut set = ready();
    let (actions, raw, noise, state) = (
        set.port("actions").unwrap(),
        set.port("actions_raw").unwrap(),
        set.port("noise").unwrap(),
        set.port("state").unwrap(),
    );
    let mut short = vec![0xAB; 8 * 6 * 4 - 1];
    let error = set.get_output(actions, &mut short).unwrap_err();
    assert!(
        matches!(
            error,
            Error::OutputTooSmall {
                needed: 192,
                got: 191,
                ..
            }
        ),
        "{error}"
    );
    assert!(short.iter().all(|&b| b == 0xAB), "nothing was written");
    let mut long = vec![0xAB; 200];
    assert_eq!(set.get_output(actions, &mut long).unwrap(), 192);
    assert!(long[192..].iter().all(|&b| b == 0xAB));
    assert!(matches!(
        set.swap_in(noise, &[0; 193]),
        Err(Error::OutOfBounds { .. })
    ));
    assert!(matches!(
        set.swap_in(state, &[0; 4]),
        Err(Error::PortClass { .. })
    ));
    assert!(matches!(
        set.set_input(noise, InputData::F32(&[0.0; 48])),
        Err(Error::PortClass { .. })
    ));
    assert!(matches!(
        set.set_input(actions, InputData::F32(&[0.0; 48])),
        Err(Error::PortClass { .. })
    ));
    assert!(matches!(
        set.get_output(raw, &mut long),
        Err(Error::PortClass { .. })
    ));
}
