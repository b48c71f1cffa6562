//! OpenSHMEM 1.6 for C and C++: `libshmem`, a thin layer over the core and the collectives. What a program sees is in
//! `include/`; how it is used, in `docs/c.md`.
//!
//! A C program gives addresses where Rust has handles. An address is checked against two ranges, the symmetric heap and the
//! global variables of the program, and is then an offset like any other: everything else is the core's. Families of
//! functions come from one row each, and their types from one table.
//!
//! | room | what lies in it |
//! |---|---|
//! | `export`, `types`, `longdouble` | how a function gets its names, and the tables of types |
//! | `job`, `fail`, `globals` | the one global: the job; what an error is in C; symmetric global variables |
//! | `setup`, `memory`, `team`, `ctx` | start and end, the heap, teams, contexts |
//! | `rma`, `amo`, `signal`, `wait`, `order` | the operations |
//! | `coll`, `active`, `deprecated` | collectives of teams and of active sets, and the old names |
//! | `extra` | `shmemx_…`: what the specification does not have |
//! | `moe`, `exchange` | `shmemx_moe_…`: the exchange between experts, of any payload behind one handle |
#![allow(unsafe_code, reason = "every argument of C is an address for which the caller vouches")]

#[macro_use]
mod export;
#[macro_use]
mod types;

mod active;
mod amo;
mod coll;
mod ctx;
mod deprecated;
mod exchange;
mod extra;
mod fail;
mod globals;
mod job;
mod longdouble;
mod memory;
mod moe;
mod order;
mod rma;
mod setup;
mod signal;
mod team;
mod wait;
