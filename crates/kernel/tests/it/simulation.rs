//! wip
mod audit;
mod judge;
mod machine;
mod mutant;
mod process;
pub(crate) mod random;
mod receiver;
mod remote;
mod store;
mod world;

#[test]
fn quick() {
    for seed in 0..2_000 {
        let judge = world::play(seed, None, false);
        if let Some(broken) = &judge.broken {
            let told = world::play(seed, None, true);
            panic!("seed {seed}: {broken}\n{}", told.steps.iter().cloned().collect::<Vec<_>>().join("\n"));
        }
    }
}
