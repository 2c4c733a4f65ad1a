//! Objects that did not come through `ForeignLibrary::open`: one more reference, given back once.

mod foreign;

use std::ffi::{c_char, c_int, CString};

use flashrt_runtime::abi::frt_model_runtime_v1;
use flashrt_runtime::foreign::adopt;
use flashrt_runtime::{ForeignProducer, InputData, Producer, KEY_INHERIT};
use foreign::Native;
use libloading::{Library, Symbol};

type Factory = unsafe extern "C" fn(*const c_char, *mut *mut frt_model_runtime_v1) -> c_int;

/// The fixture's object, with the reference that its factory gave.
fn object(native: &Native, case: &str) -> (Library, *mut frt_model_runtime_v1) {
    let config = CString::new(native.config(case)).unwrap();
    let mut out = std::ptr::null_mut();
    // SAFETY: the fixture is ours, and its factory has this type.
    let library = unsafe {
        let library = Library::new(&native.library).unwrap();
        let factory: Symbol<'_, Factory> = library.get(b"frt_model_runtime_open_v1\0").unwrap();
        assert_eq!(factory(config.as_ptr(), &mut out), 0);
        library
    };
    (library, out)
}

#[test]
fn an_adopted_model_ticks_and_leaves_the_callers_reference() {
    let native = Native::fixture();
    let (library, object) = object(&native, "step");
    // SAFETY: a live object of the fixture, whose reference is held until the end.
    let model = unsafe { adopt(object) }.unwrap();
    assert_eq!((native.count("retain"), native.count("release")), (1, 0));
    assert_eq!(model.library(), None);
    let mut set = ForeignProducer::new(model).build("main").unwrap();
    let state = set.port("state").unwrap();
    set.set_input(state, InputData::F32(&[1.0; 4])).unwrap();
    set.run(set.default_plan().unwrap(), KEY_INHERIT).unwrap();
    let mut out = [0; 16];
    set.get_output(set.port("actions").unwrap(), &mut out)
        .unwrap();
    assert_eq!(out[..4], 2.0f32.to_le_bytes());

    // The set keeps the library in memory by itself.
    drop(library);
    assert!(native.is_loaded());
    drop(set);
    assert_eq!((native.count("release"), native.count("free")), (1, 0));
    assert!(!native.is_loaded());
}

#[test]
fn nothing_is_retained_of_an_object_that_is_refused() {
    for case in [
        "size-127",
        "abi-2",
        "ports-null",
        "plan-empty",
        "no-release",
    ] {
        let native = Native::fixture();
        let (_library, object) = object(&native, case);
        // SAFETY: as above.
        let e = unsafe { adopt(object) }.err().unwrap();
        assert!(e.to_string().contains("adopted object"), "{e}");
        assert_eq!(
            (native.count("retain"), native.count("release")),
            (0, 0),
            "{case}"
        );
    }
    // SAFETY: null is refused before anything is read.
    let e = unsafe { adopt(std::ptr::null()) }.err().unwrap();
    assert!(e.to_string().contains("it is null"), "{e}");
}
