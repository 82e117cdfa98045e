//! Statements in a temporary file, in parts that can be read back in another order.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};

use super::error::CorrectionError;

/// A temporary file without a name. It is gone when this is dropped.
#[derive(Debug)]
pub(super) struct Spool {
    file: BufWriter<File>,
    length: u64,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    name: String,
    begin: u64,
    /// Where each piece begins, if they are to be read back from the last to the first.
    reversed: Option<Vec<u64>>,
}

impl Spool {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            file: BufWriter::with_capacity(64 * 1024, tempfile::tempfile()?),
            length: 0,
            parts: Vec::new(),
        })
    }

    /// What is written from now on belongs to this part, which is read back with its pieces in
    /// `reversed` order or as it is.
    pub fn begin(&mut self, name: &str, reversed: bool) {
        self.parts.push(Part {
            name: name.to_owned(),
            begin: self.length,
            reversed: reversed.then(Vec::new),
        });
    }

    /// Writes one piece.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
        if let Some(part) = self.parts.last_mut()
            && let Some(pieces) = &mut part.reversed
        {
            pieces.push(self.length);
        }
        self.length += text.len() as u64;
        self.file.write_all(text.as_bytes())
    }

    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.parts.iter().map(|part| part.name.as_str())
    }

    pub fn copy(&mut self, target: &mut (dyn Write + Send)) -> Result<(), CorrectionError> {
        self.copy_range(0, self.length, target)
    }

    pub fn copy_part(
        &mut self,
        part: &str,
        target: &mut (dyn Write + Send),
    ) -> Result<(), CorrectionError> {
        let Some(index) = self.parts.iter().position(|known| known.name == part) else {
            return Ok(());
        };
        let mut end = self
            .parts
            .get(index + 1)
            .map_or(self.length, |next| next.begin);
        let Some(pieces) = self.parts[index].reversed.take() else {
            return self.copy_range(self.parts[index].begin, end, target);
        };
        for begin in pieces.into_iter().rev() {
            self.copy_range(begin, end, target)?;
            end = begin;
        }
        Ok(())
    }

    fn copy_range(
        &mut self,
        from: u64,
        to: u64,
        target: &mut (dyn Write + Send),
    ) -> Result<(), CorrectionError> {
        self.file.flush().map_err(CorrectionError::Temporary)?;
        let file = self.file.get_mut();
        file.seek(SeekFrom::Start(from))
            .map_err(CorrectionError::Temporary)?;
        let mut rest = to - from;
        let mut buffer = vec![0; 64 * 1024];
        while rest > 0 {
            let wanted = buffer
                .len()
                .min(usize::try_from(rest).unwrap_or(buffer.len()));
            let piece = &mut buffer[..wanted];
            file.read_exact(piece).map_err(CorrectionError::Temporary)?;
            target.write_all(piece).map_err(CorrectionError::Write)?;
            rest -= wanted as u64;
        }
        Ok(())
    }
}
