//! Many copies in one submission.
//!
//! A copy costs the driver a microsecond or two whatever its size, so two hundred regions cost more than their bytes. One kernel
//! copies all pieces; its table travels as a launch parameter. Long pieces from or to the host go to the copy engines one by one:
//! these fill the bus alone, and leave the device to others.
//!
//! Tile, threads and limits are what measured best on an H200: 168 MiB in 200 pieces, against one copy of the driver.

use super::device::Device;
use super::driver::{Answer, Driver, Raw, Stream};
use crate::{Error, Slice, Space};
use cudarc::driver::sys;
use std::ffi::c_void;

/// Source in `gather.cu`. Made for an old version of the language, so that every driver of CUDA 12 takes it.
const PTX: &str = concat!(include_str!("gather.ptx"), "\0");

/// `PIECES`, `TILE` and `THREADS` of the source.
const PIECES: usize = 224;
const TILE: usize = 65_536;
const THREADS: u32 = 1024;

/// Below this a piece from or to the host goes along with those of the device: a launch of its own costs more.
const SHORT: usize = 64 << 10;

/// From here on such a piece is a copy of its own.
const LONG: usize = 4 << 20;

/// Blocks that fill the bus.
const HOST_BLOCKS: u32 = 32;

/// The loaded kernel.
pub(super) struct Gather {
    driver: &'static Driver,
    module: Raw<sys::CUmod_st>,
    function: Raw<sys::CUfunc_st>,
    /// Blocks that fill the device.
    blocks: u32,
}

/// The kernel's parameter.
#[repr(C)]
struct Pieces {
    dst_low: [u32; PIECES],
    src_low: [u32; PIECES],
    first: [u32; PIECES],
    dst_high: [u16; PIECES],
    src_high: [u16; PIECES],
    last: [u16; PIECES],
    count: u32,
    tiles: u32,
}

const _: () = assert!(size_of::<Pieces>() <= 4096 && TILE == 1 << 16);

impl Pieces {
    fn new() -> Pieces {
        Pieces {
            dst_low: [0; PIECES],
            src_low: [0; PIECES],
            first: [0; PIECES],
            dst_high: [0; PIECES],
            src_high: [0; PIECES],
            last: [0; PIECES],
            count: 0,
            tiles: 0,
        }
    }

    /// False when there is no room for one more, or it does not fit the table at all.
    fn push(&mut self, dst: &Slice, src: &Slice) -> bool {
        let (at, bytes) = (self.count as usize, dst.bytes());
        let (to, from) = (dst.as_ptr() as u64, src.as_ptr() as u64);
        let tiles = u32::try_from(bytes.div_ceil(TILE)).ok();
        let end = tiles.and_then(|n| self.tiles.checked_add(n));
        let (Some(end), true) = (end, at < PIECES && (to | from) >> 48 == 0) else {
            return false;
        };
        (self.dst_low[at], self.dst_high[at]) = (to as u32, (to >> 32) as u16);
        (self.src_low[at], self.src_high[at]) = (from as u32, (from >> 32) as u16);
        self.first[at] = self.tiles;
        self.last[at] = ((bytes - 1) % TILE) as u16;
        self.tiles = end;
        self.count += 1;
        true
    }
}

impl Gather {
    /// `None` where the driver cannot compile it: copies then go one by one.
    pub(super) fn load(device: &Device) -> Option<Gather> {
        let driver = device.driver;
        let _relaxed = device.relaxed();
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a text with an end; writes one handle. The context is current.
        unsafe { driver.cuModuleLoadData(&mut module, PTX.as_ptr().cast()) }.ok()?;
        // SAFETY: the module that was loaded, and a name with an end.
        let found =
            unsafe { driver.cuModuleGetFunction(&mut function, module, c"gather".as_ptr()) };
        let gather = Gather {
            driver,
            module: Raw(module),
            function: Raw(function),
            blocks: device.multiprocessors() * 8,
        };
        found.ok().map(|()| gather)
    }

    fn launch(&self, pieces: &mut Pieces, blocks: u32, stream: Stream) -> Answer {
        if pieces.count == 0 {
            return Ok(());
        }
        let mut parameters: [*mut c_void; 1] = [std::ptr::from_mut(pieces).cast()];
        // SAFETY: the kernel's one parameter, copied by the call. Its pieces are checked windows of equal lengths on memory that the
        // device reaches; whoever frees it waits for the streams first.
        let answer = unsafe {
            self.driver.cuLaunchKernel(
                self.function.0,
                pieces.tiles.min(blocks),
                1,
                1,
                THREADS,
                1,
                1,
                0,
                stream.0,
                parameters.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        (pieces.count, pieces.tiles) = (0, 0);
        answer
    }
}

impl Drop for Gather {
    fn drop(&mut self) {
        // SAFETY: loaded once. The context is current and its streams have ended: the device goes.
        let _ = unsafe { self.driver.cuModuleUnload(self.module.0) };
    }
}

impl Device {
    /// Submits all of `pairs`, (destination, source) each, checked.
    pub(super) fn copy_many(
        &self,
        pairs: &[(&Slice, &Slice)],
        stream: Stream,
    ) -> Result<(), Error> {
        let gather = match pairs.len() {
            0 | 1 => None,
            _ => self.gather(),
        };
        let Some(gather) = gather else {
            return pairs
                .iter()
                .try_for_each(|(dst, src)| self.check(self.copy(dst, src, stream)));
        };
        let mut lots = [(Pieces::new(), gather.blocks), (Pieces::new(), HOST_BLOCKS)];
        for &(dst, src) in pairs.iter().filter(|(dst, _)| dst.bytes() > 0) {
            let Some(lot) = lot_of(dst, src) else {
                self.check(self.copy(dst, src, stream))?;
                continue;
            };
            let (pieces, blocks) = &mut lots[lot];
            if pieces.push(dst, src) {
                continue;
            }
            self.check(gather.launch(pieces, *blocks, stream))?;
            if !pieces.push(dst, src) {
                self.check(self.copy(dst, src, stream))?;
            }
        }
        for (pieces, blocks) in &mut lots {
            self.check(gather.launch(pieces, *blocks, stream))?;
        }
        Ok(())
    }
}

/// 0: between memory of the device, 1: with the host; `None`: a copy of its own.
fn lot_of(dst: &Slice, src: &Slice) -> Option<usize> {
    let is_of_the_device = |s: &Slice| s.buffer().space() == Space::Device;
    let is_reached = |s: &Slice| s.buffer().is_reached_by_the_device();
    match (is_of_the_device(dst) && is_of_the_device(src), dst.bytes()) {
        (true, _) => Some(0),
        (false, LONG..) => None,
        (false, _) if !is_reached(dst) || !is_reached(src) => None,
        (false, bytes) => Some(usize::from(bytes >= SHORT)),
    }
}
