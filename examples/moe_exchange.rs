//! Learns to read handwritten digits by a mixture of experts, which are spread over the PEs: a gate sends each digit to two of
//! them, wherever they are, and their answers come back weighted. Learning goes the same ways backwards. The digits are in `data/`.
//!
//! PEs share nothing but the exchange; still every number is, bit for bit, that of a serial run, which each PE makes as well.
//!
//! ```text
//! cargo run --release -- -n 4 --example moe_exchange [EPOCHS]
//! ```

use std::ops::Range;
use std::time::{Duration, Instant};

use clap::Parser;
use shmem::{Result, Shared, Team, World};
use shmem_collectives::moe::{F32, Layout, Moe};

/// Learns to read handwritten digits by experts on all PEs and tells how many of those it has not seen it reads right.
#[derive(Parser)]
struct Args {
    /// How often each digit is learnt from
    #[arg(default_value_t = 30)]
    epochs: usize,
}

const EXPERTS: usize = 8;
/// Experts that see a digit.
const TOP: usize = 2;
/// Every fifth digit is held out, to be read at the end.
const HELD_OUT: usize = 5;
/// Digits of all PEs in a step.
const BATCH: usize = 120;
/// How far a step goes.
const RATE: f32 = 0.02;
/// How well the digits must be read in the end.
const GOAL: f64 = 0.95;

fn main() -> Result<()> {
    let Args { epochs } = Args::parse();
    shmem::run(|world| {
        let (training, held_out) = digits();
        let gate = Gate::new(&training);
        let team = world.team();
        let mut mixture = Mixture::new(world, &team, &gate)?;
        let start = Instant::now();
        for _ in 0..epochs {
            for batch in training.chunks(BATCH) {
                mixture.learn(batch)?;
            }
        }
        let mut right = 0;
        for batch in held_out.chunks(BATCH) {
            right += mixture.read(batch)?;
        }
        mixture.report(world, start.elapsed(), epochs * training.len() + held_out.len(), right, held_out.len())?;

        let mut serial: Vec<Expert> = (0..EXPERTS).map(Expert::new).collect();
        for _ in 0..epochs {
            training.chunks(BATCH).for_each(|batch| learn_alone(&mut serial, &gate, batch));
        }
        let same = mixture.own.iter().all(|(name, expert)| expert.weights == serial[*name].weights);
        assert!(same, "PE {} has learnt otherwise than a serial run", world.me());
        world.barrier_all()?;
        if world.me() == 0 {
            println!("moe_exchange: every expert has learnt bit for bit as in a serial run");
        }
        mixture.moe.free()
    })
}

/// Pixels of a digit, and a constant one.
const INPUTS: usize = 65;
const CLASSES: usize = 10;

struct Digit {
    inputs: [f32; INPUTS],
    label: usize,
}

/// The part of a mixture that one PE has.
struct Mixture<'t> {
    moe: Moe<'t, F32>,
    gate: &'t Gate,
    own: Vec<(usize, Expert)>,
    /// Tokens that each of the own experts has got, and the time in the exchange.
    load: Vec<u64>,
    exchange: Duration,
    me: usize,
    n: usize,
}

impl<'t> Mixture<'t> {
    /// Collective.
    fn new(world: &'t World, team: &'t Team<'t>, gate: &'t Gate) -> Result<Self> {
        let (me, n) = (world.me(), world.n_pes());
        let moe = Moe::builder(world, team).experts(EXPERTS).max_tokens(BATCH.div_ceil(n)).hidden(INPUTS).top_k(TOP);
        let moe = moe.payload(F32).build()?;
        let own: Vec<(usize, Expert)> = moe.own_experts().iter().map(|name| (*name, Expert::new(*name))).collect();
        Ok(Mixture { load: vec![0; own.len()], moe, gate, own, exchange: Duration::ZERO, me, n })
    }

