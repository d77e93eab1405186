//! The script that reads documents, with the programs that it is for. Each ending has its code, says nothing of the document, and leaves
//! no file behind.

mod disk_full;
mod formats;
mod harmless_warnings;
mod pdf;
mod process_failures;
mod resource_limits;
mod script_run;
mod tiff;
