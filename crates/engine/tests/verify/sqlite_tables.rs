//! The tables of a SQLite database by its own schema, and altered values.

use onceward_testkit::random::Rng;
use rusqlite::Connection;
use rusqlite::types::Value;

#[derive(Clone, Debug)]
pub(crate) struct TableInfo {
    pub(crate) name: String,
    pub(crate) columns: Vec<ColumnInfo>,
}

#[derive(Clone, Debug)]
pub(crate) struct ColumnInfo {
    pub(crate) name: String,
    pub(crate) column_type: String,
    pub(crate) nullable: bool,
    is_primary_key: bool,
}

impl ColumnInfo {
    /// A column of this type, for any table.
    pub(crate) fn new(kind: &str, nullable: bool) -> Self {
        Self { name: String::new(), column_type: kind.to_owned(), nullable, is_primary_key: false }
    }
}

/// The values of a row, in column order.
pub(crate) type RowValues = Vec<Value>;

pub(crate) fn list_tables(connection: &Connection) -> Vec<TableInfo> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";
    let mut statement = connection.prepare(sql).unwrap();
    let names: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    names.into_iter().map(|name| TableInfo { columns: list_columns(connection, &name), name }).collect()
}

fn list_columns(connection: &Connection, table: &str) -> Vec<ColumnInfo> {
    let mut statement = connection.prepare("SELECT name, type, \"notnull\", pk FROM pragma_table_info(?1)").unwrap();
    let found = statement.query_map([table], |row| {
        let (is_key, not_null): (bool, bool) = (row.get::<_, i64>(3)? > 0, row.get(2)?);
        Ok(ColumnInfo {
            name: row.get(0)?,
            column_type: row.get(1)?,
            nullable: !is_key && !not_null,
            is_primary_key: is_key,
        })
    });
    found.unwrap().map(Result::unwrap).collect()
}

impl TableInfo {
    pub(crate) fn rows(&self, connection: &Connection, condition: &str) -> Vec<RowValues> {
        let names: Vec<&str> = self.columns.iter().map(|column| &*column.name).collect();
        let names = names.join(", ");
        let sql = format!("SELECT {names} FROM {} WHERE {condition} ORDER BY {names}", self.name);
        let mut statement = connection.prepare(&sql).unwrap();
        let rows = statement.query_map([], |row| (0..self.columns.len()).map(|at| row.get(at)).collect());
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// Returns the `WHERE` condition of a row; its values are bound in column order.
    fn key_condition(&self) -> String {
        let keys = self.columns.iter().enumerate().filter(|(_, column)| column.is_primary_key);
        keys.map(|(at, column)| format!("{} = ?{}", column.name, at + 1)).collect::<Vec<_>>().join(" AND ")
    }

    /// Sets a value of a row. Returns the database's error if a key forbids it.
    pub(crate) fn update(
        &self,
        connection: &Connection,
        row: &RowValues,
        column: usize,
        value: &Value,
    ) -> Result<usize, rusqlite::Error> {
        let name = &self.columns[column].name;
        let at = self.columns.len() + 1;
        let sql = format!("UPDATE {} SET {name} = ?{at} WHERE {}", self.name, self.key_condition());
        let values = row.iter().chain([value]);
        connection.execute(&sql, rusqlite::params_from_iter(values.map(Some)))
    }

    pub(crate) fn delete(&self, connection: &Connection, row: &RowValues) -> usize {
        let sql = format!("DELETE FROM {} WHERE {}", self.name, self.key_condition());
        // Every bound value must occur in the statement.
        let all: Vec<String> = (1..=row.len()).map(|at| format!("?{at} IS NOT ?{at}")).collect();
        let sql = format!("{sql} AND NOT ({})", all.join(" OR "));
        connection.execute(&sql, rusqlite::params_from_iter(row)).unwrap()
    }

    pub(crate) fn insert(&self, connection: &Connection, row: &RowValues) -> Result<usize, rusqlite::Error> {
        let places: Vec<String> = (1..=row.len()).map(|at| format!("?{at}")).collect();
        let sql = format!("INSERT INTO {} VALUES ({})", self.name, places.join(", "));
        connection.execute(&sql, rusqlite::params_from_iter(row))
    }
}

/// Returns another value of the same type, or swaps NULL and a value.
pub(crate) fn other_value(value: &Value, column: &ColumnInfo, chance: &mut Rng) -> Value {
    match value {
        Value::Null => match &*column.column_type {
            "INTEGER" => Value::Integer(i64::try_from(chance.below(100)).unwrap()),
            "TEXT" => Value::Text("[\"x\"]".to_owned()),
            _ => Value::Blob(vec![7; 32]),
        },
        _ if column.nullable && chance.percent(20) => Value::Null,
        Value::Integer(number) => {
            let by = [1, -1, 2, 1_000_000, -1_000_000][chance.below(5)];
            Value::Integer(number.wrapping_add(by))
        }
        Value::Text(text) => Value::Text(other_text(text, chance)),
        Value::Blob(bytes) => {
            let mut bytes = bytes.clone();
            if bytes.is_empty() {
                return Value::Blob(vec![1]);
            }
            let at = chance.below(bytes.len());
            bytes[at] ^= 1 << chance.below(8);
            Value::Blob(bytes)
        }
        Value::Real(_) => panic!("no column has such a value"),
    }
}

/// Changes one character.
fn other_text(text: &str, chance: &mut Rng) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    if characters.is_empty() {
        return "x".to_owned();
    }
    let at = chance.below(characters.len());
    characters[at] = match characters[at] {
        '9' => '8',
        digit @ '0'..='8' => char::from_digit(digit.to_digit(10).unwrap() + 1, 10).unwrap(),
        'z' | 'Z' => 'q',
        letter if letter.is_ascii_alphabetic() => char::from(u8::try_from(letter).unwrap() + 1),
        _ => 'x',
    };
    characters.into_iter().collect()
}
