//! A record that sends events to another: the caller kind that no key can play.

use std::fmt::Write as _;

pub(super) const PUPPET: &str = "matrix.puppet";
/// Who moves the puppet: nobody whom any rule knows.
pub(super) const PUPPETEER: &str = "puppeteer";

/// A lifecycle that requires each of these events of the record it points to, and makes one with these fields (each an
/// expression, in which `record.target` is the record).
pub(super) fn puppet(lifecycle: &str, events: &[String], fields: &[(&str, &str)]) -> String {
    let mut text = format!(
        "language  = 1\nlifecycle = \"{PUPPET}\"\nabout     = \"Sends events, as another record would\"\n\n\
         [states]\nthere = {{ rest = true }}\n\n[fields]\n\
         target = {{ type = \"ref\", to = \"{lifecycle}\", optional = true }}\n\n\
         [[on.create]]\ngo   = \"-> there\"\ntake = [\"target\"]\n\n"
    );
    let given: Vec<_> = fields.iter().map(|(name, expression)| format!("{name} = \"{expression}\"")).collect();
    let given = given.join(", ");
    let _ = write!(
        text,
        "[[on.make_one]]\ngo    = \"there\"\nspawn = [{{ lifecycle = \"{lifecycle}\", fields = {{ {given} }} }}]\n\n"
    );
    for event in events {
        let _ = write!(
            text,
            "[[on.send_{event}]]\ngo      = \"there\"\nrequire = [{{ to = \"record.target\", event = \"{event}\" }}]\n\n"
        );
    }
    text
}
