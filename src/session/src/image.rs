//! The image boundary.

/// Most views of one image port.
pub const MAX_VIEWS: usize = 8;
