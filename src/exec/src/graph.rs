//! Graphs: captured work by shape key, replayed without allocation.

use crate::context::{Exec, Recording};
use crate::foreign::{not_possible, ForeignGraph};
use crate::table::Table;
use crate::{Buffer, CaptureOptions, CapturePhase, Context, Error, Recorder, ShapeKey, StreamId};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A named table from shape key to captured work.
///
/// Keys are compared exactly; there is no nearest variant. When the table is full the least recently
/// captured or replayed variant goes. A variant owns all that it touches: buffers may be dropped after
/// the capture, and an evicted variant that is still queued runs to its end.
///
/// A handle: clones are the same graph.
#[derive(Clone)]
pub struct Graph {
    inner: Arc<Inner>,
}

struct Inner {
    context: Context,
    name: Box<str>,
    variants: Variants,
    ports: Mutex<BTreeMap<String, Buffer>>,
}

/// Who keeps the table.
enum Variants {
    Own(Mutex<Table<Exec>>),
    Foreign(ForeignGraph),
}

/// A variant taken out of a graph, to be adopted by another graph of the same context.
#[derive(Clone)]
pub struct Executable {
    context: u64,
    exec: Exec,
}

impl Executable {
    /// The executable as its driver knows it: CUDA a `CUgraphExec`, CPU an address that no other
    /// executable has while any handle of this one lives. Not to be dereferenced.
    pub fn raw(&self) -> *mut c_void {
        self.exec.raw()
    }
}

impl Graph {
    pub(crate) fn new(context: &Context, name: &str, max_variants: usize) -> Graph {
        let table = Table::new(max_variants);
        Graph::with(context, name, Variants::Own(Mutex::new(table)))
    }

    pub(crate) fn foreign(context: &Context, name: &str, graph: ForeignGraph) -> Graph {
        Graph::with(context, name, Variants::Foreign(graph))
    }

    fn with(context: &Context, name: &str, variants: Variants) -> Graph {
        Graph {
            inner: Arc::new(Inner {
                context: context.clone(),
                name: name.into(),
                variants,
                ports: Mutex::new(BTreeMap::new()),
            }),
        }
    }

