//! How long what has ended is kept, as it is written in the settings.

use serde::{Deserialize, Serialize};

use super::Invalid;

const LONGEST_DAYS: f64 = 36_500.0;

/// Days; 0 keeps for ever.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    pub execution_days: f64,
    pub activity_days: f64,
    pub job_days: f64,
    pub delivery_days: f64,
}

impl Default for Retention {
    fn default() -> Self {
        Retention { execution_days: 30.0, activity_days: 365.0, job_days: 30.0, delivery_days: 7.0 }
    }
}

impl Retention {
    pub(super) fn check(&self) -> Result<(), Invalid> {
        let all = [
            ("retention.execution_days", self.execution_days),
            ("retention.activity_days", self.activity_days),
            ("retention.job_days", self.job_days),
            ("retention.delivery_days", self.delivery_days),
        ];
        match all.into_iter().find(|(_, days)| !(0.0..=LONGEST_DAYS).contains(days)) {
            Some((key, _)) => Err(Invalid { key, problem: format!("must be 0 to {LONGEST_DAYS}") }),
            None => Ok(()),
        }
    }
}
