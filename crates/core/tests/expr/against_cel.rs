//! The same random expressions through our compiler and through the `cel` interpreter: the values must be equal, and
//! what is an error there must be a fault here. Excepted is what the language excepts:
//! - `&&`, `||`, `all` and `exists` of `cel` absorb errors; ours never do, so there a fault of ours may be a value;
//! - a double that is no number or infinite is a value there and a fault here.
//!
//! Not generated at all, since `cel` has nothing to compare with: bare names, `max`, `min`, `backoff`, `jitter`, our
//! durations in days, operators on null, and the division of doubles by zero. Times stay near the epoch, since the
//! durations of `cel` end at 292 years.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use onceward_core::expr::{FaultKind, Stop, Want};
use onceward_core::time::{Duration, Time};
use onceward_core::value::Value;

use crate::house::{House, Scene};

/// Expressions per run.
const CASES: u32 = 5_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Int,
    Double,
    Text,
    Bool,
    Ints,
    Texts,
    Time,
    Length,
}

const SORTS: [Sort; 8] =
    [Sort::Int, Sort::Double, Sort::Text, Sort::Bool, Sort::Ints, Sort::Texts, Sort::Time, Sort::Length];

/// A small random source that can be started again from its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        let sides = u64::try_from(of.len()).unwrap();
        of[usize::try_from(self.roll(sides)).unwrap()]
    }
}

struct Writer {
    dice: Dice,
    locals: Vec<(String, Sort)>,
}

impl Writer {
    fn write(&mut self, sort: Sort, depth: u32) -> String {
        if depth == 0 || self.dice.roll(8) == 0 {
            return self.leaf(sort);
        }
        let depth = depth - 1;
        if self.dice.roll(8) == 0 {
            let condition = self.write(Sort::Bool, depth);
            return format!("({condition} ? {} : {})", self.write(sort, depth), self.write(sort, depth));
        }
        match sort {
            Sort::Int => self.int(depth),
            Sort::Double => match self.dice.roll(6) {
                0 => format!("double({})", self.write(Sort::Int, depth)),
                1 => format!("-({})", self.write(Sort::Double, depth)),
                2 => format!("({} / {})", self.write(sort, depth), self.dice.pick(&["2.0", "-0.3", "1e3"])),
                _ => self.infix(sort, &["+", "-", "*"], depth),
            },
            Sort::Text => match self.dice.roll(4) {
                0 => format!("string({})", self.write(Sort::Int, depth)),
                1 => format!("string({})", self.write(Sort::Text, depth)),
                _ => self.infix(sort, &["+"], depth),
            },
            Sort::Bool => self.condition(depth),
            Sort::Ints | Sort::Texts => match self.dice.roll(3) {
                0 => self.infix(sort, &["+"], depth),
                1 => self.literal(sort, depth),
                _ => self.over(sort, "filter", Sort::Bool, depth),
            },
            Sort::Time => {
                let (time, length) = (self.write(Sort::Time, depth), self.write(Sort::Length, depth));
                if self.dice.roll(2) == 0 { format!("({time} + {length})") } else { format!("({time} - {length})") }
            }
            Sort::Length => match self.dice.roll(3) {
                0 => format!("({} - {})", self.write(Sort::Time, depth), self.write(Sort::Time, depth)),
                _ => self.infix(sort, &["+", "-"], depth),
            },
        }
    }

    fn infix(&mut self, sort: Sort, signs: &[&str], depth: u32) -> String {
        let sign = self.dice.pick(signs);
        format!("({} {sign} {})", self.write(sort, depth), self.write(sort, depth))
    }

    /// A list of computed elements.
    fn literal(&mut self, sort: Sort, depth: u32) -> String {
        let element = if sort == Sort::Ints { Sort::Int } else { Sort::Text };
        format!("[{}, {}]", self.write(element, depth), self.write(element, depth))
    }

    fn over(&mut self, range: Sort, how: &str, body: Sort, depth: u32) -> String {
        let list = self.write(range, depth);
        let name = format!("v{}", self.locals.len());
        let element = if range == Sort::Ints { Sort::Int } else { Sort::Text };
        self.locals.push((name.clone(), element));
        let body = self.write(body, depth);
        self.locals.pop();
        format!("{list}.{how}({name}, {body})")
    }

    fn int(&mut self, depth: u32) -> String {
        match self.dice.roll(10) {
            0 => format!("size({})", self.write(Sort::Text, depth)),
            1 => format!("size({})", self.write(Sort::Ints, depth)),
            2 => format!("int({})", self.write(Sort::Double, depth)),
            3 => format!("int({})", self.write(Sort::Time, depth)),
            4 => format!("-({})", self.write(Sort::Int, depth)),
            5 => format!("(record.limit == null ? {} : record.limit)", self.write(Sort::Int, depth)),
            _ => self.infix(Sort::Int, &["+", "-", "*", "/", "%"], depth),
        }
    }

