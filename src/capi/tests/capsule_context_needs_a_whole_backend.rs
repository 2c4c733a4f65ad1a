//! A context is made only from a vtable of this version and size without a hole, and from a copy of it.

mod capsule_support;
use capsule_support::*;
use flashrt_capi::*;
use std::ptr::null;

fn refusal(table: &cap_backend) -> String {
    // SAFETY: the functions of the table are those of a fake, or null.
    assert!(unsafe { cap_ctx_create(table) }.is_null());
    text()
}

#[test]
fn the_version_is_exactly_1_and_the_size_exactly_168() {
    let fake = Fake::default();
    assert_eq!(cap_abi_version(), 1);
    for (version, size) in [
        (0, 168),
        (2, 168),
        (1, 0),
        (1, 160),
        (1, 176),
        (1, u32::MAX),
    ] {
        let table = cap_backend {
            abi_version: version,
            struct_size: size,
            ..fake.table()
        };
        assert_eq!(
            refusal(&table),
            format!(
                "cap_ctx_create: `abi_version` and `struct_size` of the backend are {version} and {size}, \
                 expected 1 and 168"
            )
        );
    }
}

#[test]
fn of_another_version_only_8_bytes_are_read() {
    // The rest of a whole table is not there; Miri and the sanitizers see a read behind it.
    let short = Box::new([2u32, 8]);
    // SAFETY: it says another version and has the 8 bytes.
    let ctx = unsafe { cap_ctx_create(short.as_ptr().cast::<cap_backend>()) };
    assert!(ctx.is_null());
}

#[test]
fn a_null_function_is_named() {
    let fake = Fake::default();
    let whole = fake.table();
    type Hole = fn(&mut cap_backend);
    let holes: [(&str, Hole); 19] = [
        ("buffer_alloc", |t| t.buffer_alloc = None),
        ("buffer_wrap", |t| t.buffer_wrap = None),
        ("buffer_ptr", |t| t.buffer_ptr = None),
        ("buffer_bytes", |t| t.buffer_bytes = None),
        ("buffer_copy", |t| t.buffer_copy = None),
        ("buffer_upload", |t| t.buffer_upload = None),
        ("buffer_download", |t| t.buffer_download = None),
        ("buffer_free", |t| t.buffer_free = None),
        ("graph_replay", |t| t.graph_replay = None),
        ("graph_has", |t| t.graph_has = None),
        ("graph_bind", |t| t.graph_bind = None),
        ("stream", |t| t.stream = None),
        ("event", |t| t.event = None),
        ("event_record", |t| t.event_record = None),
        ("event_query", |t| t.event_query = None),
        ("stream_wait", |t| t.stream_wait = None),
        ("sync", |t| t.sync = None),
        ("event_free", |t| t.event_free = None),
        ("fingerprint", |t| t.fingerprint = None),
    ];
    for (name, hole) in holes {
        let mut table = whole;
        hole(&mut table);
        assert_eq!(
            refusal(&table),
            format!("cap_ctx_create: `{name}` of the backend is null")
        );
    }
}

#[test]
fn null_and_misaligned_tables_are_refused() {
    // SAFETY: both are refused before a byte is read.
    unsafe {
        assert!(cap_ctx_create(null()).is_null());
        assert_eq!(text(), "cap_ctx_create: `backend` is null");
        let odd = [0u64; 22]
            .as_ptr()
            .cast::<u8>()
            .add(1)
            .cast::<cap_backend>();
        assert!(cap_ctx_create(odd).is_null());
        assert_eq!(
            text(),
            format!("cap_ctx_create: `backend` is {odd:p}, expected a multiple of 8")
        );
    }
}

#[test]
fn the_table_is_copied_and_the_backend_not_called() {
    let fake = Fake::default();
    let mut table = fake.table();
    // SAFETY: the table is whole, and the fake outlives the context.
    let ctx = unsafe { cap_ctx_create(&table) };
    // The caller's table goes, and its memory gets other bytes.
    table.fingerprint = None;
    table.self_ = std::ptr::null_mut();
    assert!(std::hint::black_box(&table).self_.is_null());
    assert_eq!(fake.calls(), [""; 0]);
    // SAFETY: one thread uses it.
    unsafe {
        assert_eq!(cap_ctx_fingerprint(ctx), STAMP);
        fake.with(|state| state.fingerprint = 3);
        assert_eq!(cap_ctx_fingerprint(ctx), 3);
        assert_eq!(fake.calls(), ["fingerprint"; 2]);
        cap_ctx_destroy(ctx);
        assert_eq!(cap_ctx_fingerprint(ctx), 0);
    }
    assert_eq!(fake.calls(), [""; 0]);
}
