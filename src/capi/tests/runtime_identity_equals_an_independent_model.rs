//! Random declarations through the C functions against a second implementation of rules and identity, written from the published text.

mod runtime_support;

use flashrt_capi::abi::*;
use proptest::prelude::*;
use runtime_support::*;

/// One call of a builder.
#[derive(Clone, Debug)]
enum Call {
    Stream(Vec<u8>, i32),
    Graph(Vec<u8>, usize, i32),
    Buffer(Vec<u8>, usize),
    Region(Vec<u8>, usize, u64, u64, u32),
    Pair(Vec<u8>, Vec<u8>),
    AddPort(Port),
    Stage(u32, Vec<u32>),
    Generic(Vec<u8>, u32, u32, Vec<u32>),
    Runner,
}
use Call::*;

/// What the published text says a builder holds.
#[derive(Default)]
struct Model {
    is_metadata: bool,
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    graphs: Vec<(Vec<u8>, i32)>,
    buffers: Vec<usize>,
    regions: Vec<(Vec<u8>, u64, u64, u32)>,
    ports: Vec<Port>,
    stages: Vec<(u32, Vec<u32>)>,
    generic: Vec<(Vec<u8>, u32, u32, Vec<u32>)>,
    has_runner: bool,
}

impl Model {
    fn has_generic(&self) -> bool {
        self.has_runner || !self.generic.is_empty()
    }

    /// Takes the call or refuses it.
    fn takes(&mut self, call: &Call) -> bool {
        let resources = !self.is_metadata;
        match call.clone() {
            Stream(_, id) => id >= 0 && resources,
            Graph(name, handle, stream) => {
                let takes = handle != 0 && resources;
                if takes {
                    self.graphs.push((name, stream));
                }
                takes
            }
            Buffer(_, handle) => {
                let takes = handle != 0 && resources;
                if takes {
                    self.buffers.push(handle);
                }
                takes
            }
            Region(name, handle, offset, bytes, flags) => {
                let takes = handle != 0 && bytes != 0 && resources;
                if takes {
                    self.regions.push((name, offset, bytes, flags));
                }
                takes
            }
            Pair(key, value) => {
                self.pairs.push((key, value));
                true
            }
            AddPort(p) => {
                let free = p.codes[4] != 0 && p.window == (0, 0, 0);
                let takes =
                    !p.name.is_empty() && p.codes[3] < 2 && p.codes[4] < 3 && (resources || free);
                if takes {
                    self.ports.push(p);
                }
                takes
            }
            Stage(graph, after) => {
                let earlier = after.iter().all(|d| (*d as usize) < self.stages.len());
                let takes = resources
                    && !self.has_generic()
                    && (graph as usize) < self.graphs.len()
                    && earlier;
                if takes {
                    self.stages.push((graph, after));
                }
                takes
            }
            Generic(name, kind, executor, after) => {
                let named = (1..=255).contains(&name.len())
                    && std::str::from_utf8(&name).is_ok()
                    && name.iter().all(|b| *b >= 0x20 && *b != 0x7f)
                    && self.generic.iter().all(|g| g.0 != name);
                let executed =
                    kind == 1 || kind == 0 && resources && (executor as usize) < self.graphs.len();
                let ordered = after.windows(2).all(|w| w[0] < w[1])
                    && after.iter().all(|d| (*d as usize) < self.generic.len());
                let takes = self.stages.is_empty() && named && executed && ordered;
                if takes {
                    self.generic.push((name, kind, executor, after));
                }
                takes
            }
            Runner => {
                let takes = self.stages.is_empty() && !self.has_runner;
                self.has_runner |= takes;
                takes
            }
        }
    }

