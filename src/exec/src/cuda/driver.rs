//! The functions of libcuda that this crate calls, looked up once.
//!
//! Types and signatures are those of the bindings, checked while compiling. Status codes stay plain
//! numbers, because a driver newer than the bindings may answer with one that they do not list.

use cudarc::driver::sys::{self, CUdeviceptr, CUresult};
use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void, CStr};
use std::sync::OnceLock;

/// A driver call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) call: &'static str,
    pub(super) code: u32,
}

pub(super) type Answer = Result<(), Failure>;

/// A handle of the driver, usable from any thread.
pub(super) struct Raw<T>(pub(super) *mut T);

impl<T> Clone for Raw<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Raw<T> {}

// SAFETY: the pointer is an opaque name for the driver, which takes calls from any thread. Nothing here
// looks behind it.
unsafe impl<T> Send for Raw<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Raw<T> {}

pub(super) type Stream = Raw<sys::CUstream_st>;
pub(super) type GraphExec = Raw<sys::CUgraphExec_st>;

macro_rules! driver {
    (
        as_in_the_bindings { $($name:ident($($arg:ident: $ty:ty),*);)* }
        otherwise { $($own_name:ident($($own_arg:ident: $own_ty:ty),*);)* }
    ) => {
        $(const _: unsafe fn($($ty),*) -> CUresult = sys::$name;)*
        driver!(@table $($name($($arg: $ty),*);)* $($own_name($($own_arg: $own_ty),*);)*);
    };
    (@table $($name:ident($($arg:ident: $ty:ty),*);)*) => {
        /// Every function that is called, so that a driver that lacks one is refused as a whole.
        #[allow(non_snake_case)]
        pub(super) struct Driver {
            $($name: unsafe extern "C" fn($($ty),*) -> c_uint,)*
        }

        #[allow(non_snake_case)]
        impl Driver {
            fn load() -> Result<Driver, String> {
                Ok(Driver {
                    // SAFETY: the field has the function's signature; an enum of the driver is an unsigned int.
                    $($name: unsafe { symbol(stringify!($name))? },)*
                })
            }

            $(
                /// # Safety
                /// What the driver's documentation asks of the caller.
                #[inline]
                #[allow(clippy::too_many_arguments)] // the driver's
                pub(super) unsafe fn $name(&self, $($arg: $ty),*) -> Answer {
                    // SAFETY: the caller's promise.
                    match unsafe { (self.$name)($($arg),*) } {
                        0 => Ok(()),
                        code => Err(Failure { call: stringify!($name), code }),
                    }
                }
            )*
        }
    };
}

driver! {
    as_in_the_bindings {
        cuInit(flags: c_uint);
        cuDeviceGetCount(count: *mut c_int);
        cuDeviceGet(device: *mut sys::CUdevice, ordinal: c_int);
        cuDeviceGetAttribute(value: *mut c_int, attribute: sys::CUdevice_attribute, device: sys::CUdevice);
        cuDeviceTotalMem_v2(bytes: *mut usize, device: sys::CUdevice);
        cuDevicePrimaryCtxRetain(context: *mut sys::CUcontext, device: sys::CUdevice);
        cuDevicePrimaryCtxRelease_v2(device: sys::CUdevice);
        cuCtxGetCurrent(context: *mut sys::CUcontext);
        cuCtxSetCurrent(context: sys::CUcontext);
        cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
        cuThreadExchangeStreamCaptureMode(mode: *mut sys::CUstreamCaptureMode);
        cuStreamCreateWithPriority(stream: *mut sys::CUstream, flags: c_uint, priority: c_int);
        cuStreamDestroy_v2(stream: sys::CUstream);
        cuStreamGetPriority(stream: sys::CUstream, priority: *mut c_int);
        cuStreamSynchronize(stream: sys::CUstream);
        cuStreamWaitEvent(stream: sys::CUstream, event: sys::CUevent, flags: c_uint);
        cuStreamIsCapturing(stream: sys::CUstream, status: *mut sys::CUstreamCaptureStatus);
        cuStreamBeginCapture_v2(stream: sys::CUstream, mode: sys::CUstreamCaptureMode);
        cuStreamEndCapture(stream: sys::CUstream, graph: *mut sys::CUgraph);
        cuEventCreate(event: *mut sys::CUevent, flags: c_uint);
        cuEventDestroy_v2(event: sys::CUevent);
        cuEventRecord(event: sys::CUevent, stream: sys::CUstream);
        cuEventQuery(event: sys::CUevent);
        cuEventSynchronize(event: sys::CUevent);
        cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
        cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
        cuMemFree_v2(address: CUdeviceptr);
        cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
        cuMemFreeHost(address: *mut c_void);
        cuPointerGetAttribute(value: *mut c_void, attribute: sys::CUpointer_attribute, address: CUdeviceptr);
        cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: sys::CUstream);
        cuMemcpyDtoDAsync_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: sys::CUstream);
        cuMemcpyHtoDAsync_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: sys::CUstream);
        cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: sys::CUstream);
        cuMemsetD8Async(dst: CUdeviceptr, value: c_uchar, bytes: usize, stream: sys::CUstream);
        cuLaunchHostFunc(stream: sys::CUstream, function: sys::CUhostFn, data: *mut c_void);
        cuModuleLoadData(module: *mut sys::CUmodule, image: *const c_void);
        cuModuleUnload(module: sys::CUmodule);
        cuModuleGetFunction(function: *mut sys::CUfunction, module: sys::CUmodule, name: *const c_char);
        cuLaunchKernel(function: sys::CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
            block_y: c_uint, block_z: c_uint, shared: c_uint, stream: sys::CUstream, parameters: *mut *mut c_void,
            extra: *mut *mut c_void);
        cuGraphInstantiateWithFlags(executable: *mut sys::CUgraphExec, graph: sys::CUgraph, flags: c_ulonglong);
        cuGraphDestroy(graph: sys::CUgraph);
        cuGraphExecDestroy(executable: sys::CUgraphExec);
        cuGraphLaunch(executable: sys::CUgraphExec, stream: sys::CUstream);
    }
    // Codes as numbers; and a version that every driver of CUDA 12 has, which the bindings left behind.
    otherwise {
        cuGetErrorName(code: c_uint, text: *mut *const c_char);
        cuGetErrorString(code: c_uint, text: *mut *const c_char);
        cuStreamGetCaptureInfo_v2(stream: sys::CUstream, status: *mut c_uint, id: *mut u64,
            graph: *mut sys::CUgraph, dependencies: *mut *const sys::CUgraphNode, count: *mut usize);
    }
}

