//! A record that sends events to another: the caller kind that no key can play.

use std::fmt::Write as _;

use onceward_core::model::Lifecycle;

pub(super) const PUPPET: &str = "matrix.puppet";
/// Who moves the puppet: nobody whom any rule knows.
pub(super) const PUPPETEER: &str = "puppeteer";

/// A lifecycle that requires each of these events of the record it points to, and makes one for Alice with these
/// fields (each an expression, in which `record.target` is the record).
pub(super) fn puppet(lifecycle: &Lifecycle, events: &[String], fields: &[(&str, &str)]) -> String {
    let (payload, lifecycle) = (lifecycle.payload, &lifecycle.name);
    let mut text = format!(
        "language  = 1\nlifecycle = \"{PUPPET}\"\nabout     = \"Sends events, as another record would\"\n\n\
         [payload]\nmin = \"{} B\"\nmax = \"{} B\"\n\n[states]\nthere = {{ rest = true }}\n\n[fields]\n\
         target = {{ type = \"ref\", to = \"{lifecycle}\", optional = true }}\n\n\
         [[on.create]]\ngo   = \"-> there\"\ntake = [\"target\"]\n\n",
        payload.min, payload.max
    );
    let given: Vec<_> = fields.iter().map(|(name, expression)| format!("{name} = \"{expression}\"")).collect();
    let given = given.join(", ");
    let _ = write!(
        text,
        "[[on.make_one]]\ngo    = \"there\"\nspawn = [{{ lifecycle = \"{lifecycle}\", fields = {{ {given} }}, \
         payload = \"same\", owner = \"'alice'\" }}]\n\n"
    );
    for event in events {
        let _ = write!(
            text,
            "[[on.send_{event}]]\ngo      = \"there\"\nrequire = [{{ to = \"record.target\", event = \"{event}\" }}]\n\n"
        );
    }
    text
}