    fn identity(&self) -> Vec<u8> {
        let mut out = b"frt-runtime-identity-v1\n".to_vec();
        for (key, value) in &self.pairs {
            out.extend([key.as_slice(), b"=", value, b"\n"].concat());
        }
        for (name, stream) in &self.graphs {
            out.extend(
                [
                    b"graph:",
                    name.as_slice(),
                    format!(":{stream}\n").as_bytes(),
                ]
                .concat(),
            );
        }
        for (i, (name, offset, bytes, flags)) in self.regions.iter().enumerate() {
            let mut line = format!("region:{i}:").into_bytes();
            line.extend(name);
            line.extend(format!(":{offset}:{bytes}:{flags}\n").bytes());
            out.extend(line.iter().take(191));
        }
        for (i, p) in self.ports.iter().enumerate() {
            let mut line = format!("port:{i}:").into_bytes();
            line.extend(&p.name);
            for n in p.codes.iter().chain([&p.required]) {
                line.extend(format!(":{n}").bytes());
            }
            line.push(b':');
            out.extend(line.iter().take(191));
            let mut separator = "";
            for d in &p.shape {
                out.extend(format!("{separator}{d}").bytes());
                separator = ",";
            }
            let (buffer, offset, bytes) = p.window;
            let index = match self.buffers.iter().position(|b| *b == buffer) {
                Some(i) => i as i64,
                None => -1,
            };
            out.extend(format!(":{index}:{offset}:{bytes}\n").bytes());
        }
        let list = |deps: &[u32]| {
            deps.iter()
                .map(|d| d.to_string())
                .collect::<Vec<_>>()
                .join(",")
        };
        for (i, (graph, after)) in self.stages.iter().enumerate() {
            out.extend(format!("stage:{i}:{graph}:{}\n", list(after)).bytes());
        }
        for (i, (name, kind, executor, after)) in self.generic.iter().enumerate() {
            out.extend(format!("gstage-v1:{i}:{}:", name.len()).bytes());
            out.extend(name);
            out.extend(format!(":{kind}:{executor}:{}:{}\n", after.len(), list(after)).bytes());
        }
        out
    }

    fn fingerprint(&self) -> u64 {
        let mut h = 14695981039346656037u64;
        for b in self.identity() {
            h = (h ^ u64::from(b)).wrapping_mul(1099511628211);
        }
        h
    }

    /// Would `finish_model` take it with these verbs?
    fn finishes(&self, input: bool, output: bool, step: bool, error: bool) -> bool {
        let staged = |way| {
            self.ports
                .iter()
                .any(|p| p.codes[3] == way && p.codes[4] == 1)
        };
        if staged(0) && !input || staged(1) && !output {
            return false;
        }
        if self.has_generic() {
            return self.has_runner && error && self.generic.iter().any(|g| g.1 == 1);
        }
        !self.stages.is_empty() || step
    }
}

fn apply(b: Build, call: &Call) -> bool {
    let code = match call {
        Stream(name, id) => b.stream(name, *id, 0, 0),
        Graph(name, handle, stream) => b.graph(name, *handle, &[0], *stream),
        Buffer(name, handle) => b.buffer(name, *handle, 64, 0),
        Region(name, handle, offset, bytes, flags) => {
            b.region(name, *handle, *offset, *bytes, *flags)
        }
        Pair(key, value) => b.pair(key, value),
        AddPort(p) => b.port(p),
        Stage(graph, after) => b.stage(*graph, after),
        Generic(name, kind, executor, after) => b.generic(name, *kind, *executor, after),
        Runner => b.runner(),
    };
    assert!(code == 0 || code == -1, "{code}");
    code == 0
}

/// Names: ordinary, long enough to be cut, and bytes that are no text; never with a NUL.
fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => "[a-z:,=;]{0,6}".prop_map(String::into_bytes),
        2 => "[äß字🦀\n\u{7f}]{1,4}".prop_map(String::into_bytes),
        2 => (150usize..260, 1u8..=255).prop_map(|(n, b)| vec![b; n]),
        1 => prop::collection::vec(1u8..=255, 0..8),
    ]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..4, any::<u64>()]
}

