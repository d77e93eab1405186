//! Simulates power loss: writes after the last sync are lost or incomplete. `strace` records the writes, syncs and
//! replies of a process, and the test builds the files that a power loss could have left.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use onceward_core::value::RecordId;
use onceward_store::Store as _;
use onceward_testkit::TempDir;
use onceward_testkit::random::Rng;
use serde_json::Value as Json;

use super::{FaultHarness, open_store};
use crate::verify;

/// Simulated power losses per run.
const POWER_LOSS_POINTS: usize = 25;

/// A recorded event.
#[derive(Debug)]
enum TraceEvent {
    Write {
        file: usize,
        offset: usize,
        bytes: Vec<u8>,
    },
    Truncate {
        file: usize,
        length: usize,
    },
    /// The sync has returned: all earlier writes to this file are durable.
    Sync {
        file: usize,
    },
    /// A reply reached the client.
    Reply(String),
}

pub(super) fn lose_unsynced_writes(seed: u64) -> Result<String> {
    let folder = TempDir::new();
    let database = folder.database_path().display().to_string();
    let names = [database.clone(), format!("{database}-wal")];
    let trace_file = format!("{database}.trace");
    let calls = "trace=pwrite64,ftruncate,fsync,fdatasync,write";
    let wrapper = ["strace", "-f", "-qq", "-xx", "-y", "-s", "100000", "-o", &trace_file, "-e", calls];
    let mut harness = FaultHarness::new(&database, &[], seed)?;
    // Kill the process to get the files' initial contents. The next one starts under strace.
    harness.kill()?;
    drop(harness.runtime.block_on(open_store(&database))?);
    let initial_files = names.clone().map(|name| std::fs::read(name).unwrap_or_default());
    harness.process = harness.monitor.start_with_wrapper(&wrapper, 0, &database, 0)?;
    harness.run_requests(150, "", usize::MAX)?;
    harness.kill()?;
    let events = parse_trace(&std::fs::read_to_string(&trace_file)?, &names)?;
    let mut rng = Rng::new(seed);
    let (mut lost_writes, mut torn, mut answers) = (0, 0, 0);
    for moment in 0..POWER_LOSS_POINTS {
        let end = rng.below(events.len());
        for keep_some in [false, true] {
            let image = folder.database_path().with_file_name(format!("image-{moment}-{keep_some}.db"));
            let missing = build_image(&events[..end], &initial_files, &image, keep_some.then_some(&mut rng))?;
            lost_writes += missing;
            torn += usize::from(keep_some && missing > 0);
            answers += harness.runtime.block_on(verify_image(&image, replies(&events[..end])))?;
        }
    }
    // Counter-test with a disk that ignores syncs: if this loss is not detected, the test verifies nothing.
    let syncless: Vec<TraceEvent> =
        events.into_iter().filter(|event| !matches!(event, TraceEvent::Sync { .. })).collect();
    let image = folder.database_path().with_file_name("image-lied.db");
    build_image(&syncless, &initial_files, &image, None)?;
    let noticed = harness.runtime.block_on(verify_image(&image, replies(&syncless))).is_err();
    ensure!(noticed, "a disk that ignores syncs is not detected");
    ensure!(lost_writes > 0 && answers > 0, "no write was lost, or no call was acknowledged");
    Ok(format!(
        "{} images at {POWER_LOSS_POINTS} moments, {lost_writes} writes lost in them, {torn} of them with only some of the last writes: \
         {answers} acknowledged replies are stored, verify confirms each image",
        2 * POWER_LOSS_POINTS
    ))
}

fn replies(events: &[TraceEvent]) -> impl Iterator<Item = &String> {
    events.iter().filter_map(|event| if let TraceEvent::Reply(line) = event { Some(line) } else { None })
}

/// Parses the events of the two files and of standard output.
fn parse_trace(trace: &str, names: &[String; 2]) -> Result<Vec<TraceEvent>> {
    let (mut events, mut output) = (Vec::new(), String::new());
    // Unfinished syncs, by thread.
    let mut begun = HashMap::new();
    // The kill may truncate strace's last line, because it writes a page in several pieces. An event after the last
    // complete line counts as not happened.
    let complete_lines = trace.rfind('\n').map_or("", |end| &trace[..end]);
    for line in complete_lines.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        if call.starts_with("<... fsync resumed") || call.starts_with("<... fdatasync resumed") {
            if let (Some(file), true) = (begun.remove(thread), call.ends_with("= 0")) {
                events.push(TraceEvent::Sync { file });
            }
            continue;
        }
        let Some((name, rest)) = call.split_once('(') else { continue };
        let Some((number, rest)) = rest.split_once('<') else { continue };
        let Some((path, rest)) = rest.split_once('>') else { continue };
        let path = String::from_utf8_lossy(&decode_hex(path)?).into_owned();
        let text = rest.split('"').nth(1).unwrap_or_default();
        let after: Vec<&str> = rest.rsplit('"').next().unwrap_or_default().split([',', ')', ' ']).collect();
        let numbers: Vec<usize> = after.iter().filter_map(|word| word.parse().ok()).collect();
        if name == "write" && number == "1" {
            output += &String::from_utf8_lossy(&decode_hex(text)?);
            while let Some((line, rest)) = output.split_once('\n') {
                events.push(TraceEvent::Reply(line.to_owned()));
                output = rest.to_owned();
            }
            continue;
        }
        let Some(file) = names.iter().position(|name| *name == path) else { continue };
        match name {
            "pwrite64" => {
                let bytes = decode_hex(text)?;
                ensure!(numbers.first() == Some(&bytes.len()), "strace abbreviated a write");
                events.push(TraceEvent::Write { file, offset: *numbers.get(1).context("a place")?, bytes });
            }
            "ftruncate" => events.push(TraceEvent::Truncate { file, length: *numbers.first().context("a length")? }),
            _ if call.contains("unfinished") => drop(begun.insert(thread, file)),
            _ if call.ends_with("= 0") => events.push(TraceEvent::Sync { file }),
            _ => {}
        }
    }
    Ok(events)
}

