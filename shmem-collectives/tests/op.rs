//! Every reduction of every type against a serial model, through the very loops that collectives run, whole and in stages.
//!
//! The loops are compiled once for each size of elements, around reductions behind pointers, and once for each of a few reductions as they are:
//! for all 140 pairs of types and operations that took minutes. `tests/perf.rs` runs every pair, each with loops of its own, in whole collectives.
#![allow(clippy::unwrap_used, reason = "a test")]

use half::{bf16, f16};
use num_complex::Complex;
use shmem::{Elem, Kernel, Shared, SymSlice, World};
use shmem_collectives::op::{
    Avg, By, Indexed, Max, MaxIndex, Min, MinIndex, Number, Op, Ordered, Prod, Reduce, Scaled, Sum, Type, Unsupported,
    Visit, Whole, Xor, dispatch,
};

/// Elements of a region: whole chunks and tails of every kind.
const LEN: usize = 777;
/// Regions in the symmetric heap; the last ones are for results.
const REGIONS: usize = 12;

/// A type with a serial model, written without the code under test.
trait Model: Elem + PartialEq + std::fmt::Debug {
    /// Any value, special ones among them.
    fn sample(random: u64) -> Self;
    /// The result of an operation, if the type has it.
    fn expect(op: Op, elements: &[Self]) -> Option<Self>;
    /// Whether one element comes before another for `Min` (or `Max`, where `max`).
    fn wins(self, other: Self, max: bool) -> bool;
    /// With any NaN as the canonical one.
    fn canonical(self) -> Self {
        self
    }
}