    fn condition(&mut self, depth: u32) -> String {
        match self.dice.roll(12) {
            0 => self.infix(Sort::Bool, &["&&", "||"], depth),
            1 => format!("!({})", self.write(Sort::Bool, depth)),
            2 => format!("({} in {})", self.write(Sort::Int, depth), self.write(Sort::Ints, depth)),
            3 => format!("({} in {})", self.write(Sort::Text, depth), self.write(Sort::Texts, depth)),
            4 => {
                let how = self.dice.pick(&["startsWith", "endsWith", "contains"]);
                format!("{}.{how}({})", self.write(Sort::Text, depth), self.write(Sort::Text, depth))
            }
            5 => {
                let (range, how) = (self.dice.pick(&[Sort::Ints, Sort::Texts]), self.dice.pick(&["all", "exists"]));
                self.over(range, how, Sort::Bool, depth)
            }
            6 => format!("(record.title {} null)", self.dice.pick(&["==", "!="])),
            7 => format!("(record.title == {})", self.write(Sort::Text, depth)),
            8 => format!("(record.limit != null && record.limit < {})", self.write(Sort::Int, depth)),
            9 => format!("(record.kind {} 'payout')", self.dice.pick(&["==", "!="])),
            10 => {
                let sort = self.dice.pick(&[Sort::Int, Sort::Double, Sort::Text, Sort::Time, Sort::Length]);
                self.infix(sort, &["<", "<=", ">", ">="], depth)
            }
            _ => {
                let sort = self.dice.pick(&SORTS);
                self.infix(sort, &["==", "!="], depth)
            }
        }
    }

    fn leaf(&mut self, sort: Sort) -> String {
        let locals: Vec<&String> = self.locals.iter().filter(|(_, own)| *own == sort).map(|(name, _)| name).collect();
        if !locals.is_empty() && self.dice.0.is_multiple_of(2) {
            return self.dice.pick(&locals.iter().map(|name| name.as_str()).collect::<Vec<_>>()).to_owned();
        }
        match sort {
            Sort::Int => self.dice.pick(&["record.count", "record.budget", "0", "1", "-2", "7", "9223372036854775807"]),
            Sort::Double => self.dice.pick(&["record.rate", "0.0", "1.5", "-2.25", "1e10", "1e19"]),
            Sort::Text => self.dice.pick(&["record.note", "''", "'a'", "'é\\n'", "\"it's\""]),
            Sort::Bool => self.dice.pick(&["record.flag", "true", "false"]),
            Sort::Ints => self.dice.pick(&["record.nums", "[1, 2]", "[0]"]),
            Sort::Texts => self.dice.pick(&["record.tags", "['a']", "['a', 'b']"]),
            Sort::Time => self.dice.pick(&[
                "record.at",
                "timestamp('1970-03-31T12:00:00.25Z')",
                "timestamp('1969-12-31T23:59:59.5Z')",
            ]),
            Sort::Length => {
                self.dice.pick(&["record.wait", "duration('90s')", "duration('1h30m')", "duration('250ms')"])
            }
        }
        .to_owned()
    }
}

/// A cel value without naming its time types: those are made by cel itself.
fn made(text: &str) -> cel::Value {
    cel::Program::compile(text).unwrap().execute(&cel::Context::default()).unwrap()
}

fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Bool(truth) => cel::Value::Bool(*truth),
        Value::Int(number) => cel::Value::Int(*number),
        Value::Double(number) => cel::Value::Float(*number),
        Value::Text(text) => (&**text).into(),
        Value::Time(time) => made(&format!("timestamp('{time}')")),
        Value::Duration(length) => made(&format!("duration('{}us')", length.micros())),
        Value::List(items) => items.iter().map(to_cel).collect::<Vec<_>>().into(),
        Value::Null | Value::Ref(_) | Value::Json(_) => cel::Value::Null,
    }
}

fn same(ours: &Value, theirs: &cel::Value) -> bool {
    match (ours, theirs) {
        (Value::Null, cel::Value::Null) => true,
        (Value::Bool(ours), cel::Value::Bool(theirs)) => ours == theirs,
        (Value::Int(ours), cel::Value::Int(theirs)) => ours == theirs,
        (Value::Double(ours), cel::Value::Float(theirs)) => ours.total_cmp(theirs).is_eq(),
        (Value::Text(ours), cel::Value::String(theirs)) => **ours == ***theirs,
        (Value::Time(ours), cel::Value::Timestamp(theirs)) => ours.micros() == theirs.timestamp_micros(),
        (Value::Duration(ours), cel::Value::Duration(theirs)) => Some(ours.micros()) == theirs.num_microseconds(),
        (Value::List(ours), cel::Value::List(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs.iter()).all(|(ours, theirs)| same(ours, theirs))
        }
        _ => false,
    }
}

