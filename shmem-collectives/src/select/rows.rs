//! The rows of the table of algorithms, and those that are built in.

use std::fmt;

use shmem::config::show_size;

use crate::plan::Collective;
use crate::plans::Algorithm;
use crate::plans::Algorithm::*;

/// One row: which algorithm a collective takes for blocks of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The collective: one of [`Collective::NAMES`].
    pub collective: &'static str,
    /// Where the team lives.
    pub hosts: Where,
    /// The largest block, in bytes; `usize::MAX` for no limit.
    pub up_to: usize,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Why.
    pub why: &'static str,
}

/// Where a team lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// On one host.
    OneHost,
    /// On one host that has more PEs than cores; what fits no row of these goes by those for one host.
    Crowded,
    /// On several hosts.
    Hosts,
}

/// Bytes of a block up to which the one-shot algorithm is taken where memory is shared: those that travel on the cache
/// lines of the meeting itself. Measured with 2 PEs: beyond, the copies to and from the slots cost more (1.0 µs an
/// all-reduce of 1 KiB) than the second hand-over of `direct` (0.64 µs).
const LETTER: usize = 8 * shmem::Meeting::PAYLOAD;

/// The same where a host has more PEs than cores, and a hand-over takes a turn of the scheduler. Measured with 4 and 8 PEs on 2 cores:
/// `direct` takes 1.3 to 1.8 times as long up to here. With 16, whose slots hold 15 blocks, it is the one or the other: an all-reduce 0.7, a reduce 1.4
/// to 4 times as long.
const CROWDED: usize = 2048;

/// Bytes of a block from which the PEs share a broadcast where memory is shared: each reads a part of the root's memory and writes it to
/// all, instead of all of it to its own. Measured with 2 PEs: 1.4 times as fast in place at 64 KiB.
const SHARED: usize = 32 << 10;

/// The same where a host has more PEs than cores: it takes a hand-over more. Measured with 4 and 8 PEs: 1.1 to 1.3 times as fast from
/// 512 KiB on.
const SHARED_CROWDED: usize = 256 << 10;

/// Bytes of a block up to which a scan between hosts exchanges all blocks at once.
const SMALL: usize = 2048;

/// Bytes of a block up to which an all-to-all passes blocks on: a block then travels log2(n) / 2 times, in log2(n)
/// messages instead of n.
const BRUCK: usize = 1024;

/// The largest block of a built-in row between hosts.
enum Limit {
    Bytes(usize),
    Threshold,
    None,
}

/// Between hosts. Of rows that apply, the first that fits in the workspace is taken.
const HOSTS: &[(&[&str], Limit, Algorithm, &str)] = &[
    (
        &["allreduce"],
        Limit::Threshold,
        Recursive,
        "log2(n) messages, each of all bytes; few bytes, for they lie in slots",
    ),
    (&["allreduce"], Limit::Threshold, Halving, "2 log2(n) messages, and hardly more bytes than a ring"),
    (&["allreduce", "reduce_scatter"], Limit::None, Hierarchical, "each byte crosses the wire once a host"),
    (&["reduce_scatter"], Limit::Threshold, Halving, "log2(n) messages"),
    (&["reduce", "broadcast"], Limit::Threshold, Tree, "log2(n) messages"),
    (&["broadcast"], Limit::None, Hierarchical, "each byte crosses the wire once a host"),
    (&["reduce", "broadcast"], Limit::None, DoubleTree, "log2(n) steps, pipelined; every PE sends what it gets once"),
    (&["allgather"], Limit::Threshold, Bruck, "log2(n) messages for any n; few bytes, for they lie in slots"),
    (&["allgather"], Limit::Threshold, Recursive, "log2(n) messages"),
    (&["allgather"], Limit::None, Hierarchical, "each byte crosses the wire once a host"),
    (&["gather", "scatter"], Limit::Threshold, Tree, "log2(n) messages at the root; few bytes, for they are passed on"),
    (&["gather", "scatter"], Limit::None, Direct, "each byte moves once"),
    (&["alltoall"], Limit::Bytes(BRUCK), Bruck, "log2(n) messages; blocks are passed on"),
    (&["alltoall"], Limit::Threshold, Pairwise, "each byte moves once; nobody gets from two at a time"),
    (&["alltoall"], Limit::None, Hierarchical, "one message between two hosts instead of one between two PEs"),
    (&["alltoall"], Limit::None, Pairwise, "each byte moves once; nobody gets from two at a time"),
    (&["inscan", "exscan"], Limit::Bytes(SMALL), Small, "one exchange of all blocks"),
    (&["inscan", "exscan"], Limit::None, Direct, "needs no memory"),
    (&["allreduce", "reduce_scatter", "allgather"], Limit::None, Ring, "the fewest bytes, to one neighbour"),
];

/// The table that is built in; between hosts it saves messages up to `threshold` bytes, and bytes beyond.
pub(super) fn built_in(threshold: usize) -> impl Iterator<Item = Row> {
    let one_host = Collective::NAMES.into_iter().flat_map(|collective| {
        let row = |up_to, algorithm, why| Row { collective, hosts: Where::OneHost, up_to, algorithm, why };
        let crowded = |up_to, algorithm, why| Row { hosts: Where::Crowded, ..row(up_to, algorithm, why) };
        let turn = crowded(CROWDED, Small, "one hand-over, which is a turn of the scheduler");
        let small = row(LETTER, Small, "one hand-over, on the cache lines of the meeting");
        let direct = |up_to| row(up_to, Direct, "two hand-overs, and no copy but from source to target");
        let few = crowded(SHARED_CROWDED, Direct, "two hand-overs");
        let shared = row(usize::MAX, Hierarchical, "everybody copies a part to all");
        match collective {
            "broadcast" => vec![turn, few, small, direct(SHARED), shared, direct(usize::MAX)],
            _ => vec![turn, small, direct(usize::MAX)],
        }
    });
    let hosts = Collective::NAMES.into_iter().flat_map(move |collective| {
        let row = move |(names, limit, algorithm, why): &(&[&str], Limit, Algorithm, &'static str)| {
            let up_to = match limit {
                Limit::Bytes(bytes) => *bytes,
                Limit::Threshold => threshold,
                Limit::None => usize::MAX,
            };
            let row = Row { collective, hosts: Where::Hosts, up_to, algorithm: *algorithm, why };
            names.contains(&collective).then_some(row)
        };
        let mut rows: Vec<Row> = HOSTS.iter().filter_map(row).collect();
        rows.sort_by_key(|row| row.up_to);
        rows
    });
    one_host.chain(hosts)
}

impl Row {
    /// The place of its collective among all.
    pub(super) fn kind(&self) -> usize {
        Collective::NAMES.iter().position(|name| *name == self.collective).unwrap_or(0)
    }

    /// The largest block as people write it.
    pub fn limit(&self) -> String {
        limit(self.up_to)
    }
}

/// The largest bytes of a row as people write them.
pub(super) fn limit(up_to: usize) -> String {
    if up_to == usize::MAX { "any".into() } else { show_size(up_to) }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { collective, hosts, algorithm, why, .. } = self;
        write!(f, "{collective:<14}  {hosts:<8}  {:>7}  {:<12}  {why}", self.limit(), algorithm.name())
    }
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Where::OneHost => "one host",
            Where::Crowded => "crowded",
            Where::Hosts => "hosts",
        })
    }
}
