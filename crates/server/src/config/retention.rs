//! Settings of retention: how long ended records are kept.

use serde::{Deserialize, Serialize};

use super::Invalid;

const MAX_DAYS: f64 = 36_500.0;

/// How many days records are kept; 0 keeps them forever.
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
        match all.into_iter().find(|(_, days)| !(0.0..=MAX_DAYS).contains(days)) {
            Some((key, days)) => {
                let problem = format!("must be from 0 (keep forever) to {MAX_DAYS} days, but is {days}");
                Err(Invalid { key, problem })
            }
            None => Ok(()),
        }
    }
}
