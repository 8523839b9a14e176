//! Prints the figures for people, on standard error. The last line of a run is JSON.

use std::collections::BTreeMap;

use super::claims::Sweeps;
use super::moves::{Beside, Moved};
use super::quiet::Arm;
use super::shares::Shares;
use crate::measure::stats::{Sample, mean};
use crate::report::say;

/// Prints claim and sweep times by case. Returns the worst ratio of a p50 to the first case's.
pub(super) fn claims(names: &[&'static str], claims: &BTreeMap<&'static str, Sample>, sweeps: &Sweeps) -> f64 {
    let none = Sample::default();
    let base = names.first().and_then(|name| claims.get(name)).map_or(0.0, Sample::p50);
    say("");
    say("claim of 10 items over 10 workspaces, begun in the same commit; sweeps of all 64 shards beside");
    say(format!("{:<14} {:>8} {:>8} {:>7} {:>11} {:>11}", "case", "p50 ms", "p99 ms", "ratio", "sweep ms", "blocked"));
    let mut worst = 0f64;
    for name in names {
        let sample = claims.get(name).unwrap_or(&none);
        let ratio = if base > 0.0 { sample.p50() / base } else { 0.0 };
        worst = worst.max(ratio);
        let (ready, unblock) = sweeps.get(name).map_or((0.0, 0.0), |(ready, unblock)| (ready.p50(), unblock.p50()));
        say(format!(
            "{name:<14} {:>8.2} {:>8.2} {ratio:>7.2} {ready:>11.1} {unblock:>11.1}",
            sample.p50(),
            sample.p99()
        ));
    }
    worst
}

/// Prints claims under an old snapshot. Returns the ratio of their p50 to that of a database where nothing ended.
pub(super) fn snapshot(claims: &BTreeMap<&'static str, Sample>, ended: i64) -> f64 {
    let (none, under) = (&claims["none_ended"], &claims["snapshot"]);
    let ratio = under.p50() / none.p50();
    say("");
    say(format!(
        "claim after {ended} executions ended under an open snapshot: p50 {:.2} ms, p99 {:.2} ms; none ended: {:.2}, \
         {:.2}; ratio {ratio:.2}",
        under.p50(),
        under.p99(),
        none.p50(),
        none.p99()
    ));
    ratio
}

/// Prints claims beside backlogs that change.
pub(super) fn moves(all: &[(&str, Moved)]) {
    say("");
    say("claims beside a backlog that changes, in turns with claims on an empty database");
    say(format!(
        "{:<20} {:>8} {:>8} {:>10} {:>10} {:>7} {:>6} {:>6}",
        "case", "p50 ms", "p99 ms", "empty p50", "empty p99", "ratio", "n", "short"
    ));
    for (name, moved) in all {
        for (when, beside) in moved.phases() {
            let Beside { claims, empty, short } = beside;
            say(format!(
                "{:<20} {:>8.2} {:>8.2} {:>10.2} {:>10.2} {:>7.2} {:>6} {short:>6}",
                format!("{name} {when}"),
                claims.p50(),
                claims.p99(),
                empty.p50(),
                empty.p99(),
                beside.ratio(),
                claims.len(),
            ));
        }
        say(format!(
            "{name}: {} items moved in {:.1} s; vacuumed {:.1} s later",
            moved.items,
            moved.took.as_secs_f64(),
            moved.vacuumed_after.as_secs_f64()
        ));
    }
}

/// Prints the quiet workspace's times by arm.
pub(super) fn quiet(arms: &[Arm]) {
    say("");
    say(
        "a quiet workspace, enqueue to start; medians over the runs; ratio: round by round to the arm named, then the \
         median",
    );
    let head = ["arm", "p50 ms", "p99 ms", "ratio", "to", "slots", "ended/s"];
    let [arm, p50, p99, ratio, to, slots, ended] = head;
    say(format!("{arm:<10} {p50:>8} {p99:>8} {ratio:>7} {to:<9} {slots:>7} {ended:>9}  p99 by run"));
    for arm in arms {
        let base = super::quiet::base(arms, arm);
        let each: Vec<String> = arm.runs.iter().map(|run| format!("{:.1}", run.p99())).collect();
        say(format!(
            "{:<10} {:>8.2} {:>8.2} {:>7.2} {:<9} {:>7.1} {:>9.1}  {}",
            arm.name,
            arm.p50(),
            arm.p99(),
            super::quiet::ratio(base, arm),
            base.name,
            mean(&arm.in_use),
            mean(&arm.ended_per_s),
            each.join(" ")
        ));
    }
}

/// Prints the shares of a saturated process.
pub(super) fn shares(shares: &Shares) {
    say("");
    let (least, most) =
        shares.equals.iter().fold((f64::MAX, 0f64), |(least, most), got| (least.min(*got), most.max(*got)));
    say(format!(
        "shares: {:.0} starts/s; 20 equal workspaces got {least:.0} to {most:.0} each, Jain {:.4}; weight 3 got {:.2} \
         of an equal's",
        shares.per_s,
        shares.jain(),
        shares.heavy_share()
    ));
}
