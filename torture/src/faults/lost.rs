//! Power that goes: what was written after the last sync is gone, or only some of it is there. A process's writes, syncs and answers are
//! recorded by `strace`, and files as they may have been left on the disk are built from the record.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use onceward_core::value::RecordId;
use onceward_store::Store as _;
use onceward_testkit::Folder;
use onceward_testkit::random::Chance;
use serde_json::Value as Json;

use super::{Bench, open};
use crate::sound;

/// Moments at which the power goes.
const MOMENTS: usize = 25;

/// What the process did, in order.
#[derive(Debug)]
enum Event {
    Write {
        file: usize,
        at: usize,
        bytes: Vec<u8>,
    },
    Cut {
        file: usize,
        length: usize,
    },
    /// It has returned: all of this file's writes so far are on the disk.
    Sync {
        file: usize,
    },
    /// Somebody was told so.
    Answer(String),
}

pub(super) fn writes(seed: u64) -> Result<String> {
    let folder = Folder::new();
    let place = folder.file().display().to_string();
    let names = [place.clone(), format!("{place}-wal")];
    let record = format!("{place}.trace");
    let calls = "trace=pwrite64,ftruncate,fsync,fdatasync,write";
    let by = ["strace", "-f", "-qq", "-xx", "-y", "-s", "100000", "-o", &record, "-e", calls];
    let mut bench = Bench::new(&place, &[], seed)?;
    // The files as the process finds them: it is started anew, under strace.
    bench.kill()?;
    drop(bench.runtime.block_on(open(&place))?);
    let found = names.clone().map(|name| std::fs::read(name).unwrap_or_default());
    bench.process = bench.ear.start_by(&by, 0, &place, 0)?;
    bench.work(150, "", usize::MAX)?;
    bench.kill()?;
    let events = read(&std::fs::read_to_string(&record)?, &names)?;
    let mut chance = Chance::new(seed);
    let (mut lost, mut torn, mut answers) = (0, 0, 0);
    for moment in 0..MOMENTS {
        let until = chance.below(events.len());
        for keep_some in [false, true] {
            let image = folder.file().with_file_name(format!("image-{moment}-{keep_some}.db"));
            let gone = build(&events[..until], &found, &image, keep_some.then_some(&mut chance))?;
            lost += gone;
            torn += usize::from(keep_some && gone > 0);
            answers += bench.runtime.block_on(look(&image, told(&events[..until])))?;
        }
    }
    // A disk that says that it has synced and has not: if nobody notices that, nothing above was looked at.
    let syncless: Vec<Event> = events.into_iter().filter(|event| !matches!(event, Event::Sync { .. })).collect();
    let image = folder.file().with_file_name("image-lied.db");
    build(&syncless, &found, &image, None)?;
    let noticed = bench.runtime.block_on(look(&image, told(&syncless))).is_err();
    ensure!(noticed, "a disk that never syncs goes unnoticed");
    ensure!(lost > 0 && answers > 0, "no write was lost, or nobody was answered");
    Ok(format!(
        "{} images at {MOMENTS} moments, {lost} writes lost in them, {torn} with some of the last writes and not others: \
         {answers} times what was answered is there, verify finds each sound",
        2 * MOMENTS
    ))
}

fn told(events: &[Event]) -> impl Iterator<Item = &String> {
    events.iter().filter_map(|event| if let Event::Answer(line) = event { Some(line) } else { None })
}

