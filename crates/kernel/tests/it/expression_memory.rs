//! Measures how much memory malicious expressions use. Allocations are counted for the whole process, so every test
//! runs in its own process.

use kernel::expression::Expression;
use kernel::expression::template::Template;
use peak_alloc::PeakAlloc;
use serde_json::json;

use crate::attacks;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

const MOST: usize = 16 << 20;

/// The most that is held at once while something runs, beyond what was held before.
fn peak(run: impl FnOnce()) -> usize {
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    run();
    ALLOCATED.peak_usage().saturating_sub(before)
}

#[test]
fn no_attack_takes_more_than_sixteen_megabytes() {
    let scope = attacks::scope();
    for attack in attacks::attacks() {
        let alone = peak(|| {
            if let Ok(expression) = Expression::parse(&attack.source) {
                drop(expression.eval(&scope));
            }
        });
        let quoted = json!(format!("${{{{ {} }}}}", attack.source));
        let in_template = peak(|| {
            if let Ok(template) = Template::parse(&quoted) {
                drop(template.resolve(&scope));
            }
        });
        assert!(
            alone <= MOST && in_template <= MOST,
            "{} ({:?}): {alone} and {in_template} bytes",
            attack.name,
            attack.stop
        );
    }
}

#[test]
fn what_is_measured_is_real() {
    assert!(peak(|| drop(std::hint::black_box(vec![1_u8; 20 << 20]))) >= 20 << 20);
}
