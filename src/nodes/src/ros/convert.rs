//! Between message fields and the engine's types. Outgoing messages are kept and reused: these functions touch memory only
//! where a value differs, so that a steady stream allocates nothing.

use ros_env::builtin_interfaces::msg::rmw::{Duration, Time};
use rosidl_runtime_rs::{Sequence, SequenceAlloc, String as RosString};

const NANOS: i64 = 1_000_000_000;

/// ROS time in nanoseconds as a message field. Times before 1970 or after 2038 stop at the field's ends.
pub fn time(ns: i64) -> Time {
    let sec = ns.div_euclid(NANOS);
    match i32::try_from(sec) {
        Ok(sec) => Time {
            sec,
            nanosec: ns.rem_euclid(NANOS) as u32,
        },
        Err(_) => Time {
            sec: if sec < 0 { i32::MIN } else { i32::MAX },
            nanosec: 0,
        },
    }
}

/// A span in nanoseconds as a message field.
pub fn duration(ns: i64) -> Duration {
    let Time { sec, nanosec } = time(ns);
    Duration { sec, nanosec }
}

/// A message's time in nanoseconds.
pub fn nanoseconds(sec: i32, nanosec: u32) -> i64 {
    i64::from(sec) * NANOS + i64::from(nanosec)
}

/// The text of a message's string; bytes that are not UTF-8 make it `None`.
pub fn text(string: &RosString) -> Option<&str> {
    string.to_cstr().to_str().ok()
}

/// Writes `text` where it differs.
pub fn set_text(slot: &mut RosString, text: &str) {
    if slot.to_cstr().to_bytes() != text.as_bytes() {
        *slot = text.into();
    }
}

/// Writes `texts` where they differ.
pub fn set_texts<T: AsRef<str>>(slot: &mut Sequence<RosString>, texts: &[T]) {
    resize(slot, texts.len());
    for (slot, text) in slot.iter_mut().zip(texts) {
        set_text(slot, text.as_ref());
    }
}

/// Gives the sequence this length; new elements have their default.
pub fn resize<T: SequenceAlloc>(slot: &mut Sequence<T>, len: usize) {
    if slot.len() != len {
        *slot = Sequence::new(len);
    }
}

/// Copies numbers.
pub fn set_values<T: SequenceAlloc + Copy>(slot: &mut Sequence<T>, values: &[T]) {
    resize(slot, values.len());
    slot.as_mut_slice().copy_from_slice(values);
}

/// Writes `names` where they differ from what `cache` holds. False: a name is not UTF-8.
pub fn cache_names(cache: &mut Vec<std::string::String>, names: &Sequence<RosString>) -> bool {
    cache.resize_with(names.len(), std::string::String::new);
    for (cached, name) in cache.iter_mut().zip(names.iter()) {
        let Some(name) = text(name) else { return false };
        if cached != name {
            cached.clear();
            cached.push_str(name);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_there_and_back() {
        for ns in [
            0,
            1,
            999_999_999,
            1_000_000_000,
            1_796_086_074_703_003_518,
            -1,
            -1_000_000_001,
        ] {
            let Time { sec, nanosec } = time(ns);
            assert!(nanosec < 1_000_000_000);
            assert_eq!(nanoseconds(sec, nanosec), ns);
        }
    }

    #[test]
    fn times_beyond_the_field_stop_at_its_ends() {
        assert_eq!(time(i64::MAX).sec, i32::MAX);
        assert_eq!(time(i64::MIN).sec, i32::MIN);
    }

    #[test]
    fn equal_texts_and_values_keep_their_memory() {
        let (mut text_slot, mut texts, mut values) = (
            RosString::default(),
            Sequence::default(),
            Sequence::default(),
        );
        let mut places = Vec::new();
        for round in 0..3_u8 {
            set_text(&mut text_slot, "main");
            set_texts(&mut texts, &["shoulder_pan", "gripper"]);
            set_values(&mut values, &[f32::from(round), 0.5]);
            places.push((
                text_slot.as_ptr(),
                texts.as_ptr(),
                texts[1].as_ptr(),
                values.as_ptr(),
            ));
            assert_eq!(values.as_slice(), [f32::from(round), 0.5]);
        }
        assert!(places.iter().all(|p| *p == places[0]));
        assert_eq!(text(&texts[1]), Some("gripper"));
    }

    #[test]
    fn a_changed_text_or_length_is_taken() {
        let (mut slot, mut values) = (RosString::from("main"), Sequence::from(vec![1.0_f64, 2.0]));
        set_text(&mut slot, "alt");
        set_values(&mut values, &[3.0]);
        assert_eq!(
            (text(&slot), values.as_slice()),
            (Some("alt"), [3.0].as_slice())
        );
    }

    #[test]
    fn names_are_cached_in_place() {
        let mut cache = Vec::new();
        let names: Sequence<RosString> = ["a", "bb"].into_iter().map(RosString::from).collect();
        assert!(cache_names(&mut cache, &names));
        let place = cache[1].as_ptr();
        assert!(cache_names(&mut cache, &names));
        assert_eq!(
            (cache.as_slice(), cache[1].as_ptr()),
            (["a".to_string(), "bb".to_string()].as_slice(), place)
        );
    }
}
