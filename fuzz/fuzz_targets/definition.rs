//! Whatever JSON comes as a workflow: every problem is reported, or there is a plan that is the same the next time.

#![no_main]

use kernel::definition::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(document) = serde_json::from_str(text) else { return };
    if let Ok((definition, _)) = parse::check(&document) {
        let (again, _) = parse::check(&document).expect("what was accepted is accepted");
        assert_eq!(parse::content_hash(&definition), parse::content_hash(&again));
    }
});
