#![no_main]

use onceward_testkit::fuzz::FuzzTarget;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| FuzzTarget::Decide.run(bytes));