fn random(seed: u64) -> u64 {
    // splitmix64 (Steele, Lea, Flood 2014)
    let mut z = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

macro_rules! integer_models {
    ($($int:ty),*) => {$(
        impl Model for $int {
            fn sample(random: u64) -> Self {
                [<$int>::MIN, <$int>::MAX, 0, 1, 7].get(random as usize % 24).copied().unwrap_or((random >> 7) as $int)
            }
            fn expect(op: Op, elements: &[Self]) -> Option<Self> {
                let n = elements.len() as i128;
                Some(match op {
                    Op::Sum => elements.iter().fold(0, |sum: $int, x| sum.wrapping_add(*x)),
                    Op::Prod => elements.iter().fold(1, |product: $int, x| product.wrapping_mul(*x)),
                    Op::Avg => (elements.iter().map(|x| *x as i128).sum::<i128>() / n) as $int,
                    Op::Min => *elements.iter().min().unwrap(),
                    Op::Max => *elements.iter().max().unwrap(),
                    Op::And => elements.iter().fold(!0, |all, x| all & x),
                    Op::Or => elements.iter().fold(0, |all, x| all | x),
                    Op::Xor => elements.iter().fold(0, |all, x| all ^ x),
                    _ => return None,
                })
            }
            fn wins(self, other: Self, max: bool) -> bool {
                if max { self > other } else { self < other }
            }
        }
    )*};
}

integer_models!(i8, i16, i32, i64, isize, u8, u16, u32, u64, usize);

macro_rules! float_models {
    ($($float:ty: $acc:ty, $bits:ty, $widen:expr, $narrow:expr;)*) => {$(
        impl Model for $float {
            fn sample(random: u64) -> Self {
                let nan = <$float>::NAN.to_bits();
                let special = [
                    <$float>::NAN,
                    <$float>::from_bits(nan | 1 << (<$bits>::BITS - 1) | 5),
                    <$float>::INFINITY,
                    <$float>::NEG_INFINITY,
                    <$float>::MAX,
                    <$float>::MIN_POSITIVE,
                    <$float>::from_bits(3),
                ];
                let zeros = [<$float>::from_bits(0), <$float>::from_bits(1 << (<$bits>::BITS - 1))];
                match random % 64 {
                    0..10 => zeros[random as usize / 64 % 2],
                    10..14 => special[random as usize / 64 % special.len()],
                    _ => $narrow(((random >> 20) % 4001) as $acc / 512.0 - 3.9),
                }
            }
            fn expect(op: Op, elements: &[Self]) -> Option<Self> {
                let wide = elements.iter().map(|x| $widen(*x));
                let best = |max| elements.iter().copied().reduce(|a, b| if b.wins(a, max) { b } else { a });
                let result = match op {
                    Op::Sum => $narrow(wide.reduce(|a, b| a + b)?),
                    Op::Prod => $narrow(wide.reduce(|a, b| a * b)?),
                    Op::Avg => $narrow(wide.reduce(|a, b| a + b)? / elements.len() as $acc),
                    Op::Scaled(factor) => $narrow(wide.map(|x| x * factor as $acc).reduce(|a, b| a + b)?),
                    Op::Min => best(false)?,
                    Op::Max => best(true)?,
                    _ => return None,
                };
                Some(result.canonical())
            }
            fn wins(self, other: Self, max: bool) -> bool {
                match (self.is_nan(), other.is_nan()) {
                    (_, true) => false,
                    (true, _) => true,
                    _ if self == other => self.is_sign_negative() != max && self.is_sign_negative() != other.is_sign_negative(),
                    _ if max => self > other,
                    _ => self < other,
                }
            }
            fn canonical(self) -> Self {
                if self.is_nan() { <$float>::NAN } else { self }
            }
        }
    )*};
}

float_models! {
    f16: f32, u16, f16::to_f32, f16::from_f32;
    bf16: f32, u16, bf16::to_f32, bf16::from_f32;
    f32: f32, u32, std::convert::identity, std::convert::identity;
    f64: f64, u64, std::convert::identity, std::convert::identity;
}

macro_rules! complex_models {
    ($($real:ty),*) => {$(
        impl Model for Complex<$real> {
            fn sample(seed: u64) -> Self {
                Complex::new(<$real>::sample(seed), <$real>::sample(random(seed)))
            }
            fn expect(op: Op, elements: &[Self]) -> Option<Self> {
                let all = elements.iter().map(|x| (x.re, x.im));
                let add = |a: ($real, $real), b: ($real, $real)| (a.0 + b.0, a.1 + b.1);
                let (re, im) = match op {
                    Op::Sum => all.reduce(add)?,
                    Op::Prod => all.reduce(|a, b| (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0))?,
                    Op::Avg => {
                        let (re, im) = all.reduce(add)?;
                        (re / elements.len() as $real, im / elements.len() as $real)
                    }
                    Op::Scaled(factor) => all.map(|x| (x.0 * factor as $real, x.1 * factor as $real)).reduce(add)?,
                    _ => return None,
                };
                Some(Complex::new(re.canonical(), im.canonical()))
            }
            fn wins(self, _: Self, _: bool) -> bool {
                unreachable!("not ordered")
            }
        }
    )*};
}

complex_models!(f32, f64);

/// Room for any element and any partial result.
type Held = [u8; 16];

/// A reduction behind pointers.
struct Hidden<'a> {
    widen: &'a (dyn Fn(Held) -> Held + Sync),
    combine: &'a (dyn Fn(Held, Held) -> Held + Sync),
    narrow: &'a (dyn Fn(Held) -> Held + Sync),
}

fn held(bytes: &[u8]) -> Held {
    let mut held = Held::default();
    held[..bytes.len()].copy_from_slice(bytes);
    held
}

fn of<T: Elem>(held: Held) -> T {
    bytemuck::pod_read_unaligned(&held[..size_of::<T>()])
}

impl<const N: usize> Kernel<[u8; N]> for Hidden<'_>
where
    [u8; N]: Elem,
{
    type Acc = Held;

    fn widen(&self, element: [u8; N]) -> Held {
        (self.widen)(held(&element))
    }

    fn combine(&self, left: Held, right: Held) -> Held {
        (self.combine)(left, right)
    }

    fn narrow(&self, acc: Held) -> [u8; N] {
        of((self.narrow)(acc))
    }
}

