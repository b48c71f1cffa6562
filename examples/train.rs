//! Learns to read handwritten digits, data-parallel: each PE has the whole model and takes its share of every batch,
//! and before each step the PEs sum their gradients. The model is a softmax regression; the digits are in `data/`.
//!
//! ```text
//! cargo run --release -- -n 4 --example train [EPOCHS]
//! ```

use std::time::Instant;

use clap::Parser;
use shmem::{Cmp, Ctx, Result, Shared, SigRef, SymBox, World};

/// Learns to read handwritten digits and tells how many of those it has not seen it reads right.
#[derive(Parser)]
struct Args {
    /// How often each digit is learnt from
    #[arg(default_value_t = 40)]
    epochs: u64,
}

/// Every fifth digit is held out, to be read at the end.
const HELD_OUT: usize = 5;
/// Steps in an epoch.
const BATCHES: usize = 12;
/// How far a step goes.
const RATE: f64 = 0.5;
/// How well the digits must be read in the end.
const GOAL: f64 = 0.93;

fn main() -> Result<()> {
    let Args { epochs } = Args::parse();
    shmem::run(|world| {
        let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
        let (training, held_out) = digits();
        let mut model = Model::new();
        let mut sum = Sum::new(world)?;

        let start = Instant::now();
        for epoch in 1..=epochs {
            let mut loss = 0.0;
            for first in 0..BATCHES {
                let batch: Vec<&Digit> = training.iter().skip(first).step_by(BATCHES).collect();
                let mut slope = Slope::new();
                for digit in batch.iter().skip(me).step_by(n) {
                    slope.add(&model, digit);
                }
                let slope = sum.over_pes(slope)?;
                model.step(&slope, RATE / batch.len() as f64);
                loss += slope.loss();
            }
            if me == 0 {
                println!("epoch {epoch:2}: loss {:.6}", loss / training.len() as f64);
            }
        }
        let took = start.elapsed().as_secs_f64();

        // Each PE reads its share of the held-out digits, and PE 0 counts.
        let right = world.alloc_zeroed::<u64>(1)?;
        let own = held_out.iter().skip(me).step_by(n);
        let own_right = own.filter(|digit| model.read(digit) == digit.label).count();
        ctx.atomic_add(right.sym(), own_right as u64, 0)?;
        world.barrier_all()?;
        if me == 0 {
            let (right, all) = (right.sym().read(0)?, held_out.len());
            let accuracy = right as f64 / all as f64;
            println!("train: accuracy {accuracy:.9}, {right} of {all} held-out digits, {n} PEs, {took:.3} s");
            assert!(accuracy >= GOAL, "at least {GOAL} should be read right; {epochs} epochs are too few?");
        }
        world.free(right)?;
        sum.free()
    })
}

/// Sums over all PEs.
///
/// Every PE puts its part into the memory of every PE, at a place of its own, with a signal that tells the step. Odd
/// and even steps have different places. Two are enough: a PE sends its part of step s + 2 only after it has
/// everybody's part of step s + 1, which nobody sends before it has summed step s.
struct Sum<'w> {
    world: &'w World,
    ctx: Ctx<'w>,
    /// `[step % 2][source][value]`
    parts: SymBox<'w, i64>,
    /// The last step that each source has sent.
    sent: SymBox<'w, u64>,
    step: u64,
}

impl<'w> Sum<'w> {
    /// Collective.
    fn new(world: &'w World) -> Result<Self> {
        let parts = world.alloc(2 * world.n_pes() * VALUES)?;
        let sent = world.alloc_zeroed(world.n_pes())?;
        Ok(Sum { world, ctx: world.ctx(), parts, sent, step: 0 })
    }

    /// The sum of what all PEs give. Collective.
    fn over_pes(&mut self, own: Slope) -> Result<Slope> {
        let (ctx, me, n) = (&self.ctx, self.world.me(), self.world.n_pes());
        self.step += 1;
        let first = (self.step % 2) as usize * n * VALUES;
        let parts = self.parts.sym().slice(first..first + n * VALUES)?;

        let place = parts.slice(me * VALUES..(me + 1) * VALUES)?;
        let signal = SigRef::set(self.sent.sym().at(me)?, self.step);
        for pe in 0..n {
            ctx.put_signal(place, &own.0, signal, pe)?;
        }
        ctx.wait_until_all(self.sent.sym(), &[], Cmp::Ge, self.step)?;

        let mut sum = Slope::new();
        for part in parts.to_vec().chunks(VALUES) {
            for (sum, value) in sum.0.iter_mut().zip(part) {
                *sum += value;
            }
        }
        Ok(sum)
    }

