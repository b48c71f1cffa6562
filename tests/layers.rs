//! The house plan, enforced: who may import whom, and where unsafe code, memory orderings, tokio and the kernel's
//! sleeping calls may be.
//!
//! Reads `src/**/*.rs` as text, without comments, strings and test modules.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A layer, and the layers below it that it may import. A row refers to rows above it only, so there are no cycles.
const LAYERS: &[(&str, &[&str])] = &[
    // The table of what can go wrong: everybody returns it, so it knows nobody.
    ("error", &[]),
    // What may lie in symmetric memory: traits over plain types.
    ("elem", &[]),
    // The table of settings; a bad value is an error.
    ("config", &["error"]),
    // Protocols over words: they run over the heap, a network and loom alike, so they know none of these.
    ("sync", &["error"]),
    // Memory, offsets and typed handles; the layout has to know how much room a barrier takes.
    ("heap", &["elem", "error", "sync"]),
    // What the PEs of a host know of each other, in memory of the host; nothing here knows teams or routes.
    ("watch", &["error", "heap", "sync"]),
    // How PEs meet, and the launcher; nothing here touches a heap, but the launcher reads the board.
    ("boot", &["config", "error", "watch"]),
    // How a PE reaches another: copies and atomics by offset.
    ("transport", &["config", "elem", "error", "heap", "sync", "watch"]),
    // Members of a team with their barrier and records.
    ("group", &["error", "heap", "sync", "transport", "watch"]),
    // What world, teams and contexts share.
    ("core", &["config", "group", "heap", "sync", "transport"]),
    // Who is left of a team, and the team of those.
    ("survivors", &["core", "error", "group", "sync", "watch"]),
    // The operations: put, get, atomics, signals, order.
    ("ctx", &["core", "elem", "error", "group", "heap", "sync", "transport", "watch"]),
    // Teams hand out contexts of their own.
    ("team", &["core", "ctx", "error", "group", "heap", "survivors", "sync", "watch"]),
    // Bounded queues from PE to PE.
    ("channel", &["core", "elem", "error", "heap", "sync", "watch"]),
    // Start-up, allocation, the end: brings everything together.
    (
        "world",
        &[
            "boot",
            "channel",
            "config",
            "core",
            "ctx",
            "elem",
            "error",
            "group",
            "heap",
            "survivors",
            "sync",
            "team",
            "transport",
            "watch",
        ],
    ),
    // Whether this host is fit for jobs: judges what start-up would find, and starts nothing.
    ("checkup", &["boot", "config", "heap", "transport", "world"]),
];

/// Files that may hold unsafe code: those whose `mod` line allows it, and why.
const UNSAFE: &[&str] = &[
    // Takes memory for which the program vouches.
    "heap/external.rs",
    // Maps memory of the program's own, by its addresses.
    "heap/image.rs",
    // Hands that on.
    "world/overlay.rs",
    // Reads words of a page that the kernel empties in a forked child.
    "heap/gate.rs",
    // Maps memory.
    "heap/segment.rs",
    // Reads and writes elements of it.
    "heap/slice.rs",
    // Turns offsets into addresses of a mapped peer.
    "transport/link.rs",
    "transport/loopback.rs",
    "transport/pieces.rs",
    // Reads the bell on which waiters sleep.
    "transport/rest.rs",
    // Copies between private memory and what the network card reaches.
    "transport/private.rs",
    // A network card in memory.
    "transport/roce/sim/pair.rs",
    "transport/roce/sim/peer.rs",
    // Calls the verbs library, which is C.
    "transport/roce/verbs/device.rs",
    "transport/roce/verbs/pair.rs",
    // Turns typed buffers into addresses.
    "ctx/rma.rs",
    "ctx/raw.rs",
    // Combines elements of several peers.
    "ctx/fold.rs",
];

/// A word that may stand in some files only.
struct Confined {
    words: &'static [&'static str],
    /// Files or folders under `src`.
    places: &'static [&'static str],
}