/// Runs a reduction over contributions given as bytes, and returns the result's bytes: of a fold of all, and of one
/// after the other with partial results in memory.
struct Run<'a> {
    world: &'a World,
    memory: SymSlice<'a, u64>,
    sources: &'a [Vec<u8>],
}

impl Run<'_> {
    /// A fold of all sources, as elements of type `E`.
    fn fold<E: Elem>(&self, kernel: &impl Kernel<E>) -> Vec<u8> {
        let ctx = self.world.ctx::<Shared>();
        let words = self.memory.len() / REGIONS / 8 * 8;
        let region = |i: usize| self.memory.slice(i * words..(i + 1) * words).unwrap();
        let elements = |i| (region(i).cast::<E>().unwrap().slice(..LEN).unwrap(), 0);
        for (i, source) in self.sources.iter().enumerate() {
            region(i).cast::<u8>().unwrap().slice(..source.len()).unwrap().copy_from(source).unwrap();
        }
        let all: Vec<_> = (0..self.sources.len()).map(elements).collect();
        let result = elements(REGIONS - 1);
        ctx.fold(&all, &[result], kernel).unwrap();
        bytemuck::cast_slice(&result.0.to_vec()).to_vec()
    }

    /// A fold of all sources, as elements of `size` bytes.
    fn fold_hidden(&self, size: usize, kernel: &Hidden<'_>) -> Vec<u8> {
        match size {
            1 => self.fold::<[u8; 1]>(kernel),
            2 => self.fold::<[u8; 2]>(kernel),
            4 => self.fold::<[u8; 4]>(kernel),
            8 => self.fold::<[u8; 8]>(kernel),
            9 => self.fold::<[u8; 9]>(kernel),
            10 => self.fold::<[u8; 10]>(kernel),
            12 => self.fold::<[u8; 12]>(kernel),
            16 => self.fold::<[u8; 16]>(kernel),
            _ => panic!("elements of {size} bytes"),
        }
    }

    /// Element by element, with every partial result in memory.
    fn in_stages<T: Elem, R: Reduce<T>>(&self, op: R) -> Vec<u8> {
        let (partial, n, size) = (Whole { op: op.partial(), n: 0 }, self.sources.len(), size_of::<T>());
        let element = |pe: usize, i: usize| op.widen(of(held(&self.sources[pe][i * size..(i + 1) * size])));
        let mut results = Vec::with_capacity(LEN * size);
        for i in 0..LEN {
            let mut acc = element(0, i);
            for pe in 1..n {
                acc = partial.narrow(partial.combine(partial.widen(acc), partial.widen(element(pe, i))));
            }
            results.extend_from_slice(bytemuck::bytes_of(&op.finish(acc, n)));
        }
        results
    }
}

impl Visit for Run<'_> {
    type Out = Vec<Vec<u8>>;

    fn visit<T: Elem, R: Reduce<T>>(self, op: R) -> Vec<Vec<u8>> {
        let n = self.sources.len();
        let kernel = Hidden {
            widen: &|element| held(bytemuck::bytes_of(&op.widen(of(element)))),
            combine: &|left, right| held(bytemuck::bytes_of(&op.combine(of(left), of(right)))),
            narrow: &|acc| held(bytemuck::bytes_of(&op.finish(of(acc), n))),
        };
        let folded = self.fold_hidden(size_of::<T>(), &kernel);
        vec![folded, self.in_stages(op)]
    }
}

/// A fold of a reduction as it is.
fn as_it_is<T: Model, R: Reduce<T>>(world: &World, memory: SymSlice<'_, u64>, op: R, name: Op) {
    for n in 1..=9 {
        let sample = |pe: usize, i: usize| T::sample(random((n * 100 + pe) as u64 * 1000 + i as u64));
        let contributions: Vec<Vec<T>> = (0..n).map(|pe| (0..LEN).map(|i| sample(pe, i)).collect()).collect();
        let sources: Vec<Vec<u8>> = contributions.iter().map(|c| bytes(c)).collect();
        let result = Run { world, memory, sources: &sources }.fold::<T>(&Whole { op, n });
        let of = |i: usize| contributions.iter().map(|c| c[i]).collect::<Vec<T>>();
        let expected = bytes(&(0..LEN).map(|i| T::expect(name, &of(i)).unwrap()).collect::<Vec<_>>());
        assert!(result == expected, "{name} of {n} {}", std::any::type_name::<T>());
    }
}

