//! Computes the length of a value as compact JSON, without writing the JSON.
//!
//! Invariants
//! - The computation allocates nothing, and stops as soon as the length exceeds the limit.

use std::io;

use serde_json::Value;

/// The bytes that are left of a limit after a value. Returns `None` if the value is longer than the limit.
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
