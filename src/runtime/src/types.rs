//! Enumerations of a declaration with their numbers on the binary interface.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

macro_rules! open_enum {
    ($(#[$m:meta])* $name:ident { $($(#[$vm:meta])* $v:ident = $n:literal, $s:literal;)* }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$vm])* $v,)*
            /// A number without a meaning here. Foreign producers may declare one; it is kept and printed
            /// in the identity as it is.
            Other(u32),
        }
        impl $name {
            /// The number used on the binary interface and in the identity text.
            pub const fn code(self) -> u32 {
                match self { $($name::$v => $n,)* $name::Other(n) => n }
            }
            /// The value with number `code`; unknown numbers become `Other`.
            pub const fn from_code(code: u32) -> Self {
                match code { $($n => $name::$v,)* n => $name::Other(n) }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $($name::$v => f.pad($s),)* $name::Other(n) => write!(f, "other({n})") }
            }
        }
    };
}

macro_rules! closed_enum {
    ($(#[$m:meta])* $name:ident { $($(#[$vm:meta])* $v:ident = $n:literal, $s:literal;)* }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum $name { $($(#[$vm])* $v = $n,)* }
        impl $name {
            /// The number used on the binary interface and in the identity text.
            pub const fn code(self) -> u32 { self as u32 }
            /// The value with number `code`, or `None` when no such value exists.
            pub const fn from_code(code: u32) -> Option<Self> {
                match code { $($n => Some($name::$v),)* _ => None }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $($name::$v => f.pad($s),)* }
            }
        }
    };
}

open_enum! {
    /// What the payload of a port means.
    Modality {
        /// Raw elements without a further meaning.
        Tensor = 0, "TENSOR";
        /// Camera images, one [`crate::ImageView`] per view, matched by position.
        Image = 1, "IMAGE";
        /// UTF-8 text.
        Text = 2, "TEXT";
        /// Robot state vector.
        State = 3, "STATE";
        /// Action chunk.
        Action = 4, "ACTION";
        /// PCM samples.
        Audio = 5, "AUDIO";
        /// Depth images.
        Depth = 6, "DEPTH";
        /// Force or torque vector.
        Force = 7, "FORCE";
    }
}

open_enum! {
    /// Element type of a port, device side.
    PortDType {
        /// Unsigned byte.
        U8 = 0, "U8";
        /// IEEE binary32.
        F32 = 1, "F32";
        /// IEEE binary16.
        F16 = 2, "F16";
        /// bfloat16.
        BF16 = 3, "BF16";
        /// Signed 32-bit integer.
        I32 = 4, "I32";
        /// Signed 64-bit integer.
        I64 = 5, "I64";
    }
}

impl PortDType {
    /// Bytes of one element; 0 for an unknown type.
    pub const fn bytes(self) -> usize {
        match self {
            PortDType::U8 => 1,
            PortDType::F16 | PortDType::BF16 => 2,
            PortDType::F32 | PortDType::I32 => 4,
            PortDType::I64 => 8,
            PortDType::Other(_) => 0,
        }
    }
}

open_enum! {
    /// Order of the dimensions of a port.
    Layout {
        /// No image meaning, row-major.
        Flat = 0, "FLAT";
        /// Height, width, channel.
        Hwc = 1, "HWC";
        /// View, height, width, channel.
        Nhwc = 2, "NHWC";
        /// Channel, height, width.
        Chw = 3, "CHW";
        /// View, channel, height, width.
        Nchw = 4, "NCHW";
    }
}

open_enum! {
    /// Channel order of an image view.
    PixelFormat {
        /// Red, green, blue, 8 bits each.
        Rgb8 = 0, "RGB8";
        /// Blue, green, red, 8 bits each.
        Bgr8 = 1, "BGR8";
        /// Red, green, blue, alpha, 8 bits each.
        Rgba8 = 2, "RGBA8";
        /// Blue, green, red, alpha, 8 bits each.
        Bgra8 = 3, "BGRA8";
        /// One 8-bit grey channel.
        Gray8 = 4, "GRAY8";
    }
}

impl PixelFormat {
    /// Bytes of one pixel; 0 for an unknown format.
    pub const fn bytes(self) -> usize {
        match self {
            PixelFormat::Rgb8 | PixelFormat::Bgr8 => 3,
            PixelFormat::Rgba8 | PixelFormat::Bgra8 => 4,
            PixelFormat::Gray8 => 1,
            PixelFormat::Other(_) => 0,
        }
    }
}

closed_enum! {
    /// Which way a port carries data.
    Direction {
        /// Into the model.
        In = 0, "IN";
        /// Out of the model.
        Out = 1, "OUT";
    }
}

closed_enum! {
    /// When and how a port may be written or read.
    Update {
        /// Bytes are exchanged with the port's window, between two replays, hot.
        Swap = 0, "SWAP";
        /// Goes through the model's verb (a transform), hot.
        Staged = 1, "STAGED";
        /// Fixed while the live set is hot.
        Setup = 2, "SETUP";
    }
}

closed_enum! {
    /// What executes a generic stage.
    ExecutorKind {
        /// A declared graph.
        Graph = 0, "GRAPH";
        /// The producer's own runner.
        Opaque = 1, "OPAQUE";
    }
}

/// State class of a region. *World* state (epoch, counters, clocks) is never in a buffer, so it has no value here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StateClass {
    /// The next tick depends on it: saved in a capsule.
    Continuation,
    /// Rows that could still be emitted: cleared at a new epoch, never saved.
    Output,
    /// Rewritten before it is read in every tick: neither saved nor cleared.
    Scratch,
}

impl fmt::Display for StateClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            StateClass::Continuation => "continuation",
            StateClass::Output => "output",
            StateClass::Scratch => "scratch",
        })
    }
}

macro_rules! bits {
    ($(#[$m:meta])* $name:ident { $($(#[$vm:meta])* $v:ident = $n:literal;)* }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(
            /// The bits as a number.
            pub u32,
        );
        impl $name {
            $($(#[$vm])* pub const $v: $name = $name($n);)*
            /// No bit set.
            pub const NONE: $name = $name(0);
            /// True when every bit of `other` is set.
            pub const fn contains(self, other: $name) -> bool { self.0 & other.0 == other.0 }
            /// Both sets of bits; usable in constants.
            pub const fn union(self, other: $name) -> $name { $name(self.0 | other.0) }
        }
        impl BitOr for $name {
            type Output = $name;
            fn bitor(self, other: $name) -> $name { self.union(other) }
        }
        impl BitOrAssign for $name {
            fn bitor_assign(&mut self, other: $name) { *self = self.union(other); }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut left = self.0;
                let mut sep = "";
                $(if left & $n != 0 { write!(f, "{sep}{}", stringify!($v))?; sep = "|"; left &= !$n; })*
                if left != 0 { write!(f, "{sep}{left:#x}")?; } else if sep.is_empty() { f.write_str("NONE")?; }
                Ok(())
            }
        }
    };
}

bits! {
    /// What a buffer is for (bits).
    Role {
        /// Written from outside before a tick.
        INPUT = 1;
        /// Read from outside after a tick.
        OUTPUT = 2;
        /// Carries state from tick to tick.
        STATE = 4;
        /// Working memory of one tick.
        SCRATCH = 8;
    }
}

bits! {
    /// What may be done with a region (bits).
    RegionFlags {
        /// The region is copied into a snapshot.
        SNAPSHOT = 1;
        /// The region is written by a restore.
        RESTORE = 2;
    }
}
