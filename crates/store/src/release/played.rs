//! Lets one binary play the next release, so that a test can upgrade to it: its number, the schema of its functions,
//! its protocol, and what it brings (`tests/next`). Not in a build that ships.
//!
//! Not here: what the next release brings (`migrate`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use super::SCHEMA;

/// Says which release a process plays from its start.
const PLAYED: &str = "FOREBAY_TEST_RELEASE";

static NUMBER: LazyLock<AtomicI32> = LazyLock::new(|| {
    let given = std::env::var(PLAYED).ok().and_then(|number| number.parse().ok());
    AtomicI32::new(given.unwrap_or(super::NUMBER))
});

/// The texts of the release that is played, by the address of this release's own and the number.
static TEXTS: LazyLock<Mutex<HashMap<(usize, i32), &'static str>>> = LazyLock::new(Mutex::default);

/// From now on this process is of the release `number`.
pub fn play(number: i32) {
    NUMBER.store(number, Ordering::Relaxed);
}

pub(crate) fn number() -> i32 {
    NUMBER.load(Ordering::Relaxed)
}

pub(crate) fn protocol() -> i32 {
    super::PROTOCOL + number() - super::NUMBER
}

/// Does this process play the synthetic next release?
pub(crate) fn is_next() -> bool {
    number() > super::NUMBER
}

/// A text of ours, with the functions of the release that is played.
pub(crate) fn text(text: &'static str) -> &'static str {
    let number = number();
    if number == super::NUMBER {
        return text;
    }
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = texts.entry((text.as_ptr() as usize, number));
    known.or_insert_with(|| text.replace(SCHEMA, &format!("forebay_r{number}")).leak())
}