fn deps() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![
        3 => Just(vec![]),
        3 => prop::collection::btree_set(0u32..3, 0..3).prop_map(|s| s.into_iter().collect()),
        1 => prop::collection::vec(0u32..4, 0..4),
    ]
}

fn a_port() -> impl Strategy<Value = Port> {
    let codes =
        (0u32..9, 0u32..7, 0u32..6, 0u32..3, 0u32..4).prop_map(|(a, b, c, d, e)| [a, b, c, d, e]);
    let window = prop_oneof![2 => Just((0, 0, 0)), 3 => (0usize..6, number(), number())];
    let shape = prop::collection::vec(prop_oneof![-1i64..300, any::<i64>()], 0..5);
    (name(), codes, 0u32..3, shape, window).prop_map(|(name, codes, required, shape, window)| {
        Port {
            name,
            codes,
            required,
            shape,
            cadence_hint_hz: 0,
            window,
        }
    })
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        1 => (name(), -1i32..3).prop_map(|(n, i)| Stream(n, i)),
        4 => (name(), 0usize..5, any::<i32>()).prop_map(|(n, h, s)| Graph(n, h, s)),
        3 => (name(), 0usize..6).prop_map(|(n, h)| Buffer(n, h)),
        3 => (name(), 0usize..6, number(), number(), any::<u32>()).prop_map(|(n, h, o, b, f)| Region(n, h, o, b, f)),
        2 => (name(), name()).prop_map(|(k, v)| Pair(k, v)),
        4 => a_port().prop_map(AddPort),
        4 => (0u32..3, deps()).prop_map(|(g, a)| Stage(g, a)),
        4 => (name(), 0u32..3, 0u32..3, deps()).prop_map(|(n, k, r, a)| Generic(n, k, r, a)),
        1 => Just(Runner),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 2000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_answer_and_every_byte_agrees(
        is_metadata in any::<bool>(),
        calls in prop::collection::vec(call(), 0..24),
        verbs in any::<[bool; 4]>(),
    ) {
        let b = if is_metadata { Build::metadata() } else { Build::new() };
        let mut model = Model { is_metadata, ..Model::default() };
        for call in &calls {
            prop_assert_eq!(apply(b, call), model.takes(call), "{:?}: {}", call, last_error());
        }
        let is_plain = model.ports.is_empty() && model.stages.is_empty() && !model.has_generic();
        if is_plain && !is_metadata {
            let exp = b.finish();
            prop_assert!(!exp.is_null(), "{}", last_error());
            let (text, hash) = identity(exp);
            prop_assert_eq!((text, hash), (model.identity(), model.fingerprint()));
            release_export(exp);
            return Ok(());
        }
        let [input, output, step_there, error] = verbs;
        let table = frt_model_runtime_verbs {
            set_input: input.then_some(set_input as _),
            get_output: output.then_some(get_output as _),
            step: step_there.then_some(step as _),
            last_error: error.then_some(last_error_text as _),
            ..NO_VERBS
        };
        let made = b.finish_model(&table);
        let expected = model.finishes(input, output, step_there, error);
        prop_assert_eq!(!made.is_null(), expected, "{}", last_error());
        if made.is_null() {
            b.destroy();
            return Ok(());
        }
        // SAFETY: one reference is held.
        let (text, hash) = identity(unsafe { (*made).exp });
        prop_assert_eq!((text, hash), (model.identity(), model.fingerprint()));
        release_model(made);
    }
}

#[test]
fn the_model_itself_gives_a_published_fingerprint() {
    let mut model = Model::default();
    for call in [
        Pair(b"k".to_vec(), b"v".to_vec()),
        Graph(b"g".to_vec(), 1, -3),
        AddPort(port("x").window(0xdead, 8, 16)),
        AddPort(port("scalar").shape(&[]).window(5, 0, 4)),
        Buffer(b"b".to_vec(), 5),
        Stage(0, vec![]),
    ] {
        assert!(model.takes(&call));
    }
    assert_eq!(model.fingerprint(), 0xbbc2ea915302d822);
}
