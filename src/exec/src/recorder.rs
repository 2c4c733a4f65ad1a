//! What record callbacks see: the operations that a graph or a live stream can take.

use crate::cpu::Op;
use crate::cuda::CudaCapture;
use crate::{BackendKind, CapturePhase, Context, Error, Pool, ShapeKey, Slice};
use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

/// Work of a host kernel.
///
/// A kernel runs many times over the same fixed memory. It must not allocate, and must not call its
/// context or touch its buffers other than through the addresses that it was recorded with. Its
/// result must not depend on the number of threads of the pool.
pub trait HostKernel: Send {
    /// Runs the kernel once, spreading its tasks over `pool` if that is worth it.
    fn run(&self, pool: &Pool);
}

impl<F: Fn(&Pool) + Send> HostKernel for F {
    fn run(&self, pool: &Pool) {
        self(pool)
    }
}

/// Takes the operations of one graph capture or one [`Context::enqueue`].
///
/// Operations run in the order in which they were recorded, none of them while recording.
pub struct Recorder<'a> {
    context: &'a Context,
    sink: Sink,
    /// Graph name and key in a capture, `None` on a live stream.
    capture: Option<(&'a str, ShapeKey)>,
    /// First failure of a call here: whoever swallows it must not get a graph with a hole.
    spoiled: Option<String>,
}

/// Where the operations go.
pub(crate) enum Sink {
    Cpu(Vec<Op>),
    Cuda(CudaCapture),
}

impl Sink {
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Sink::Cpu(ops) => ops.is_empty(),
            Sink::Cuda(capture) => capture.is_empty(),
        }
    }
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(
        context: &'a Context,
        sink: Sink,
        capture: Option<(&'a str, ShapeKey)>,
    ) -> Recorder<'a> {
        Recorder {
            context,
            sink,
            capture,
            spoiled: None,
        }
    }

    /// What was recorded, or the first failure that the callback did not pass on.
    pub(crate) fn finish(self) -> Result<Sink, String> {
        match self.spoiled {
            Some(reason) => Err(format!("a recorded call had failed: {reason}")),
            None => Ok(self.sink),
        }
    }

    /// The context that is being recorded on. It refuses commands until recording ends.
    pub fn context(&self) -> &Context {
        self.context
    }

    /// The backend, which decides what kind of kernels can be recorded.
    pub fn backend(&self) -> BackendKind {
        self.context.backend()
    }

    /// The stream that takes the operations, as its driver knows it: CUDA the `CUstream` that is being
    /// captured, for work recorded by other libraries; CPU null.
    pub fn raw_stream(&self) -> *mut c_void {
        match &self.sink {
            Sink::Cpu(_) => std::ptr::null_mut(),
            Sink::Cuda(capture) => capture.raw_stream(),
        }
    }

    /// True while nothing has been recorded.
    pub fn is_empty(&self) -> bool {
        self.sink.is_empty()
    }

    /// Records a kernel that runs on the host: on the pool of a CPU context; on CUDA on a thread of the
    /// driver, alone, between the operations of the device before and behind it.
    ///
    /// `touches` names every window that the kernel reads or writes; their buffers live as long as
    /// the recording. `name` appears in errors.
    ///
    /// # Errors
    /// [`Error::ForeignContext`] for a window of another context; in a capture as
    /// [`Error::Capture`] of phase record.
    pub fn host_kernel(
        &mut self,
        name: &'static str,
        touches: &[&Slice],
        kernel: Box<dyn HostKernel>,
    ) -> Result<(), Error> {
        self.guard(touches, |sink| match sink {
            Sink::Cpu(ops) => {
                let touches = touches.iter().map(|s| s.buffer().clone()).collect();
                ops.push(Op::Kernel {
                    name,
                    kernel,
                    _touches: touches,
                });
                Ok(())
            }
            Sink::Cuda(capture) => capture.host_kernel(name, touches, kernel),
        })
    }

    /// Records work of the device by calls of its driver, such as kernel launches: CUDA `submit` gets the `CUstream` that is being
    /// captured. What `submit` may not do otherwise is wait or allocate.
    ///
    /// `touches` as in [`Recorder::host_kernel`]; `keep` (the module of a kernel, say) lives as long as the recording too.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`] on other backends, [`Error::ForeignContext`] for a window of another context,
    /// [`Error::Backend`] with the text of a failing `submit`; in a capture as [`Error::Capture`] of phase record.
    ///
    /// # Safety
    /// What `submit` enqueues on the stream uses no memory but that of `touches` and `keep`, inside their bounds.
    pub unsafe fn device_work(
        &mut self,
        name: &'static str,
        touches: &[&Slice],
        keep: Option<Arc<dyn Any + Send + Sync>>,
        submit: impl FnOnce(*mut c_void) -> Result<(), String>,
    ) -> Result<(), Error> {
        self.guard(touches, |sink| match sink {
            Sink::Cpu(_) => Err(Error::BackendUnavailable {
                backend: BackendKind::Cuda,
                reason: format!("{name} is work of a device, and this context is on the CPU"),
            }),
            Sink::Cuda(capture) => capture.device_work(name, touches, keep, submit),
        })
    }

    /// Records a copy between any two spaces. Lengths must agree and bytes must not be shared.
    ///
    /// # Errors
    /// As [`Context::copy`]; in a capture as [`Error::Capture`] of phase record.
    pub fn copy(&mut self, dst: &Slice, src: &Slice) -> Result<(), Error> {
        self.guard(&[dst, src], |sink| {
            dst.check_copy_from(src)?;
            match sink {
                Sink::Cpu(ops) => ops.push(Op::Copy {
                    dst: dst.clone(),
                    src: src.clone(),
                }),
                Sink::Cuda(capture) => capture.copy(dst, src)?,
            }
            Ok(())
        })
    }

    /// Records setting every byte of `dst` to `value`.
    ///
    /// # Errors
    /// [`Error::ForeignContext`]; in a capture as [`Error::Capture`] of phase record.
    pub fn fill(&mut self, dst: &Slice, value: u8) -> Result<(), Error> {
        self.guard(&[dst], |sink| {
            match sink {
                Sink::Cpu(ops) => ops.push(Op::Fill {
                    dst: dst.clone(),
                    value,
                }),
                Sink::Cuda(capture) => capture.fill(dst, value)?,
            }
            Ok(())
        })
    }

    /// Checks the owners of `touches`, records, and remembers a failure under the capture's name.
    fn guard(
        &mut self,
        touches: &[&Slice],
        record: impl FnOnce(&mut Sink) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let context = self.context.id();
        let result = touches
            .iter()
            .try_for_each(|slice| slice.buffer().check_context(context))
            .and_then(|()| record(&mut self.sink));
        result.map_err(|error| {
            let reason = error.to_string();
            self.spoiled.get_or_insert_with(|| reason.clone());
            match self.capture {
                Some((graph, key)) => Error::Capture {
                    graph: graph.into(),
                    key,
                    phase: CapturePhase::Record,
                    reason,
                },
                None => error,
            }
        })
    }
}
