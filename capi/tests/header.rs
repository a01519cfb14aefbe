//! The committed header is the one that the sources make.
//!
//! `HEDDLE_UPDATE_HEADER=1 cargo test -p heddle-capi --test header` (or `ci/header.sh --update`) writes it.

use std::env;
use std::fs;
use std::path::Path;

/// Columns of the header's comments.
const WIDTH: usize = 110;

/// A comment: what Rust wants said about unsafe functions is left out, the rest filled to the width.
fn comment(indent: &str, text: &[&str]) -> String {
    let mut out = format!("{indent}/*");
    let mut width = out.len();
    let mut is_first = true;
    for line in text.iter().take_while(|line| **line != "# Safety").map(|line| line.trim()) {
        if line.is_empty() {
            // The last one before what is left out, too.
            is_first = true;
            continue;
        }
        if is_first && width > indent.len() + 2 {
            out.push_str(&format!("\n{indent} *\n{indent} *"));
            width = indent.len() + 2;
        }
        is_first = false;
        for word in line.split(' ') {
            if width + 1 + word.len() > WIDTH {
                out.push_str(&format!("\n{indent} *"));
                width = indent.len() + 2;
            }
            out.push(' ');
            out.push_str(word);
            width += 1 + word.len();
        }
    }
    out.push_str(" */\n");
    out
}

/// The generator's header with its comments in shape.
fn shape(made: &str) -> String {
    let mut out = String::new();
    let mut lines = made.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim() != "/*" {
            out.push_str(line);
            out.push('\n');
            continue;
        }
        let indent = &line[..line.len() - 2];
        let mut text = Vec::new();
        for line in lines.by_ref() {
            if line.trim() == "*/" {
                break;
            }
            text.push(line.trim());
        }
        out.push_str(&comment(indent, &text));
    }
    out
}

#[test]
fn header_is_up_to_date() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("a configuration");
    let mut made = Vec::new();
    ["start", "error", "limit", "thread", "fiber", "fork", "sync", "waits", "channel", "process", "observe"]
        .iter()
        .fold(cbindgen::Builder::new().with_config(config), |builder, part| {
            builder.with_src(here.join(format!("src/{part}.rs")))
        })
        .generate()
        .expect("bindings")
        .write(&mut made);
    let made = shape(&String::from_utf8(made).expect("text"));
    let file = here.join("include/heddle.h");
    if env::var_os("HEDDLE_UPDATE_HEADER").is_some() {
        fs::write(&file, &made).expect("a new header");
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    let same = made.lines().zip(committed.lines()).take_while(|(a, b)| a == b).count();
    assert!(
        made == committed,
        "include/heddle.h is not what the sources make, from line {} on: run `ci/header.sh --update`",
        same + 1
    );
}
