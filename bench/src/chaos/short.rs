//! A short form of each run, and of each mutant: a few minutes that show that the invariants
//! hold, and that the judge would have seen it if they did not.

use serde_json::json;

use super::mutant::Mutant;
use super::{
    Outcome, Request, crowded, durable, long, mixed, outage, poison, soak, strangers, strays, strict, temporal,
};
use crate::report::{machine, say};

/// Runs them one after the other.
pub async fn run(request: &Request) -> anyhow::Result<Outcome> {
    let request = Request { short: true, ..request.clone() };
    let machine = machine();
    let (mut broken, mut runs) = (Vec::new(), Vec::new());
    let whole = [
        strict::run(&request, None).await?,
        durable::run(&request).await?,
        outage::run(&request, None).await?,
        poison::run(&request).await?,
        soak::run(&request, 0.3).await?,
        temporal::run(&request, None).await?,
        mixed::run(&request, None).await?,
        long::run(&request, None).await?,
        crowded::run(&request, None).await?,
        strays::run(&request, None).await?,
        strangers::run(&request, None).await?,
    ];
    for outcome in whole {
        broken.extend(
            outcome
                .broken
                .iter()
                .map(|what| format!("{}: {what}", outcome.figures["run"].as_str().unwrap_or_default())),
        );
        runs.push(outcome.figures);
    }
    let mut caught = Vec::new();
    let mutants = Mutant::OF_STRICT.into_iter().chain(Mutant::OF_OUTAGE).chain(Mutant::OF_TEMPORAL);
    let mutants = mutants.chain(Mutant::OF_MIXED).chain(Mutant::OF_LONG).chain(Mutant::OF_CROWDED);
    for mutant in mutants.chain(Mutant::OF_STRAYS).chain(Mutant::OF_STRANGERS) {
        let outcome = match mutant {
            mutant if Mutant::OF_OUTAGE.contains(&mutant) => outage::run(&request, Some(mutant)).await?,
            mutant if Mutant::OF_TEMPORAL.contains(&mutant) => temporal::run(&request, Some(mutant)).await?,
            mutant if Mutant::OF_MIXED.contains(&mutant) => mixed::run(&request, Some(mutant)).await?,
            mutant if Mutant::OF_LONG.contains(&mutant) => long::run(&request, Some(mutant)).await?,
            mutant if Mutant::OF_CROWDED.contains(&mutant) => crowded::run(&request, Some(mutant)).await?,
            mutant if Mutant::OF_STRAYS.contains(&mutant) => strays::run(&request, Some(mutant)).await?,
            mutant if Mutant::OF_STRANGERS.contains(&mutant) => strangers::run(&request, Some(mutant)).await?,
            mutant => strict::run(&request, Some(mutant)).await?,
        };
        say(format!("the mutant {} was caught by: {}", mutant.name(), outcome.broken.join(", ")));
        match outcome.broken.is_empty() {
            true => broken.push(format!("mutant {} was not caught", mutant.name())),
            false => caught.push(json!({ "mutant": mutant.name(), "by": outcome.broken })),
        }
        runs.push(outcome.figures);
    }
    let figures = json!({
        "run": "short",
        "seed": request.seed,
        "machine": machine,
        "settings": { "short": true, "scale": request.scale },
        "mutants_caught": caught,
        "runs": runs,
        "broken": broken,
    });
    Ok(Outcome { broken, figures })
}
