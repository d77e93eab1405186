//! Runs the steps of the gate, some beside each other, and prints one block of output per step.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::shell;

/// Steps beside the tests get only the processor time that the tests leave.
const BACKGROUND_NICENESS: &str = "10";

/// Short against the shortest step.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A step that is an xtask command and runs as a process of its own, with its output in one block.
pub(crate) struct CommandStep {
    pub(crate) name: &'static str,
    pub(crate) words: &'static [&'static str],
}

/// The steps of a run and how long each took.
pub(crate) struct Steps {
    began: Instant,
    finished: Mutex<Vec<FinishedStep>>,
    output: Mutex<StepOutput>,
    has_failed: AtomicBool,
}

struct FinishedStep {
    name: &'static str,
    seconds: f64,
    processor_seconds: f64,
    is_command: bool,
}

#[derive(Default)]
struct StepOutput {
    /// Whether a step of this process prints now.
    is_busy: bool,
    /// Blocks of steps that ended meanwhile.
    pending: Vec<String>,
}

impl Steps {
    pub(crate) fn begin() -> Self {
        Self {
            began: Instant::now(),
            finished: Mutex::default(),
            output: Mutex::default(),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Runs a step in this process. Its output appears at once.
    pub(crate) fn run(&self, name: &'static str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        lock(&self.output).is_busy = true;
        println!("── {name}");
        let (began, before) = (Instant::now(), self.own_processor_seconds());
        let result = work();
        let (seconds, busy) = (began.elapsed().as_secs_f64(), self.own_processor_seconds() - before);
        println!("{}\n", self.finish(name, seconds, busy, false, result.is_ok()));
        let mut output = lock(&self.output);
        output.is_busy = false;
        output.pending.drain(..).for_each(|block| println!("{block}"));
        result.with_context(|| format!("the step `{name}` failed"))
    }

    /// Runs lanes beside each other, and the steps of a lane one after another. After a failure no lane starts another
    /// step.
    pub(crate) fn run_lanes(&self, lanes: &[&[CommandStep]]) -> Result<()> {
        self.run_beside(lanes, || Ok(()))
    }

    /// Like [`run_lanes`](Self::run_lanes), but also runs `work` beside the lanes.
    pub(crate) fn run_beside(&self, lanes: &[&[CommandStep]], work: impl FnOnce() -> Result<()>) -> Result<()> {
        std::thread::scope(|scope| {
            let lanes: Vec<_> = lanes.iter().map(|lane| scope.spawn(|| self.run_lane(lane))).collect();
            let result = work();
            let results = lanes.into_iter().map(|lane| lane.join().map_err(|_| anyhow!("a lane panicked"))?);
            results.fold(result, Result::and)
        })
    }

    fn run_lane(&self, lane: &[CommandStep]) -> Result<()> {
        for step in lane {
            if self.has_failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            self.run_command(step)?;
        }
        Ok(())
    }

    fn run_command(&self, step: &CommandStep) -> Result<()> {
        static NEXT_NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let scratch = std::env::temp_dir().join(format!("onceward-step-{}-{number}.txt", std::process::id()));
        // A file instead of a pipe: a process that the step started may outlive it and hold the pipe open.
        let file = std::fs::File::create(&scratch)?;
        let mut command = shell::command("nice");
        command.args(["-n", BACKGROUND_NICENESS]).arg(std::env::current_exe()?).args(step.words);
        shell::pass_on_linting(&mut command);
        command.stdin(Stdio::null()).stderr(file.try_clone()?).stdout(file);
        let began = Instant::now();
        let mut child = command.spawn().with_context(|| format!("cannot start the step `{}`", step.name))?;
        let mut busy = 0.0;
        // An ended process keeps its times until it is waited for.
        while let Some(seconds) = running_processor_seconds(child.id()) {
            busy = seconds.seconds;
            if seconds.has_ended {
                break;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        let succeeded = child.wait()?.success();
        let text = String::from_utf8_lossy(&std::fs::read(&scratch)?).into_owned();
        std::fs::remove_file(&scratch)?;
        let summary = self.finish(step.name, began.elapsed().as_secs_f64(), busy, true, succeeded);
        let block = format!("── {}\n{text}{summary}\n", step.name);
        let mut output = lock(&self.output);
        if output.is_busy {
            output.pending.push(block);
        } else {
            println!("{block}");
        }
        if !succeeded {
            bail!("the step `{}` failed", step.name);
        }
        Ok(())
    }

    fn finish(&self, name: &'static str, seconds: f64, busy: f64, is_command: bool, succeeded: bool) -> String {
        lock(&self.finished).push(FinishedStep { name, seconds, processor_seconds: busy, is_command });
        if succeeded {
            return format!("── {name}: passed in {seconds:.1} s, {busy:.1} s of processor time");
        }
        self.has_failed.store(true, Ordering::Relaxed);
        format!("── {name}: FAILED after {seconds:.1} s")
    }

    /// Processor time of this process and of the children it has waited for, without the steps that are commands.
    fn own_processor_seconds(&self) -> f64 {
        let commands: f64 =
            lock(&self.finished).iter().filter(|step| step.is_command).map(|step| step.processor_seconds).sum();
        running_processor_seconds(std::process::id()).map_or(0.0, |times| times.seconds) - commands
    }

    pub(crate) fn print(&self) {
        println!("{:<28} {:>8} {:>10}", "step", "seconds", "processor");
        for FinishedStep { name, seconds, processor_seconds, .. } in lock(&self.finished).iter() {
            println!("{name:<28} {seconds:>8.1} {processor_seconds:>10.1}");
        }
        println!("all steps passed in {} s\n", self.began.elapsed().as_secs());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct ProcessorTimes {
    seconds: f64,
    has_ended: bool,
}

/// Returns the processor time of a process and of the children it has waited for: the better measure on a busy machine.
fn running_processor_seconds(process: u32) -> Option<ProcessorTimes> {
    parse_processor_times(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// The program's name is in brackets and may contain anything. Field 3 is the state; fields 14 to 17 are user and system
/// time, of the process and of its children.
fn parse_processor_times(stat: &str) -> Option<ProcessorTimes> {
    /// Clock ticks per second, fixed by the kernel's interface.
    const TICKS_PER_SECOND: f64 = 100.0;
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks: f64 = fields.get(11..15)?.iter().filter_map(|field| field.parse::<f64>().ok()).sum();
    Some(ProcessorTimes { seconds: ticks / TICKS_PER_SECOND, has_ended: fields.first() == Some(&"Z") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_times_are_read_behind_the_program_name() {
        let stat = "7 (a (b) c) Z 1 2 3 4 5 6 7 8 9 10 100 50 25 25 20 0 1";
        let times = parse_processor_times(stat).expect("the line is complete");
        assert!((times.seconds - 2.0).abs() < f64::EPSILON && times.has_ended);
        assert!(parse_processor_times("7 (a) R 1").is_none());
    }

    #[test]
    fn failed_step_fails_the_run_and_stops_later_lanes() {
        const NEXT_LANE: &[CommandStep] = &[CommandStep { name: "later", words: &["no-such-command"] }];
        let steps = Steps::begin();
        assert!(steps.run("good", || Ok(())).is_ok());
        let error = steps.run("bad", || bail!("no")).expect_err("the step fails");
        assert_eq!(format!("{error:#}"), "the step `bad` failed: no");
        assert!(steps.run_lanes(&[NEXT_LANE]).is_ok(), "a lane starts no step after a failure");
    }
}
