//! How a call is timed: each after a barrier that is not; the time of a call is that of the slowest PE.

use std::time::{Duration, Instant};

use shmem::{Ctx, Result, Shared, SymSlice, World};

/// What is timed.
pub(crate) trait Timed {
    /// One call.
    fn call(&mut self) -> Result<()>;
    /// Ends what some calls have begun.
    fn complete(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Times calls, and lets all PEs know the same of them.
pub(crate) struct Clock<'a, 't> {
    pub(crate) world: &'t World,
    pub(crate) ctx: &'a Ctx<'t, Shared>,
    /// A word for each call that is timed at a time.
    pub(crate) cell: SymSlice<'a, u64>,
}

/// The times of some calls, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) p99: f64,
    /// The standard deviation.
    pub(crate) deviation: f64,
}

impl Clock<'_, '_> {
    /// Times `calls` times `inner` calls in a row. Collective; at most as many as the cell has words.
    pub(crate) fn time(&self, case: &mut dyn Timed, calls: usize, inner: usize) -> Result<Times> {
        let mut times = vec![0; calls];
        for time in &mut times {
            self.world.barrier_all()?;
            let begin = Instant::now();
            for _ in 0..inner {
                case.call()?;
            }
            case.complete()?;
            *time = begin.elapsed().as_nanos() as u64;
        }
        let slowest = self.combine(&times, u64::max)?;
        Ok(Times::of(slowest.into_iter().map(|nanos| nanos as f64 / inner as f64 / 1e3).collect()))
    }

    /// The sum over all PEs. Collective.
    pub(crate) fn sum(&self, mine: u64) -> Result<u64> {
        Ok(self.combine(&[mine], |a, b| a + b)?[0])
    }

    /// The time that has passed since `begin`, on the PE where it is longest. Collective.
    pub(crate) fn since(&self, begin: Instant) -> Result<Duration> {
        let mine = begin.elapsed().as_nanos() as u64;
        Ok(Duration::from_nanos(self.combine(&[mine], u64::max)?[0]))
    }

    /// Combines what all PEs have, element by element. Collective.
    fn combine(&self, mine: &[u64], op: impl Fn(u64, u64) -> u64) -> Result<Vec<u64>> {
        let cell = self.cell.slice(..mine.len())?;
        cell.copy_from(mine)?;
        self.world.barrier_all()?;
        let (mut all, mut other) = (mine.to_vec(), mine.to_vec());
        for pe in (0..self.world.n_pes()).filter(|pe| *pe != self.world.me()) {
            self.ctx.get(&mut other, cell, pe)?;
            all.iter_mut().zip(&other).for_each(|(all, other)| *all = op(*all, *other));
        }
        self.world.barrier_all()?;
        Ok(all)
    }
}

impl Times {
    /// Of at least one.
    fn of(mut times: Vec<f64>) -> Times {
        times.sort_by(f64::total_cmp);
        let n = times.len();
        let mean = times.iter().sum::<f64>() / n as f64;
        let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / n as f64;
        let p99 = times[(n * 99).div_ceil(100) - 1];
        Times { min: times[0], median: (times[(n - 1) / 2] + times[n / 2]) / 2.0, p99, deviation: variance.sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_hundred_calls() {
        let Times { min, median, p99, deviation } = Times::of((1..=100).rev().map(f64::from).collect());
        assert_eq!((min, median, p99), (1.0, 50.5, 99.0));
        assert!((deviation - 28.866).abs() < 0.001, "{deviation}");
        let one = Times::of(vec![3.0]);
        assert_eq!((one.min, one.median, one.p99, one.deviation), (3.0, 3.0, 3.0, 0.0));
    }
}
