//! The report: what each falsely shared line is, who uses it, and how to mend it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::path::Path;

use heddle_sharing::layout::{ATOMIC, LINE, WRITE};

use crate::sharing::findings::{Findings, Line, User};
use crate::sharing::json::Json;
use crate::sharing::symbols::{Source, Symbols, Variable};

/// A thread with at most so many bytes in a variable has a result there, and not a structure.
const RESULT: u32 = 16;
/// The same for a block that was allocated.
const HEAP_RESULT: u32 = 8;

/// An object counts if this share (one of so many) of all the program's accesses could take one of its lines away from
/// another thread. The line at the border of two threads' parts of a large array does not.
const SELDOM: u64 = 1000;

/// What the line is part of.
enum Place {
    /// The one that is written most comes first.
    Variables(Vec<Variable>),
    Heap {
        size: u64,
        offset: u64,
        thread: Option<u64>,
        site: Option<Source>,
        blocks: usize,
    },
    Stack {
        thread: u64,
    },
    Unknown,
}

/// How to mend it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fix {
    Pad,
    Localise,
    AllocatePerThread,
}

impl Fix {
    fn name(self) -> &'static str {
        match self {
            Fix::Pad => "pad",
            Fix::Localise => "localise",
            Fix::AllocatePerThread => "allocate per thread",
        }
    }
}

/// Accesses of one thread from one place in the source.
struct Access {
    source: Option<Source>,
    caller: String,
    flags: u32,
    offset: usize,
    size: usize,
    count: u64,
}

/// A thread that takes part, with names.
struct NamedUser<'a> {
    user: &'a User,
    start: Option<String>,
    created: Option<Source>,
    accesses: Vec<Access>,
}

/// A line with names.
pub struct Described<'a> {
    line: &'a Line,
    place: Place,
    users: Vec<NamedUser<'a>>,
    fix: Fix,
    advice: String,
}

/// Gives everything its name, and says how to mend it. What costs next to nothing is left out.
pub fn describe(findings: &Findings) -> Vec<Described<'_>> {
    let symbols = Symbols::new(&findings.modules);
    let keys: Vec<u64> = findings.lines.iter().map(|line| object(line, &symbols)).collect();
    // How often an object's lines could change hands at most.
    let mut chances: HashMap<u64, u64> = HashMap::new();
    for (line, key) in findings.lines.iter().zip(&keys) {
        *chances.entry(*key).or_default() += line.chances();
    }
    // How many bytes each thread uses of an object, in all its lines.
    let mut used: HashMap<(u64, u64), u32> = HashMap::new();
    for (line, key) in findings.lines.iter().zip(&keys) {
        for user in &line.users {
            *used.entry((*key, user.thread)).or_default() += user.used().count_ones();
        }
    }
    let most = |key: &u64| used.iter().filter(|(entry, _)| entry.0 == *key).map(|(_, &bytes)| bytes).max().unwrap_or(0);
    let costly = |key: &u64| chances[key].saturating_mul(SELDOM) >= findings.accesses;
    let lines = findings.lines.iter().zip(&keys).filter(|(_, key)| costly(key));
    lines.map(|(line, key)| described(line, most(key), &symbols)).collect()
}

/// What tells the line's object from others: its address.
fn object(line: &Line, symbols: &Symbols<'_>) -> u64 {
    let at = used(line).first().copied().unwrap_or(line.address);
    match line.blocks.iter().find(|block| (block.address..block.address + block.size).contains(&at)) {
        Some(block) => block.address,
        None => symbols.variable(at).map_or(line.address, |variable| variable.address),
    }
}

/// The addresses in the line at which the threads that take part use it, those with the most writes first.
fn used(line: &Line) -> Vec<u64> {
    let mut writes: BTreeMap<u64, u64> = BTreeMap::new();
    for place in line.users.iter().flat_map(|user| &user.places) {
        let count = if place.flags & WRITE != 0 { place.count } else { 0 };
        *writes.entry(line.address + place.offset as u64).or_default() += count;
    }
    let mut all: Vec<(u64, u64)> = writes.into_iter().collect();
    all.sort_by_key(|&(address, count)| (u64::MAX - count, address));
    all.into_iter().map(|(address, _)| address).collect()
}

