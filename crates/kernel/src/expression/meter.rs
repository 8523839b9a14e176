//! How long a value is as compact JSON, without writing it.
//!
//! Invariants
//! - Weighing allocates nothing and stops as soon as the value is too heavy.

use std::io;

use serde_json::Value;

/// What is left of a limit after a value, or nothing if it is too heavy.
pub(crate) fn weigh(value: &Value, left: usize) -> Option<usize> {
    let mut meter = Meter { left };
    serde_json::to_writer(&mut meter, value).ok().map(|()| meter.left)
}

struct Meter {
    left: usize,
}

impl io::Write for Meter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
