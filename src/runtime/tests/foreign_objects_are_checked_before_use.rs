//! What a native library gives is checked field by field; what breaks a rule is refused with the rule and the numbers.

mod foreign;
use foreign::{refused, Native};

#[test]
fn a_producer_of_the_base_size_and_a_longer_one_are_taken() {
    for case in ["size-128", "size-136", "size-200"] {
        let native = Native::fixture();
        let model = native.open(case).unwrap();
        assert_eq!(model.declaration().ports.len(), 2, "{case}");
        // Behind the base there is nothing to ask.
        let asked = usize::from(case != "size-128");
        assert_eq!(native.count("query"), asked, "{case}");
        drop(model);
        assert_eq!((native.count("release"), native.count("free")), (1, 1));
        assert!(!native.is_loaded(), "{case}");
        assert_eq!(native.count("unload"), 1);
    }
}

#[test]
fn a_producer_below_the_base_size_is_refused_and_never_touched_again() {
    let native = Native::fixture();
    let e = native.open("size-127").err().unwrap().to_string();
    assert!(e.contains("127") && e.contains("128"), "{e}");
    assert_eq!(native.count("retain"), 0);
    // Its release function cannot be found, so that the reference stays, and with it the library.
    assert_eq!(native.count("release"), 0);
    assert!(native.is_loaded());
}

#[test]
fn an_object_that_cannot_be_given_back_keeps_its_library() {
    for (case, words) in [
        ("abi-2", ["version 2", "expected version 1"]),
        ("no-release", ["no retain or no release", ""]),
    ] {
        let native = Native::fixture();
        let e = native.open(case).err().unwrap().to_string();
        assert!(words.iter().all(|w| e.contains(w)), "{case}: {e}");
        assert_eq!(native.count("release"), 0, "{case}");
        assert!(native.is_loaded(), "{case}");
    }
}

#[test]
fn a_refused_object_is_given_back_once_and_its_library_leaves() {
    for case in [
        "ports-null",
        "fingerprint-off",
        "export-null",
        "export-abi",
        "no-retain",
        "plan-empty",
        "nothing-to-run",
    ] {
        let native = Native::fixture();
        assert!(native.open(case).is_err(), "{case}");
        assert_eq!(native.count("retain"), 0, "{case}");
        assert_eq!(
            (native.count("release"), native.count("free")),
            (1, 1),
            "{case}"
        );
        assert!(!native.is_loaded(), "{case}");
    }
}

#[test]
fn a_factory_that_fails_is_named_with_the_meaning_of_its_code() {
    let e = refused("open-fails");
    assert!(
        e.contains("frt_model_runtime_open_v1 answers -2 (not found)"),
        "{e}"
    );
    let e = refused("open-positive");
    assert!(e.contains("answers 7 (a code without a meaning)"), "{e}");
    let e = refused("open-null");
    assert!(e.contains("answers 0 but gives a null object"), "{e}");
    for case in ["open-fails", "open-positive", "open-null"] {
        let native = Native::fixture();
        assert!(native.open(case).is_err());
        assert!(!native.is_loaded(), "{case}");
    }
}

#[test]
fn files_that_are_no_native_model_are_refused() {
    use flashrt_runtime::ForeignLibrary;
    let open = |path: &std::path::Path, json: &str| {
        ForeignLibrary::open(path, json).err().unwrap().to_string()
    };
    let e = open("/nonexistent/libx.so".as_ref(), "{}");
    assert!(
        e.contains("/nonexistent/libx.so") && e.contains("No such file"),
        "{e}"
    );
    let text = foreign::scratch().join(format!("no-library-{}.so", std::process::id()));
    std::fs::write(&text, "not a library").unwrap();
    let e = open(&text, "{}");
    assert!(
        e.contains("file too short") || e.contains("invalid ELF"),
        "{e}"
    );
    std::fs::remove_file(&text).unwrap();
    let native = Native::fixture();
    let e = open(&native.library, "{\0}");
    assert!(e.contains("NUL at byte 1"), "{e}");
    assert!(!native.is_loaded());
}

