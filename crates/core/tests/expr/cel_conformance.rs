//! Compares random expressions with the `cel` interpreter: values must be equal, and errors of `cel` must be faults.
//!
//! Documented exceptions:
//! - In `cel`, `&&`, `||`, `all` and `exists` absorb errors. Ours never do, so a fault may be a value in `cel`.
//! - NaN and infinite doubles are values in `cel` and faults in our language.
//!
//! Not generated, because `cel` has no counterpart: bare names, `max`, `min`, `backoff`, `jitter`, durations in days,
//! operators on null, and division of doubles by zero. Times stay near the epoch, because durations of `cel` end at 292
//! years.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use onceward_core::expr::{EvalStop, ExpectedType, FaultKind};
use onceward_core::time::{Duration, Time};
use onceward_core::value::Value;

use crate::support::{EvalFixture, ExprFixture};

/// Expressions per run.
const CASE_COUNT: u32 = 5_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GeneratedType {
    Int,
    Double,
    Text,
    Bool,
    Ints,
    Texts,
    Time,
    Duration,
}

const GENERATED_TYPES: [GeneratedType; 8] = [
    GeneratedType::Int,
    GeneratedType::Double,
    GeneratedType::Text,
    GeneratedType::Bool,
    GeneratedType::Ints,
    GeneratedType::Texts,
    GeneratedType::Time,
    GeneratedType::Duration,
];

/// Deterministic random numbers, reproducible by seed.
struct XorshiftRng(u64);

impl XorshiftRng {
    fn next_below(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        let sides = u64::try_from(items.len()).unwrap();
        items[usize::try_from(self.next_below(sides)).unwrap()]
    }
}

struct ExprGenerator {
    rng: XorshiftRng,
    locals: Vec<(String, GeneratedType)>,
}

impl ExprGenerator {
    fn generate(&mut self, ty: GeneratedType, depth: u32) -> String {
        if depth == 0 || self.rng.next_below(8) == 0 {
            return self.generate_leaf(ty);
        }
        let depth = depth - 1;
        if self.rng.next_below(8) == 0 {
            let condition = self.generate(GeneratedType::Bool, depth);
            return format!("({condition} ? {} : {})", self.generate(ty, depth), self.generate(ty, depth));
        }
        match ty {
            GeneratedType::Int => self.generate_int(depth),
            GeneratedType::Double => match self.rng.next_below(6) {
                0 => format!("double({})", self.generate(GeneratedType::Int, depth)),
                1 => format!("-({})", self.generate(GeneratedType::Double, depth)),
                2 => format!("({} / {})", self.generate(ty, depth), self.rng.pick(&["2.0", "-0.3", "1e3"])),
                _ => self.generate_infix(ty, &["+", "-", "*"], depth),
            },
            GeneratedType::Text => match self.rng.next_below(4) {
                0 => format!("string({})", self.generate(GeneratedType::Int, depth)),
                1 => format!("string({})", self.generate(GeneratedType::Text, depth)),
                _ => self.generate_infix(ty, &["+"], depth),
            },
            GeneratedType::Bool => self.generate_condition(depth),
            GeneratedType::Ints | GeneratedType::Texts => match self.rng.next_below(3) {
                0 => self.generate_infix(ty, &["+"], depth),
                1 => self.generate_list(ty, depth),
                _ => self.generate_comprehension(ty, "filter", GeneratedType::Bool, depth),
            },
            GeneratedType::Time => {
                let (time, length) =
                    (self.generate(GeneratedType::Time, depth), self.generate(GeneratedType::Duration, depth));
                if self.rng.next_below(2) == 0 {
                    format!("({time} + {length})")
                } else {
                    format!("({time} - {length})")
                }
            }
            GeneratedType::Duration => match self.rng.next_below(3) {
                0 => format!(
                    "({} - {})",
                    self.generate(GeneratedType::Time, depth),
                    self.generate(GeneratedType::Time, depth)
                ),
                _ => self.generate_infix(ty, &["+", "-"], depth),
            },
        }
    }

