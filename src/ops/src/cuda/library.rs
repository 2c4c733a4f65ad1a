//! The loaded kernels of one context.

use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys;
use flashrt_exec::Context;
use sha2::{Digest, Sha256};

use super::cache;
use crate::device::Module;
use crate::Error;

/// What a driver call that failed says.
pub(super) fn answer(call: &str, status: sys::CUresult) -> Result<(), String> {
    if status == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut name = std::ptr::null();
    // SAFETY: writes a pointer to a text that is part of the driver, or null.
    let known = unsafe { sys::cuGetErrorName(status, &mut name) } == sys::CUresult::CUDA_SUCCESS;
    let name = match known && !name.is_null() {
        // SAFETY: as above.
        true => unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned(),
        false => format!("status {}", status as u32),
    };
    Err(format!("{call}: {name}"))
}

/// A kernel of a loaded module.
#[derive(Clone, Copy)]
pub(super) struct Function(pub(super) sys::CUfunction);
// SAFETY: a name for the driver, which takes calls from any thread.
unsafe impl Send for Function {}

/// Lets a kernel be launched with more dynamic shared memory than the usual.
pub(super) fn allow_shared(function: Function, bytes: u32) -> Result<(), String> {
    let what = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    // SAFETY: a function of a loaded module; sets a number.
    let status = unsafe { sys::cuFuncSetAttribute(function.0, what, bytes as i32) };
    answer("cuFuncSetAttribute", status)
        .map_err(|reason| format!("{bytes} bytes of shared memory: {reason}"))
}

/// A share in the primary context of a device.
struct Primary {
    device: sys::CUdevice,
    context: sys::CUcontext,
}
// SAFETY: as for a function.
unsafe impl Send for Primary {}
// SAFETY: as for a function.
unsafe impl Sync for Primary {}

impl Primary {
    fn retain(ordinal: i32) -> Result<Primary, String> {
        let (mut device, mut context) = (0, std::ptr::null_mut());
        // SAFETY: the driver is loaded, since a context on this ordinal is open; writes a handle each.
        answer("cuDeviceGet", unsafe {
            sys::cuDeviceGet(&mut device, ordinal)
        })?;
        // SAFETY: as above.
        answer("cuDevicePrimaryCtxRetain", unsafe {
            sys::cuDevicePrimaryCtxRetain(&mut context, device)
        })?;
        Ok(Primary { device, context })
    }

    fn make_current(&self) -> Result<(), String> {
        // SAFETY: a context that is retained.
        answer("cuCtxSetCurrent", unsafe {
            sys::cuCtxSetCurrent(self.context)
        })
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        // SAFETY: gives back the share that `retain` took, once.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// A module on the device. Recorded work keeps it.
pub(super) struct Loaded {
    module: sys::CUmodule,
    functions: Mutex<BTreeMap<&'static str, Function>>,
    digest: [u8; 32],
    compiler: String,
    primary: Primary,
}
// SAFETY: a name for the driver, which takes calls from any thread.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl Drop for Loaded {
    fn drop(&mut self) {
        if self.primary.make_current().is_ok() {
            // SAFETY: loaded once, and whatever was recorded from it is gone.
            let _ = unsafe { sys::cuModuleUnload(self.module) };
        }
    }
}

/// The modules of one context, by name.
pub(super) struct Library {
    ordinal: i32,
    arch: String,
    /// Bytes of shared memory that a block can have.
    pub(super) shared: usize,
    loaded: Mutex<BTreeMap<&'static str, Arc<Loaded>>>,
}

impl Library {
    /// That of `ctx`, which is on CUDA.
    pub(super) fn of(ctx: &Context) -> Result<Arc<Library>, Error> {
        ctx.attachment(|| {
            let arch = ctx.isa().to_owned();
            check_arch(&arch)?;
            let ordinal = ctx.device_ordinal().unwrap_or(0);
            Ok(Library {
                ordinal,
                arch,
                shared: shared_limit(ordinal),
                loaded: Mutex::default(),
            })
        })
    }

