//! How a PE gets to other hosts: the port that it has, and what it is connected to.

use std::sync::Arc;

use crate::boot::Bootstrap;
use crate::config::Config;
use crate::error::Result;
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

/// The port through which this PE reaches other hosts, as people write it; or why there is none.
pub(super) fn port(_config: &Config) -> Result<String, String> {
    Err("this build has no RoCE (feature `roce`)".into())
}

/// Brings this PE into the network of the job. Collective over the job: returns when all PEs can be reached. Of the
/// segments that are mapped, those of other hosts become the simulated card's.
pub(super) fn connect(
    plan: &Plan,
    _config: &Config,
    me: usize,
    heap: &Heap,
    mapped: &mut [Option<Segment>],
    boot: &mut dyn Bootstrap,
    turns: Option<Arc<Turns>>,
) -> Result<Option<Net>> {
    let (n_pes, places) = (plan.hosts.len(), Places::new(plan.layout.network.start, plan.hosts.len()));
    let own = Base::of(heap.segment());
    let net = match plan.fabric {
        Fabric::None | Fabric::Roce => None,
        Fabric::Sim => {
            let base = |segment: &Option<Segment>| segment.as_ref().map_or(own, Base::of);
            let bases: Vec<Base> = mapped.iter().map(base).collect();
            let foreign = (0..n_pes).filter(|pe| plan.hosts[*pe] != plan.hosts[me]);
            let foreign = foreign.filter_map(|pe| mapped[pe].take()).collect();
            let sim = Sim::start(me, &bases, heap.segment().len(), places.card, foreign, turns)?;
            Some(net(sim, plan, places, own))
        }
    };
    boot.allgather(&[])?;
    Ok(net)
}

fn net<N: Nic + 'static>(nic: N, plan: &Plan, places: Places, own: Base) -> Net {
    let atomics = nic.limits().atomics != Atomics::Global;
    let within = plan.hosts.iter().all(|host| *host == 0);
    let network = Network::new(nic, plan.hosts.len(), places.pool.clone(), Memory::new(own));
    Net { endpoint: Box::new(network), within, atomics, places }
}