/// The function `name` of the driver library.
///
/// # Safety
/// The library is present, and `F` is the type of a pointer to that function.
unsafe fn symbol<F: Copy>(name: &str) -> Result<F, String> {
    // SAFETY: the caller's promise; the library stays loaded to the end of the process.
    match unsafe { sys::culib().get::<F>(name.as_bytes()) } {
        Ok(symbol) => Ok(*symbol),
        Err(_) => Err(format!(
            "libcuda has no {name}: a driver of CUDA 12 or later is needed"
        )),
    }
}

impl Driver {
    /// The driver, initialised; or why there is none.
    pub(super) fn get() -> Result<&'static Driver, String> {
        static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();
        let loaded = DRIVER.get_or_init(|| {
            // SAFETY: loading libcuda runs its constructors, as any program linked to it does.
            if !unsafe { sys::is_culib_present() } {
                return Err("libcuda is not found: no NVIDIA driver is installed here".into());
            }
            Driver::load()
        });
        let driver = loaded.as_ref().map_err(String::clone)?;
        // SAFETY: 0 is the only flag there is; repeated calls are legal.
        unsafe { driver.cuInit(0) }.map_err(|failure| driver.text(failure))?;
        Ok(driver)
    }

    /// What a failure is called and means, such as `cuInit: CUDA_ERROR_NO_DEVICE (100), no ... is detected`.
    pub(super) fn text(&self, failure: Failure) -> String {
        format!("{}: {}", failure.call, self.meaning(failure.code))
    }

    pub(super) fn meaning(&self, code: u32) -> String {
        let (mut name, mut words) = (std::ptr::null(), std::ptr::null());
        // SAFETY: writes one pointer each, null for an unknown code.
        let _ = unsafe { self.cuGetErrorName(code, &mut name) };
        // SAFETY: as above.
        let _ = unsafe { self.cuGetErrorString(code, &mut words) };
        let text = |pointer: *const c_char| {
            // SAFETY: null, or a string that is part of the library.
            (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy())
        };
        match (text(name), text(words)) {
            (Some(name), Some(words)) => format!("{name} ({code}), {words}"),
            (Some(name), None) => format!("{name} ({code})"),
            _ => format!("status {code}"),
        }
    }
}

/// True for failures after which the primary context answers nothing else to the end of the process.
pub(super) fn spoils_the_context(code: u32) -> bool {
    const CODES: [CUresult; 15] = [
        CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
        CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE,
        CUresult::CUDA_ERROR_CONTAINED,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
        CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
        CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
        CUresult::CUDA_ERROR_ASSERT,
        CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
        CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
        CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
        CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
        CUresult::CUDA_ERROR_INVALID_PC,
        CUresult::CUDA_ERROR_LAUNCH_FAILED,
        CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK,
        CUresult::CUDA_ERROR_EXTERNAL_DEVICE,
    ];
    CODES.iter().any(|&known| known as u32 == code)
}

/// True when a request for memory was too large for what there is.
pub(super) fn is_out_of_memory(failure: Failure) -> bool {
    // The driver calls some absurd lengths invalid.
    failure.code == CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32
        || failure.code == CUresult::CUDA_ERROR_INVALID_VALUE as u32
}

pub(super) fn is_not_ready(failure: Failure) -> bool {
    failure.code == CUresult::CUDA_ERROR_NOT_READY as u32
}
