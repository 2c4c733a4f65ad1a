//! What a consumer reads out of a finished object: every field, in call order, copied from the caller.

mod runtime_support;

use flashrt_capi::abi::*;
use flashrt_capi::*;
use runtime_support::*;

#[test]
fn an_export_has_every_field_and_follows_no_handle() {
    let b = Build::new();
    // Kinds interleaved.
    assert_eq!(b.buffer("first", 0xb0, 10, 5), 0);
    assert_eq!(b.stream("slow", 3, 7, 0x51), 0);
    assert_eq!(b.graph("a", 0xa0, &[4, 5, 6], 3), 0);
    assert_eq!(b.stream("fast", 9, -2, 0), 0);
    assert_eq!(b.region("r", 0xb1, 2, 8, 1), 0);
    assert_eq!(b.buffer("second", 0xb1, 20, 8), 0);
    assert_eq!(b.graph("b", 0xa1, &[], -1), 0);
    assert_eq!(b.manifest("{\"a\":1}"), 0);
    let exp = b.finish();
    // SAFETY: one reference is held.
    let e = unsafe { &*exp };
    assert_eq!((e.abi_version, e.struct_size), (1, 128));
    assert_eq!(e.ctx, fake(0x1000));

    let streams = slice(e.streams, e.n_streams);
    let of = |s: &frt_runtime_stream_desc| {
        (
            text_at(s.name),
            s.stream_id,
            s.priority,
            s.native_handle.addr(),
        )
    };
    assert_eq!(
        streams.iter().map(of).collect::<Vec<_>>(),
        [
            ("slow".to_owned(), 3, 7, 0x51),
            ("fast".to_owned(), 9, -2, 0)
        ]
    );

    let graphs = slice(e.graphs, e.n_graphs);
    assert_eq!(graphs.len(), 2);
    assert_eq!(
        (text_at(graphs[0].name), graphs[0].handle.addr()),
        ("a".to_owned(), 0xa0)
    );
    assert_eq!((graphs[0].default_key, graphs[0].stream_id), (4, 3));
    assert_eq!(slice(graphs[0].keys, graphs[0].n_keys), [4, 5, 6]);
    assert_eq!(
        (text_at(graphs[1].name), graphs[1].handle.addr()),
        ("b".to_owned(), 0xa1)
    );
    assert_eq!(
        (
            graphs[1].keys.is_null(),
            graphs[1].n_keys,
            graphs[1].stream_id
        ),
        (true, 0, -1)
    );

    let buffers = slice(e.buffers, e.n_buffers);
    let of = |b: &frt_runtime_buffer_desc| {
        (
            text_at(b.name),
            b.handle.addr(),
            b.bytes,
            b.role,
            b.reserved,
        )
    };
    assert_eq!(
        buffers.iter().map(of).collect::<Vec<_>>(),
        [
            ("first".to_owned(), 0xb0, 10, 5, 0),
            ("second".to_owned(), 0xb1, 20, 8, 0)
        ]
    );

    let regions = slice(e.capsule_regions, e.n_capsule_regions);
    let of = |r: &frt_runtime_region_desc| {
        (
            text_at(r.name),
            r.buffer.addr(),
            r.offset,
            r.bytes,
            r.flags,
            r.reserved,
        )
    };
    assert_eq!(
        regions.iter().map(of).collect::<Vec<_>>(),
        [("r".to_owned(), 0xb1, 2, 8, 1, 0)]
    );
    assert_eq!(text_at(e.manifest_json), "{\"a\":1}");
    release_export(exp);
}

