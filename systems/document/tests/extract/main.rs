//! Tests of the extraction script with the real programs. Each outcome has its exit code, quotes nothing of the
//! document, and leaves no file behind.

mod disk_full;
mod formats;
mod harmless_warnings;
mod pdf;
mod process_failures;
mod resource_limits;
mod script_run;
mod tiff;
