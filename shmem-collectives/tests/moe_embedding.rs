//! An exchange inside a service that knows nothing of launchers: a multi-threaded tokio runtime, whose requests come from many
//! tasks at once, in processes that join two worlds each, by ids of their own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../tests/common/mod.rs"]
mod common;

use common::{is_child, spawn};
use shmem::World;
use shmem_collectives::moe::{F32, Moe};
use tokio::sync::{mpsc, oneshot};

const HIDDEN: usize = 8;
const EXPERTS: usize = 5;
/// Requests of each process to each of its worlds.
const REQUESTS: usize = 40;

/// A token for two experts, and who wants to know what becomes of it.
struct Request {
    token: [f32; HIDDEN],
    experts: [i32; 2],
    answer: oneshot::Sender<Vec<f32>>,
}

/// What expert `expert` of model `model` makes of a token.
fn expert(model: usize, expert: usize, token: &[f32]) -> Vec<f32> {
    token.iter().map(|value| value * (1 + expert) as f32 + (model * 100) as f32).collect()
}

/// The engine of a model: a thread of its own, which owns the PE. A round takes up to four requests that are waiting, or none:
/// other PEs have theirs. The last round is that in which no PE has any more.
fn engine(id: &str, model: usize, pe: usize, n: usize, mut requests: mpsc::Receiver<Request>) -> shmem::Result<()> {
    let world = World::builder().pe(pe).n_pes(n).rendezvous(id).key("embedding").heap(8 << 20).build()?;
    let team = world.team();
    let moe = Moe::builder(&world, &team).experts(EXPERTS).max_tokens(4).hidden(HIDDEN).top_k(2).payload(F32);
    let mut moe = moe.build()?;
    let (mut served, mut done) = (0, 0);
    let ctx = world.ctx::<shmem::Shared>();
    let open = world.alloc_zeroed::<u64>(1)?;
    while done < n {
        let first = if served < REQUESTS { requests.blocking_recv() } else { None };
        let mut batch: Vec<Request> = first.into_iter().collect();
        while batch.len() < 4
            && let Ok(request) = requests.try_recv()
        {
            batch.push(request);
        }
        served += batch.len();
        let tokens: Vec<f32> = batch.iter().flat_map(|request| request.token).collect();
        let experts: Vec<i32> = batch.iter().flat_map(|request| request.experts).collect();
        let received = moe.dispatch(&tokens, &experts, &vec![0.5; experts.len()])?;
        for (local, &name) in received.experts().iter().enumerate() {
            let mut token = [0.0; HIDDEN];
            for row in received.rows(local) {
                received.read(row, &mut token)?;
                received.output(row)?.copy_from(&expert(model, name, &token))?;
            }
        }
        let mut sums = vec![0.0; tokens.len()];
        moe.combine(&mut sums)?;
        for (request, sum) in batch.into_iter().zip(sums.chunks_exact(HIDDEN)) {
            request.answer.send(sum.to_vec()).unwrap();
        }
        // How many PEs have served all, as PE 0 counts.
        if served == REQUESTS {
            served += 1;
            ctx.atomic_add(open.sym(), 1, 0)?;
        }
        world.barrier_all()?;
        done = ctx.g(open.sym(), 0)? as usize;
        world.barrier_all()?;
    }
    world.free(open)?;
    moe.free()
}

/// A process of the service: PE `pe` of one world and the other PE of the other.
async fn service(ids: [String; 2], pe: usize, n: usize) {
    let mut engines = Vec::new();
    let mut clients = Vec::new();
    for (model, id) in ids.into_iter().enumerate() {
        let pe = if model == 0 { pe } else { n - 1 - pe };
        let (sender, requests) = mpsc::channel(64);
        engines.push(tokio::task::spawn_blocking(move || engine(&id, model, pe, n, requests)));
        for i in 0..REQUESTS {
            let sender = sender.clone();
            clients.push(tokio::spawn(async move {
                let token: [f32; HIDDEN] = std::array::from_fn(|j| (pe * 1000 + i * 10 + j) as f32);
                let experts = [i % EXPERTS, (i + 1 + pe) % EXPERTS];
                let experts = if experts[0] == experts[1] { [experts[0], (experts[0] + 2) % EXPERTS] } else { experts };
                let (answer, told) = oneshot::channel();
                let request = Request { token, experts: experts.map(|expert| expert as i32), answer };
                sender.send(request).await.unwrap_or_else(|_| panic!("the engine has gone"));
                let parts = experts.map(|name| expert(model, name, &token));
                let expected: Vec<f32> = (0..HIDDEN).map(|j| parts[0][j] * 0.5 + parts[1][j] * 0.5).collect();
                assert_eq!(told.await.unwrap(), expected, "request {i} to model {model}");
            }));
        }
    }
    for client in clients {
        client.await.unwrap();
    }
    for engine in engines {
        engine.await.unwrap().unwrap();
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap()
}

#[test]
fn a_service_of_several_processes() {
    const TEST: &str = "a_service_of_several_processes";
    if is_child(TEST) {
        let told = |name: &str| std::env::var(name).unwrap();
        let ids = ["a", "b"].map(|model| format!("{}-{model}", told("SHMEM_RENDEZVOUS")));
        let (pe, n) = (told("SHMEM_PE").parse().unwrap(), told("SHMEM_N_PES").parse().unwrap());
        return runtime().block_on(service(ids, pe, n));
    }
    for n in [2, 3] {
        for (pe, ended) in spawn(TEST, n, |_, command| command).into_iter().enumerate() {
            assert!(ended.success, "process {pe} of {n}: {}", ended.output);
        }
    }
}

#[test]
fn both_worlds_of_a_service_of_one_process() {
    let ids = [common::address(), common::address()];
    runtime().block_on(service(ids, 0, 1));
}
