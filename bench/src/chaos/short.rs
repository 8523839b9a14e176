//! A short form of each run and of each mutant. It takes a few minutes and shows that the invariants hold, and that the
//! judge would notice if they did not.
//!
//!     two lanes: what is judged by what it left behind ──▶ one after the other: what is judged by its times, too
//!
//! Invariants
//! - Each is a process of its own with a database server of its own.
//! - Whatever judges times, or needs a machine that keeps up, has it to itself: beside others, processes are never
//!   full, throughput falls, and what is late is taken for dead.
//! - A run whose harness fails ends all of it.

use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, bail};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::Command;

use super::mutant::Mutant;
use super::{ChaosOptions, Outcome};
use crate::report::{machine, say};

/// How many runs go side by side, of those that may: most of a run is waiting.
const LANES: usize = 2;

/// The runs without a mutant: first those that go side by side, the longest first.
const WHOLE: [&[&str]; 12] = [
    &["temporal"],
    &["strangers"],
    &["outage"],
    &["strict"],
    &["strays"],
    &["long"],
    &["mixed-workers"],
    &["crowded"],
    &["upgrade"],
    &["soak", "--minutes", "0.3"],
    &["poison"],
    &["durable"],
];

/// Those that have the machine to themselves, with their mutants.
const ALONE: [&str; 6] = ["mixed-workers", "crowded", "upgrade", "soak", "poison", "durable"];

const MUTANTS: [(&str, &[Mutant]); 9] = [
    ("temporal", &Mutant::OF_TEMPORAL),
    ("outage", &Mutant::OF_OUTAGE),
    ("strict", &Mutant::OF_STRICT),
    ("strays", &Mutant::OF_STRAYS),
    ("long", &Mutant::OF_LONG),
    ("mixed-workers", &Mutant::OF_MIXED),
    ("strangers", &Mutant::OF_STRANGERS),
    ("crowded", &Mutant::OF_CROWDED),
    ("upgrade", &Mutant::OF_UPGRADE),
];

/// One run of this program.
struct Run {
    arguments: Vec<String>,
    mutant: Option<Mutant>,
}

/// The result of a run.
struct Done {
    run: Run,
    figures: Value,
}

impl Done {
    fn summary(&self) -> String {
        match (self.run.mutant, self.broken().join(", ")) {
            (None, broken) if broken.is_empty() => "all held".to_owned(),
            (None, broken) => format!("broken: {broken}"),
            (Some(_), found) if found.is_empty() => "the mutant was not caught".to_owned(),
            (Some(_), found) => format!("the mutant was caught by: {found}"),
        }
    }

    fn broken(&self) -> Vec<&str> {
        self.figures["broken"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

/// Runs them all.
pub async fn run(options: &ChaosOptions) -> anyhow::Result<Outcome> {
    let machine = machine();
    let (alone, beside): (Vec<Run>, Vec<Run>) = all().into_iter().partition(Run::is_alone);
    let numbered = |(at, one): (usize, Run)| async move { anyhow::Ok((at, one.run(options).await?)) };
    let lanes = stream::iter(beside.into_iter().enumerate()).map(numbered).buffer_unordered(LANES);
    let mut lanes: Vec<(usize, Done)> = lanes.try_collect().await?;
    lanes.sort_by_key(|(at, _)| *at);
    let mut done: Vec<Done> = lanes.into_iter().map(|(_, one)| one).collect();
    for one in alone {
        done.push(one.run(options).await?);
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
        "seed": options.seed,
        "machine": machine,
        "settings": { "short": true, "scale": options.scale, "lanes": LANES },
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
    fn name(&self) -> &str {
        self.arguments.first().map_or("", String::as_str)
    }

    fn is_alone(&self) -> bool {
        ALONE.contains(&self.name())
    }

    /// What its lines begin with.
    fn label(&self) -> String {
        match self.mutant {
            Some(mutant) => format!("{} {}", self.name(), mutant.name()),
            None => self.name().to_owned(),
        }
    }

    fn command(&self, options: &ChaosOptions) -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe().context("find this program")?);
        command.args(&self.arguments).arg("--short");
        command.args(["--seed", &options.seed.to_string(), "--scale", &options.scale.to_string()]);
        command.arg("--forebay").arg(&options.forebay);
        command.args(options.keep_logs.then_some("--keep-logs"));
        command.args(self.mutant.map(|mutant| format!("--mutant={}", mutant.name())));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        Ok(command)
    }

    async fn run(self, options: &ChaosOptions) -> anyhow::Result<Done> {
        let (label, began) = (self.label(), Instant::now());
        let mut child = self.command(options)?.spawn().context("run this program")?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut printed = String::new();
        let read =
            async { stdout.context("its output is piped")?.read_to_string(&mut printed).await.context("read it") };
        let shown = async { show(&label, stderr.context("its words are piped")?).await.context("read its words") };
        tokio::try_join!(read, shown)?;
        let status = child.wait().await.context("wait for it")?;
        if !matches!(status.code(), Some(0 | 3)) {
            bail!("{label} itself failed: {status}");
        }
        let figures = printed.lines().last().context("a run printed no figures")?;
        let figures = serde_json::from_str(figures).with_context(|| format!("read the figures of {label}"))?;
        let done = Done { run: self, figures };
        say(format!("{label}: {} ({} s)", done.summary(), began.elapsed().as_secs()));
        Ok(done)
    }
}

/// Says what a run says, with its label: another may run beside it.
async fn show(label: &str, words: impl AsyncRead + Unpin) -> std::io::Result<()> {
    let mut lines = BufReader::new(words).lines();
    while let Some(line) = lines.next_line().await? {
        say(format!("[{label}] {line}"));
    }
    Ok(())
}
