//! Sizes of blocks: which are rounded up to which.
//!
//! Up to 1 KiB a block has one of 32 classes and comes from a span, 64 KiB of blocks of one class.
//! Above, it is a run of 256-byte units.

/// Every block is aligned to this at least, and every size a multiple of it.
pub const ALIGNMENT: usize = 16;
/// The largest block that comes from a span.
pub const SMALL_MAX: usize = 1024;
/// Classes are numbered from 1: 16, 32 .. 256, 288 .. 512, 576 .. 1024 bytes. 0 is no class.
pub const CLASSES: usize = 33;
pub const SPAN_BYTES: usize = 64 * 1024;
pub const UNIT: usize = 256;
pub const PAGE: usize = 4096;
pub const UNITS_PER_PAGE: usize = PAGE / UNIT;
/// Runs are longer than a block may ever be asked for: the unit map has 29 bits for a length.
pub const SIZE_MAX: usize = (1 << 29) * UNIT - 2 * PAGE;

const fn bytes_of(class: usize) -> usize {
    match class {
        0..=16 => class * 16,
        17..=24 => 256 + (class - 16) * 32,
        _ => 512 + (class - 24) * 64,
    }
}

const BYTES: [u16; CLASSES] = {
    let mut table = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        table[class] = bytes_of(class) as u16;
        class += 1;
    }
    table
};

const CLASS: [u8; SMALL_MAX / ALIGNMENT + 1] = {
    let mut table = [0; SMALL_MAX / ALIGNMENT + 1];
    let mut class = 1;
    let mut granule = 0;
    while granule < table.len() {
        if granule * ALIGNMENT > bytes_of(class) {
            class += 1;
        }
        table[granule] = class as u8;
        granule += 1;
    }
    table
};

/// The class for a block of `size` bytes, which is at most [`SMALL_MAX`]. No bytes take the
/// smallest block.
#[inline(always)]
pub fn class_of(size: usize) -> usize {
    debug_assert!(size <= SMALL_MAX);
    usize::from(CLASS[size.div_ceil(ALIGNMENT)])
}

/// The class for a block of `size` bytes at a multiple of `alignment`: spans begin at pages, so a
/// class serves if its size is a multiple of the alignment.
pub fn aligned_class_of(size: usize, alignment: usize) -> Option<usize> {
    (size <= SMALL_MAX && alignment <= SMALL_MAX).then(|| {
        (class_of(size)..CLASSES).find(|class| class_bytes(*class).is_multiple_of(alignment))
    })?
}

#[inline(always)]
pub fn class_bytes(class: usize) -> usize {
    usize::from(BYTES[class])
}

/// How many blocks of a class change threads at once: 64 KiB of them.
#[inline(always)]
pub fn batch(class: usize) -> usize {
    SPAN_BYTES / class_bytes(class)
}

/// Units of a run that holds `size` bytes.
#[inline(always)]
pub fn units_of(size: usize) -> usize {
    size.div_ceil(UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_the_smallest_that_holds_the_size() {
        for size in 0..=SMALL_MAX {
            let class = class_of(size);
            assert!(class_bytes(class) >= size.max(1), "{size}");
            assert!(class == 1 || class_bytes(class - 1) < size, "{size}");
            assert!(class_bytes(class).is_multiple_of(ALIGNMENT));
        }
        assert_eq!(class_bytes(CLASSES - 1), SMALL_MAX);
    }

    #[test]
    fn an_aligned_class_has_a_size_that_is_a_multiple() {
        for alignment in [16, 32, 64, 128, 256, 512, 1024] {
            for size in 0..=SMALL_MAX {
                let class =
                    aligned_class_of(size, alignment).expect("1024 is a multiple of all of them");
                assert!(class_bytes(class) >= size && class_bytes(class).is_multiple_of(alignment));
            }
        }
        assert_eq!(aligned_class_of(16, 2048), None);
        assert_eq!(aligned_class_of(1025, 16), None);
    }
}
