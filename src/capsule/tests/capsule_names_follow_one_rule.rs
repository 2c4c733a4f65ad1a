//! Names are safe as file names, and never silently reused.

mod common;

use common::*;
use flashrt_capsule::check_name;
use proptest::prelude::*;

#[test]
fn case_120_names_that_could_escape_a_directory_are_refused_everywhere() {
    let long = "a".repeat(129);
    let bad = [
        "../x", "/etc/x", "a/b", "", "..", "a\0b", &long, ".hidden", "é", "名", " a", "a ", "a\n",
        "-a", "_a", "a\\b",
    ];
    let (mut live, mut s) = (one(), store());
    let before = s.usage();
    for name in bad {
        assert!(check_name(name).unwrap_err().is_bad_name(), "{name:?}");
        assert!(
            s.snapshot(&live, &named(name)).unwrap_err().is_bad_name(),
            "{name:?}"
        );
        assert!(
            s.restore(name, &mut live, false).unwrap_err().is_bad_name(),
            "{name:?}"
        );
        assert!(s.drop_capsule(name).unwrap_err().is_bad_name(), "{name:?}");
        assert!(s.info(name).unwrap_err().is_bad_name(), "{name:?}");
        assert!(s.pin(name, true).unwrap_err().is_bad_name(), "{name:?}");
        assert!(s.export(name, &live).unwrap_err().is_bad_name(), "{name:?}");
    }
    assert_eq!(s.usage(), before, "nothing was allocated");
    let text = check_name(&long).unwrap_err().to_string();
    assert!(text.contains("129 bytes"), "{text}");
    for good in [
        "a",
        "0",
        "home",
        "cap-0002",
        "a.b_c-D",
        "a..",
        &"z".repeat(128),
    ] {
        s.snapshot(&live, &named(good)).unwrap();
    }
}

#[test]
fn case_144_an_existing_capsule_is_replaced_only_when_asked_and_generated_names_never_collide() {
    let (mut live, mut s) = (one(), store());
    s.snapshot(&live, &named("home")).unwrap();
    let first = run(&mut live, 0..2);
    let e = s.snapshot(&live, &named("home")).unwrap_err();
    assert!(e.is_exists() && e.to_string().contains("'home'"), "{e}");
    s.restore("home", &mut live, false).unwrap();
    assert_eq!(run(&mut live, 0..2), first, "the old one is intact");

    let mut again = named("home");
    again.overwrite = true;
    s.snapshot(&live, &again).unwrap();
    let second = run(&mut live, 2..4);
    s.restore("home", &mut live, false).unwrap();
    assert_eq!(run(&mut live, 2..4), second, "now it is the new one");
    assert_eq!(s.list().len(), 1);

    for taken in ["cap-000001", "cap-000002", "cap-0002", "cap-000004"] {
        s.snapshot(&live, &named(taken)).unwrap();
    }
    let mut names = Vec::new();
    for _ in 0..3 {
        let info = s.snapshot(&live, &unnamed()).unwrap();
        assert!(info.automatic);
        names.push(info.name.to_string());
    }
    assert_eq!(names, ["cap-000003", "cap-000005", "cap-000006"]);
    s.drop_capsule("cap-000006").unwrap();
    let next = s.snapshot(&live, &unnamed()).unwrap().name;
    assert_eq!(
        &*next, "cap-000007",
        "a name that was dropped does not come back"
    );
}

#[test]
fn case_144_a_failed_overwrite_leaves_the_old_capsule_intact() {
    let mut live = one();
    let (_, host) = store().capsule_bytes(&live, flashrt_capsule::Tier::Host);
    let mut s = flashrt_capsule::Store::new(flashrt_capsule::StoreConfig {
        device_budget_bytes: 0,
        host_budget_bytes: host,
        capacity: 4,
    });
    s.snapshot(&live, &named("home")).unwrap();
    let first = run(&mut live, 0..2);
    let mut again = named("home");
    again.overwrite = true;
    assert!(s.snapshot(&live, &again).unwrap_err().is_no_space());
    s.restore("home", &mut live, false).unwrap();
    assert_eq!(run(&mut live, 0..2), first);
}

/// The rule as a straight reading of its text.
fn by_the_text(name: &str) -> bool {
    let alnum = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut chars = name.chars();
    let Some(c) = chars.next() else { return false };
    alnum.contains(c)
        && chars.clone().count() <= 127
        && chars.all(|c| alnum.contains(c) || "_.-".contains(c))
}

proptest! {
    #[test]
    fn any_string_is_judged_as_the_text_says(name in ".{0,140}") {
        prop_assert_eq!(check_name(&name).is_ok(), by_the_text(&name));
    }

    #[test]
    fn nearly_good_strings_are_judged_as_the_text_says(name in "[a-zA-Z0-9_./-]{1,135}") {
        prop_assert_eq!(check_name(&name).is_ok(), by_the_text(&name));
    }
}