fn described<'a>(line: &'a Line, most: u32, symbols: &Symbols<'_>) -> Described<'a> {
    let addresses = used(line);
    let in_use = |address: u64, size: u64| addresses.iter().any(|at| (address..address + size).contains(at));
    let blocks: Vec<_> = line.blocks.iter().filter(|block| in_use(block.address, block.size)).collect();
    let mut variables: Vec<Variable> = Vec::new();
    for variable in addresses.iter().filter_map(|&at| symbols.variable(at)) {
        if variables.iter().all(|known| known.address != variable.address) {
            variables.push(variable);
        }
    }
    let place = if let Some(block) = blocks.iter().min_by_key(|block| block.address) {
        Place::Heap {
            size: block.size,
            offset: line.address.saturating_sub(block.address),
            thread: block.thread,
            site: symbols.source(&block.site),
            blocks: blocks.len(),
        }
    } else if !variables.is_empty() {
        Place::Variables(variables)
    } else if let Some(thread) = line.stack {
        Place::Stack { thread }
    } else {
        Place::Unknown
    };
    let users = line.users.iter().map(|user| {
        let start = (user.start != 0).then(|| symbols.name(user.start));
        NamedUser { user, start, created: symbols.source(&user.created), accesses: accesses(user, symbols) }
    });
    let users: Vec<NamedUser<'_>> = users.collect();
    let fix = choose(&users, &place, most);
    let advice = advice(fix, &place);
    Described { line, place, users, fix, advice }
}

/// The places of a thread, those of one source line together, the busiest first.
fn accesses(user: &User, symbols: &Symbols<'_>) -> Vec<Access> {
    let mut all: Vec<Access> = Vec::new();
    for place in &user.places {
        let source = symbols.source(&[place.caller, place.outer]);
        let same = |access: &&mut Access| {
            source.is_some()
                && access.source == source
                && (access.flags, access.offset, access.size) == (place.flags, place.offset, place.size)
        };
        match all.iter_mut().find(same) {
            Some(access) => access.count += place.count,
            None => all.push(Access {
                caller: symbols.name(place.caller),
                source,
                flags: place.flags,
                offset: place.offset,
                size: place.size,
                count: place.count,
            }),
        }
    }
    all.sort_by_key(|access| u64::MAX - access.count);
    all
}

/// How to mend the line: by who runs what on which data.
fn choose(users: &[NamedUser<'_>], place: &Place, most: u32) -> Fix {
    let places =
        || users.iter().flat_map(|named| named.user.places.iter().map(move |place| (named.user.thread, place)));
    // The same code, or copies of it in two functions.
    let same_code = places().any(|(a, first)| places().any(|(b, second)| a != b && first.caller == second.caller));
    let sources = |named: &NamedUser<'_>| -> BTreeSet<(String, u64)> {
        let sources = named.accesses.iter().filter_map(|access| access.source.as_ref());
        sources.map(|source| (source.file.clone(), source.line)).collect()
    };
    let sources: Vec<_> = users.iter().map(sources).collect();
    let same_source = sources.iter().enumerate().any(|(i, a)| !a.is_empty() && sources[..i].contains(a));
    let alike = same_code || same_source;
    // Bytes that one writes and another uses pass something on.
    let meant = |a: &User, b: &User| a.thread != b.thread && a.written & b.used() != 0;
    let meant = users.iter().any(|a| users.iter().any(|b| meant(a.user, b.user)));
    let atomic = places().any(|(_, place)| place.flags & ATOMIC != 0);
    let heap = matches!(place, Place::Heap { .. });
    let result = most <= if heap { HEAP_RESULT } else { RESULT };
    match place {
        // Different code on different fields: the two ends of a queue, say.
        _ if !alike => Fix::Pad,
        // A word or two for each thread, which nobody else looks at meanwhile. (An atomic one is meant to be looked at.)
        _ if result && !atomic && !meant => Fix::Localise,
        Place::Heap { .. } if !result => Fix::AllocatePerThread,
        _ => Fix::Pad,
    }
}

fn advice(fix: Fix, place: &Place) -> String {
    let what = match place {
        Place::Variables(variables) => {
            let mut names: Vec<String> = variables.iter().map(|variable| format!("`{}`", variable.name)).collect();
            names.dedup();
            names.join(" and ")
        }
        Place::Heap { blocks: 1, .. } => "the block".to_owned(),
        Place::Heap { .. } => "the blocks".to_owned(),
        Place::Stack { .. } => "the stack variables".to_owned(),
        Place::Unknown => "this memory".to_owned(),
    };
    let split = matches!(place, Place::Variables(all) if all.iter().any(|variable| variable.part.is_some()));
    match fix {
        Fix::Pad if split => format!(
            "Align what each thread uses of {what} to 64 bytes, or to 128 where lines are fetched in pairs (alignas(128), \
             __attribute__((aligned(128)))). The compiler has split {what} into parts: padding between them is gone, \
             alignment stays."
        ),
        Fix::Pad => format!(
            "Give what each thread uses of {what} a line of its own: align it to 64 bytes, or to 128 where lines are \
             fetched in pairs (alignas(128), __attribute__((aligned(128))))."
        ),
        Fix::Localise => {
            format!("Let each thread work in a local variable and store its result into {what} once, at the end.")
        }
        Fix::AllocatePerThread => {
            format!("Let each thread allocate its own part of {what}, or pad each part to a multiple of 128 bytes.")
        }
    }
}

