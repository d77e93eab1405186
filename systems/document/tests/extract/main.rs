//! The script that reads documents, with the programs that it is for. Each ending has its code, says nothing of the document, and leaves
//! no file behind.

mod bounds;
mod documents;
mod harmless;
mod image;
mod machine;
mod pdf;
mod room;
mod run;