    /// What the mixture answers to this PE's part of a batch, with its experts' inputs. Collective.
    fn answer(&mut self, part: &[Digit]) -> Result<(Vec<f32>, Vec<Vec<f32>>, Layout)> {
        let tokens: Vec<f32> = part.iter().flat_map(|digit| digit.inputs).collect();
        let choices: Vec<[(i32, f32); TOP]> = part.iter().map(|digit| self.gate.choose(digit)).collect();
        let experts: Vec<i32> = choices.iter().flatten().map(|choice| choice.0).collect();
        let weights: Vec<f32> = choices.iter().flatten().map(|choice| choice.1).collect();

        let begin = Instant::now();
        let received = self.moe.dispatch(&tokens, &experts, &weights)?;
        self.exchange += begin.elapsed();
        let mut inputs = Vec::new();
        for (local, (_, expert)) in self.own.iter().enumerate() {
            let rows = received.rows(local);
            let mut values = vec![0.0; rows.len() * INPUTS];
            received.gather(local, &mut values)?;
            for (row, token) in rows.iter().zip(values.chunks(INPUTS)) {
                received.output(row)?.copy_from(&padded(expert.scores(token)))?;
            }
            self.load[local] += rows.len() as u64;
            inputs.push(values);
        }
        let layout = received.layout();
        let mut scores = vec![0.0; tokens.len()];
        let begin = Instant::now();
        self.moe.combine(&mut scores)?;
        self.exchange += begin.elapsed();
        Ok((scores, inputs, layout))
    }

    /// A step of learning: the slopes of the answers go to the experts, by the way that the digits went. Collective.
    fn learn(&mut self, batch: &[Digit]) -> Result<()> {
        let part = &batch[share(batch.len(), self.n, self.me)];
        let (scores, inputs, layout) = self.answer(part)?;
        let slopes: Vec<f32> =
            part.iter().zip(scores.chunks(INPUTS)).flat_map(|(digit, scores)| slope(digit, scores)).collect();
        let begin = Instant::now();
        let received = self.moe.dispatch_again(&layout, &slopes)?;
        self.exchange += begin.elapsed();
        for (local, (_, expert)) in self.own.iter_mut().enumerate() {
            let rows = received.rows(local);
            let mut slopes = vec![0.0; rows.len() * INPUTS];
            received.gather(local, &mut slopes)?;
            let each = rows.iter().zip(slopes.chunks(INPUTS)).zip(inputs[local].chunks(INPUTS));
            expert.step(each.map(|((row, slope), token)| (row.weight(), slope, token)));
        }
        Ok(())
    }

    /// How many digits of a batch are read right, of this PE's part. Collective.
    fn read(&mut self, batch: &[Digit]) -> Result<u64> {
        let part = &batch[share(batch.len(), self.n, self.me)];
        let (scores, ..) = self.answer(part)?;
        Ok(part.iter().zip(scores.chunks(INPUTS)).filter(|(digit, scores)| best(scores) == digit.label).count() as u64)
    }

    /// PE 0 tells of all. Collective.
    fn report(&self, world: &World, took: Duration, digits: usize, right: u64, held_out: usize) -> Result<()> {
        let (ctx, counts) = (world.ctx::<Shared>(), world.alloc_zeroed::<u64>(EXPERTS + 1)?);
        for ((name, _), load) in self.own.iter().zip(&self.load) {
            ctx.atomic_add(counts.sym().at(*name)?, *load, 0)?;
        }
        ctx.atomic_add(counts.sym().at(EXPERTS)?, right, 0)?;
        world.barrier_all()?;
        if self.me == 0 {
            let counts = counts.sym().to_vec();
            let (loads, right) = (&counts[..EXPERTS], counts[EXPERTS]);
            let (accuracy, seconds) = (right as f64 / held_out as f64, took.as_secs_f64());
            let share = 100.0 * self.exchange.as_secs_f64() / seconds;
            println!("load of the experts: {loads:?} digits");
            println!(
                "moe_exchange: accuracy {accuracy:.9}, {right} of {held_out} held-out digits, {} PEs, {:.0} tokens/s, \
                 {share:.0} % of the time in the exchange ({})",
                self.n,
                digits as f64 / seconds,
                self.moe.mode(),
            );
            assert!(accuracy >= GOAL, "at least {GOAL} should be read right; are there too few epochs?");
        }
        world.free(counts)
    }
}

/// A step of learning by one program that has all experts.
fn learn_alone(experts: &mut [Expert], gate: &Gate, batch: &[Digit]) {
    let mut rows: Vec<Vec<(f32, [f32; INPUTS], &Digit)>> = (0..EXPERTS).map(|_| Vec::new()).collect();
    for digit in batch {
        let choices = gate.choose(digit);
        let answers =
            choices.map(|(name, weight)| experts[name as usize].scores(&digit.inputs).map(|score| score * weight));
        let scores: [f32; CLASSES] = std::array::from_fn(|class| answers[0][class] + answers[1][class]);
        let slope = slope(digit, &scores);
        for (name, weight) in choices {
            rows[name as usize].push((weight, slope, digit));
        }
    }
    for (expert, rows) in experts.iter_mut().zip(&rows) {
        expert.step(rows.iter().map(|(weight, slope, digit)| (*weight, &slope[..], &digit.inputs[..])));
    }
}

