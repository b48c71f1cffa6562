//! One shot: everybody writes what the others need into their slots, tells them, waits for all and combines by itself;
//! for messages of a few cache lines, where a call should cost one hand-over.
//!
//! Nobody asks before it writes. That is safe because there are two slot areas, taken in turn, and everybody hears from
//! everybody in every call, also where no data passes between the two: whoever is in call k has left k-1, so that all
//! have entered k-1 and left k-2, the last that used this area.
//!
//! n-1 signals and n-1 waits a PE, none behind another; each PE writes (n-1)m elements in an all-reduce of m, and
//! combines in PE order.

use super::writer::{Writer, block, dst, slot, src};
use crate::plan::{Blocks, Collective, Plan, Problem, Uneven};

/// The plan of PE `me`.
pub fn plan(problem: &Problem, me: usize) -> Plan {
    let Problem { n, len, .. } = *problem;
    let mut w = Writer::new(n, me, problem.chunk);
    let out_of_place = !problem.in_place;
    match problem.what {
        Collective::AllReduce => {
            tell(&mut w, |w, pe| w.copy(src(me, 0..len), slot(pe, block(me, len))));
            combine(&mut w, 0..n, 0..len);
        }
        Collective::Reduce { root } => {
            tell(&mut w, |w, pe| {
                if pe == root {
                    w.copy(src(me, 0..len), slot(root, block(me, len)));
                }
            });
            if me == root {
                combine(&mut w, 0..n, 0..len);
            }
        }
        Collective::ReduceScatter => reduce_scatter(&mut w, &Blocks::equal(n, len)),
        Collective::AllGather => all_gather(&mut w, &Blocks::equal(n, len), problem.in_place),
        Collective::Gather { root } => {
            tell(&mut w, |w, pe| {
                if pe == root {
                    w.copy(src(me, 0..len), slot(root, block(me, len)));
                }
            });
            if me == root {
                collect(&mut w, &Blocks::equal(n, len));
                if out_of_place {
                    w.copy(src(me, 0..len), dst(me, block(me, len)));
                }
            }
        }
        Collective::Scatter { root } | Collective::Broadcast { root } => {
            let part = |pe| if let Collective::Scatter { .. } = problem.what { block(pe, len) } else { 0..len };
            tell(&mut w, |w, pe| {
                if me == root {
                    w.copy(src(me, part(pe)), slot(pe, 0..len));
                }
            });
            if me != root {
                w.copy(slot(me, 0..len), dst(me, 0..len));
            } else if out_of_place {
                w.copy(src(me, part(me)), dst(me, 0..len));
            }
        }
        Collective::AllToAll => {
            tell(&mut w, |w, pe| w.copy(src(me, block(pe, len)), slot(pe, block(me, len))));
            collect(&mut w, &Blocks::equal(n, len));
            if out_of_place {
                w.copy(src(me, block(me, len)), dst(me, block(me, len)));
            }
        }
        Collective::InclusiveScan | Collective::ExclusiveScan => {
            tell(&mut w, |w, pe| {
                if pe > me {
                    w.copy(src(me, 0..len), slot(pe, block(me, len)));
                }
            });
            let upto = if problem.what == Collective::InclusiveScan { me + 1 } else { me };
            // In place, PE 0 has its result already.
            if upto > 1 || upto == 1 && (me > 0 || out_of_place) {
                combine(&mut w, 0..upto, 0..len);
            }
        }
    }
    w.done()
}

/// The plan of PE `me` for blocks of different lengths.
pub fn plan_uneven(problem: &Uneven, me: usize) -> Plan {
    let mut w = Writer::new(problem.blocks.n(), me, problem.chunk);
    if problem.gather {
        all_gather(&mut w, &problem.blocks, problem.in_place);
    } else {
        reduce_scatter(&mut w, &problem.blocks);
    }
    w.done()
}

/// Writes to each other PE, then meets all.
fn tell(w: &mut Writer, write: impl Fn(&mut Writer, usize)) {
    w.others().for_each(|pe| write(w, pe));
    w.meet();
}

/// Combines what `pes` sent, and the own elements `own` of the source, in PE order.
fn combine(w: &mut Writer, pes: std::ops::Range<usize>, own: std::ops::Range<usize>) {
    let (me, len) = (w.me, own.len());
    let from = pes.map(|pe| if pe == me { src(me, own.clone()) } else { slot(me, block(pe, len)) });
    w.fold(from.collect::<Vec<_>>(), [dst(me, 0..len)]);
}

/// Copies what the others sent to where it belongs: all blocks but the own one.
fn collect(w: &mut Writer, blocks: &Blocks) {
    for pes in [0..w.me, w.me + 1..w.n] {
        w.copy(slot(w.me, blocks.span(pes.clone())), dst(w.me, blocks.span(pes)));
    }
}

fn all_gather(w: &mut Writer, blocks: &Blocks, in_place: bool) {
    let (me, mine) = (w.me, blocks.range(w.me));
    tell(w, |w, pe| w.copy(src(me, 0..mine.len()), slot(pe, mine.clone())));
    collect(w, blocks);
    if !in_place {
        w.copy(src(me, 0..mine.len()), dst(me, mine));
    }
}

fn reduce_scatter(w: &mut Writer, blocks: &Blocks) {
    let me = w.me;
    tell(w, |w, pe| w.copy(src(me, blocks.range(pe)), slot(pe, block(me, blocks.range(pe).len()))));
    combine(w, 0..w.n, blocks.range(me));
}
