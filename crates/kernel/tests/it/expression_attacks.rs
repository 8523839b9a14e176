//! Malicious expressions are stopped by their budget, or refused before they are evaluated.

use kernel::expression::template::{Cause, Template};
use kernel::expression::{Budget, EvalError, Expression, MAX_BYTES, MAX_STEPS};
use serde_json::json;

use crate::attacks::{self, Stop};

#[test]
fn every_attack_is_stopped_by_what_must_stop_it() {
    let scope = attacks::scope();
    for attack in attacks::attacks() {
        let mut budget = Budget::default();
        let stop = match Expression::parse(&attack.source) {
            Err(_) => Stop::Publishing,
            Ok(expression) => match expression.eval_within(&scope, &mut budget) {
                Ok(_) => panic!("{} was not stopped", attack.name),
                Err(error) => match error.cause() {
                    EvalError::Steps { .. } | EvalError::Bytes { .. } => Stop::Budget,
                    EvalError::Refused { .. } => Stop::Refused,
                    EvalError::TooLarge { .. } => Stop::Result,
                    other => panic!("{}: {other}", attack.name),
                },
            },
        };
        assert_eq!(stop, attack.stop, "{}", attack.name);
        assert!(budget.steps_used() <= MAX_STEPS && budget.bytes_used() <= MAX_BYTES, "{}", attack.name);
        assert!(stop != Stop::Budget || budget.steps_used() == MAX_STEPS || budget.bytes_used() == MAX_BYTES);
    }
}

#[test]
fn the_expressions_of_a_template_share_one_budget() {
    let scope = attacks::scope();
    let resolve = |parts: usize| {
        let parts = vec!["${{ inputs.xs.all(a, a >= 0) }}"; parts];
        Template::parse(&json!(parts)).expect("readable").resolve(&scope)
    };
    assert!(resolve(10).is_ok());
    let spent = resolve(400).expect_err("too many for one budget").cause;
    assert!(matches!(spent, Cause::Eval(error) if matches!(error.cause(), EvalError::Steps { .. })));
}
