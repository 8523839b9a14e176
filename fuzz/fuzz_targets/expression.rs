//! Whatever text comes: it is no expression, or its evaluation stays within its budget.

#![no_main]

use std::sync::Arc;

use kernel::expression::{Budget, Expression, MAX_BYTES, MAX_STEPS, Scope};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fuzz_target!(|source: &str| {
    let Ok(expression) = Expression::parse(source) else { return };
    let inputs = json!({"a": 1, "s": "text", "xs": [1, 2.5, "x", null, [1]], "m": {"k": {"l": true}}});
    let scope = Scope { inputs: Arc::new(inputs), ..Scope::default() };
    let mut budget = Budget::default();
    if let Err(error) = expression.eval_within(&scope, &mut budget) {
        assert!(error.offset().is_none_or(|at| at <= expression.source().len()));
    }
    assert!(budget.steps_used() <= MAX_STEPS && budget.bytes_used() <= MAX_BYTES);
    for path in expression.references() {
        let again = Expression::parse(&path.to_string()).expect("a path is written so that it can be read");
        assert_eq!(again.references(), [path]);
    }
});
