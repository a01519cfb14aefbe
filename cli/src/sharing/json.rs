//! Writing JSON.

/// A value.
pub enum Json {
    /// `null`.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Number(u64),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Json>),
    /// An object, in this order.
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    /// The value as text, indented.
    pub fn pretty(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, 0);
        text.push('\n');
        text
    }

    fn write(&self, to: &mut String, depth: usize) {
        let line = |to: &mut String, depth| {
            to.push('\n');
            to.push_str(&"  ".repeat(depth));
        };
        match self {
            Json::Null => to.push_str("null"),
            Json::Bool(value) => to.push_str(if *value { "true" } else { "false" }),
            Json::Number(value) => to.push_str(&value.to_string()),
            Json::Text(text) => quote(text, to),
            Json::List(items) if items.is_empty() => to.push_str("[]"),
            Json::List(items) => {
                to.push('[');
                for (i, item) in items.iter().enumerate() {
                    to.push_str(if i == 0 { "" } else { "," });
                    line(to, depth + 1);
                    item.write(to, depth + 1);
                }
                line(to, depth);
                to.push(']');
            }
            Json::Object(members) => {
                to.push('{');
                for (i, (name, value)) in members.iter().enumerate() {
                    to.push_str(if i == 0 { "" } else { "," });
                    line(to, depth + 1);
                    quote(name, to);
                    to.push_str(": ");
                    value.write(to, depth + 1);
                }
                line(to, depth);
                to.push('}');
            }
        }
    }
}

fn quote(text: &str, to: &mut String) {
    to.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                to.push('\\');
                to.push(c);
            }
            c if c < ' ' => to.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => to.push(c),
        }
    }
    to.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_can_read_it() {
        let value = Json::Object(vec![
            ("text", Json::Text("a\"b\\c\n\u{1}é".to_owned())),
            ("list", Json::List(vec![Json::Number(u64::MAX), Json::Bool(true), Json::Null])),
            ("none", Json::List(Vec::new())),
        ]);
        let read: serde_json::Value = serde_json::from_str(&value.pretty()).unwrap();
        let expected = serde_json::json!({"text": "a\"b\\c\n\u{1}é", "list": [u64::MAX, true, null], "none": []});
        assert_eq!(read, expected);
    }
}
