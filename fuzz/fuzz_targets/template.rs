//! Whatever JSON comes: its templates are refused, or resolve to no more than they may.

#![no_main]

use std::sync::Arc;

use kernel::expression::Scope;
use kernel::expression::template::{MAX_RESOLVED_BYTES, Template};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fuzz_target!(|text: &str| {
    let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    let Ok(template) = Template::parse(&value) else { return };
    let scope = Scope { inputs: Arc::new(json!({"a": 1, "s": "${{ inputs.a }}"})), ..Scope::default() };
    if let Ok(resolved) = template.resolve(&scope) {
        assert!(resolved.to_string().len() <= MAX_RESOLVED_BYTES);
    }
});
