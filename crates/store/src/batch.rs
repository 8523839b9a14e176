//! Keeps the items of a batch independent: an item with bad data fails alone, and is found by halving the batch.
//!
//! Invariants
//! - If the database refuses a batch because of its data, the batch is split until each bad item is alone. All other
//!   items succeed.
//! - If a batch fails for a transient reason, the caller repeats the whole batch. Every batch statement can be
//!   repeated: its rows have unique keys.
//!
//! Not here: what happens to a bad item (the caller decides), which items form a batch (`gather`).

mod gather;

use crate::Error;

pub use gather::{GatherLimits, gather};

/// The result of one item of a batch.
#[derive(Debug)]
pub enum BatchResult<T> {
    Done(T),
    /// The database refused this item's data.
    Refused(Error),
}

/// Runs `call` over `items` and halves the batch where its data is refused. Results are in the order of the items.
/// `call` must return one value per item.
pub async fn by_halves<'a, I, T, F, R>(items: &'a [I], mut call: F) -> Result<Vec<BatchResult<T>>, Error>
where
    F: FnMut(&'a [I]) -> R,
    R: Future<Output = Result<Vec<T>, Error>>,
{
    let mut results: Vec<Option<BatchResult<T>>> = items.iter().map(|_| None).collect();
    let mut open: Vec<_> = std::iter::once(0..items.len()).collect();
    while let Some(range) = open.pop() {
        if range.is_empty() {
            continue;
        }
        match call(&items[range.clone()]).await {
            Ok(answers) => {
                for (at, answer) in range.zip(answers) {
                    results[at] = Some(BatchResult::Done(answer));
                }
            }
            Err(error @ Error::Refused { .. }) if range.len() == 1 => {
                results[range.start] = Some(BatchResult::Refused(error))
            }
            Err(Error::Refused { .. }) => {
                let middle = range.start + range.len() / 2;
                open.push(middle..range.end);
                open.push(range.start..middle);
            }
            Err(other) => return Err(other),
        }
    }
    results
        .into_iter()
        .map(|result| result.ok_or_else(|| Error::Corrupt("a batch returned fewer rows than it has items".to_owned())))
        .collect()
}