    /// The name given at creation.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The context that it belongs to.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The table; `call` is refused where a foreign library keeps it.
    fn variants(&self, call: &'static str) -> Result<MutexGuard<'_, Table<Exec>>, Error> {
        match &self.inner.variants {
            Variants::Own(table) => Ok(lock(table)),
            Variants::Foreign(_) => Err(not_possible(call)),
        }
    }

    /// Calls `record` once and stores what it recorded under `key`, replacing what was there, as the
    /// most recent variant. Then, if the table holds too many, the least recent one goes. Nothing
    /// recorded runs now. Set-up only: allocates.
    ///
    /// # Errors
    /// What `record` returns. Otherwise [`Error::Capture`] with the graph, the key and the phase:
    /// *begin* when the context is recording already; *record* from the recorder's own calls; *end*
    /// when nothing was recorded, or when such a call failed and `record` did not say so. After any of
    /// them the table, its recency and all streams are as they were.
    pub fn capture<E: From<Error>>(
        &self,
        key: ShapeKey,
        record: impl FnOnce(&mut Recorder<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.capture_with(key, CaptureOptions::default(), record)
    }

    /// As [`Graph::capture`], with options.
    ///
    /// # Errors
    /// As [`Graph::capture`].
    pub fn capture_with<E: From<Error>>(
        &self,
        key: ShapeKey,
        options: CaptureOptions,
        record: impl FnOnce(&mut Recorder<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let context = &self.inner.context;
        drop(self.variants("capture")?);
        let failed = |phase, reason| Error::Capture {
            graph: self.name().into(),
            key,
            phase,
            reason,
        };

        let begin = |e: Error| failed(CapturePhase::Begin, e.to_string());
        let recording = context
            .begin_recording("capture", Recording::Graph(self.clone(), key))
            .map_err(begin)?;
        let sink = context.begin_capture().map_err(begin)?;

        let mut recorder = Recorder::new(context, sink, Some((self.name(), key)));
        record(&mut recorder)?;

        let exec = recorder
            .finish()
            .and_then(|sink| {
                context
                    .finish_capture(sink, self.name(), key, options)
                    .map_err(|e| e.to_string())
            })
            .and_then(|exec| exec.ok_or_else(|| "nothing was recorded".to_string()))
            .map_err(|reason| failed(CapturePhase::End, reason))?;
        drop(recording);

        let gone = self.variants("capture")?.insert(key, exec);
        // Outside the lock: dropping kernels runs foreign code.
        drop(gone);
        Ok(())
    }

    /// Submits the variant under `key` to `stream`. Allocates nothing.
    ///
    /// # Errors
    /// [`Error::NoVariant`] first, then [`Error::BadStream`]; neither touches the recency. Then
    /// [`Error::Recording`] or [`Error::Busy`].
    pub fn replay(&self, key: ShapeKey, stream: StreamId) -> Result<(), Error> {
        let context = &self.inner.context;
        let exec = {
            let mut variants = match &self.inner.variants {
                Variants::Own(table) => lock(table),
                Variants::Foreign(graph) => return self.replay_foreign(graph, key, stream),
            };
            match variants.take_turn(key, || context.check_stream(stream)) {
                Some(exec) => exec?.clone(),
                None => return Err(self.no_variant(Some(key), variants.len())),
            }
        };
        context.launch(exec, stream)
    }

    fn replay_foreign(
        &self,
        graph: &ForeignGraph,
        key: ShapeKey,
        stream: StreamId,
    ) -> Result<(), Error> {
        let checked = self.inner.context.check_stream(stream);
        if checked.is_err() && !graph.has_variant(key) {
            return Err(self.no_variant(Some(key), graph.variant_count()));
        }
        checked?;
        graph.replay(key, stream)
    }

    /// True when `key` has a variant. Leaves the recency alone. On a foreign context false also from inside
    /// a host access, where the library cannot be asked.
    pub fn has_variant(&self, key: ShapeKey) -> bool {
        match &self.inner.variants {
            Variants::Own(table) => lock(table).get(key).is_some(),
            Variants::Foreign(graph) => graph.has_variant(key),
        }
    }

    /// Number of variants. On a foreign context 0 also from inside a host access.
    pub fn variant_count(&self) -> usize {
        match &self.inner.variants {
            Variants::Own(table) => lock(table).len(),
            Variants::Foreign(graph) => graph.variant_count(),
        }
    }

    /// Removes the variant under `key`. Replays of it that were submitted already still run.
    ///
    /// # Errors
    /// [`Error::NoVariant`].
    pub fn evict(&self, key: ShapeKey) -> Result<(), Error> {
        let (gone, left) = {
            let mut variants = match &self.inner.variants {
                Variants::Own(table) => lock(table),
                Variants::Foreign(graph) => return graph.evict(key),
            };
            (variants.remove(key), variants.len())
        };
        gone.map(drop)
            .ok_or_else(|| self.no_variant(Some(key), left))
    }

    /// Removes the least recent variant and returns its key.
    ///
    /// # Errors
    /// [`Error::NoVariant`] when the table is empty.
    pub fn evict_lru(&self) -> Result<ShapeKey, Error> {
        let gone = self.variants("evict_lru")?.remove_lru();
        gone.map(|(key, _)| key)
            .ok_or_else(|| self.no_variant(None, 0))
    }

    /// The variant under `key`, to be adopted elsewhere. Leaves the recency alone.
    ///
    /// # Errors
    /// [`Error::NoVariant`].
    pub fn executable(&self, key: ShapeKey) -> Result<Executable, Error> {
        let variants = self.variants("executable")?;
        match variants.get(key) {
            Some(exec) => Ok(Executable {
                context: self.inner.context.id(),
                exec: exec.clone(),
            }),
            None => Err(self.no_variant(Some(key), variants.len())),
        }
    }

    /// Stores a variant that another graph captured, by the rules of [`Graph::capture`]. Both graphs
    /// share it; it lives as long as either holds it.
    ///
    /// # Errors
    /// [`Error::ForeignContext`].
    pub fn adopt(&self, key: ShapeKey, executable: &Executable) -> Result<(), Error> {
        let mut variants = self.variants("adopt")?;
        if executable.context != self.inner.context.id() {
            return Err(Error::ForeignContext {
                what: "executable for graph",
                name: self.name().into(),
            });
        }
        let gone = variants.insert(key, executable.exec.clone());
        drop(variants);
        drop(gone);
        Ok(())
    }

    /// Stores an executable of the driver, by the rules of [`Graph::capture`]. CUDA: `raw` is a
    /// `CUgraphExec`, which is launched and never destroyed.
    ///
    /// # Errors
    /// [`Error::Invalid`] on the CPU backend, and for a null `raw`.
    ///
    /// # Safety
    /// `raw` is an instantiated graph of this context's device. It stays valid, with all memory that it
    /// touches, until this graph no longer holds it and no replay of it is under way.
    pub unsafe fn adopt_raw(&self, key: ShapeKey, raw: *mut c_void) -> Result<(), Error> {
        if raw.is_null() {
            return Err(Error::Invalid {
                what: "raw executable",
                expected: "an executable".into(),
                got: format!("null for graph \"{}\"", self.name()),
            });
        }
        // SAFETY: the caller's promise.
        let exec = unsafe { self.inner.context.adopt_raw(raw)? };
        let gone = self.variants("adopt_raw")?.insert(key, exec);
        drop(gone);
        Ok(())
    }

    /// Notes that `port` of this graph is `buffer`; the last note wins. Captured work keeps the memory
    /// it was captured with: binding never redirects it, and replay never looks here.
    ///
    /// # Errors
    /// [`Error::ForeignContext`].
    pub fn bind(&self, port: &str, buffer: &Buffer) -> Result<(), Error> {
        buffer.check_context(self.inner.context.id())?;
        self.ports().insert(port.into(), buffer.clone());
        Ok(())
    }

    /// The buffer noted for `port`.
    ///
    /// # Errors
    /// [`Error::Unbound`].
    pub fn bound(&self, port: &str) -> Result<Buffer, Error> {
        let found = self.ports().get(port).cloned();
        found.ok_or_else(|| Error::Unbound {
            graph: self.name().into(),
            port: port.into(),
        })
    }

    fn ports(&self) -> MutexGuard<'_, BTreeMap<String, Buffer>> {
        lock(&self.inner.ports)
    }

    fn no_variant(&self, key: Option<ShapeKey>, count: usize) -> Error {
        Error::NoVariant {
            graph: self.name().into(),
            key,
            count,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Graph")
            .field("name", &self.name())
            .field("variants", &self.variant_count())
            .finish()
    }
}

impl std::fmt::Debug for Executable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Executable")
    }
}