    fn generate_infix(&mut self, ty: GeneratedType, signs: &[&str], depth: u32) -> String {
        let sign = self.rng.pick(signs);
        format!("({} {sign} {})", self.generate(ty, depth), self.generate(ty, depth))
    }

    fn generate_list(&mut self, ty: GeneratedType, depth: u32) -> String {
        let element = if ty == GeneratedType::Ints { GeneratedType::Int } else { GeneratedType::Text };
        format!("[{}, {}]", self.generate(element, depth), self.generate(element, depth))
    }

    fn generate_comprehension(
        &mut self,
        range: GeneratedType,
        method: &str,
        body: GeneratedType,
        depth: u32,
    ) -> String {
        let list = self.generate(range, depth);
        let name = format!("v{}", self.locals.len());
        let element = if range == GeneratedType::Ints { GeneratedType::Int } else { GeneratedType::Text };
        self.locals.push((name.clone(), element));
        let body = self.generate(body, depth);
        self.locals.pop();
        format!("{list}.{method}({name}, {body})")
    }

    fn generate_int(&mut self, depth: u32) -> String {
        match self.rng.next_below(10) {
            0 => format!("size({})", self.generate(GeneratedType::Text, depth)),
            1 => format!("size({})", self.generate(GeneratedType::Ints, depth)),
            2 => format!("int({})", self.generate(GeneratedType::Double, depth)),
            3 => format!("int({})", self.generate(GeneratedType::Time, depth)),
            4 => format!("-({})", self.generate(GeneratedType::Int, depth)),
            5 => format!("(record.limit == null ? {} : record.limit)", self.generate(GeneratedType::Int, depth)),
            _ => self.generate_infix(GeneratedType::Int, &["+", "-", "*", "/", "%"], depth),
        }
    }

    fn generate_condition(&mut self, depth: u32) -> String {
        match self.rng.next_below(12) {
            0 => self.generate_infix(GeneratedType::Bool, &["&&", "||"], depth),
            1 => format!("!({})", self.generate(GeneratedType::Bool, depth)),
            2 => format!(
                "({} in {})",
                self.generate(GeneratedType::Int, depth),
                self.generate(GeneratedType::Ints, depth)
            ),
            3 => format!(
                "({} in {})",
                self.generate(GeneratedType::Text, depth),
                self.generate(GeneratedType::Texts, depth)
            ),
            4 => {
                let how = self.rng.pick(&["startsWith", "endsWith", "contains"]);
                format!(
                    "{}.{how}({})",
                    self.generate(GeneratedType::Text, depth),
                    self.generate(GeneratedType::Text, depth)
                )
            }
            5 => {
                let (range, how) =
                    (self.rng.pick(&[GeneratedType::Ints, GeneratedType::Texts]), self.rng.pick(&["all", "exists"]));
                self.generate_comprehension(range, how, GeneratedType::Bool, depth)
            }
            6 => format!("(record.title {} null)", self.rng.pick(&["==", "!="])),
            7 => format!("(record.title == {})", self.generate(GeneratedType::Text, depth)),
            8 => format!("(record.limit != null && record.limit < {})", self.generate(GeneratedType::Int, depth)),
            9 => format!("(record.kind {} 'payout')", self.rng.pick(&["==", "!="])),
            10 => {
                let sort = self.rng.pick(&[
                    GeneratedType::Int,
                    GeneratedType::Double,
                    GeneratedType::Text,
                    GeneratedType::Time,
                    GeneratedType::Duration,
                ]);
                self.generate_infix(sort, &["<", "<=", ">", ">="], depth)
            }
            _ => {
                let sort = self.rng.pick(&GENERATED_TYPES);
                self.generate_infix(sort, &["==", "!="], depth)
            }
        }
    }