/// A linear map from the inputs to a score for each class.
struct Expert {
    weights: [[f32; INPUTS]; CLASSES],
}

impl Expert {
    /// Each begins a little different.
    fn new(name: usize) -> Expert {
        let weights = std::array::from_fn(|class| {
            std::array::from_fn(|input| ((name * 31 + class * 17 + input * 7) % 23) as f32 / 1000.0)
        });
        Expert { weights }
    }

    fn scores(&self, token: &[f32]) -> [f32; CLASSES] {
        self.weights.map(|weights| weights.iter().zip(token).map(|(weight, input)| weight * input).sum())
    }

    /// A step down the slopes of some digits, in their order: the weight of this expert's answer, the slope and the inputs.
    fn step<'a>(&mut self, rows: impl Iterator<Item = (f32, &'a [f32], &'a [f32])>) {
        let mut sum = [[0.0_f32; INPUTS]; CLASSES];
        for (weight, slope, token) in rows {
            for (sum, slope) in sum.iter_mut().zip(slope) {
                sum.iter_mut().zip(token).for_each(|(sum, input)| *sum += weight * slope * input);
            }
        }
        let all = self.weights.as_flattened_mut().iter_mut().zip(sum.as_flattened());
        all.for_each(|(weight, sum)| *weight -= RATE * sum);
    }
}

/// Sends a digit to the experts whose centres are nearest, which it finds by itself among the digits to learn from.
struct Gate {
    centres: Vec<[f32; INPUTS]>,
}

impl Gate {
    fn new(training: &[Digit]) -> Gate {
        let mut gate = Gate {
            centres: training
                .iter()
                .step_by(training.len() / EXPERTS)
                .take(EXPERTS)
                .map(|digit| digit.inputs)
                .collect(),
        };
        for _ in 0..10 {
            let mut sums = [([0.0; INPUTS], 0.0_f32); EXPERTS];
            for digit in training {
                let (sum, count) = &mut sums[gate.choose(digit)[0].0 as usize];
                sum.iter_mut().zip(&digit.inputs).for_each(|(sum, input)| *sum += input);
                *count += 1.0;
            }
            for (centre, (sum, count)) in gate.centres.iter_mut().zip(sums) {
                *centre = sum.map(|sum| sum / count.max(1.0));
            }
        }
        gate
    }

    /// The experts for a digit, the nearest first, with weights that add up to 1.
    fn choose(&self, digit: &Digit) -> [(i32, f32); TOP] {
        let away =
            |centre: &[f32; INPUTS]| -> f32 { centre.iter().zip(&digit.inputs).map(|(a, b)| (a - b) * (a - b)).sum() };
        let mut order: Vec<(f32, i32)> = self.centres.iter().map(away).zip(0..).collect();
        order.sort_by(|one, other| one.0.total_cmp(&other.0));
        let second = 1.0 / (1.0 + (order[1].0 - order[0].0).exp());
        [(order[0].1, 1.0 - second), (order[1].1, second)]
    }
}

/// How the loss changes with each score: the probability of the class, less 1 for the right one.
fn slope(digit: &Digit, scores: &[f32]) -> [f32; INPUTS] {
    let scores: [f32; CLASSES] = std::array::from_fn(|class| scores[class]);
    let greatest = scores.iter().copied().fold(f32::MIN, f32::max);
    let powers = scores.map(|score| (score - greatest).exp());
    let sum: f32 = powers.iter().sum();
    padded(std::array::from_fn(|class| powers[class] / sum - f32::from(u8::from(class == digit.label))))
}

/// Scores in the place of inputs.
fn padded(scores: [f32; CLASSES]) -> [f32; INPUTS] {
    std::array::from_fn(|i| scores.get(i).copied().unwrap_or(0.0))
}

/// The class with the highest score.
fn best(scores: &[f32]) -> usize {
    (0..CLASSES).max_by(|a, b| scores[*a].total_cmp(&scores[*b])).unwrap_or(0)
}

/// The part of a batch that a PE takes: neighbours, so that experts get all in the order of the batch.
fn share(len: usize, n: usize, pe: usize) -> Range<usize> {
    let each = len.div_ceil(n);
    (pe * each).min(len)..((pe + 1) * each).min(len)
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
            *input = pixel.to_digit(17).expect("a pixel") as f32 / 16.0;
        }
        Digit { inputs, label: line[INPUTS..].parse().expect("a label") }
    }
}
