//! A batch never couples its items: what its data spoils is found by halves and ends alone.
//!
//! Invariants
//! - A batch refused for its data is split until the culprits stand alone; the others succeed.
//! - A batch that failed by circumstance is the caller's to repeat whole: every batch statement is
//!   repeatable by its keys.
//!
//! Not here: what becomes of a culprit (its owner decides).

use crate::Error;

/// How one item of a batch fared.
#[derive(Debug)]
pub enum Fate<T> {
    Done(T),
    /// The database refused this very item.
    Refused(Error),
}

/// Runs `call` over `items`, by halves where the data is refused. Answers are in the order of the
/// items. `call` must answer one value per item.
pub async fn by_halves<'a, I, T, F, R>(items: &'a [I], mut call: F) -> Result<Vec<Fate<T>>, Error>
where
    F: FnMut(&'a [I]) -> R,
    R: Future<Output = Result<Vec<T>, Error>>,
{
    let mut fates: Vec<Option<Fate<T>>> = items.iter().map(|_| None).collect();
    let mut open: Vec<_> = std::iter::once(0..items.len()).collect();
    while let Some(range) = open.pop() {
        if range.is_empty() {
            continue;
        }
        match call(&items[range.clone()]).await {
            Ok(answers) => {
                for (at, answer) in range.zip(answers) {
                    fates[at] = Some(Fate::Done(answer));
                }
            }
            Err(error @ Error::Refused { .. }) if range.len() == 1 => fates[range.start] = Some(Fate::Refused(error)),
            Err(Error::Refused { .. }) => {
                let middle = range.start + range.len() / 2;
                open.push(middle..range.end);
                open.push(range.start..middle);
            }
            Err(other) => return Err(other),
        }
    }
    fates
        .into_iter()
        .map(|fate| fate.ok_or_else(|| Error::Corrupt("a batch answered fewer rows than it was asked".to_owned())))
        .collect()
}