    fn generate_leaf(&mut self, ty: GeneratedType) -> String {
        let locals: Vec<&String> = self.locals.iter().filter(|(_, own)| *own == ty).map(|(name, _)| name).collect();
        if !locals.is_empty() && self.rng.0.is_multiple_of(2) {
            return self.rng.pick(&locals.iter().map(|name| name.as_str()).collect::<Vec<_>>()).to_owned();
        }
        match ty {
            GeneratedType::Int => {
                self.rng.pick(&["record.count", "record.budget", "0", "1", "-2", "7", "9223372036854775807"])
            }
            GeneratedType::Double => self.rng.pick(&["record.rate", "0.0", "1.5", "-2.25", "1e10", "1e19"]),
            GeneratedType::Text => self.rng.pick(&["record.note", "''", "'a'", "'é\\n'", "\"it's\""]),
            GeneratedType::Bool => self.rng.pick(&["record.flag", "true", "false"]),
            GeneratedType::Ints => self.rng.pick(&["record.nums", "[1, 2]", "[0]"]),
            GeneratedType::Texts => self.rng.pick(&["record.tags", "['a']", "['a', 'b']"]),
            GeneratedType::Time => self.rng.pick(&[
                "record.at",
                "timestamp('1970-03-31T12:00:00.25Z')",
                "timestamp('1969-12-31T23:59:59.5Z')",
            ]),
            GeneratedType::Duration => {
                self.rng.pick(&["record.wait", "duration('90s')", "duration('1h30m')", "duration('250ms')"])
            }
        }
        .to_owned()
    }
}

/// Returns a `cel` value. `cel` constructs it, so the test does not name its time types.
fn cel_value(text: &str) -> cel::Value {
    cel::Program::compile(text).unwrap().execute(&cel::Context::default()).unwrap()
}

fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Bool(truth) => cel::Value::Bool(*truth),
        Value::Int(number) => cel::Value::Int(*number),
        Value::Double(number) => cel::Value::Float(*number),
        Value::Text(text) => (&**text).into(),
        Value::Time(time) => cel_value(&format!("timestamp('{time}')")),
        Value::Duration(length) => cel_value(&format!("duration('{}us')", length.micros())),
        Value::List(items) => items.iter().map(to_cel).collect::<Vec<_>>().into(),
        Value::Null | Value::Ref(_) | Value::Json(_) => cel::Value::Null,
    }
}

fn is_same_value(ours: &Value, theirs: &cel::Value) -> bool {
    match (ours, theirs) {
        (Value::Null, cel::Value::Null) => true,
        (Value::Bool(ours), cel::Value::Bool(theirs)) => ours == theirs,
        (Value::Int(ours), cel::Value::Int(theirs)) => ours == theirs,
        (Value::Double(ours), cel::Value::Float(theirs)) => ours.total_cmp(theirs).is_eq(),
        (Value::Text(ours), cel::Value::String(theirs)) => **ours == ***theirs,
        (Value::Time(ours), cel::Value::Timestamp(theirs)) => ours.micros() == theirs.timestamp_micros(),
        (Value::Duration(ours), cel::Value::Duration(theirs)) => Some(ours.micros()) == theirs.num_microseconds(),
        (Value::List(ours), cel::Value::List(theirs)) => {
            ours.len() == theirs.len()
                && ours.iter().zip(theirs.iter()).all(|(ours, theirs)| is_same_value(ours, theirs))
        }
        _ => false,
    }
}

fn random_fields(rng: &mut XorshiftRng) -> Vec<(&'static str, Value)> {
    let int = |dice: &mut XorshiftRng| Value::Int(dice.pick(&[0, 1, -1, 2, 5, 100, i64::MAX, i64::MIN]));
    let text = |dice: &mut XorshiftRng| Value::text(dice.pick(&["", "a", "ab", "éa", "payout"]));
    let either = |dice: &mut XorshiftRng, value: Value| if dice.next_below(2) == 0 { Value::Null } else { value };
    let length = usize::try_from(rng.next_below(4)).unwrap();
    let (count, budget, limit) = (int(rng), int(rng), int(rng));
    let (note, title) = (text(rng), text(rng));
    vec![
        ("count", count),
        ("budget", budget),
        ("rate", Value::Double(rng.pick(&[0.0, -0.5, 1e5, 3.75]))),
        ("note", note),
        ("title", either(rng, title)),
        ("kind", Value::text(rng.pick(&["payout", "refund"]))),
        ("at", Value::Time(Time::from_micros(rng.pick(&[0, 1_500_000, -1, 7_860_800_250_000])))),
        ("wait", Value::Duration(Duration::from_micros(rng.pick(&[0, 1, 5_000_000, 3_600_000_000])))),
        ("flag", Value::Bool(rng.next_below(2) == 0)),
        ("limit", either(rng, limit)),
        ("tags", Value::List((0..length).map(|_| text(rng)).collect())),
        ("nums", Value::List((0..length).map(|_| int(rng)).collect())),
    ]
}

