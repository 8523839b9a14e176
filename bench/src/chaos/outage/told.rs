//! What the processes' readiness told of the engine, and whether it was so.
//!
//! Invariants
//! - Each process speaks for itself: one that says nothing is not excused by another that does.
//! - An answer counts only if it was asked for and given on one side of a switch.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::chaos::ms;
use crate::service::{Fleet, now_us};

/// How often each process is asked.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// What a process said of its engine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    place: usize,
    asked: i64,
    answered: i64,
    engine: String,
}

/// All that was said.
#[derive(Clone, Debug, Default)]
pub(in crate::chaos) struct Watch(Arc<Mutex<Vec<Said>>>);

impl Watch {
    /// Asks everybody until told to stop.
    pub(in crate::chaos) async fn run(self, fleet: Arc<Fleet>, stop: CancellationToken) {
        let http = reqwest::Client::new();
        while !stop.is_cancelled() {
            for place in 0..fleet.len() {
                let Some(base) = fleet.base(place) else { continue };
                let asked = now_us();
                let Some(engine) = ask(&http, &base).await else { continue };
                let said = Said { place, asked, answered: now_us(), engine };
                self.0.lock().push(said);
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// What was told of an outage from one moment to another, with these words as the reason.
    pub(in crate::chaos) fn told(&self, processes: usize, away: (i64, i64), reason: &str) -> Told {
        let said = self.0.lock();
        Told::of(&said, processes, away, reason)
    }
}

async fn ask(http: &reqwest::Client, base: &str) -> Option<String> {
    let answer = http.get(format!("{base}/readyz")).timeout(ms(2_000)).send().await.ok()?;
    let body: Value = answer.json().await.ok()?;
    body["checks"]["engine"].as_str().map(str::to_owned)
}

/// What the processes told of an outage.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::chaos) struct Told {
    /// Processes that said that the engine is away, and why.
    pub(in crate::chaos) by: usize,
    /// How long it took the last of them to say so.
    pub(in crate::chaos) after_s: f64,
    /// How often one that had said so said something else while it was still away.
    pub(in crate::chaos) taken_back: usize,
    /// Processes that said that all is well when it was back.
    pub(in crate::chaos) well: usize,
    pub(in crate::chaos) well_after_s: f64,
}

impl Told {
    fn of(said: &[Said], processes: usize, (from, to): (i64, i64), reason: &str) -> Told {
        let mut told = Told::default();
        for place in 0..processes {
            let is_away = |said: &&Said| said.engine.starts_with("unavailable since ") && said.engine.ends_with(reason);
            let of = || said.iter().filter(|said| said.place == place);
            let mut during = of().filter(|said| said.asked >= from && said.answered <= to);
            if let Some(first) = during.find(is_away) {
                told.by += 1;
                told.after_s = told.after_s.max(seconds(first.answered - from));
                told.taken_back += during.filter(|said| !is_away(said)).count();
            }
            if let Some(well) = of().find(|said| said.asked >= to && said.engine == "ok") {
                told.well += 1;
                told.well_after_s = told.well_after_s.max(seconds(well.answered - to));
            }
        }
        told
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
    fn told(said: &[(i64, usize, &str)]) -> Told {
        let at = |seconds: i64| seconds * 1_000_000;
        let said: Vec<Said> = said
            .iter()
            .map(|(second, place, engine)| Said {
                place: *place,
                asked: at(*second),
                answered: at(*second) + 500_000,
                engine: (*engine).to_owned(),
            })
            .collect();
        Told::of(&said, 2, (at(10), at(20)), "it is away")
    }

    #[test]
    fn each_process_must_say_so_while_it_is_away_and_that_all_is_well_when_it_is_back() {
        let both = told(&[(9, 0, "ok"), (11, 0, AWAY), (12, 0, AWAY), (13, 1, AWAY), (20, 0, "ok"), (21, 1, "ok")]);
        assert_eq!(both, Told { by: 2, after_s: 3.5, taken_back: 0, well: 2, well_after_s: 1.5 });
        let one = told(&[(11, 0, AWAY), (11, 1, "ok"), (22, 0, AWAY), (22, 1, "ok")]);
        assert_eq!((one.by, one.taken_back, one.well), (1, 0, 1));
    }

    #[test]
    fn what_is_taken_back_early_or_says_another_reason_is_found() {
        assert_eq!(told(&[(11, 0, AWAY), (12, 0, "ok")]).taken_back, 1);
        assert_eq!(told(&[(11, 0, "unavailable since 2026-01-01T00:00:00Z: of something else")]).by, 0);
        assert_eq!(told(&[(9, 0, AWAY), (20, 0, AWAY)]).by, 0, "it was not away then");
    }
}
