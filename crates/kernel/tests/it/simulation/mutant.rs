//! Mutants: each breaks one rule, and the simulation must detect it.
//!
//! Invariants
//! - A mutant lives in the model, never in the kernel, and breaks one rule only.
//!
//! Not here: the tests that catch them (`simulation`).

/// A rule of the design, left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// An ambiguous start puts the item back. The write shows its claim but does not name the
    /// status it leaves: with that guard `begin` alone already makes the mistake harmless.
    FreeSlotOnAmbiguousStart,
    /// Node facts and completions need not show owner and epoch, nor an activity its fence.
    NoFence,
    /// `complete` does not ask whether the execution has already ended.
    CompletionTwice,
    /// A repeated start goes to the engine under a new id.
    NewIdOnRepeat,
    /// A dead claimer's items go back to waiting, begun or not, instead of to another claimer.
    TakeoverRequeues,
    /// `begin` is always granted.
    BeginUnchecked,
    /// Claims do not take the shard's lock.
    ClaimWithoutLock,
    /// A limit is changed without the shard's lock.
    UnfencedLimitChange,
    /// A workspace's mark is moved without the shard's lock.
    MarkOutsideLock,
    /// A mark covers the number of the claim that moves it.
    MarkCoversOwn,
    /// An item that gets a slot again keeps the number of its first claim.
    NumberKept,
    /// A mark stays as it is when a claim draws a number that is not above it.
    StaleMarkKept,
    /// No sweep lowers a mark to what committed below it.
    NoProbe,
    /// A node interrupted by a crash comes back under its next attempt.
    CrashIsAnAttempt,
    /// Whose item is the oldest is asked first, full or not.
    OldestFirst,
    /// A claimer whose answer was lost does not ask what it claimed.
    ClaimForgotten,
    /// A resumed run does not receive its cancel.
    StopForgotten,
    /// An event of an earlier attempt is applied to the present one.
    EchoIsNews,
    /// A run that is ended by force gives its slot back before its owner has let go.
    ForcedEndAtOnce,
    /// Any fact counts as progress, so that a run which kills its processes is never given up.
    AnyFactIsProgress,
    /// An item refused in doubt is started again for ever.
    DoubtForEver,
    /// A loop that is taken up again is opened without looking how its items stand.
    ItemsForgotten,
    /// A child that is taken up again starts from its beginning.
    ChildAnew,
    /// Parking forgets that something came for the run.
    WakeForgotten,
}
