//! A record that sends events to another record: the kind of caller that no API key can be.

use std::fmt::Write as _;

use onceward_core::model::{DataType, FieldDef, Lifecycle};

pub(super) const DRIVER_LIFECYCLE: &str = "matrix.puppet";
/// Owner of the driver, which no rule of a lifecycle names.
pub(super) const DRIVER_OWNER: &str = "puppeteer";

/// Returns the inputs that every transition of an event needs: those of the first.
pub(super) fn required_inputs(lifecycle: &Lifecycle, event: &str) -> Vec<FieldDef> {
    let rows = lifecycle.event(event).map_or(&[][..], |event| &event.transitions);
    let needed = |row: &onceward_core::model::Transition| -> Vec<FieldDef> {
        let given = row.inputs.iter().filter(|input| input.target_field.is_none() && !input.field.nullable);
        given.map(|input| input.field.clone()).collect()
    };
    let needs: Vec<_> = rows.iter().map(needed).collect();
    if needs.iter().any(Vec::is_empty) { Vec::new() } else { needs.into_iter().next().unwrap_or_default() }
}

/// Returns a type in the syntax of a lifecycle file.
fn type_declaration(ty: &DataType) -> String {
    let quoted =
        |names: &[std::sync::Arc<str>]| names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    match ty {
        DataType::Null | DataType::Text => "{ type = \"string\" }".to_owned(),
        DataType::Bool => "{ type = \"bool\" }".to_owned(),
        DataType::Int => "{ type = \"int\" }".to_owned(),
        DataType::Double => "{ type = \"double\" }".to_owned(),
        DataType::Time => "{ type = \"time\" }".to_owned(),
        DataType::Duration => "{ type = \"duration\" }".to_owned(),
        DataType::Json => "{ type = \"json\" }".to_owned(),
        DataType::Enum(names) => format!("{{ type = \"string\", enum = [{}] }}", quoted(names)),
        DataType::Ref(names) => format!("{{ type = \"ref\", to = [{}] }}", quoted(names)),
        DataType::List(of) => match &**of {
            DataType::Ref(names) => format!("{{ type = \"refs\", to = [{}] }}", quoted(names)),
            of => type_declaration(of).replace("type = ", "type = \"list\", of = "),
        },
    }
}

/// Returns a lifecycle that requires each of these events of its target and passes the needed inputs on. It also spawns
/// a record for Alice with these fields. Each is an expression, in which `record.target` is the target.
pub(super) fn driver_lifecycle(lifecycle: &Lifecycle, events: &[String], fields: &[(&str, &str)]) -> String {
    let (payload, own, lifecycle) = (lifecycle.payload_bounds, lifecycle, &lifecycle.name);
    let mut text = format!(
        "language  = 1\nlifecycle = \"{DRIVER_LIFECYCLE}\"\nabout     = \"Sends events, as another record would\"\n\n\
         [payload]\nmin = \"{} B\"\nmax = \"{} B\"\n\n[states]\nthere = {{ rest = true }}\n\n[fields]\n\
         target = {{ type = \"ref\", to = \"{lifecycle}\", optional = true }}\n\n\
         [[on.create]]\ngo   = \"-> there\"\ntake = [\"target\"]\n\n",
        payload.min_bytes, payload.max_bytes
    );
    let given: Vec<_> = fields.iter().map(|(name, expression)| format!("{name} = \"{expression}\"")).collect();
    let given = given.join(", ");
    let _ = write!(
        text,
        "[[on.make_one]]\ngo    = \"there\"\nspawn = [{{ lifecycle = \"{lifecycle}\", fields = {{ {given} }}, \
         payload = \"same\", owner = \"'alice'\" }}]\n\n"
    );
    for event in events {
        let needs = required_inputs(own, event);
        let declared: Vec<_> =
            needs.iter().map(|field| format!("{} = {}", field.name, type_declaration(&field.ty))).collect();
        let passed: Vec<_> = needs.iter().map(|field| format!("{0} = \"input.{0}\"", field.name)).collect();
        let _ = write!(
            text,
            "[[on.send_{event}]]\ngo      = \"there\"\ninput   = {{ {} }}\n\
             require = [{{ to = \"record.target\", event = \"{event}\", input = {{ {} }} }}]\n\n",
            declared.join(", "),
            passed.join(", ")
        );
    }
    text
}