/// Decodes `\x61\x62`, the format of `strace -xx`.
fn decode_hex(text: &str) -> Result<Vec<u8>> {
    text.split("\\x").skip(1).map(|digits| Ok(u8::from_str_radix(digits, 16)?)).collect()
}

/// Builds the files after a power loss: all synced writes, and none or parts of the others. Returns how many writes
/// were lost.
fn build_image(
    events: &[TraceEvent],
    initial_files: &[Vec<u8>; 2],
    image: &Path,
    mut partial_writes: Option<&mut Rng>,
) -> Result<usize> {
    let mut lost_writes = 0;
    for (file, name) in ["", "-wal"].iter().enumerate() {
        let mut content = initial_files[file].clone();
        let synced = events.iter().rposition(|event| matches!(event, TraceEvent::Sync { file: of } if *of == file));
        for (index, event) in events.iter().enumerate() {
            let is_synced = synced.is_some_and(|synced| index < synced);
            match event {
                TraceEvent::Write { file: of, offset: at, bytes } if *of == file => {
                    // Of the unsynced writes, some survive whole and some partially, because a disk writes sectors.
                    let draw = if let Some(chance) = &mut partial_writes { chance.below(10) } else { 9 };
                    let written_bytes = match draw {
                        _ if is_synced => bytes.len(),
                        0..6 => bytes.len(),
                        6..8 => bytes.len() / 1_024 * 512,
                        _ => 0,
                    };
                    lost_writes += usize::from(written_bytes < bytes.len());
                    if written_bytes > 0 {
                        content.resize(content.len().max(at + written_bytes), 0);
                        content[*at..at + written_bytes].copy_from_slice(&bytes[..written_bytes]);
                    }
                }
                TraceEvent::Truncate { file: of, length } if *of == file && is_synced => content.resize(*length, 0),
                _ => {}
            }
        }
        std::fs::write(format!("{}{name}", image.display()), content)?;
    }
    Ok(lost_writes)
}

/// Verifies that the image contains everything that was acknowledged. Returns the number of replies.
async fn verify_image(image: &Path, replies: impl Iterator<Item = &String>) -> Result<usize> {
    let database = image.display().to_string();
    let store = open_store(&database).await?;
    let (mut answers, mut versions) = (0, BTreeMap::<RecordId, u64>::new());
    for line in replies {
        let Some((_, Ok(Json::Array(answer)))) =
            line.split_once(' ').map(|(tag, json)| (tag, serde_json::from_str(json)))
        else {
            continue;
        };
        let Some(done) = answer.first().and_then(|answer| answer.get("ok")).filter(|done| done.get("id").is_some())
        else {
            continue;
        };
        answers += 1;
        let id: RecordId = serde_json::from_value(done["id"].clone())?;
        let version = versions.entry(id).or_default();
        *version = (*version).max(done["version"].as_u64().unwrap_or(0));
    }
    for (id, version) in versions {
        let record = store.record(id).await?.with_context(|| format!("{id} was acknowledged, but is lost"))?;
        ensure!(
            record.version >= version,
            "{id}: version {version} was acknowledged, but {} is stored",
            record.version
        );
    }
    drop(store);
    verify::assert_clean(&database).await?;
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::{TraceEvent, parse_trace};

    /// A write that strace itself abbreviated is still detected.
    #[test]
    fn truncated_trace_line_yields_no_event() {
        let names = ["/f".to_owned(), "/f-wal".to_owned()];
        let write = r#"7 pwrite64(5<\x2f\x66>, "\x61\x62", 2, 4096) = 2"#;
        for cut in 0..=write.len() {
            let events = parse_trace(&format!("{write}\n{}", &write[..cut]), &names).expect("a record");
            let [TraceEvent::Write { file: 0, offset: 4096, bytes }] = &events[..] else {
                panic!("{} events", events.len())
            };
            assert_eq!(bytes, b"ab");
        }
        assert!(parse_trace(&format!("{}\n", write.replace("\", 2", "\"..., 9")), &names).is_err());
    }
}
