//! The tables of C types, one row a type, from which the families of functions come: `rma_types! { family }` calls the
//! macro `family` with rows `name: Type`. The header has the same tables.

use std::ffi::c_int;

use shmem_core::{Error, ErrorKind, Result};

pub(crate) use crate::longdouble::LongDouble;

/// What put, get and most collectives work on.
macro_rules! rma_types {
    ($family:ident) => {
        $family! {
            float: f32, double: f64, longdouble: LongDouble, char: i8, schar: i8, short: i16, int: i32, long: i64,
            longlong: i64, uchar: u8, ushort: u16, uint: u32, ulong: u64, ulonglong: u64, int8: i8, int16: i16,
            int32: i32, int64: i64, uint8: u8, uint16: u16, uint32: u32, uint64: u64, size: u64, ptrdiff: i64,
        }
    };
}

/// The same, but those that C passes by value in registers of a kind that Rust does not know.
macro_rules! value_types {
    ($family:ident) => {
        $family! {
            float: f32, double: f64, char: i8, schar: i8, short: i16, int: i32, long: i64, longlong: i64, uchar: u8,
            ushort: u16, uint: u32, ulong: u64, ulonglong: u64, int8: i8, int16: i16, int32: i32, int64: i64, uint8: u8,
            uint16: u16, uint32: u32, uint64: u64, size: u64, ptrdiff: i64,
        }
    };
}

/// What is named by its size: the number in the name, and the bytes of an element.
macro_rules! sizes {
    ($family:ident) => {
        $family! { "8": 1, "16": 2, "32": 4, "64": 8, "128": 16, "mem": 1, }
    };
}

/// The same, but bytes of memory, of which there are no strided forms.
macro_rules! strided_sizes {
    ($family:ident) => {
        $family! { "8": 1, "16": 2, "32": 4, "64": 8, "128": 16, }
    };
}

/// What atomics add to, and what waits compare.
macro_rules! amo_types {
    ($family:ident) => {
        $family! {
            int: i32, long: i64, longlong: i64, uint: u32, ulong: u64, ulonglong: u64, int32: i32, int64: i64, uint32: u32,
            uint64: u64, size: u64, ptrdiff: i64,
        }
    };
}

/// What atomics read, write and swap.
macro_rules! extended_amo_types {
    ($family:ident) => {
        $family! {
            float: f32, double: f64, int: i32, long: i64, longlong: i64, uint: u32, ulong: u64, ulonglong: u64, int32: i32,
            int64: i64, uint32: u32, uint64: u64, size: u64, ptrdiff: i64,
        }
    };
}

/// What atomics work on bit by bit.
macro_rules! bitwise_amo_types {
    ($family:ident) => {
        $family! { uint: u32, ulong: u64, ulonglong: u64, int32: i32, int64: i64, uint32: u32, uint64: u64, }
    };
}

/// What reductions combine bit by bit.
macro_rules! bitwise_types {
    ($family:ident) => {
        $family! {
            uchar: u8, ushort: u16, uint: u32, ulong: u64, ulonglong: u64, int8: i8, int16: i16, int32: i32, int64: i64,
            uint8: u8, uint16: u16, uint32: u32, uint64: u64, size: u64,
        }
    };
}

/// What sums and products are made of, besides the types of put and get.
macro_rules! complex_types {
    ($family:ident) => {
        $family! { complexd: Complex<f64>, complexf: Complex<f32>, }
    };
}

/// The reduction of a name for a type: the library's, or this crate's for the type that the library does not know.
macro_rules! of_type {
    (longdouble, $op:expr) => {
        $crate::longdouble::Long($op)
    };
    ($name:ident, $op:expr) => {
        $op
    };
}

/// A PE number of C, of which a negative one exists no more than one that is too large.
#[inline(always)]
pub(crate) fn pe(number: c_int) -> usize {
    number as isize as usize
}

/// An array of C's, which may be null where it has no elements.
///
/// # Safety
/// It has so many elements, if it is not null and they fit into memory, and nothing changes them meanwhile.
pub(crate) unsafe fn array<'a, T>(name: &str, address: *const T, len: usize) -> Result<&'a [T]> {
    match len.checked_mul(size_of::<T>()) {
        Some(0) => Ok(&[]),
        Some(1..=MOST_BYTES) if !address.is_null() => {
            // SAFETY: the caller says so.
            Ok(unsafe { std::slice::from_raw_parts(address, len) })
        }
        Some(1..=MOST_BYTES) => Err(Error::other(format!("{name} is NULL, {len} elements are needed"))),
        _ => Err(ErrorKind::Overflow { count: len, size: size_of::<T>() }.into()),
    }
}

/// No object is larger.
const MOST_BYTES: usize = isize::MAX as usize;

/// Stores a result.
///
/// # Safety
/// The address is valid if it is not null.
pub(crate) unsafe fn store<T>(to: *mut T, what: &str, value: T) -> Result<()> {
    check(to, what)?;
    // SAFETY: the caller says so.
    unsafe { to.write(value) };
    Ok(())
}

/// A null pointer where something is needed.
pub(crate) fn check<T>(address: *const T, what: &str) -> Result<()> {
    if address.is_null() { Err(Error::other(format!("{what} is NULL"))) } else { Ok(()) }
}