fn seed_from_env() -> u64 {
    let given = std::env::var("ONCEWARD_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| RandomState::new().hash_one("expressions")).max(1)
}

#[derive(Debug, Default)]
struct ComparisonCounts {
    values: u32,
    faults_in_both: u32,
    excepted: u32,
}

fn compare_with_cel(
    rng: XorshiftRng,
    fixture: &ExprFixture,
    scene: &mut EvalFixture,
    counts: &mut ComparisonCounts,
) -> XorshiftRng {
    let mut writer = ExprGenerator { rng, locals: Vec::new() };
    let sort = writer.rng.pick(&GENERATED_TYPES);
    let depth = u32::try_from(2 + writer.rng.next_below(4)).unwrap();
    let text = writer.generate(sort, depth);
    let mut dice = writer.rng;
    let expr = match fixture.compile(&text, &ExpectedType::Any) {
        Ok(expr) => expr,
        Err(errors) => {
            assert!(errors.iter().all(|error| error.code.starts_with("expression-too")), "{text}: {errors:?}");
            return dice;
        }
    };
    let mut fields: HashMap<String, cel::Value> = HashMap::new();
    for (name, value) in random_fields(&mut dice) {
        fields.insert(name.to_owned(), to_cel(&value));
        scene.set_field(name, value);
    }
    let mut context = cel::Context::default();
    context.add_variable_from_value("record", fields);
    let theirs = cel::Program::compile(&text).unwrap_or_else(|error| panic!("{text}: {error}")).execute(&context);
    let absorbs = ["&&", "||", ".all(", ".exists("].iter().any(|sign| text.contains(sign));
    match (scene.eval(&expr), theirs) {
        (Ok(ours), Ok(theirs)) => {
            assert!(
                is_same_value(&ours, &theirs),
                "{text}: onceward gives {ours:?}, the CEL library {theirs:?}; {:?}",
                scene.record.fields
            );
            counts.values += 1;
        }
        (Err(EvalStop::Fault(_)), Err(_)) => counts.faults_in_both += 1,
        (Err(EvalStop::Fault(fault)), Ok(_)) if absorbs || fault.kind == FaultKind::NotANumber => counts.excepted += 1,
        (ours, theirs) => {
            panic!("{text}: onceward gives {ours:?}, the CEL library {theirs:?}; {:?}", scene.record.fields)
        }
    }
    dice
}

#[test]
fn random_expressions_evaluate_like_cel() {
    let seed = seed_from_env();
    println!("ONCEWARD_SEED={seed}");
    let run = move || {
        let mut dice = XorshiftRng(seed);
        let (house, mut scene) = (ExprFixture::new(), EvalFixture::new());
        let mut tally = ComparisonCounts::default();
        for _ in 0..CASE_COUNT {
            dice = compare_with_cel(dice, &house, &mut scene, &mut tally);
        }
        tally
    };
    // An unoptimized parser needs much stack.
    let tally = std::thread::Builder::new().stack_size(64 * 1024 * 1024).spawn(run).unwrap().join();
    let tally = tally.unwrap_or_else(|_| panic!("run again with ONCEWARD_SEED={seed}"));
    let compared = tally.values + tally.faults_in_both + tally.excepted;
    println!("{compared} of {CASE_COUNT} compared: {tally:?}; {}% without fault", tally.values * 100 / compared);
    assert!(compared > CASE_COUNT * 9 / 10, "most generated expressions must compile: {tally:?}");
    assert!(tally.values > compared / 2 && tally.faults_in_both > 100, "{tally:?}");
    assert!(tally.excepted < compared / 10, "{tally:?}");
}