fn random_record(dice: &mut Dice) -> Vec<(&'static str, Value)> {
    let int = |dice: &mut Dice| Value::Int(dice.pick(&[0, 1, -1, 2, 5, 100, i64::MAX, i64::MIN]));
    let text = |dice: &mut Dice| Value::text(dice.pick(&["", "a", "ab", "éa", "payout"]));
    let either = |dice: &mut Dice, value: Value| if dice.roll(2) == 0 { Value::Null } else { value };
    let length = usize::try_from(dice.roll(4)).unwrap();
    let (count, budget, limit) = (int(dice), int(dice), int(dice));
    let (note, title) = (text(dice), text(dice));
    vec![
        ("count", count),
        ("budget", budget),
        ("rate", Value::Double(dice.pick(&[0.0, -0.5, 1e5, 3.75]))),
        ("note", note),
        ("title", either(dice, title)),
        ("kind", Value::text(dice.pick(&["payout", "refund"]))),
        ("at", Value::Time(Time::from_micros(dice.pick(&[0, 1_500_000, -1, 7_860_800_250_000])))),
        ("wait", Value::Duration(Duration::from_micros(dice.pick(&[0, 1, 5_000_000, 3_600_000_000])))),
        ("flag", Value::Bool(dice.roll(2) == 0)),
        ("limit", either(dice, limit)),
        ("tags", Value::List((0..length).map(|_| text(dice)).collect())),
        ("nums", Value::List((0..length).map(|_| int(dice)).collect())),
    ]
}

fn seed() -> u64 {
    let given = std::env::var("ONCEWARD_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| RandomState::new().hash_one("expressions")).max(1)
}

#[derive(Debug, Default)]
struct Tally {
    values: u32,
    faults_in_both: u32,
    excepted: u32,
}

fn compare(dice: Dice, house: &House, scene: &mut Scene, tally: &mut Tally) -> Dice {
    let mut writer = Writer { dice, locals: Vec::new() };
    let sort = writer.dice.pick(&SORTS);
    let depth = u32::try_from(2 + writer.dice.roll(4)).unwrap();
    let text = writer.write(sort, depth);
    let mut dice = writer.dice;
    let expr = match house.compile(&text, &Want::Any) {
        Ok(expr) => expr,
        Err(errors) => {
            assert!(errors.iter().all(|error| error.code.starts_with("expression-too")), "{text}: {errors:?}");
            return dice;
        }
    };
    let mut fields: HashMap<String, cel::Value> = HashMap::new();
    for (name, value) in random_record(&mut dice) {
        fields.insert(name.to_owned(), to_cel(&value));
        scene.set(name, value);
    }
    let mut context = cel::Context::default();
    context.add_variable_from_value("record", fields);
    let theirs = cel::Program::compile(&text).unwrap_or_else(|error| panic!("{text}: {error}")).execute(&context);
    let absorbs = ["&&", "||", ".all(", ".exists("].iter().any(|sign| text.contains(sign));
    match (scene.eval(&expr), theirs) {
        (Ok(ours), Ok(theirs)) => {
            assert!(same(&ours, &theirs), "{text}: {ours:?} here, {theirs:?} there; {:?}", scene.record.fields);
            tally.values += 1;
        }
        (Err(Stop::Fault(_)), Err(_)) => tally.faults_in_both += 1,
        (Err(Stop::Fault(fault)), Ok(_)) if absorbs || fault.kind == FaultKind::NotANumber => tally.excepted += 1,
        (ours, theirs) => panic!("{text}: {ours:?} here, {theirs:?} there; {:?}", scene.record.fields),
    }
    dice
}

#[test]
fn random_expressions_agree_with_cel() {
    let seed = seed();
    println!("ONCEWARD_SEED={seed}");
    let run = move || {
        let mut dice = Dice(seed);
        let (house, mut scene) = (House::new(), Scene::new());
        let mut tally = Tally::default();
        for _ in 0..CASES {
            dice = compare(dice, &house, &mut scene, &mut tally);
        }
        tally
    };
    // The parser needs much stack where it is not optimised.
    let tally = std::thread::Builder::new().stack_size(64 * 1024 * 1024).spawn(run).unwrap().join();
    let tally = tally.unwrap_or_else(|_| panic!("run again with ONCEWARD_SEED={seed}"));
    let compared = tally.values + tally.faults_in_both + tally.excepted;
    println!("{compared} of {CASES} compared: {tally:?}; {}% without fault", tally.values * 100 / compared);
    assert!(compared > CASES * 9 / 10, "most of what is written must be taken: {tally:?}");
    assert!(tally.values > compared / 2 && tally.faults_in_both > 100, "{tally:?}");
    assert!(tally.excepted < compared / 10, "{tally:?}");
}