#[test]
fn loops_around_some_reductions_as_they_are() {
    shmem::local(1, |world| {
        let memory = world.alloc::<u64>(REGIONS * LEN * 3)?;
        as_it_is::<f16, _>(world, memory.sym(), Sum, Op::Sum);
        as_it_is::<bf16, _>(world, memory.sym(), Sum, Op::Sum);
        as_it_is::<f32, _>(world, memory.sym(), Avg, Op::Avg);
        as_it_is::<f32, _>(world, memory.sym(), Max, Op::Max);
        as_it_is::<f64, _>(world, memory.sym(), Scaled(0.375), Op::Scaled(0.375));
        as_it_is::<i8, _>(world, memory.sym(), Avg, Op::Avg);
        as_it_is::<i64, _>(world, memory.sym(), Min, Op::Min);
        as_it_is::<u16, _>(world, memory.sym(), Prod, Op::Prod);
        as_it_is::<u32, _>(world, memory.sym(), Xor, Op::Xor);
        as_it_is::<Complex<f32>, _>(world, memory.sym(), Prod, Op::Prod);
        world.free(memory)
    })
    .unwrap();
}

fn bytes<T: Elem>(elements: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(elements).to_vec()
}

fn check<T: Model>(world: &World, memory: SymSlice<'_, u64>, ty: Type) {
    assert_eq!((Type::of::<T>(), size_of::<T>()), (Some(ty), ty.size()));
    for n in 1..=9 {
        let sample = |pe: usize, i: usize| T::sample(random((n * 100 + pe) as u64 * 1000 + i as u64));
        let contributions: Vec<Vec<T>> = (0..n).map(|pe| (0..LEN).map(|i| sample(pe, i)).collect()).collect();
        let of = |i: usize| contributions.iter().map(|c| c[i]).collect::<Vec<T>>();
        let plain: Vec<Vec<u8>> = contributions.iter().map(|c| bytes(c)).collect();
        for op in Op::ALL.iter().copied().chain([Op::Scaled(0.375)]) {
            if matches!(op, Op::MinIndex | Op::MaxIndex) {
                continue;
            }
            let run = Run { world, memory, sources: &plain };
            match (dispatch(ty, op, run), T::expect(op, &of(0))) {
                (Ok(results), Some(_)) => {
                    let expected = bytes(&(0..LEN).map(|i| T::expect(op, &of(i)).unwrap()).collect::<Vec<_>>());
                    for result in results {
                        let wrong =
                            result.iter().zip(&expected).position(|(a, b)| a != b).map(|at| at / size_of::<T>());
                        assert_eq!(wrong, None, "{op} of {n} {ty}: {:?}", of(wrong.unwrap_or(0)));
                    }
                }
                (Err(error), None) => {
                    assert_eq!(error, Unsupported::Pair { op: op.name(), ty: ty.name() });
                    assert_eq!(shmem::Error::from(error).to_string(), format!("{} is not defined for {ty}", op.name()));
                }
                (answer, expected) => panic!("{op} of {ty}: {answer:?} where {expected:?} was expected"),
            }
        }
        for op in [Op::MinIndex, Op::MaxIndex] {
            // Indices in no order, some of them equal.
            let indexed =
                |pe: usize, i: usize| Indexed { value: contributions[pe][i], index: random((pe + i) as u64) % 7 };
            let sources: Vec<Vec<u8>> = (0..n)
                .map(|pe| {
                    (0..LEN)
                        .flat_map(|i| [bytes(&[indexed(pe, i).value]), bytes(&[{ indexed(pe, i).index }])].concat())
                        .collect()
                })
                .collect();
            let Ok(results) = dispatch(ty, op, Run { world, memory, sources: &sources }) else {
                assert_eq!(T::expect(Op::Min, &of(0)), None);
                continue;
            };
            let best = |i: usize| {
                let better = |a: Indexed<T>, b: Indexed<T>| {
                    let max = op == Op::MaxIndex;
                    let (a_wins, b_wins) = (a.value.wins(b.value, max), b.value.wins(a.value, max));
                    if b_wins || !a_wins && b.index < a.index { b } else { a }
                };
                let best = (0..n).map(|pe| indexed(pe, i)).reduce(better).unwrap();
                [bytes(&[best.value.canonical()]), bytes(&[{ best.index }])].concat()
            };
            let expected: Vec<u8> = (0..LEN).flat_map(best).collect();
            results.iter().for_each(|result| assert!(*result == expected, "{op} of {n} {ty}"));
        }
    }
}

