//! Polls what `/readyz` of each process reports about the engine, and checks whether that was true.
//!
//! Invariants
//! - Each process is judged separately: each one must report the outage itself.
//! - An answer counts only if the engine did not change its state between the request and the answer.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::chaos::ms;
use crate::service::{Fleet, now_us};

/// How often each process is polled.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// What a process reported about its engine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Report {
    place: usize,
    asked: i64,
    answered: i64,
    engine: String,
}

/// All reports.
#[derive(Clone, Debug, Default)]
pub(in crate::chaos) struct ReadinessWatch(Arc<Mutex<Vec<Report>>>);

impl ReadinessWatch {
    /// Polls every process until stopped.
    pub(in crate::chaos) async fn run(self, fleet: Arc<Fleet>, stop: CancellationToken) {
        let http = reqwest::Client::new();
        while !stop.is_cancelled() {
            for place in 0..fleet.len() {
                let Some(base) = fleet.base(place) else { continue };
                let asked = now_us();
                let Some(engine) = ask(&http, &base).await else { continue };
                let said = Report { place, asked, answered: now_us(), engine };
                self.0.lock().push(said);
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// What was reported about an outage in this period, with this reason.
    pub(in crate::chaos) fn reports(&self, processes: usize, away: (i64, i64), reason: &str) -> OutageReports {
        let said = self.0.lock();
        OutageReports::of(&said, processes, away, reason)
    }
}

async fn ask(http: &reqwest::Client, base: &str) -> Option<String> {
    let answer = http.get(format!("{base}/readyz")).timeout(ms(2_000)).send().await.ok()?;
    let body: Value = answer.json().await.ok()?;
    body["checks"]["engine"].as_str().map(str::to_owned)
}

/// What the processes reported about an outage.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::chaos) struct OutageReports {
    /// Processes that reported the engine as unavailable, with the reason.
    pub(in crate::chaos) by: usize,
    /// The time until the last of these processes reported it, in seconds.
    pub(in crate::chaos) after_s: f64,
    /// How often one of these processes reported another state while the engine was still unavailable.
    pub(in crate::chaos) taken_back: usize,
    /// Processes that reported the engine as available after it was back.
    pub(in crate::chaos) well: usize,
    pub(in crate::chaos) well_after_s: f64,
}

impl OutageReports {
    fn of(said: &[Report], processes: usize, (from, to): (i64, i64), reason: &str) -> OutageReports {
        let mut reports = OutageReports::default();
        for place in 0..processes {
            let is_away =
                |said: &&Report| said.engine.starts_with("unavailable since ") && said.engine.ends_with(reason);
            let of = || said.iter().filter(|said| said.place == place);
            let mut during = of().filter(|said| said.asked >= from && said.answered <= to);
            if let Some(first) = during.find(is_away) {
                reports.by += 1;
                reports.after_s = reports.after_s.max(seconds(first.answered - from));
                reports.taken_back += during.filter(|said| !is_away(said)).count();
            }
            if let Some(well) = of().find(|said| said.asked >= to && said.engine == "ok") {
                reports.well += 1;
                reports.well_after_s = reports.well_after_s.max(seconds(well.answered - to));
            }
        }
        reports
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time to show")]
fn seconds(us: i64) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAY: &str = "unavailable since 2026-01-01T00:00:00Z: it is away";

    /// `2 0 ok`: at 2 s process 0 said that its engine was ok. The engine is away from 10 to 20.
    fn reports(said: &[(i64, usize, &str)]) -> OutageReports {
        let at = |seconds: i64| seconds * 1_000_000;
        let said: Vec<Report> = said
            .iter()
            .map(|(second, place, engine)| Report {
                place: *place,
                asked: at(*second),
                answered: at(*second) + 500_000,
                engine: (*engine).to_owned(),
            })
            .collect();
        OutageReports::of(&said, 2, (at(10), at(20)), "it is away")
    }

    #[test]
    fn each_process_must_say_so_while_it_is_away_and_that_all_is_well_when_it_is_back() {
        let both = reports(&[(9, 0, "ok"), (11, 0, AWAY), (12, 0, AWAY), (13, 1, AWAY), (20, 0, "ok"), (21, 1, "ok")]);
        assert_eq!(both, OutageReports { by: 2, after_s: 3.5, taken_back: 0, well: 2, well_after_s: 1.5 });
        let one = reports(&[(11, 0, AWAY), (11, 1, "ok"), (22, 0, AWAY), (22, 1, "ok")]);
        assert_eq!((one.by, one.taken_back, one.well), (1, 0, 1));
    }

    #[test]
    fn what_is_taken_back_early_or_says_another_reason_is_found() {
        assert_eq!(reports(&[(11, 0, AWAY), (12, 0, "ok")]).taken_back, 1);
        assert_eq!(reports(&[(11, 0, "unavailable since 2026-01-01T00:00:00Z: of something else")]).by, 0);
        assert_eq!(reports(&[(9, 0, AWAY), (20, 0, AWAY)]).by, 0, "it was not away then");
    }
}
