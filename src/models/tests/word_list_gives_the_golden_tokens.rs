//! The demo's text becomes the tokens that the policy was trained on.

mod common;

use flashrt_models::{discretize, Error, Tokenizer, WordList};

fn demo() -> WordList {
    WordList::new(&common::demo_words(), 64, 18).unwrap()
}

#[test]
fn golden_tokens() {
    let golden = common::load(&common::golden_dir().join("golden.safetensors"));
    let bins: Vec<i32> = (0..6)
        .map(|i| discretize::bin(-0.9 + 1.8 * f64::from(i) / 5.0))
        .collect();
    let mut ids = Vec::new();
    demo()
        .encode("put the cube on the red pad", Some(&bins), &mut ids)
        .unwrap();
    let (tokens, mask) = (golden["tokens"].i32(), golden["token_mask"].i32());
    assert_eq!(ids.len(), mask.iter().sum::<i32>() as usize);
    assert_eq!(ids, tokens[..ids.len()]);
    assert!(tokens[ids.len()..].iter().all(|&t| t == demo().pad_id()));
}

#[test]
fn bins_outside_of_the_range_take_the_end_tokens() {
    let mut ids = Vec::new();
    demo()
        .encode("cube", Some(&[-1, 0, 255]), &mut ids)
        .unwrap();
    assert_eq!(ids, [1, 4, 10, 64, 64, 319, 11]);
    let error = demo()
        .encode("cube", Some(&[0, 256]), &mut ids)
        .unwrap_err();
    assert!(
        matches!(error, Error::StateBin { index: 1, got: 256 }),
        "{error}"
    );
    assert_eq!(
        ids,
        [1, 4, 10, 64, 64, 319, 11],
        "a refused call changes nothing"
    );
}

#[test]
fn white_space_and_underscores_separate_words() {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    demo().encode("put the cube", None, &mut a).unwrap();
    demo()
        .encode(" \tput_the\n  cube \r\n", None, &mut b)
        .unwrap();
    assert_eq!(a, [1, 2, 3, 4, 11]);
    assert_eq!(a, b);
}

#[test]
fn an_unknown_word_is_named_with_its_position() {
    let mut ids = Vec::new();
    let error = demo()
        .encode("put the sphere on the red pad", Some(&[0; 6]), &mut ids)
        .unwrap_err();
    assert!(
        matches!(&error, Error::UnknownWord { word, position: 2 } if word == "sphere"),
        "{error}"
    );
    assert!(error.to_string().contains("`sphere` at position 2"));
    // Special tokens cannot be spoken, and case matters as in training.
    for text in ["<bos>", "<pad> cube", "Cube"] {
        assert!(
            matches!(
                demo().encode(text, None, &mut ids),
                Err(Error::UnknownWord { position: 0, .. })
            ),
            "{text}"
        );
    }
    assert!(ids.is_empty());
}

#[test]
fn case_160_a_prompt_that_is_too_long_or_empty_is_refused_and_never_cut() {
    let mut ids = vec![7];
    let long = "cube ".repeat(300);
    let error = demo().encode(&long, Some(&[0; 6]), &mut ids).unwrap_err();
    assert!(
        matches!(
            error,
            Error::PromptTooLong {
                tokens: 309,
                limit: 18
            }
        ),
        "{error}"
    );
    // One word more than fits, then exactly full: bos + 9 + state + 6 + action = 18.
    let error = demo()
        .encode(&"cube ".repeat(10), Some(&[0; 6]), &mut ids)
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::PromptTooLong {
                tokens: 19,
                limit: 18
            }
        ),
        "{error}"
    );
    for text in ["", "  ", "_ \n"] {
        assert!(
            matches!(
                demo().encode(text, Some(&[0; 6]), &mut ids),
                Err(Error::PromptEmpty)
            ),
            "{text:?}"
        );
    }
    assert_eq!(ids, [7], "a refused call changes nothing");
    demo()
        .encode(&"cube ".repeat(9), Some(&[0; 6]), &mut ids)
        .unwrap();
    assert_eq!(ids.len(), 18);
}

#[test]
fn the_digest_covers_words_offset_and_length() {
    let words = common::demo_words();
    let mut other = words.clone();
    other.swap(7, 8);
    let digests = [
        WordList::new(&words, 64, 18).unwrap().digest(),
        WordList::new(&other, 64, 18).unwrap().digest(),
        WordList::new(&words, 65, 18).unwrap().digest(),
        WordList::new(&words, 64, 19).unwrap().digest(),
    ];
    for (i, a) in digests.iter().enumerate() {
        assert_eq!(a.len(), 64);
        assert!(digests[i + 1..].iter().all(|b| a != b));
    }
    assert_eq!(digests[0], demo().digest());
}

#[test]
fn a_bad_word_list_is_refused() {
    let with = |f: &dyn Fn(&mut Vec<String>), offset| {
        let mut words = common::demo_words();
        f(&mut words);
        WordList::new(&words, offset, 18).unwrap_err().to_string()
    };
    assert!(with(&|w| w[10] = "stat".into(), 64).contains("\"state\": is missing"));
    assert!(with(&|w| w[3] = "cube".into(), 64).contains("\"cube\": expected each word once"));
    assert!(with(&|w| w[3] = "a b".into(), 64).contains("white space"));
    assert!(with(&|_| (), 11).contains("state_offset = 11"));
}