#[test]
fn every_operation_of_every_type_is_as_the_serial_model_has_it() {
    shmem::local(1, |world| {
        let memory = world.alloc::<u64>(REGIONS * LEN * 3)?;
        for &ty in Type::ALL {
            match ty {
                Type::I8 => check::<i8>(world, memory.sym(), ty),
                Type::I16 => check::<i16>(world, memory.sym(), ty),
                Type::I32 => check::<i32>(world, memory.sym(), ty),
                Type::I64 => check::<i64>(world, memory.sym(), ty),
                Type::Isize => check::<isize>(world, memory.sym(), ty),
                Type::U8 => check::<u8>(world, memory.sym(), ty),
                Type::U16 => check::<u16>(world, memory.sym(), ty),
                Type::U32 => check::<u32>(world, memory.sym(), ty),
                Type::U64 => check::<u64>(world, memory.sym(), ty),
                Type::Usize => check::<usize>(world, memory.sym(), ty),
                Type::F16 => check::<f16>(world, memory.sym(), ty),
                Type::Bf16 => check::<bf16>(world, memory.sym(), ty),
                Type::F32 => check::<f32>(world, memory.sym(), ty),
                Type::F64 => check::<f64>(world, memory.sym(), ty),
                Type::Complex64 => check::<Complex<f32>>(world, memory.sym(), ty),
                Type::Complex128 => check::<Complex<f64>>(world, memory.sym(), ty),
            }
        }
        world.free(memory)
    })
    .unwrap();
}

/// A reduction without a fold.
fn reduce<T: Elem, R: Reduce<T>>(op: R, elements: &[T]) -> T {
    let whole = Whole { op, n: elements.len() };
    let wide = elements.iter().map(|element| whole.widen(*element));
    whole.narrow(wide.reduce(|left, right| whole.combine(left, right)).unwrap())
}

#[test]
fn a_nan_at_any_place_of_any_number_of_contributions_comes_out_as_the_canonical_one() {
    fn check<T: Model + Ordered + Number>(one: T, nans: [T; 2]) {
        let canonical = bytes(&[nans[0].canonical()]);
        for (n, place) in (1..=7).flat_map(|n| (0..n).map(move |place| (n, place))) {
            for nan in nans {
                let mut elements = vec![one; n];
                elements[place] = nan;
                let results = [reduce(Min, &elements), reduce(Max, &elements), reduce(Sum, &elements)];
                results.into_iter().for_each(|result| assert_eq!(bytes(&[result]), canonical, "{n} {place}"));
            }
        }
    }
    check(1.0_f32, [f32::NAN, f32::from_bits(0xffc0_1234)]);
    check(1.0_f64, [f64::NAN, f64::from_bits(0xfff0_0000_0000_0001)]);
    check(f16::ONE, [f16::NAN, f16::from_bits(0xfc01)]);
    check(bf16::ONE, [bf16::NAN, bf16::from_bits(0xff81)]);
    for place in 0..4 {
        let mut elements = [0_u64, 1, 2, 3].map(|index| Indexed { value: index as f32, index });
        elements[place].value = f32::NAN;
        assert_eq!({ reduce(MinIndex, &elements).index }, place as u64);
        assert_eq!({ reduce(MaxIndex, &elements).index }, place as u64);
    }
}