const CONFINED: &[Confined] = &[
    Confined {
        words: &["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"],
        places: &[
            // The orderings of every protocol.
            "sync/atom.rs",
            // A barrier's own epoch, which no other PE sees.
            "sync/barrier.rs",
            // The table of atomic operations on elements.
            "elem.rs",
            // Elements of this PE's own copy.
            "heap/slice.rs",
            // The processor's atomics on a mapped peer, and the fences.
            "transport/loopback.rs",
            "transport/link.rs",
            // The fences of the bell, and of news from other hosts.
            "transport/rest.rs",
            "transport/remote.rs",
            // What a card does to memory, in order.
            "transport/roce/sim/pair.rs",
            // How many PEs have an unfinished line: a count inside the launcher.
            "boot/launch/output.rs",
        ],
    },
    Confined {
        words: &["tokio"],
        places: &[
            // The rendezvous and the launcher wait for many things at once.
            "boot", "bin",
        ],
    },
    Confined {
        words: &["futex", "membarrier"],
        places: &[
            // Where waiters sleep, and are made ready to.
            "transport/rest.rs",
            "transport/link.rs",
        ],
    },
    Confined {
        words: &["rdma_sys"],
        places: &[
            // Everything above them works without a device.
            "transport/roce/verbs/device.rs",
            "transport/roce/verbs/pair.rs",
        ],
    },
    // Nowhere: what is not done is not in the source, and what can fail returns an error.
    Confined { words: &["unwrap", "todo", "unimplemented"], places: &[] },
];

/// A file with more lines than this asks to be split.
const LONGEST: usize = 600;

#[test]
fn the_table_of_layers_has_no_cycle() {
    for (i, (layer, below)) in LAYERS.iter().enumerate() {
        for name in *below {
            assert!(LAYERS[..i].iter().any(|(known, _)| known == name), "{layer} comes before {name} in the table");
        }
    }
}

