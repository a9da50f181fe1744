//! Files as streams: written and read sequentially from the start.
//!
//! Not here:   buffers (`std::io`).

use std::io::{self, Read, Write};
use std::sync::Arc;

use crate::File;

/// A file that is written sequentially from its start.
#[derive(Debug)]
pub struct Written {
    file: Arc<dyn File>,
    at: u64,
}

/// A file that is read sequentially from its start.
#[derive(Debug)]
pub struct Front {
    file: Arc<dyn File>,
    at: u64,
}

impl Written {
    /// For an empty file.
    pub fn begin(file: Arc<dyn File>) -> Written {
        Written { file, at: 0 }
    }

    /// Makes the written bytes durable.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

impl Front {
    /// Reads the whole file.
    pub fn of(file: Arc<dyn File>) -> Front {
        Front { file, at: 0 }
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Front {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