/// Runs of bytes: offset and length.
fn runs(mask: u64) -> Vec<(usize, usize)> {
    let mut found: Vec<(usize, usize)> = Vec::new();
    for i in (0..LINE).filter(|i| mask >> i & 1 != 0) {
        match found.last_mut() {
            Some((start, length)) if *start + *length == i => *length += 1,
            _ => found.push((i, 1)),
        }
    }
    found
}

fn number(value: usize) -> Json {
    Json::Number(value as u64)
}

fn optional_text(text: Option<&str>) -> Json {
    text.map_or(Json::Null, |text| Json::Text(text.to_owned()))
}

fn source_json(source: Option<&Source>) -> Json {
    source.map_or(Json::Null, |source| {
        Json::Object(vec![
            ("file", Json::Text(source.file.clone())),
            ("line", Json::Number(source.line)),
            ("function", optional_text(source.function.as_deref())),
        ])
    })
}

/// The report as JSON.
pub fn json(lines: &[Described<'_>], findings: &Findings, program: &Path) -> Json {
    Json::Object(vec![
        ("program", Json::Text(program.display().to_string())),
        ("threads", Json::Number(findings.threads)),
        ("lines_not_watched", Json::Number(findings.missed_lines)),
        ("threads_not_watched", Json::Number(findings.missed_threads)),
        ("lines", Json::List(lines.iter().map(Described::json).collect())),
    ])
}

impl Described<'_> {
    fn json(&self) -> Json {
        let mut members = vec![
            ("address", Json::Text(format!("{:#x}", self.line.address))),
            ("size", number(LINE)),
            ("freed", Json::Bool(self.line.freed)),
        ];
        match &self.place {
            Place::Variables(variables) => {
                let variable = |variable: &Variable| {
                    let declared = variable.declared.as_ref().map(|(file, line)| {
                        Json::Object(vec![("file", Json::Text(file.clone())), ("line", Json::Number(*line))])
                    });
                    Json::Object(vec![
                        ("name", Json::Text(variable.name.clone())),
                        ("size", Json::Number(variable.size)),
                        ("offset", Json::Number(self.line.address.saturating_sub(variable.address))),
                        ("declared", declared.unwrap_or(Json::Null)),
                        ("part", variable.part.map_or(Json::Null, Json::Number)),
                    ])
                };
                members.push(("kind", Json::Text("variable".to_owned())));
                members.push(("variable", variables.first().map_or(Json::Null, variable)));
                members.push(("others", Json::List(variables.iter().skip(1).map(variable).collect())));
            }
            Place::Heap { size, offset, thread, site, blocks } => {
                members.push(("kind", Json::Text("heap".to_owned())));
                members.push((
                    "allocation",
                    Json::Object(vec![
                        ("size", Json::Number(*size)),
                        ("offset", Json::Number(*offset)),
                        ("blocks", number(*blocks)),
                        ("thread", thread.map_or(Json::Null, Json::Number)),
                        ("site", source_json(site.as_ref())),
                    ]),
                ));
            }
            Place::Stack { thread } => {
                members.push(("kind", Json::Text("stack".to_owned())));
                members.push(("stack_of", Json::Number(*thread)));
            }
            Place::Unknown => members.push(("kind", Json::Text("unknown".to_owned()))),
        }
        let threads = self.users.iter().map(|NamedUser { user, start, created, accesses }| {
            let runs = |mask| {
                Json::List(runs(mask).iter().map(|&(at, size)| Json::List(vec![number(at), number(size)])).collect())
            };
            let accesses = accesses.iter().map(|access| {
                let source = access.source.as_ref();
                Json::Object(vec![
                    ("file", optional_text(source.map(|source| &*source.file))),
                    ("line", source.map_or(Json::Null, |source| Json::Number(source.line))),
                    ("function", optional_text(source.map_or(Some(&*access.caller), |s| s.function.as_deref()))),
                    ("write", Json::Bool(access.flags & WRITE != 0)),
                    ("atomic", Json::Bool(access.flags & ATOMIC != 0)),
                    ("offset", number(access.offset)),
                    ("size", number(access.size)),
                    ("count", Json::Number(access.count)),
                ])
            });
            Json::Object(vec![
                ("thread", Json::Number(user.thread)),
                ("start", optional_text(start.as_deref())),
                ("created", source_json(created.as_ref())),
                ("offsets", runs(user.used())),
                ("written", runs(user.written)),
                ("reads", Json::Number(user.reads)),
                ("writes", Json::Number(user.writes)),
                ("ownership_changes", Json::Number(user.changes)),
                ("accesses", Json::List(accesses.collect())),
            ])
        });
        members.push(("ownership_changes", Json::Number(self.line.false_changes)));
        members.push(("true_changes", Json::Number(self.line.true_changes)));
        members.push(("threads", Json::List(threads.collect())));
        members.push(("fix", Json::Text(self.fix.name().to_owned())));
        members.push(("advice", Json::Text(self.advice.clone())));
        Json::Object(members)
    }

    fn text(&self, to: &mut String) {
        let line = self.line;
        let what = match &self.place {
            Place::Variables(variables) => {
                let named = variables.iter().map(|variable| {
                    let offset = line.address.checked_sub(variable.address).filter(|&offset| offset != 0);
                    let offset = offset.map(|offset| format!(" + {offset}")).unwrap_or_default();
                    let declared = variable.declared.as_ref().map(|(file, line)| format!(", {file}:{line}"));
                    let part = variable.part.map(|at| format!(", the part from byte {at} on")).unwrap_or_default();
                    format!("variable `{}`{part}{offset}{}", variable.name, declared.unwrap_or_default())
                });
                named.collect::<Vec<_>>().join("; ")
            }
            Place::Heap { size, offset, thread, site, blocks } => {
                let blocks = if *blocks > 1 { format!("{blocks} blocks, the first ") } else { "block ".to_owned() };
                let thread = thread.map(|thread| format!(" by thread {thread}")).unwrap_or_default();
                let site = site.as_ref().map(|site| format!(" at {}", shown(site))).unwrap_or_default();
                format!("{blocks}of {size} bytes + {offset}, allocated{thread}{site}")
            }
            Place::Stack { thread } => format!("stack of thread {thread}"),
            Place::Unknown => "memory of unknown origin".to_owned(),
        };
        let _ = writeln!(to, "\nline {:#x}: {what}", line.address);
        let _ = writeln!(to, "  {} false ownership changes, {} true ones", line.false_changes, line.true_changes);
        for NamedUser { user, start, created, accesses } in &self.users {
            let start = start.as_ref().map(|name| format!(" ({name}")).unwrap_or_default();
            let created = created.as_ref().map(|at| format!(", made at {}:{}", at.file, at.line)).unwrap_or_default();
            let close = if start.is_empty() { "" } else { ")" };
            let created = if start.is_empty() { "" } else { &*created };
            let bytes: Vec<String> =
                runs(user.used()).iter().map(|(at, size)| format!("{at}..{}", at + size)).collect();
            let _ = writeln!(
                to,
                "  thread {}{start}{created}{close}: bytes {}, {} reads, {} writes",
                user.thread,
                bytes.join(" "),
                user.reads,
                user.writes
            );
            for access in accesses {
                let kind = if access.flags & WRITE != 0 { "writes" } else { "reads" };
                let atomic = if access.flags & ATOMIC != 0 { " atomically" } else { "" };
                let at = access.source.as_ref().map_or_else(|| access.caller.clone(), shown);
                let _ = writeln!(
                    to,
                    "    {kind} {}..{}{atomic}, {} times, at {at}",
                    access.offset,
                    access.offset + access.size,
                    access.count
                );
            }
        }
        let _ = writeln!(to, "  fix: {}. {}", self.fix.name(), self.advice);
    }
}

fn shown(source: &Source) -> String {
    let function = source.function.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    format!("{}:{}{function}", source.file, source.line)
}

/// The report for people.
pub fn text(lines: &[Described<'_>], findings: &Findings) -> String {
    let mut text = match lines.len() {
        0 => "heddle: no line is falsely shared\n".to_owned(),
        1 => "heddle: 1 cache line is falsely shared\n".to_owned(),
        count => format!("heddle: {count} cache lines are falsely shared\n"),
    };
    for (count, what) in [
        (findings.missed_lines, "times a line could not be watched, because too many others are shared"),
        (findings.missed_threads, "threads could not be watched, because too many ran at once"),
        (findings.forks, "child processes were not watched"),
    ] {
        if count > 0 {
            let _ = writeln!(text, "heddle: {count} {what}");
        }
    }
    for line in lines {
        line.text(&mut text);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_become_runs() {
        assert_eq!(runs(0), []);
        assert_eq!(runs(0xff00_00ff), [(0, 8), (24, 8)]);
        assert_eq!(runs(u64::MAX), [(0, 64)]);
    }
}
