#![no_main]

use onceward_testkit::fuzz::Target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| Target::LifecycleFile.run(bytes));
