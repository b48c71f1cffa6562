//! How a PE gets to other hosts: the port that it has, and what it is connected to.
//!
//! - `roce`: over network cards; `without`: in a build that has none.

#[cfg(feature = "roce")]
mod roce;
#[cfg(not(feature = "roce"))]
#[path = "without.rs"]
mod roce;

use std::sync::Arc;

use crate::boot::Bootstrap;
use crate::config::Config;
use crate::error::{ErrorKind, Result};
use crate::heap::{Heap, Segment};
use crate::transport::link::Net;
use crate::transport::loopback::Base;
use crate::transport::places::Places;
use crate::transport::private::Memory;
use crate::transport::roce::Network;
use crate::transport::roce::nic::{Atomics, Nic};
use crate::transport::roce::sim::Sim;
use crate::transport::roce::sim::turns::Turns;
use crate::world::plan::{Fabric, Plan};
pub(super) use roce::port;

/// What connecting takes.
#[cfg_attr(not(feature = "roce"), expect(dead_code, reason = "a simulated card needs less"))]
pub(super) struct Joint<'a> {
    pub(super) plan: &'a Plan,
    pub(super) config: &'a Config,
    pub(super) me: usize,
    /// A number that the PEs of this world alone know.
    pub(super) nonce: u64,
    pub(super) heap: &'a Heap,
    /// Segments by PE; those of other hosts become the simulated card's.
    pub(super) mapped: &'a mut [Option<Segment>],
    pub(super) turns: Option<Arc<Turns>>,
    /// What memory its heap has, in words.
    pub(super) memory: &'a str,
}

/// What each PE has, in words.
#[derive(Default)]
pub(super) struct Equipment {
    pub(super) memories: Vec<String>,
    /// None on one host.
    pub(super) ports: Vec<String>,
}

/// Brings this PE into the network of the job. Collective over the job: returns when all PEs can be reached, with what
/// they have.
pub(super) fn connect(joint: Joint<'_>, boot: &mut dyn Bootstrap) -> Result<(Option<Net>, Equipment)> {
    let (memory, n_pes) = (joint.memory, joint.plan.hosts.len());
    let (net, ports) = match joint.plan.fabric {
        Fabric::None => (None, Vec::new()),
        Fabric::Sim => (Some(simulated(joint)?), vec!["a simulated card".to_owned(); n_pes]),
        Fabric::Roce => return roce::connect(joint, boot).map(|(net, equipment)| (Some(net), equipment)),
    };
    let memories = boot.allgather(memory.as_bytes())?;
    let memories = memories.iter().map(|what| String::from_utf8_lossy(what).into_owned()).collect();
    Ok((net, Equipment { memories, ports }))
}

fn simulated(joint: Joint<'_>) -> Result<Net> {
    let Joint { plan, me, heap, mapped, turns, .. } = joint;
    if !mapped.iter().flatten().chain([heap.segment()]).all(Segment::is_whole) {
        let (name, value) = ("SHMEM_ROUTE".into(), "sim".into());
        let form = "a simulated card reaches only what is mapped, and the heaps are memory of the program's own".into();
        return Err(ErrorKind::BadSetting { name, value, form }.into());
    }
    let (n_pes, own) = (plan.hosts.len(), Base::of(heap.segment()));
    let places = Places::new(plan.layout.network.start, n_pes);
    let bases: Vec<Base> = mapped.iter().map(|segment| segment.as_ref().map_or(own, Base::of)).collect();
    let foreign = (0..n_pes).filter(|pe| plan.hosts[*pe] != plan.hosts[me]);
    let foreign = foreign.filter_map(|pe| mapped[pe].take()).collect();
    let sim = Sim::start(me, &bases, heap.segment().len(), places.card, foreign, turns)?;
    let atomics = sim.limits().atomics != Atomics::Global;
    Ok(net(sim, atomics, plan, own))
}

fn net<N: Nic + 'static>(nic: N, atomics: bool, plan: &Plan, own: Base) -> Net {
    let places = Places::new(plan.layout.network.start, plan.hosts.len());
    let within = plan.hosts.iter().all(|host| *host == 0);
    let network = Network::new(nic, plan.hosts.len(), places.pool.clone(), Memory::new(own));
    Net { endpoint: Box::new(network), within, atomics, places }
}