    /// The module, compiled and loaded if it is not yet.
    pub(super) fn load(&self, module: &'static Module) -> Result<Arc<Loaded>, Error> {
        // Held while compiling: two threads would only do it twice.
        let mut all = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = all.get(module.name) {
            return Ok(loaded.clone());
        }
        let binary = cache::binary(module, &self.arch)?;
        let failed = |reason| Error::KernelLoad {
            file: module.name,
            arch: self.arch.clone(),
            reason,
        };
        let primary = Primary::retain(self.ordinal).map_err(failed)?;
        primary.make_current().map_err(failed)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a whole cubin, whose checksum was compared; writes one handle.
        let status = unsafe { sys::cuModuleLoadData(&mut handle, binary.cubin.as_ptr().cast()) };
        answer("cuModuleLoadData", status).map_err(failed)?;
        let loaded = Arc::new(Loaded {
            module: handle,
            functions: Mutex::default(),
            digest: Sha256::digest(&binary.cubin).into(),
            compiler: binary.compiler,
            primary,
        });
        all.insert(module.name, loaded.clone());
        Ok(loaded)
    }

    /// A kernel, and what keeps its code.
    pub(super) fn function(
        &self,
        module: &'static Module,
        kernel: &'static str,
    ) -> Result<(Function, Arc<dyn Any + Send + Sync>), Error> {
        let loaded = self.load(module)?;
        let mut functions = loaded
            .functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(kernel) {
            return Ok((*function, loaded.clone()));
        }
        let name = CString::new(kernel).unwrap_or_default();
        let mut handle = std::ptr::null_mut();
        // SAFETY: a loaded module and a name with an end; writes one handle.
        let status = unsafe { sys::cuModuleGetFunction(&mut handle, loaded.module, name.as_ptr()) };
        answer("cuModuleGetFunction", status)
            .map_err(|reason| self.failed(module, kernel, &reason))?;
        functions.insert(kernel, Function(handle));
        drop(functions);
        Ok((Function(handle), loaded))
    }

    /// The error of a kernel that cannot be used here.
    pub(super) fn failed(&self, module: &'static Module, kernel: &str, reason: &str) -> Error {
        Error::KernelLoad {
            file: module.name,
            arch: self.arch.clone(),
            reason: format!("{kernel}: {reason}"),
        }
    }

    /// `sm_90, NVRTC 13.0, sha256 of all code`.
    pub(super) fn identity(&self, modules: &[&'static Module]) -> Result<String, Error> {
        let mut all = Sha256::new();
        let mut compilers = Vec::new();
        for module in modules {
            let loaded = self.load(module)?;
            all.update(loaded.digest);
            if !compilers.contains(&loaded.compiler) {
                compilers.push(loaded.compiler.clone());
            }
        }
        let digest: String = all.finalize()[..16]
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        Ok(format!("{} {} {digest}", self.arch, compilers.join("+")))
    }
}

/// 48 KiB, which every device has, when the driver does not say.
fn shared_limit(ordinal: i32) -> usize {
    let what = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    let (mut device, mut bytes) = (0, 0);
    // SAFETY: the driver is loaded, since a context on this ordinal is open; writes a handle.
    let found = unsafe { sys::cuDeviceGet(&mut device, ordinal) };
    // SAFETY: as above; writes a number.
    let status = unsafe { sys::cuDeviceGetAttribute(&mut bytes, what, device) };
    match (found, status, usize::try_from(bytes)) {
        (sys::CUresult::CUDA_SUCCESS, sys::CUresult::CUDA_SUCCESS, Ok(bytes)) => bytes,
        _ => 48 << 10,
    }
}

/// Kernels use asynchronous copies and bf16, which start with compute capability 8.0.
fn check_arch(arch: &str) -> Result<(), Error> {
    let number = arch.strip_prefix("sm_").and_then(|n| n.parse::<u32>().ok());
    match number {
        Some(n) if n >= 80 => Ok(()),
        _ => Err(Error::KernelArch {
            arch: arch.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::check_arch;

    #[test]
    fn devices_before_8_0_are_refused_by_name() {
        for arch in ["sm_80", "sm_87", "sm_90", "sm_120"] {
            check_arch(arch).unwrap();
        }
        let error = check_arch("sm_75").unwrap_err().to_string();
        assert_eq!(
            error,
            "kernels: the device is sm_75, expected sm_80 or later"
        );
    }
}
