//! Text of a bounded length in shared memory.

use std::fmt;

/// A string of at most `N` bytes inside a fixed layout. What does not fit is cut off at a character
/// boundary.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text<const N: usize> {
    length: u32,
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    pub const fn new() -> Self {
        Text {
            length: 0,
            bytes: [0; N],
        }
    }

    pub fn from_text(text: &str) -> Self {
        let mut made = Self::new();
        made.set(text);
        made
    }

    pub fn set(&mut self, text: &str) {
        self.length = 0;
        let _ = fmt::Write::write_str(self, text);
    }

    /// The text; empty when the bytes are not UTF-8, which only a damaged file can bring about.
    pub fn as_str(&self) -> &str {
        let length = (self.length as usize).min(N);
        std::str::from_utf8(&self.bytes[..length]).unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let start = (self.length as usize).min(N);
        let mut room = (N - start).min(text.len());
        while !text.is_char_boundary(room) {
            room -= 1;
        }
        self.bytes[start..start + room].copy_from_slice(&text.as_bytes()[..room]);
        self.length = (start + room) as u32;
        Ok(())
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn what_does_not_fit_is_cut_off_between_characters() {
        let mut text = Text::<5>::new();
        write!(text, "ab").unwrap();
        write!(text, "cdé!").unwrap();
        assert_eq!(text.as_str(), "abcd");
    }
}