    /// Collective.
    fn free(self) -> Result<()> {
        self.world.free(self.parts)?;
        self.world.free(self.sent)
    }
}

/// Pixels of a digit, and a constant one.
const INPUTS: usize = 65;
const CLASSES: usize = 10;

struct Digit {
    inputs: [f64; INPUTS],
    label: usize,
}

/// The digits to learn from and those held out.
fn digits() -> (Vec<Digit>, Vec<Digit>) {
    let digits = include_str!("data/digits.txt").lines().map(Digit::parse).enumerate();
    let (held_out, training): (Vec<_>, Vec<_>) = digits.partition(|(i, _)| i % HELD_OUT == 0);
    let strip = |digits: Vec<(usize, Digit)>| digits.into_iter().map(|(_, digit)| digit).collect();
    (strip(training), strip(held_out))
}

impl Digit {
    /// A line: 64 pixels, each a character from `0` to `g` for 0 to 16, a space and the label.
    fn parse(line: &str) -> Digit {
        let mut inputs = [1.0; INPUTS];
        for (input, pixel) in inputs.iter_mut().zip(line[..INPUTS - 1].chars()) {
            *input = f64::from(pixel.to_digit(17).expect("a pixel")) / 16.0;
        }
        Digit { inputs, label: line[INPUTS..].parse().expect("a label") }
    }
}

/// A weight for each class and input.
struct Model([[f64; INPUTS]; CLASSES]);

impl Model {
    fn new() -> Model {
        Model([[0.0; INPUTS]; CLASSES])
    }

    /// How probable each class is.
    fn probabilities(&self, digit: &Digit) -> [f64; CLASSES] {
        let scores = self.0.map(|weights| weights.iter().zip(&digit.inputs).map(|(w, x)| w * x).sum::<f64>());
        let greatest = scores.iter().copied().fold(f64::MIN, f64::max);
        let powers = scores.map(|score| (score - greatest).exp());
        let sum: f64 = powers.iter().sum();
        powers.map(|power| power / sum)
    }

    /// The most probable class.
    fn read(&self, digit: &Digit) -> usize {
        let probabilities = self.probabilities(digit);
        (0..CLASSES).max_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b])).unwrap_or(0)
    }

    /// A step down the slope.
    fn step(&mut self, slope: &Slope, length: f64) {
        for (weight, value) in self.0.as_flattened_mut().iter_mut().zip(&slope.0) {
            *weight -= length * *value as f64 / ONE;
        }
    }
}

/// The gradient of the loss by each weight, and the loss itself, summed over some digits: in units of 2^-40.
///
/// They are integers, whose sum is the same in every order. That of floating-point numbers is not, so that what is
/// learnt would depend on how many PEs there are. A digit adds at most 1 to a component and 709 to the loss: there is
/// room for ten thousand in a batch.
struct Slope([i64; VALUES]);

const VALUES: usize = CLASSES * INPUTS + 1;
const ONE: f64 = (1_u64 << 40) as f64;

impl Slope {
    fn new() -> Slope {
        Slope([0; VALUES])
    }

    /// Adds what a digit contributes.
    fn add(&mut self, model: &Model, digit: &Digit) {
        let probabilities = model.probabilities(digit);
        let (gradient, loss) = self.0.split_at_mut(VALUES - 1);
        for (class, gradient) in gradient.chunks_mut(INPUTS).enumerate() {
            let error = probabilities[class] - f64::from(u8::from(class == digit.label));
            for (value, input) in gradient.iter_mut().zip(&digit.inputs) {
                *value += (error * input * ONE) as i64;
            }
        }
        loss[0] -= (probabilities[digit.label].max(f64::MIN_POSITIVE).ln() * ONE) as i64;
    }

    fn loss(&self) -> f64 {
        self.0[VALUES - 1] as f64 / ONE
    }
}
