//! Named memory at a fixed address, and windows on it.

use crate::cpu::CpuMemory;
use crate::cuda::CudaMemory;
use crate::foreign::ForeignMemory;
use crate::{Error, Space};
use std::sync::Arc;

/// Named memory of one context at an address that never changes.
///
/// A handle: clones share the memory, which is freed with the last clone. Graphs and queued work hold
/// clones of what they touch, so dropping yours never pulls memory from under them.
#[derive(Clone)]
pub struct Buffer {
    inner: Arc<Inner>,
}

struct Inner {
    name: Box<str>,
    space: Space,
    bytes: usize,
    addr: usize,
    id: u64,
    context: u64,
    memory: Memory,
}

/// The memory behind a buffer, freed on drop.
pub(crate) enum Memory {
    Cpu(CpuMemory),
    Cuda(CudaMemory),
    Foreign(ForeignMemory),
}

impl Memory {
    fn ptr(&self) -> *mut u8 {
        match self {
            Memory::Cpu(m) => m.ptr(),
            Memory::Cuda(m) => m.ptr(),
            Memory::Foreign(m) => m.ptr(),
        }
    }
}

impl Buffer {
    pub(crate) fn new(
        name: &str,
        space: Space,
        bytes: usize,
        context: u64,
        memory: Memory,
    ) -> Buffer {
        let (addr, id) = (memory.ptr() as usize, crate::context::next_id());
        Buffer {
            inner: Arc::new(Inner {
                name: name.into(),
                space,
                bytes,
                addr,
                id,
                context,
                memory,
            }),
        }
    }

    /// The name given at allocation. Names need not be unique.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Length in bytes. 0 only for wrapped and adopted memory.
    pub fn bytes(&self) -> usize {
        self.inner.bytes
    }

    /// Where the memory lives.
    pub fn space(&self) -> Space {
        self.inner.space
    }

    /// Address of the first byte: a device address in device space. 64-byte aligned in both, unless the
    /// memory is wrapped or foreign: then it is what its owner says.
    pub fn addr(&self) -> usize {
        self.inner.addr
    }

    /// Number of this buffer, unique in the process and never reused. Never 0.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// The whole buffer as a window.
    pub fn all(&self) -> Slice {
        Slice {
            buffer: self.clone(),
            offset: 0,
            bytes: self.bytes(),
        }
    }

    /// The window of `len` bytes at `offset`. Empty windows are legal up to the end.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] when the window leaves the buffer or its end overflows.
    pub fn slice(&self, offset: usize, len: usize) -> Result<Slice, Error> {
        self.check(offset, len)?;
        Ok(Slice {
            buffer: self.clone(),
            offset,
            bytes: len,
        })
    }

    /// Writes `data` at `offset`, at once. Allocates nothing.
    ///
    /// Streams are not waited for: queued work that touches these bytes may run before or after.
    /// Synchronise first where that matters.
    ///
    /// # Errors
    /// [`Error::WrongSpace`] in device space, then [`Error::OutOfRange`]; [`Error::Busy`] from inside a
    /// kernel or another host access.
    pub fn host_write(&self, offset: usize, data: &[u8]) -> Result<(), Error> {
        self.host_access("host_write", |bytes| {
            self.check(offset, data.len())?;
            bytes[offset..offset + data.len()].copy_from_slice(data);
            Ok(())
        })?
    }

    /// Fills `out` with the bytes at `offset`, at once. Allocates nothing. Streams are not waited for.
    ///
    /// # Errors
    /// As [`Buffer::host_write`].
    pub fn host_read(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        self.host_access("host_read", |bytes| {
            self.check(offset, out.len())?;
            out.copy_from_slice(&bytes[offset..offset + out.len()]);
            Ok(())
        })?
    }

    /// Gives `f` all bytes of the buffer in place. Allocates nothing. Streams are not waited for, and no
    /// kernel of the host runs meanwhile: calls from `f` into the context answer [`Error::Busy`]. A GPU may
    /// be copying: synchronise first what touches these bytes.
    ///
    /// # Errors
    /// [`Error::WrongSpace`] in device space; [`Error::Busy`] from inside a kernel or another host access.
    pub fn host_with_mut<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> Result<R, Error> {
        self.host_access("host_with_mut", f)
    }