#[test]
fn a_model_has_every_port_and_stage() {
    let b = Build::new();
    b.graph("g", 0xa0, &[0], 0);
    let images = Port {
        cadence_hint_hz: 30,
        ..port("images")
            .codes(1, 0, 1, 0, 1)
            .required()
            .shape(&[224, -1, 3])
    };
    assert_eq!(b.port(&images), 0);
    assert_eq!(
        b.port(&port("scalar").way(1, 2).shape(&[]).window(0xb0, 4, 8)),
        0
    );
    b.stage(0, &[]);
    b.stage(0, &[]);
    b.stage(0, &[1, 0]);
    let model = b.finish_model(&all_verbs());
    // SAFETY: one reference is held.
    let m = unsafe { &*model };
    let ports = slice(m.ports, m.n_ports);
    let of = |p: &frt_runtime_port_desc| {
        let codes = [
            p.modality,
            p.dtype,
            p.layout,
            p.direction,
            p.update,
            p.required,
            p.cadence_hint_hz,
        ];
        let window = (p.buffer.addr(), p.offset, p.bytes);
        (
            text_at(p.name),
            codes,
            slice(p.shape, p.rank.into()).to_vec(),
            window,
        )
    };
    assert_eq!(
        ports.iter().map(of).collect::<Vec<_>>(),
        [
            (
                "images".to_owned(),
                [1, 0, 1, 0, 1, 1, 30],
                vec![224, -1, 3],
                (0, 0, 0)
            ),
            (
                "scalar".to_owned(),
                [0, 1, 0, 1, 2, 0, 0],
                vec![],
                (0xb0, 4, 8)
            ),
        ]
    );
    let stages = slice(m.stages, m.n_stages);
    let of = |s: &frt_runtime_stage_desc| (s.graph, slice(s.after, s.n_after.into()).to_vec());
    assert_eq!(
        stages.iter().map(of).collect::<Vec<_>>(),
        [(0, vec![]), (0, vec![]), (0, vec![1, 0])]
    );
    release_model(model);
}

#[test]
fn names_shapes_keys_and_dependencies_are_copied() {
    let b = Build::new();
    let mut name = *b"graph\0";
    let (mut keys, mut shape, mut after) = ([1u64, 2], [3i64], [0u32]);
    // SAFETY: live, NUL-terminated, as long as they say.
    unsafe {
        frt_runtime_builder_add_graph(b.0, name.as_ptr().cast(), fake(1), 1, keys.as_ptr(), 2, 0);
        let at = name.as_ptr().cast();
        frt_runtime_builder_add_port(
            b.0,
            at,
            0,
            0,
            0,
            0,
            0,
            0,
            shape.as_ptr(),
            1,
            0,
            fake(0),
            0,
            0,
        );
        frt_runtime_builder_add_stage(b.0, 0, after.as_ptr(), 0);
        frt_runtime_builder_add_stage(b.0, 0, after.as_ptr(), 1);
    }
    (name, keys, shape, after) = (*b"XXXXX\0", [9, 9], [9], [9]);
    let model = b.finish_model(&NO_VERBS);
    // SAFETY: one reference is held.
    let (m, e) = unsafe { (&*model, &*(*model).exp) };
    let graph = slice(e.graphs, 1)[0];
    assert_eq!(text_at(graph.name), "graph");
    assert_eq!(slice(graph.keys, 2), [1, 2]);
    let port = slice(m.ports, 1)[0];
    assert_eq!(
        (text_at(port.name), slice(port.shape, 1)),
        ("graph".to_owned(), &[3i64][..])
    );
    assert_eq!(slice(slice(m.stages, 2)[1].after, 1), [0]);
    release_model(model);
    assert_eq!((name, keys, shape, after), (*b"XXXXX\0", [9, 9], [9], [9]));
}

#[test]
fn an_empty_export_has_null_arrays_and_the_header_as_identity() {
    let exp = Build::new().finish();
    // SAFETY: one reference is held.
    let e = unsafe { &*exp };
    assert!(
        e.streams.is_null()
            && e.graphs.is_null()
            && e.buffers.is_null()
            && e.capsule_regions.is_null()
    );
    assert_eq!(
        [e.n_streams, e.n_graphs, e.n_buffers, e.n_capsule_regions],
        [0; 4]
    );
    assert_eq!(identity(exp).0, b"frt-runtime-identity-v1\n");
    release_export(exp);
}

#[test]
fn the_export_of_a_metadata_model_has_nothing_but_identity_and_lifetime() {
    let owner = Counted::default();
    let model = opaque_model(&owner);
    // SAFETY: one reference is held.
    let e = unsafe { &*(*model).exp };
    assert!(e.ctx.is_null() && e.streams.is_null() && e.graphs.is_null());
    assert!(e.buffers.is_null() && e.capsule_regions.is_null() && e.manifest_json.is_null());
    assert_eq!(
        [e.n_streams, e.n_graphs, e.n_buffers, e.n_capsule_regions],
        [0; 4]
    );
    assert_ne!(e.fingerprint, 0);
    // SAFETY: one reference is held.
    unsafe { assert!((*model).stages.is_null() && (*model).n_stages == 0) };
    release_model(model);
}
