//! The PEs of a model: their words, their ways of waiting, and the loop that runs them under loom.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use loom::sync::atomic::fence;
use shmem::Result;
use shmem::sync::park::{self, Bed as _};
use shmem::sync::{Atoms, Idle, Why, Word, Words, atom};

use crate::bed::Bed;
use crate::cell::Cell;
use crate::mutants::Mutation;

/// How waiters pass their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// They yield between two looks; nobody rings. No fence anywhere, so the orderings alone carry the data.
    Spin,
    /// They sleep by the park protocol; every ring counts.
    Sleep,
}

/// The words and beds of all PEs of one execution.
#[derive(Debug)]
pub struct Heap {
    words: Vec<BTreeMap<usize, Cell>>,
    beds: Vec<Bed>,
    waiting: Waiting,
    polls: u32,
    mutation: Mutation,
}

impl Heap {
    /// What a word holds; once all PEs have ended, that is the last value written.
    pub fn peek(&self, word: Word) -> u64 {
        atom::observe(self.cell(word))
    }

    /// The bed of a PE.
    pub fn bed(&self, pe: usize) -> &Bed {
        &self.beds[pe]
    }

    fn cell(&self, word: Word) -> &Cell {
        let at = match self.mutation {
            Mutation::Fold { from, by } if word.at >= from => word.at - by,
            _ => word.at,
        };
        self.words[word.pe].get(&at).unwrap_or_else(|| panic!("the model has no word at {at}"))
    }
}

/// The heap as one PE sees it.
#[derive(Debug)]
pub struct Pe {
    /// The PE's number.
    pub me: usize,
    heap: Arc<Heap>,
}

impl Deref for Pe {
    type Target = Heap;

    fn deref(&self) -> &Heap {
        &self.heap
    }
}

/// The words of one PE, for protocols over words that every PE has mapped.
#[derive(Debug)]
pub struct Row<'a> {
    heap: &'a Heap,
    pe: usize,
}

impl Atoms for Row<'_> {
    type Word = Cell;

    fn word(&self, at: usize) -> &Cell {
        self.heap.cell(Word { pe: self.pe, at })
    }
}

impl Pe {
    /// The words of a PE.
    pub fn row(&self, pe: usize) -> Row<'_> {
        Row { heap: &self.heap, pe }
    }
}

impl Words for Pe {
    fn load(&self, word: Word) -> Result<u64> {
        let value = atom::observe(self.cell(word));
        match self.mutation {
            Mutation::HeardAlready { at } if word.at == at => Ok(u64::MAX),
            _ => Ok(value),
        }
    }

    fn store(&self, word: Word, value: u64) -> Result<()> {
        atom::publish(self.cell(word), value);
        Ok(())
    }

    fn add(&self, word: Word, value: u64) -> Result<u64> {
        let cell = self.cell(word);
        match self.mutation {
            Mutation::KeepBits { mask } if value.wrapping_neg() & mask == value.wrapping_neg() => {
                Ok(atom::observe(cell))
            }
            _ => Ok(atom::accumulate(cell, value)),
        }
    }

    fn compare_swap(&self, word: Word, old: u64, new: u64) -> Result<u64> {
        Ok(atom::claim(self.cell(word), old, new))
    }

    fn quiet(&self) -> Result<()> {
        if self.mutation != Mutation::NoQuiet {
            fence(Ordering::SeqCst);
        }
        Ok(())
    }

    fn ring(&self, pe: usize) {
        if self.waiting == Waiting::Sleep && self.mutation != Mutation::NoRing {
            park::ring(&self.beds[pe]);
        }
    }

    fn pause(&self, idle: &mut Idle, _: Why) -> Result<()> {
        match self.waiting {
            Waiting::Spin => {
                idle.steps += 1;
                if idle.steps >= self.polls {
                    loom::skip_branch();
                }
                loom::thread::yield_now();
            }
            Waiting::Sleep => {
                let bed = &self.beds[self.me];
                match idle.bell {
                    None => {
                        let bell = park::lie_down(bed);
                        idle.bell = Some(bell);
                        if self.mutation == Mutation::NoSecondLook {
                            bed.sleep(bell, Duration::MAX);
                        }
                    }
                    Some(bell) => {
                        let bell = if self.mutation == Mutation::LateBell { bed.bell() } else { bell };
                        bed.sleep(bell, Duration::MAX);
                        idle.bell = Some(bed.bell());
                    }
                }
            }
        }
        Ok(())
    }

    fn resume(&self, idle: Idle) {
        if idle.bell.is_some() {
            park::get_up(&self.beds[self.me]);
        }
    }
}

/// A model: the PEs, the words they have, and how far loom goes.
#[derive(Clone, Debug)]
pub struct World {
    /// PEs with words.
    pub pes: usize,
    /// Numbers of the PEs that run, one loom thread for each entry; two threads of one PE are two entries.
    pub threads: Vec<usize>,
    /// Offsets of the words that every PE has.
    pub words: Vec<usize>,
    /// How waiters wait.
    pub waiting: Waiting,
    /// Preemptions that loom explores in one execution, `None` for all. `LOOM_MAX_PREEMPTIONS` in the environment
    /// overrides it.
    pub preemptions: Option<usize>,
    /// What is weakened.
    pub mutation: Mutation,
}

/// How far loom went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explored {
    /// Executions that ran to their end.
    pub executions: usize,
}

impl World {
    /// Runs `body` as every thread, over words that are zero and whatever `shared` makes, then `after` when all have
    /// ended; again for every execution within the bounds. Panics as soon as one goes wrong.
    pub fn run<S: Send + Sync + 'static>(
        self,
        shared: impl Fn() -> S + Send + Sync + 'static,
        body: impl Fn(&Pe, &S) -> Result<()> + Send + Sync + 'static,
        after: impl Fn(&Heap, &S) + Send + Sync + 'static,
    ) -> Explored {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(self.preemptions);
        builder.max_branches = 5_000;
        let executions = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&executions);
        let body = Arc::new(body);
        builder.check(move || {
            let heap = Arc::new(self.heap());
            let shared = Arc::new(shared());
            let thread = |me: usize| {
                let (pe, shared, body) = (Pe { me, heap: Arc::clone(&heap) }, Arc::clone(&shared), Arc::clone(&body));
                move || body(&pe, &shared).unwrap_or_else(|error| panic!("PE {me}: {error}"))
            };
            let (first, others) = self.threads.split_first().expect("a model has a thread");
            let others: Vec<_> = others.iter().map(|me| loom::thread::spawn(thread(*me))).collect();
            thread(*first)();
            for other in others {
                other.join().expect("a PE that panics ends the model");
            }
            for bed in &heap.beds {
                assert_eq!(atom::observe(bed.sleepers()), 0, "all have got up");
            }
            after(&heap, &shared);
            counted.fetch_add(1, Ordering::Relaxed);
        });
        Explored { executions: executions.load(Ordering::Relaxed) }
    }

    /// Steps of a spinning waiter after which the rest of its execution is run but not explored: as every poll is a
    /// branch, models that spin would hardly end otherwise, and with three threads never.
    fn polls(&self) -> u32 {
        if self.threads.len() <= 2 { 4 } else { 2 }
    }

    fn heap(&self) -> Heap {
        let words = || self.words.iter().map(|at| (*at, Cell::new(*at, self.mutation))).collect();
        Heap {
            words: (0..self.pes).map(|_| words()).collect(),
            beds: (0..self.pes).map(|_| Bed::new(self.mutation)).collect(),
            waiting: self.waiting,
            polls: self.polls(),
            mutation: self.mutation,
        }
    }
}
