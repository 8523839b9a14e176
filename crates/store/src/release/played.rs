//! Lets a test binary act as the next release, to test an upgrade. It sets the release's number, schema, protocol, and
//! migrations (`tests/next`). Not compiled into a build that ships.
//!
//! Not here: what the next release brings (`migrate`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use super::SCHEMA;

/// The environment variable that sets the release of a process at its start.
const PLAYED: &str = "FOREBAY_TEST_RELEASE";

static NUMBER: LazyLock<AtomicI32> = LazyLock::new(|| {
    let given = std::env::var(PLAYED).ok().and_then(|number| number.parse().ok());
    AtomicI32::new(given.unwrap_or(super::NUMBER))
});

/// The SQL texts of the emulated release, by the address of this release's text and the number.
static TEXTS: LazyLock<Mutex<HashMap<(usize, i32), &'static str>>> = LazyLock::new(Mutex::default);

/// From now on this process acts as release `number`.
pub fn play(number: i32) {
    NUMBER.store(number, Ordering::Relaxed);
}

pub(crate) fn number() -> i32 {
    NUMBER.load(Ordering::Relaxed)
}

pub(crate) fn protocol() -> i32 {
    super::PROTOCOL + number() - super::NUMBER
}

/// Does this process act as the synthetic next release?
pub(crate) fn is_next() -> bool {
    number() > super::NUMBER
}

/// Returns an SQL text with the schema name of the emulated release.
pub(crate) fn text(text: &'static str) -> &'static str {
    let number = number();
    if number == super::NUMBER {
        return text;
    }
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = texts.entry((text.as_ptr() as usize, number));
    known.or_insert_with(|| text.replace(SCHEMA, &format!("forebay_r{number}")).leak())
}
