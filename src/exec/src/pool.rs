//! The worker threads that kernels of the CPU backend spread their tasks over.

use crate::{BackendKind, Error};
#[cfg(loom)]
use loom::{
    cell::UnsafeCell,
    hint,
    sync::{
        atomic::{fence, AtomicBool, AtomicU64, AtomicUsize},
        Arc, Mutex,
    },
    thread::{self, JoinHandle, Thread},
};
use std::any::Any;
use std::cell::Cell;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::PoisonError;
use std::time::{Duration, Instant};
#[cfg(not(loom))]
use std::{
    hint,
    sync::{
        atomic::{fence, AtomicBool, AtomicU64, AtomicUsize},
        Arc, Mutex,
    },
    thread::{self, JoinHandle, Thread},
};

/// How long an idle worker looks for the next job before it parks. Kernels of one graph follow each
/// other faster than this; between two ticks the worker sleeps and costs nothing.
const SPIN: Duration = Duration::from_micros(50);

/// More threads than this is a mistake in a configuration, not a machine.
const MAX_THREADS: usize = 1024;

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// True on the threads that pools spawned: they run nothing but kernel tasks.
pub(crate) fn on_worker() -> bool {
    IS_WORKER.with(Cell::get)
}

/// A fixed set of threads that run the tasks of one kernel at a time.
///
/// The thread that calls [`Pool::for_each`] takes tasks too, so a pool of one thread has no worker.
/// Workers look for the next job for a few tens of microseconds, then park; waking one costs a
/// system call, finding one awake costs nothing. Neither path allocates.
pub struct Pool {
    shared: Arc<Shared>,
    wakers: Vec<Thread>,
    workers: Vec<JoinHandle<()>>,
}

/// As the model checker's, which sees every access.
#[cfg(not(loom))]
struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Keeps hot counters on cache lines of their own.
#[repr(align(64))]
struct Padded<T>(T);

struct Shared {
    /// Odd while a job is open. Changes twice a job, never repeats.
    epoch: Padded<AtomicU64>,
    /// Next task to claim.
    next: Padded<AtomicUsize>,
    /// Workers that may be reading `job`.
    inside: Padded<AtomicUsize>,
    /// One flag a worker: it is parked or about to park.
    parked: Vec<Padded<AtomicBool>>,
    job: UnsafeCell<Job>,
    /// A job is being driven; a second `for_each` meanwhile runs inline.
    busy: AtomicBool,
    stop: AtomicBool,
    /// Workers that have come up.
    started: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

struct Job {
    tasks: usize,
    run: Option<&'static (dyn Fn(usize) + Sync)>,
}

// SAFETY: `job` is the only field that is not Sync by itself. It is written by the one thread that
// holds `busy`, while `epoch` is even and `inside` is 0; it is read only between an increment of
// `inside` that was followed by seeing `epoch` odd, and the matching decrement. Both sides have a
// SeqCst fence between their write and their look, so either the reader sees the job closed or the
// writer sees the reader inside.
unsafe impl Sync for Shared {}
// SAFETY: as above; what `job` points at is `Sync`, so it may be called from any thread.
unsafe impl Send for Shared {}

impl Pool {
    /// Starts a pool of `threads` threads, the calling one included (so `threads - 1` are spawned).
    /// 0 takes the number of cores that the process may use.
    ///
    /// # Errors
    /// [`Error::Invalid`] above 1024 threads, [`Error::Backend`] if a thread cannot be started.
    pub fn new(threads: usize) -> Result<Pool, Error> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get().min(MAX_THREADS)),
            n if n <= MAX_THREADS => n,
            n => {
                return Err(Error::Invalid {
                    what: "threads",
                    expected: format!("0..={MAX_THREADS}"),
                    got: n.to_string(),
                })
            }
        };
        let shared = Arc::new(Shared {
            epoch: Padded(AtomicU64::new(0)),
            next: Padded(AtomicUsize::new(0)),
            inside: Padded(AtomicUsize::new(0)),
            parked: (1..threads)
                .map(|_| Padded(AtomicBool::new(false)))
                .collect(),
            job: UnsafeCell::new(Job {
                tasks: 0,
                run: None,
            }),
            busy: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            started: AtomicUsize::new(0),
            panic: Mutex::new(None),
        });
        let mut pool = Pool {
            shared,
            wakers: Vec::new(),
            workers: Vec::new(),
        };
        for index in 0..threads - 1 {
            let shared = pool.shared.clone();
            let worker = thread::Builder::new()
                .name(format!("frt-cpu-{}", index + 1))
                .spawn(move || shared.work(index))
                // An early return drops `pool`, which stops the threads started so far.
                .map_err(|e| Error::Backend {
                    backend: BackendKind::Cpu,
                    call: "start a worker thread",
                    reason: e.to_string(),
                })?;
            pool.wakers.push(worker.thread().clone());
            pool.workers.push(worker);
        }
        // A thread that comes up allocates; that belongs here, not in somebody's first ticks.
        while pool.shared.started.load(Acquire) < threads - 1 {
            thread::yield_now();
        }
        Ok(pool)
    }

    /// Threads that take tasks, the calling one included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `f(0)`, `f(1)`, … `f(tasks - 1)`, each exactly once, and returns when all are done.
    ///
    /// Which thread runs which index, and in which order, is not fixed: a task must write only what
    /// its index names. Then the result does not depend on the number of threads. Allocates nothing.
    /// A call from inside a task runs its tasks inline.
    ///
    /// # Panics
    /// If a task panics, tasks that were not yet claimed are skipped and the panic goes on in the
    /// caller once no thread runs a task any more. The pool stays usable.
    pub fn for_each(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        let shared = &*self.shared;
        if tasks <= 1 || self.workers.is_empty() || shared.busy.swap(true, Acquire) {
            (0..tasks).for_each(f);
            return;
        }
        // SAFETY: only the lifetime changes. The reference is dropped from `job` below, after every
        // worker has left, so no call outlives `f`.
        let f: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(f) };
        let run = Some(f);
        // SAFETY: we hold `busy`, the epoch is even and nobody is inside: see `Shared`.
        shared
            .job
            .with_mut(|job| unsafe { *job = Job { tasks, run } });
        shared.next.0.store(0, Relaxed);
        let open = shared.epoch.0.load(Relaxed) + 1;
        shared.epoch.0.store(open, Release);
        self.wake(tasks - 1);

        shared.claim(tasks, f);

        shared.epoch.0.store(open + 1, Relaxed);
        fence(SeqCst);
        let mut spins = 0u32;
        while shared.inside.0.load(Acquire) != 0 {
            // A worker that lost its core in a task would otherwise cost us ours.
            spins += 1;
            if spins < 4000 && cfg!(not(loom)) {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        // SAFETY: as for the write above; the job is closed and nobody is inside.
        shared.job.with_mut(|job| unsafe { (*job).run = None });
        let panic = shared
            .panic
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        shared.busy.store(false, Release);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }

    /// Unparks as many workers as there is work for; those that are awake count.
    fn wake(&self, wanted: usize) {
        fence(SeqCst);
        for (parked, thread) in self.shared.parked.iter().zip(&self.wakers).take(wanted) {
            if parked.0.load(Relaxed) && parked.0.swap(false, Relaxed) {
                thread.unpark();
            }
        }
    }
}

