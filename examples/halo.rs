//! Heat spreads over a plate whose rows are shared out among the PEs. In each step a PE needs the two rows that border
//! on its own, its *halo*. The neighbours put them there, with a signal that tells the step: the loop needs no barrier.
//!
//! ```text
//! cargo run --release -- -n 4 --example halo [ROWS] [COLUMNS] [STEPS]
//! ```

use std::num::NonZeroU32;
use std::ops::Range;
use std::time::Instant;

use clap::Parser;
use shmem::{Result, Shared, SigRef, World};

/// Computes how heat spreads over a plate, and compares with a serial run.
#[derive(Parser)]
struct Args {
    /// Rows of cells
    #[arg(default_value = "512")]
    rows: NonZeroU32,
    /// Cells in a row
    #[arg(default_value = "512")]
    columns: NonZeroU32,
    /// Steps of time
    #[arg(default_value_t = 500)]
    steps: u64,
}

fn main() -> Result<()> {
    let Args { rows, columns, steps } = Args::parse();
    let plate = Plate { rows: rows.get() as usize, columns: columns.get() as usize };
    shmem::run(|world| {
        let start = Instant::now();
        let own = together(world, &plate, steps)?;
        let took = start.elapsed().as_secs_f64();

        let all = gather(world, &plate, &own)?;
        if world.me() == 0 {
            let same = bits(&all).eq(bits(&alone(&plate, steps)));
            assert!(same, "the plate is not that of a serial run");
            let n = world.n_pes();
            println!(
                "halo: {rows} x {columns} cells, {steps} steps, {n} PEs: {took:.3} s, bit for bit as a serial run"
            );
        }
        Ok(())
    })
}

/// The sides of a PE's rows on which its neighbours are.
const ABOVE: usize = 0;
const BELOW: usize = 1;

/// What becomes of this PE's rows in some steps, row after row. Collective.
fn together(world: &World, plate: &Plate, steps: u64) -> Result<Vec<f64>> {
    let (ctx, me, width) = (world.ctx::<Shared>(), world.me(), plate.width());
    let own = plate.share(me, world.n_pes());
    // Who has the rows around mine. Where there are more PEs than rows, the last ones have none, and nothing to do.
    let above = me.checked_sub(1).filter(|_| !own.is_empty());
    let below = Some(me + 1).filter(|_| own.end <= plate.rows);
    let steps = if own.is_empty() { 0 } else { steps };

    // For each side: a halo row for odd and one for even steps, and a bell that tells the last step whose row has come.
    //
    // Two rows are enough. My neighbour sends its row of step s + 2 only after it has had mine of step s + 1, which I
    // send only after I have taken its row of step s out of the halo.
    let halos = world.alloc::<f64>(4 * width)?;
    let bells = world.alloc_zeroed::<u64>(2)?;
    let halo = |side, step| {
        let place = 2 * side + (step % 2) as usize;
        halos.sym().slice(place * width..(place + 1) * width)
    };
    let bell = |side| bells.sym().at(side);

    let last = own.len();
    let mut now = plate.start(own);
    let mut next = now.clone();
    for step in 1..=steps {
        // What is my first row here is the halo below the rows of the PE above.
        if let Some(pe) = above {
            ctx.put_signal(halo(BELOW, step)?, &now[1], SigRef::set(bell(BELOW)?, step), pe)?;
        }
        if let Some(pe) = below {
            ctx.put_signal(halo(ABOVE, step)?, &now[last], SigRef::set(bell(ABOVE)?, step), pe)?;
        }

        // While those are under way: the rows that need no halo.
        relax(&now, &mut next, 2..last);

        if above.is_some() {
            ctx.wait(bell(ABOVE)?, |come| come >= step)?;
            halo(ABOVE, step)?.copy_to(&mut now[0])?;
        }
        if below.is_some() {
            ctx.wait(bell(BELOW)?, |come| come >= step)?;
            halo(BELOW, step)?.copy_to(&mut now[last + 1])?;
        }
        relax(&now, &mut next, [1, last]);
        std::mem::swap(&mut now, &mut next);
    }
    world.free(halos)?;
    world.free(bells)?;
    Ok(now[1..=last].concat())
}

/// The same without any other PE, for the whole plate.
fn alone(plate: &Plate, steps: u64) -> Vec<f64> {
    let mut now = plate.start(plate.share(0, 1));
    let mut next = now.clone();
    for _ in 0..steps {
        relax(&now, &mut next, 1..=plate.rows);
        std::mem::swap(&mut now, &mut next);
    }
    now[1..=plate.rows].concat()
}

/// One step of some rows: every cell comes nearer to the four around it.
fn relax(now: &[Vec<f64>], next: &mut [Vec<f64>], rows: impl IntoIterator<Item = usize>) {
    for row in rows {
        let (above, here, below) = (&now[row - 1], &now[row], &now[row + 1]);
        for i in 1..here.len() - 1 {
            next[row][i] = here[i] + 0.2 * (above[i] + below[i] + here[i - 1] + here[i + 1] - 4.0 * here[i]);
        }
    }
}

/// The rows of all PEs, on PE 0; nothing on the others. Collective.
fn gather(world: &World, plate: &Plate, own: &[f64]) -> Result<Vec<f64>> {
    let n = world.n_pes();
    // An allocation is as large on every PE, so for the PE that has most.
    let sizes: Vec<usize> = (0..n).map(|pe| plate.share(pe, n).len() * plate.width()).collect();
    let rows = world.alloc::<f64>(sizes.iter().copied().max().unwrap_or(0))?;
    rows.sym().slice(..own.len())?.copy_from(own)?;
    world.barrier_all()?;
    let mut all = Vec::new();
    if world.me() == 0 {
        for (pe, size) in sizes.iter().enumerate() {
            let mut part = vec![0.0; *size];
            world.ctx::<Shared>().get(&mut part, rows.sym(), pe)?;
            all.extend(part);
        }
    }
    world.free(rows)?;
    Ok(all)
}

/// A plate of cells in a frame that stays cold: rows 0 and `rows + 1`, columns 0 and `columns + 1`.
struct Plate {
    rows: usize,
    columns: usize,
}

impl Plate {
    /// Cells in a row, with the frame's.
    fn width(&self) -> usize {
        self.columns + 2
    }

    /// The rows of a PE of `n`. Those of different PEs differ by at most one in number.
    fn share(&self, pe: usize, n: usize) -> Range<usize> {
        let workers = n.min(self.rows);
        let first = |pe: usize| 1 + self.rows * pe.min(workers) / workers;
        first(pe)..first(pe + 1)
    }

    /// Some rows before the first step, with the row above and the one below: element 0 is the row above.
    fn start(&self, rows: Range<usize>) -> Vec<Vec<f64>> {
        let row = |row| (0..self.width()).map(|column| self.heat(row, column)).collect();
        (rows.start - 1..=rows.end).map(row).collect()
    }

    /// How hot a cell is before the first step: the frame cold, the rest without any regularity.
    fn heat(&self, row: usize, column: usize) -> f64 {
        let inside = (1..=self.rows).contains(&row) && (1..=self.columns).contains(&column);
        if inside { ((row * 7919 + column * 104_729) % 1009) as f64 } else { 0.0 }
    }
}

fn bits(cells: &[f64]) -> impl Iterator<Item = u64> + '_ {
    cells.iter().map(|cell| cell.to_bits())
}
