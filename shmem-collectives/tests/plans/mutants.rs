//! Mutants: plans without a step, without a word, or with a step on the wrong side of a word must be rejected.

use super::*;

/// The problems whose plans are mutated: lengths and chunks of which each PE has several pieces.
fn subjects() -> Vec<(Algorithm, Problem, Hosts)> {
    let mut subjects = Vec::new();
    for algorithm in Algorithm::ALL {
        for n in [3, 4, 5] {
            for what in collectives(n).into_iter().filter(|what| algorithm.plans(*what)) {
                for in_place in [false, true] {
                    let problem = Problem { what, n, len: 2 * n + 3, chunk: 2, in_place };
                    let homes = if algorithm == Algorithm::Hierarchical {
                        vec![Hosts::new([2, n - 2]), Hosts::new([1, n - 2, 1])]
                    } else {
                        vec![Hosts::one(n)]
                    };
                    subjects.extend(homes.into_iter().map(|hosts| (algorithm, problem, hosts)));
                }
            }
        }
    }
    subjects
}

fn survives(problem: &Problem, plans: &[Plan]) -> bool {
    check(problem, |me| plans[me].clone()).is_ok()
}

/// Where the k-th word of each pair is said and heard.
fn words(plans: &[Plan]) -> Vec<((usize, usize), (usize, usize))> {
    let mut words = Vec::new();
    for (from, plan) in plans.iter().enumerate() {
        for (to, theirs) in plans.iter().enumerate() {
            let said = plan.iter().enumerate().filter(|(_, step)| **step == Step::Signal { to });
            let heard = theirs.iter().enumerate().filter(|(_, step)| **step == Step::Wait { from });
            words.extend(said.zip(heard).map(|((i, _), (j, _))| ((from, i), (to, j))));
        }
    }
    words
}

#[test]
fn no_step_can_be_left_out() {
    for (algorithm, problem, hosts) in subjects() {
        let plans: Vec<Plan> = (0..problem.n).map(|me| algorithm.plan(&problem, &hosts, me)).collect();
        for me in 0..problem.n {
            for i in 0..plans[me].len() {
                let mut mutant = plans.clone();
                let step = mutant[me].remove(i);
                assert!(
                    !survives(&problem, &mutant),
                    "{algorithm} {problem:?} {hosts:?}: PE {me} without step {i}, {step:?}"
                );
            }
        }
    }
}

/// Words that the checker can do without: for most algorithms none. The others are those of which a PE knows already,
/// or will be told before it matters, by way of third PEs; which these are depends on the number of PEs, so that the
/// plans say them all the same:
/// - double tree: a PE hears from both trees' parents, one of which may have heard of the other's, and last words
///   likewise;
/// - halving: in groups of odd size the three PEs that share a round hear of each other in the next;
/// - pairwise: with three or more rounds there are paths round most pairs;
/// - two levels: hosts hear of each other in several ways, and the PEs of a host meet at the end; in place, a PE alone
///   on its host has nothing to combine and only says that it is there, once a segment.
fn redundant(algorithm: Algorithm, what: Collective) -> f64 {
    match (algorithm, what) {
        (Algorithm::DoubleTree, _) => 0.40,
        (Algorithm::Halving, _) => 0.10,
        (Algorithm::Pairwise, _) => 0.35,
        (Algorithm::Hierarchical, Collective::AllReduce | Collective::Broadcast { .. }) => 0.25,
        _ => 0.0,
    }
}

#[test]
fn no_word_can_be_left_unsaid_and_unheard() {
    for (algorithm, problem, hosts) in subjects() {
        let plans: Vec<Plan> = (0..problem.n).map(|me| algorithm.plan(&problem, &hosts, me)).collect();
        let words = words(&plans);
        let survivors = words.iter().filter(|((from, i), (to, j))| {
            let mut mutant = plans.clone();
            mutant[*from].remove(*i);
            mutant[*to].remove(*j);
            survives(&problem, &mutant)
        });
        let share = survivors.count() as f64 / words.len().max(1) as f64;
        assert!(share <= redundant(algorithm, problem.what), "{algorithm} {problem:?} {hosts:?}: {share}");
    }
}

#[test]
fn no_meeting_can_be_left_out_by_all() {
    for (algorithm, problem, hosts) in subjects() {
        let plans: Vec<Plan> = (0..problem.n).map(|me| algorithm.plan(&problem, &hosts, me)).collect();
        let meetings = plans[0].iter().filter(|step| **step == Step::Meet).count();
        for k in 0..meetings {
            let mut mutant = plans.clone();
            for plan in &mut mutant {
                let at = plan.iter().enumerate().filter(|(_, step)| **step == Step::Meet).nth(k).unwrap().0;
                plan.remove(at);
            }
            assert!(!survives(&problem, &mutant), "{algorithm} {problem:?} {hosts:?}: without meeting {k}");
        }
    }
}

/// A step that touches a PE's memory, before or after the word that allows or announces it.
#[test]
fn no_step_can_pass_the_word_of_the_pe_whose_memory_it_touches() {
    for (algorithm, problem, hosts) in subjects() {
        let plans: Vec<Plan> = (0..problem.n).map(|me| algorithm.plan(&problem, &hosts, me)).collect();
        let (mut tried, mut survivors) = (0, 0);
        for (me, plan) in plans.iter().enumerate() {
            for i in 1..plan.len() {
                let (Step::Fold { from, into }, pe) = (match (&plan[i - 1], &plan[i]) {
                    (fold, Step::Signal { to }) => (fold, *to),
                    (Step::Wait { from }, fold) => (fold, *from),
                    _ => continue,
                }) else {
                    continue;
                };
                if from.iter().chain(into).any(|at| at.pe == pe) {
                    let mut mutant = plans.clone();
                    mutant[me].swap(i - 1, i);
                    tried += 1;
                    survivors += usize::from(survives(&problem, &mutant));
                }
            }
        }
        // Bruck waits for the PE that sends to it; at n = 3 that is now and then the one that it sends to next, which
        // has given leave by being a call behind at most.
        let spare = if algorithm == Algorithm::Bruck { 0.5 } else { redundant(algorithm, problem.what) };
        assert!(survivors as f64 <= spare * tried as f64, "{algorithm} {problem:?} {hosts:?}: {survivors} of {tried}");
    }
}