#[test]
fn negative_zero_is_less_than_positive_zero_in_any_order() {
    for zeros in [[0.0_f32, -0.0], [-0.0, 0.0]] {
        assert!(reduce(Min, &zeros).is_sign_negative());
        assert!(reduce(Max, &zeros).is_sign_positive());
    }
}

#[test]
fn small_floats_are_rounded_once() {
    // 1 + 2^-7 is the bf16 after 1: sums rounded at each step would lose every second one.
    let mixed: Vec<bf16> = (0..8).map(|i| bf16::from_f32(if i % 2 == 0 { 1.0 } else { 1.0 + 1.0 / 128.0 })).collect();
    let exact: f64 = mixed.iter().map(|x| x.to_f64()).sum();
    assert_eq!(reduce(Sum, &mixed), bf16::from_f64(exact));
    let ones = vec![bf16::ONE; 300];
    assert_eq!(reduce(Sum, &ones), bf16::from_f32(300.0), "at 256 a bf16 stops growing by ones");
    let halves = vec![f16::from_f32(40_000.0); 8];
    assert_eq!(reduce(Sum, &halves), f16::INFINITY);
    assert_eq!(reduce(Avg, &halves), f16::from_f32(40_000.0), "the sum may be larger than any f16");
    assert_eq!(reduce(Scaled(0.125), &halves), f16::from_f32(40_000.0));
}

#[test]
fn sums_near_the_limits_of_bf16_stay_finite() {
    let [big, minus, one] = [3e38, -3e38, 1.0].map(bf16::from_f32);
    for order in [
        [big, minus, one],
        [big, one, minus],
        [one, big, minus],
        [minus, big, one],
        [minus, one, big],
        [one, minus, big],
    ] {
        assert!(reduce(Sum, &order).is_finite(), "{order:?}");
    }
}

#[test]
fn integer_averages_are_exact_and_round_towards_zero() {
    assert_eq!(reduce(Avg, &[i8::MAX; 100]), i8::MAX);
    assert_eq!(reduce(Avg, &[u64::MAX, u64::MAX - 2]), u64::MAX - 1);
    assert_eq!((reduce(Avg, &[-3, 0]), reduce(Avg, &[3, 0])), (-1, 1));
}

#[test]
fn equal_values_go_to_the_lowest_index() {
    let tied = [(2, 9), (1, 5), (1, 3), (2, 4), (1, 8)].map(|(value, index)| Indexed::<i32> { value, index });
    assert_eq!(reduce(MinIndex, &tied), Indexed { value: 1, index: 3 });
    assert_eq!(reduce(MaxIndex, &tied), Indexed { value: 2, index: 4 });
}

#[test]
fn a_function_of_one_s_own_gets_the_contributions_in_order() {
    let digits = By(|left: u64, right: u64| left * 10 + right);
    assert_eq!(reduce(digits, &[1, 2, 3, 4]), 1234);
    let limit = 100;
    assert_eq!(reduce(By(|left: u8, right: u8| left.max(right).min(limit)), &[3, 200, 7]), 100);
}

#[test]
fn names_lead_back_to_what_they_name() {
    for &ty in Type::ALL {
        assert_eq!(ty.to_string().parse(), Ok(ty));
    }
    for &op in Op::ALL.iter().chain(&[Op::Scaled(0.125)]) {
        assert_eq!(op.to_string().parse(), Ok(op));
    }
    let error = "fp16".parse::<Type>().unwrap_err().to_string();
    assert!(error.contains("\"fp16\"") && error.contains("f16, bf16, f32"), "{error}");
    for wrong in ["plus", "scaled", "scaled=x", ""] {
        let error = wrong.parse::<Op>().unwrap_err().to_string();
        assert!(error.contains("sum, prod") && error.contains("scaled=FACTOR"), "{error}");
    }
    assert_eq!(Type::of::<[u8; 3]>(), None);
    assert_eq!(<Sum as Reduce<f32>>::NAME, "sum");
}