    fn host_access<R>(
        &self,
        call: &'static str,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Error> {
        if self.space() != Space::Host {
            return Err(Error::WrongSpace {
                buffer: self.name().into(),
                expected: Space::Host,
                got: self.space(),
            });
        }
        match &self.inner.memory {
            Memory::Cpu(m) => m.with_mut(call, f),
            Memory::Cuda(m) => m.with_mut(call, f),
            Memory::Foreign(m) => m.with_mut(call, f),
        }
    }

    /// True for memory that kernels of a GPU may touch.
    #[cfg(feature = "cuda")]
    pub(crate) fn is_reached_by_the_device(&self) -> bool {
        matches!(&self.inner.memory, Memory::Cuda(m) if m.is_reached_by_the_device())
    }

    fn check(&self, offset: usize, len: usize) -> Result<(), Error> {
        match offset.checked_add(len) {
            Some(end) if end <= self.bytes() => Ok(()),
            _ => Err(Error::OutOfRange {
                buffer: self.name().into(),
                offset,
                len,
                bytes: self.bytes(),
            }),
        }
    }

    /// The memory, if it belongs to a foreign context.
    pub(crate) fn foreign(&self) -> Option<&ForeignMemory> {
        match &self.inner.memory {
            Memory::Foreign(memory) => Some(memory),
            _ => None,
        }
    }

    /// Refuses a buffer of another context.
    pub(crate) fn check_context(&self, context: u64) -> Result<(), Error> {
        if self.inner.context == context {
            return Ok(());
        }
        Err(Error::ForeignContext {
            what: "buffer",
            name: self.name().into(),
        })
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Buffer({:?} #{}, {} bytes, {})",
            self.name(),
            self.id(),
            self.bytes(),
            self.space()
        )
    }
}

/// A checked window on a buffer. Holding it keeps the buffer alive.
#[derive(Clone, Debug)]
pub struct Slice {
    buffer: Buffer,
    offset: usize,
    bytes: usize,
}

impl Slice {
    /// The buffer that it looks at.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Start in the buffer, in bytes.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A window inside this one; `offset` counts from the start of this window.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], with offsets as the caller gave them and the length of this window.
    pub fn slice(&self, offset: usize, len: usize) -> Result<Slice, Error> {
        match offset.checked_add(len) {
            Some(end) if end <= self.bytes => Ok(Slice {
                buffer: self.buffer.clone(),
                offset: self.offset + offset,
                bytes: len,
            }),
            _ => Err(Error::OutOfRange {
                buffer: self.buffer.name().into(),
                offset,
                len,
                bytes: self.bytes,
            }),
        }
    }

    /// Address of the first byte of the window.
    ///
    /// Whoever dereferences it (that is `unsafe`) must do so inside a host kernel that was recorded
    /// with this window, or one around it, among its `touches`, and must stay inside
    /// `..as_ptr() + bytes()`. Then the buffer is alive and no other kernel and no host access of the
    /// context runs; the tasks of one kernel must keep their writes apart themselves.
    pub fn as_ptr(&self) -> *mut u8 {
        self.buffer.inner.memory.ptr().wrapping_add(self.offset)
    }

    /// Refuses a copy that no backend could run: unequal lengths, shared bytes.
    pub(crate) fn check_copy_from(&self, src: &Slice) -> Result<(), Error> {
        if self.bytes != src.bytes {
            return Err(Error::LengthMismatch {
                dst: self.buffer.name().into(),
                dst_bytes: self.bytes,
                src: src.buffer.name().into(),
                src_bytes: src.bytes,
            });
        }
        // By address, since two wrapped buffers may share bytes.
        let (dst_addr, src_addr) = (self.as_ptr() as usize, src.as_ptr() as usize);
        if dst_addr.abs_diff(src_addr) < self.bytes {
            return Err(Error::Overlap {
                buffer: self.buffer.name().into(),
                src: src.offset,
                dst: self.offset,
                bytes: self.bytes,
            });
        }
        Ok(())
    }
}
