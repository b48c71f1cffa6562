//! Double binary tree (Sanders, Speck, Träff 2009): two trees over the PEs without the root, each of which carries half
//! of the elements; a PE that has children in one is a leaf in the other, so that all links are busy. For large
//! messages in large teams, where a ring has too many steps.
//!
//! PEs are numbered 1 to p from the root on. The first tree is the binary tree in which the parent of x is got by
//! moving its lowest bit one up: odd numbers are leaves. The second is its mirror image if p is even, and otherwise the
//! same moved on by one: even numbers are leaves, but for one PE that is a leaf twice. Each half goes in pieces through
//! its tree, the halves' pieces in turn.
//!
//! Of a broadcast of m elements every PE reads m; of a reduce those with two children read m, the root m; an all-reduce
//! is both, at most 2m a PE, a piece on its way down while later ones are on their way up. About 2 log2 n steps more
//! than pieces each way.

use super::pipeline::{Down, Node, Up, keep};
use super::writer::Writer;
use crate::plan::{Collective, Plan, Problem};

/// Whether the double tree has a plan for this.
pub fn plans(what: Collective) -> bool {
    matches!(what, Collective::AllReduce | Collective::Reduce { .. } | Collective::Broadcast { .. })
}

/// The plan of PE `me`.
pub fn plan(problem: &Problem, me: usize) -> Plan {
    let Problem { n, chunk, .. } = *problem;
    let mut w = Writer::new(n, me, chunk);
    if n == 1 {
        keep(&mut w, problem);
        return w.done();
    }
    let half = |h: usize| Problem::part(problem.len, 2, h);
    let up = |root: usize| [0, 1].map(|h| Up::new(me, &|pe| node(n, root, h, pe), half(h), chunk, true));
    let down = |root: usize, ready| [0, 1].map(|h| Down::new(node(n, root, h, me), half(h), chunk, ready));
    // A piece that ends here has time: a PE takes it a tree's height of pieces after the one that it must pass on, so
    // that it does not hold up those who wait for it by waiting itself for what is not urgent.
    let late = |root: usize| [0, 1].map(|h| if node(n, root, h, me).is_leaf() { n.ilog2() as usize + 1 } else { 0 });
    match problem.what {
        Collective::Reduce { root } => {
            let up = up(root);
            up.iter().for_each(|up| up.start(&mut w));
            in_turn([0, 1].map(|h| up[h].steps()), |h, t| up[h].step(&mut w, t));
            up.iter().for_each(|up| up.finish(&mut w));
        }
        Collective::Broadcast { root } => {
            let (down, late) = (down(root, Some(root)), late(root));
            in_turn([0, 1].map(|h| down[h].steps() + late[h]), |h, t| {
                if t >= late[h] {
                    down[h].step(&mut w, t - late[h]);
                }
            });
            if me == root {
                keep(&mut w, problem);
            }
            down.iter().for_each(|down| down.finish(&mut w));
        }
        _ => {
            let (up, down) = (up(0), down(0, None));
            // A PE hears of a piece that its parent has read two steps after it was read, and so of a piece that comes
            // down: words of one PE to another must be heard in the order in which they are said.
            let behind = [0, 1].map(|h| 2 * depth(n, h, me) + late(0)[h]);
            up.iter().for_each(|up| up.start(&mut w));
            in_turn([0, 1].map(|h| up[h].steps() + behind[h]), |h, t| {
                if t < up[h].steps() {
                    up[h].step(&mut w, t);
                }
                if t >= behind[h] {
                    down[h].step(&mut w, t - behind[h]);
                }
            });
            down.iter().for_each(|down| down.finish(&mut w));
        }
    }
    w.done()
}

/// The steps of both halves in turn.
fn in_turn(steps: [usize; 2], mut step: impl FnMut(usize, usize)) {
    for t in 0..steps[0].max(steps[1]) {
        (0..2).filter(|h| t < steps[*h]).for_each(|h| step(h, t));
    }
}

/// How far below PE 0 a PE is in tree `h`.
fn depth(n: usize, h: usize, pe: usize) -> usize {
    std::iter::successors(Some(pe), |pe| node(n, 0, h, *pe).parent).count() - 1
}

/// The parent of number `x` of 1 to `p` in the first tree; none for its root.
fn parent(p: usize, x: usize) -> Option<usize> {
    let bit = x & x.wrapping_neg();
    let up = (x ^ bit) | (bit << 1);
    [up, x ^ bit].into_iter().find(|up| *up <= p).filter(|up| *up > 0)
}

/// Place of a PE in tree `h` of two: the root is above both trees' roots.
fn node(n: usize, root: usize, h: usize, pe: usize) -> Node {
    let p = n - 1;
    // A PE's number in this tree and back; either way 1 to p.
    let number = |pe: usize| match ((pe + n - root) % n, h, p % 2) {
        (x, 0, _) => x,
        (x, _, 0) => p + 1 - x,
        (x, ..) => x % p + 1,
    };
    let pe_of = |x: usize| {
        let x = match (h, p % 2) {
            (0, _) => x,
            (_, 0) => p + 1 - x,
            _ => (x + p - 2) % p + 1,
        };
        (x + root) % n
    };
    if pe == root {
        let top = 1 << p.ilog2();
        return Node { parent: None, before: Vec::new(), after: vec![pe_of(top)] };
    }
    let x = number(pe);
    let near = |x: usize, distance: usize| [x.checked_sub(distance), x.checked_add(distance)];
    let bits = (0..x.trailing_zeros()).map(|bit| 1usize << bit);
    let below = bits.flat_map(|distance| near(x, distance)).flatten();
    let mut children: Vec<usize> = below.filter(|c| (1..=p).contains(c) && parent(p, *c) == Some(x)).collect();
    children.sort_unstable();
    let (before, after): (Vec<usize>, Vec<usize>) = children.into_iter().partition(|c| *c < x);
    let pes = |numbers: Vec<usize>| numbers.into_iter().map(pe_of).collect();
    Node { parent: Some(parent(p, x).map_or(root, pe_of)), before: pes(before), after: pes(after) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pe_has_children_in_one_tree_at_most_and_never_more_than_two() {
        for n in 2..100 {
            for root in [0, n / 3, n - 1] {
                for pe in (0..n).filter(|pe| *pe != root) {
                    let inner = (0..2).filter(|h| node(n, root, *h, pe).children().count() > 0).count();
                    assert!(inner <= 1, "PE {pe} of {n} has children in both trees");
                    assert!((0..2).all(|h| node(n, root, h, pe).children().count() <= 2));
                }
            }
        }
    }

    #[test]
    fn parents_and_children_agree_and_trees_are_as_high_as_they_must_be() {
        for n in 2..100 {
            for h in 0..2 {
                for pe in 1..n {
                    let up = node(n, 0, h, pe).parent.unwrap();
                    assert!(node(n, 0, h, up).children().any(|child| child == pe), "{n} {h} {pe} {up}");
                    assert!(
                        depth(n, h, pe) <= (n - 1).ilog2() as usize + 1,
                        "PE {pe} of {n} is at {}",
                        depth(n, h, pe)
                    );
                }
            }
        }
    }
}