#[test]
fn every_import_is_in_the_table() {
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for file in sources() {
        // The crate's root and the programs see what users see.
        let Some(layer) = file.layer() else { continue };
        let Some((_, below)) = LAYERS.iter().find(|(name, _)| *name == layer) else {
            wrong.push(format!("{}: {layer} is not in the table", file.name));
            continue;
        };
        seen.insert(layer.to_string());
        for name in imports(&file.code) {
            if name != layer && !below.contains(&name.as_str()) {
                wrong.push(format!("{}: {layer} may not import {name}", file.name));
            }
        }
        if file.code.contains("super::super") || !file.name.contains('/') && file.code.contains("super::") {
            wrong.push(format!("{}: reaches other layers by `super`; say `crate::`", file.name));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    let table: BTreeSet<String> = LAYERS.iter().map(|(layer, _)| (*layer).to_string()).collect();
    assert_eq!(seen, table, "every row is a module");
}

#[test]
fn unsafe_code_is_where_a_mod_line_allows_it() {
    let mut allowed = BTreeSet::new();
    for file in sources() {
        let mut lines = file.code.lines().map(str::trim);
        while let Some(line) = lines.next() {
            if line == "#[allow(unsafe_code)]" {
                let declared = lines.next().unwrap().trim_end_matches(';');
                let module = declared.rsplit(' ').next().unwrap();
                allowed.insert(file.folder().join(format!("{module}.rs")).display().to_string());
            }
        }
        if words(&file.code).any(|word| word == "unsafe") {
            assert!(UNSAFE.contains(&&*file.name), "{} has unsafe code", file.name);
        }
        assert!(!file.code.contains("allow(unsafe_code") || file.name.ends_with("mod.rs"), "{}", file.name);
    }
    assert_eq!(allowed, UNSAFE.iter().map(|name| (*name).to_string()).collect());
    let root = std::fs::read_to_string(src().join("lib.rs")).unwrap();
    assert!(root.contains("#![deny(unsafe_code)]"));
}

#[test]
fn confined_words_stay_in_their_places() {
    let mut wrong = Vec::new();
    for file in sources() {
        for rule in CONFINED {
            let may = rule.places.iter().any(|place| Path::new(&file.name).starts_with(place));
            if let Some(word) = words(&file.code).find(|word| !may && rule.words.contains(word)) {
                wrong.push(format!("{}: {word}", file.name));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Marks of work left over; in two parts, so that a search for them does not find this list.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

#[test]
fn no_file_is_too_long_and_nothing_is_left_to_do() {
    for file in sources() {
        let lines = file.text.lines().count();
        assert!(lines <= LONGEST, "{} has {lines} lines", file.name);
        for mark in UNFINISHED {
            assert!(!file.text.contains(mark), "{}: {mark}", file.name);
        }
        assert!(file.name.starts_with("bin/") || file.text.starts_with("//!"), "{} says not what it is", file.name);
    }
}

#[test]
fn the_reader_of_sources_reads_right() {
    let text = r##"use crate::a::{b, c}; // crate::comment
        /* crate::block /* nested */ */ let s = "crate::string \" //"; let c = '"'; let l: &'static str = r#"crate::raw " "#;
        use crate::{d, e::{f, g}, h as i}; crate::j::k();
        #[cfg(test)]
        mod tests { use crate::only_tests; }"##;
    let code = code(text);
    assert_eq!(imports(&code), ["a", "d", "e", "h", "j"].map(String::from));
    assert!(!code.contains("only_tests") && code.contains("let l: & static str"));
}

/// A source file.
struct File {
    /// Its path under `src`.
    name: String,
    text: String,
    /// Its text without comments, strings and tests.
    code: String,
}

impl File {
    /// The layer that it belongs to, if it is of the library.
    fn layer(&self) -> Option<&str> {
        let first = self.name.split('/').next().unwrap().trim_end_matches(".rs");
        (!["lib", "bin"].contains(&first)).then_some(first)
    }

    fn folder(&self) -> PathBuf {
        Path::new(&self.name).parent().unwrap().to_path_buf()
    }
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All source files but those that are tests as a whole.
fn sources() -> Vec<File> {
    let (mut folders, mut files) = (vec![src()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let name = path.strip_prefix(src()).unwrap().display().to_string();
                files.push(File { name, code: code(&text), text });
            }
        }
    }
    assert!(files.len() > 20, "{} files", files.len());
    files
}

/// The text with comments and strings emptied, up to the test module.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if next == '"' {
            string(rest)
        } else if rest.starts_with("r\"")
            || rest.starts_with("r#") && rest.trim_start_matches(['r', '#']).starts_with('"')
        {
            let hashes = rest[1..].bytes().take_while(|byte| *byte == b'#').count();
            let end = format!("\"{}", "#".repeat(hashes));
            let start = 2 + hashes;
            rest[start..].find(&end).map_or(rest.len(), |at| start + at + end.len())
        } else if next == '\'' {
            character(rest)
        } else {
            code.push(next);
            rest = &rest[next.len_utf8()..];
            continue;
        };
        code.push(' ');
        rest = &rest[skipped..];
    }
    let tests = code.match_indices("#[cfg(test)]").find(|(at, mark)| {
        let item = code[at + mark.len()..].lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        item.contains("mod ")
    });
    let end = tests.map_or(code.len(), |(at, _)| at);
    code.truncate(end);
    code
}

/// Bytes of the comment at the text's start, which may hold others.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// Bytes of the string at the text's start.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Bytes of the character at the text's start, or of the quote of a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), _) => text[2..].find('\'').map_or(1, |at| if at == 0 { 4 } else { at + 3 }),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The modules of this crate that are named as `crate::…`, sorted.
fn imports(code: &str) -> Vec<String> {
    let mut found = BTreeSet::new();
    for (at, mark) in code.match_indices("crate::") {
        let rest = &code[at + mark.len()..];
        match rest.strip_prefix('{') {
            Some(list) => found.extend(heads(list)),
            None => found.extend(words(rest).next().map(String::from)),
        }
    }
    found.into_iter().collect()
}

/// The first names of a braced list of imports.
fn heads(list: &str) -> Vec<String> {
    let (mut depth, mut parts, mut part) = (0, Vec::new(), String::new());
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => parts.push(std::mem::take(&mut part)),
            _ => {}
        }
        part.push(c);
    }
    parts.push(part);
    parts.iter().filter_map(|part| words(part).next().map(String::from)).collect()
}