/// The record, of the two files and of what was answered.
fn read(record: &str, names: &[String; 2]) -> Result<Vec<Event>> {
    let (mut events, mut said) = (Vec::new(), String::new());
    // Syncs that have begun, by thread.
    let mut begun = HashMap::new();
    // strace was killed, perhaps in the middle of its last line: a page takes it several writes. What it did not come to tell is as if it
    // had come a moment later.
    let whole = record.rfind('\n').map_or("", |end| &record[..end]);
    for line in whole.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        if call.starts_with("<... fsync resumed") || call.starts_with("<... fdatasync resumed") {
            if let (Some(file), true) = (begun.remove(thread), call.ends_with("= 0")) {
                events.push(Event::Sync { file });
            }
            continue;
        }
        let Some((name, rest)) = call.split_once('(') else { continue };
        let Some((number, rest)) = rest.split_once('<') else { continue };
        let Some((path, rest)) = rest.split_once('>') else { continue };
        let path = String::from_utf8_lossy(&bytes(path)?).into_owned();
        let text = rest.split('"').nth(1).unwrap_or_default();
        let after: Vec<&str> = rest.rsplit('"').next().unwrap_or_default().split([',', ')', ' ']).collect();
        let numbers: Vec<usize> = after.iter().filter_map(|word| word.parse().ok()).collect();
        if name == "write" && number == "1" {
            said += &String::from_utf8_lossy(&bytes(text)?);
            while let Some((line, rest)) = said.split_once('\n') {
                events.push(Event::Answer(line.to_owned()));
                said = rest.to_owned();
            }
            continue;
        }
        let Some(file) = names.iter().position(|name| *name == path) else { continue };
        match name {
            "pwrite64" => {
                let bytes = bytes(text)?;
                ensure!(numbers.first() == Some(&bytes.len()), "strace has shortened a write");
                events.push(Event::Write { file, at: *numbers.get(1).context("a place")?, bytes });
            }
            "ftruncate" => events.push(Event::Cut { file, length: *numbers.first().context("a length")? }),
            _ if call.contains("unfinished") => drop(begun.insert(thread, file)),
            _ if call.ends_with("= 0") => events.push(Event::Sync { file }),
            _ => {}
        }
    }
    Ok(events)
}

/// `\x61\x62`, as `strace -xx` writes it.
fn bytes(text: &str) -> Result<Vec<u8>> {
    text.split("\\x").skip(1).map(|digits| Ok(u8::from_str_radix(digits, 16)?)).collect()
}

/// The files as they are when the power has gone: what was synced, and of the rest nothing, or some of it in pieces. How many writes
/// did not get through.
fn build(events: &[Event], found: &[Vec<u8>; 2], image: &Path, mut some: Option<&mut Chance>) -> Result<usize> {
    let mut gone = 0;
    for (file, name) in ["", "-wal"].iter().enumerate() {
        let mut content = found[file].clone();
        let synced = events.iter().rposition(|event| matches!(event, Event::Sync { file: of } if *of == file));
        for (place, event) in events.iter().enumerate() {
            let is_synced = synced.is_some_and(|synced| place < synced);
            match event {
                Event::Write { file: of, at, bytes } if *of == file => {
                    // Of the rest some get through whole, some in part: a disk writes sectors.
                    let draw = if let Some(chance) = &mut some { chance.below(10) } else { 9 };
                    let kept = match draw {
                        _ if is_synced => bytes.len(),
                        0..6 => bytes.len(),
                        6..8 => bytes.len() / 1_024 * 512,
                        _ => 0,
                    };
                    gone += usize::from(kept < bytes.len());
                    if kept > 0 {
                        content.resize(content.len().max(at + kept), 0);
                        content[*at..at + kept].copy_from_slice(&bytes[..kept]);
                    }
                }
                Event::Cut { file: of, length } if *of == file && is_synced => content.resize(*length, 0),
                _ => {}
            }
        }
        std::fs::write(format!("{}{name}", image.display()), content)?;
    }
    Ok(gone)
}

/// Everything that was answered is there. How many answers there were.
async fn look(image: &Path, told: impl Iterator<Item = &String>) -> Result<usize> {
    let place = image.display().to_string();
    let store = open(&place).await?;
    let (mut answers, mut versions) = (0, BTreeMap::<RecordId, u64>::new());
    for line in told {
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
        let record = store.record(id).await?.with_context(|| format!("{id} was answered, and is lost"))?;
        ensure!(record.version >= version, "{id}: its version {version} was answered, and {} is left", record.version);
    }
    drop(store);
    sound::verify(&place).await?;
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::{Event, read};

    /// A line that was cut off by the kill, wherever that is, tells nothing; a write that strace itself has shortened is still noticed.
    #[test]
    fn a_line_that_was_cut_off_is_no_event() {
        let names = ["/f".to_owned(), "/f-wal".to_owned()];
        let write = r#"7 pwrite64(5<\x2f\x66>, "\x61\x62", 2, 4096) = 2"#;
        for cut in 0..=write.len() {
            let events = read(&format!("{write}\n{}", &write[..cut]), &names).expect("a record");
            let [Event::Write { file: 0, at: 4096, bytes }] = &events[..] else { panic!("{} events", events.len()) };
            assert_eq!(bytes, b"ab");
        }
        assert!(read(&format!("{}\n", write.replace("\", 2", "\"..., 9")), &names).is_err());
    }
}