#[test]
fn a_library_without_a_factory_is_refused() {
    let source = foreign::scratch().join(format!("empty-{}.c", std::process::id()));
    std::fs::write(&source, "int nothing(void) { return 0; }\n").unwrap();
    let library = source.with_extension("so");
    foreign::compile(&source, &library, &[]);
    let e = flashrt_runtime::ForeignLibrary::open(&library, "{}")
        .err()
        .unwrap()
        .to_string();
    assert!(
        e.contains("neither the symbol frt_model_runtime_open_v1 nor frt_runtime_open_v1"),
        "{e}"
    );
}

#[test]
fn arrays_names_and_numbers_of_a_declaration_are_checked() {
    for (case, words) in [
        ("export-null", ["export is null", ""]),
        ("export-abi", ["version 3", "expected 1"]),
        ("export-size", ["120 bytes", "128"]),
        ("export-no-release", ["no retain or no release", ""]),
        ("ports-null", ["array is null", "2"]),
        ("ports-absurd", ["1099511627776", "1048576"]),
        ("streams-null", ["streams is null", "2"]),
        ("graphs-null", ["graphs is null", "1"]),
        ("buffers-absurd", ["1048577", "1048576"]),
        ("regions-null", ["capsule_regions is null", "1"]),
        ("shape-null", ["'state'", "null"]),
        ("name-null", ["name is null", ""]),
        ("name-empty", ["name is empty", ""]),
        ("name-latin", ["not UTF-8", "byte 3"]),
        ("direction-2", ["'state'", "direction 2"]),
        ("update-3", ["'state'", "update class 3"]),
        ("staged-in", ["'state'", "no set_input"]),
        ("staged-out", ["'actions'", "no get_output"]),
        ("verbs-40", ["'state'", "no set_input"]),
        ("verbs-40-bare", ["no stage", "step verb is null"]),
        ("identity-null", ["identity is null", ""]),
        ("graph-handle-null", ["graph 'context'", "null"]),
        ("graph-range", ["graph 2 of 2", ""]),
        ("graph-later", ["stage 7", "not earlier"]),
        ("graph-after-null", ["array is null", "1"]),
        ("nothing-to-run", ["no stage", "step verb is null"]),
    ] {
        let e = refused(case);
        assert!(words.iter().all(|w| e.contains(w)), "{case}: {e}");
    }
}

#[test]
fn a_fingerprint_that_is_not_that_of_the_text_is_refused_with_both_numbers() {
    let text = "frt-runtime-identity-v1\nmodel=fixture\n";
    let right = flashrt_runtime::fnv1a64(text.as_bytes());
    let e = refused("fingerprint-off");
    assert!(
        e.contains(&format!("{right:016x}")) && e.contains(&format!("{:016x}", right ^ 1)),
        "{e}"
    );
}

#[test]
fn a_generic_plan_is_validated_whole() {
    for (case, words) in [
        ("plan-both", ["both graph stages and a generic plan", ""]),
        ("plan-abi-0", ["version 0", "1"]),
        ("plan-size-39", ["39 bytes", "40"]),
        ("plan-empty", ["0 stages", ""]),
        ("plan-null", ["array is null", "2"]),
        ("plan-no-runner", ["no runner", ""]),
        ("plan-no-text", ["no last_error", ""]),
        ("plan-kind-2", ["'context'", "executor kind 2"]),
        ("plan-graph-range", ["'context'", "graph 4 of 2"]),
        ("plan-name-twice", ["'context'", "taken"]),
        ("plan-name-control", ["control character", "0x0a"]),
        ("plan-name-latin", ["not UTF-8", "byte 3"]),
        ("plan-deps-later", ["'action'", "stage 7"]),
        ("plan-deps-twice", ["'action'", "not strictly increasing"]),
        ("plan-only-graphs", ["no OPAQUE stage", ""]),
        ("query-garbage", ["answers 5", "0 or -3"]),
        ("query-null", ["answers 0 with the pointer 0x0", ""]),
    ] {
        let e = refused(case);
        assert!(words.iter().all(|w| e.contains(w)), "{case}: {e}");
    }
}