impl Shared {
    /// Claims tasks until none is left. A panic ends the claiming for everybody.
    fn claim(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        let claimed = catch_unwind(AssertUnwindSafe(|| loop {
            let index = self.next.0.fetch_add(1, Relaxed);
            if index >= tasks {
                return;
            }
            f(index);
        }));
        if let Err(payload) = claimed {
            self.next.0.fetch_max(tasks, Relaxed);
            self.panic
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(payload);
        }
    }

    /// Life of one worker.
    fn work(&self, index: usize) {
        IS_WORKER.with(|w| w.set(true));
        // The handle that parking needs is made on first use.
        drop(thread::current());
        self.started.fetch_add(1, Release);
        let mut seen = 0;
        while let Some(epoch) = self.await_job(index, seen) {
            seen = epoch;
            self.inside.0.fetch_add(1, Relaxed);
            fence(SeqCst);
            if self.epoch.0.load(Acquire) == epoch {
                // SAFETY: inside was raised before the epoch was seen open: see `Shared`.
                let (tasks, run) = self.job.with(|job| unsafe { ((*job).tasks, (*job).run) });
                if let Some(run) = run {
                    self.claim(tasks, run);
                }
            }
            self.inside.0.fetch_sub(1, Release);
        }
    }

    /// The epoch of an open job other than `seen`, or `None` at the end of the pool.
    fn await_job(&self, index: usize, seen: u64) -> Option<u64> {
        let open = || {
            let epoch = self.epoch.0.load(Acquire);
            (epoch % 2 == 1 && epoch != seen).then_some(epoch)
        };
        let begin = Instant::now();
        // The model checker has no clock.
        while cfg!(not(loom)) && begin.elapsed() < SPIN {
            for _ in 0..32 {
                if let Some(epoch) = open() {
                    return Some(epoch);
                }
                hint::spin_loop();
            }
        }
        let parked = &self.parked[index].0;
        loop {
            // Flag first, look second: the driver opens first and looks at the flag second.
            parked.store(true, Relaxed);
            fence(SeqCst);
            let epoch = open();
            let stop = self.stop.load(Acquire);
            if stop || epoch.is_some() {
                parked.store(false, Relaxed);
                return if stop { None } else { epoch };
            }
            thread::park();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Release);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker that drops the last handle of its own pool must not wait for itself.
            if worker.thread().id() != thread::current().id() {
                // A worker cannot panic outside a task, and task panics are caught.
                let _ = worker.join();
            }
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("threads", &self.threads())
            .finish()
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test --release -p flashrt-exec --lib pool`: interleavings of a caller and its workers.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::atomic::AtomicUsize as Counter;

    /// Runs jobs of `tasks` one after the other over a pool of `threads`: each task once, and what it wrote is seen
    /// behind the call.
    fn jobs(threads: usize, preemptions: usize, jobs: &'static [usize]) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let pool = Pool::new(threads).unwrap();
            for &tasks in jobs {
                let counts: Vec<_> = (0..tasks).map(|_| Counter::new(0)).collect();
                pool.for_each(tasks, &|task| {
                    counts[task].fetch_add(1, Relaxed);
                });
                for count in &counts {
                    assert_eq!(count.load(Relaxed), 1);
                }
            }
        });
    }

    #[test]
    fn a_worker_takes_part_or_sleeps_and_the_next_job_finds_it() {
        jobs(2, 3, &[2, 3]);
    }

    #[test]
    fn two_workers_leave_before_the_caller_returns() {
        jobs(3, 3, &[3, 2]);
    }
}
