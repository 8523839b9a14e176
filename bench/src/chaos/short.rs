//! A short form of each run, and of each mutant: a few minutes that show that the invariants
//! hold, and that the judge would have seen it if they did not.
//!
//! Invariants
//! - Each is a process of its own with a database server of its own. They go one after the other: beside others, some
//!   are too slow to do what they judge.
//! - A run whose harness fails ends all of it.

use std::process::Stdio;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tokio::process::Command;

use super::mutant::Mutant;
use super::{Outcome, Request};
use crate::report::{machine, say};

/// The runs without a mutant.
const WHOLE: [&[&str]; 12] = [
    &["strangers"],
    &["temporal"],
    &["outage"],
    &["upgrade"],
    &["soak", "--minutes", "0.3"],
    &["crowded"],
    &["strict"],
    &["durable"],
    &["poison"],
    &["mixed-workers"],
    &["long"],
    &["strays"],
];

const MUTANTS: [(&str, &[Mutant]); 9] = [
    ("strangers", &Mutant::OF_STRANGERS),
    ("temporal", &Mutant::OF_TEMPORAL),
    ("outage", &Mutant::OF_OUTAGE),
    ("upgrade", &Mutant::OF_UPGRADE),
    ("crowded", &Mutant::OF_CROWDED),
    ("strict", &Mutant::OF_STRICT),
    ("mixed-workers", &Mutant::OF_MIXED),
    ("long", &Mutant::OF_LONG),
    ("strays", &Mutant::OF_STRAYS),
];

/// One run of this program.
struct Run {
    arguments: Vec<String>,
    mutant: Option<Mutant>,
}

/// What it came to.
struct Done {
    run: Run,
    figures: Value,
}

impl Done {
    fn broken(&self) -> Vec<&str> {
        self.figures["broken"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

/// Runs them all.
pub async fn run(request: &Request) -> anyhow::Result<Outcome> {
    let machine = machine();
    let mut done = Vec::new();
    for one in all() {
        done.push(one.run(request).await?);
    }
    let (mut broken, mut caught) = (Vec::new(), Vec::new());
    for one in &done {
        let name = one.figures["run"].as_str().unwrap_or_default();
        match one.run.mutant {
            None => broken.extend(one.broken().iter().map(|what| format!("{name}: {what}"))),
            Some(mutant) if one.broken().is_empty() => broken.push(format!("mutant {} was not caught", mutant.name())),
            Some(mutant) => caught.push(json!({ "mutant": mutant.name(), "by": one.broken() })),
        }
    }
    let figures = json!({
        "run": "short",
        "seed": request.seed,
        "machine": machine,
        "settings": { "short": true, "scale": request.scale },
        "mutants_caught": caught,
        "runs": done.into_iter().map(|one| one.figures).collect::<Vec<_>>(),
    });
    Ok(Outcome { broken, figures })
}

fn all() -> Vec<Run> {
    let whole = WHOLE.iter().map(|arguments| Run {
        arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        mutant: None,
    });
    let mutants = MUTANTS.iter().flat_map(|(name, mutants)| mutants.iter().map(move |mutant| (*name, *mutant)));
    let mutants = mutants.map(|(name, mutant)| Run { arguments: vec![name.to_owned()], mutant: Some(mutant) });
    whole.chain(mutants).collect()
}

impl Run {
    async fn run(self, request: &Request) -> anyhow::Result<Done> {
        let mut command = Command::new(std::env::current_exe().context("find this program")?);
        command.args(&self.arguments).arg("--short");
        command.args(["--seed", &request.seed.to_string(), "--scale", &request.scale.to_string()]);
        command.arg("--forebay").arg(&request.forebay);
        command.args(request.keep_logs.then_some("--keep-logs"));
        command.args(self.mutant.map(|mutant| format!("--mutant={}", mutant.name())));
        command.stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
        let output = command.output().await.context("run this program")?;
        let name = self.arguments.first().cloned().unwrap_or_default();
        let printed = String::from_utf8_lossy(&output.stdout);
        if !matches!(output.status.code(), Some(0 | 3)) {
            bail!("{name} itself failed: {}", output.status);
        }
        let figures = printed.lines().last().context("a run printed no figures")?;
        let figures = serde_json::from_str(figures).with_context(|| format!("read the figures of {name}"))?;
        let done = Done { run: self, figures };
        match done.run.mutant {
            Some(mutant) => say(format!("the mutant {} was caught by: {}", mutant.name(), done.broken().join(", "))),
            None => say(format!("{name}: {}", if done.broken().is_empty() { "all held" } else { "broken" })),
        }
        Ok(done)
    }
}
