//! How a PE gets to other hosts: the port that it has, and what it is connected to.

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

/// Brings this PE into the network of the job. Collective over the job: returns when all PEs can be reached, with what
/// memory each has.
pub(super) fn connect(joint: Joint<'_>, boot: &mut dyn Bootstrap) -> Result<(Option<Net>, Vec<String>)> {
    let memory = joint.memory;
    let net = match joint.plan.fabric {
        Fabric::None => None,
        Fabric::Sim => Some(simulated(joint)?),
        Fabric::Roce => return real::connect(joint, boot).map(|(net, memories)| (Some(net), memories)),
    };
    let memories = boot.allgather(memory.as_bytes())?;
    Ok((net, memories.iter().map(|what| String::from_utf8_lossy(what).into_owned()).collect()))
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

pub(super) use real::port;

#[cfg(not(feature = "roce"))]
mod real {
    use super::{Bootstrap, Config, ErrorKind, Joint, Net, Result};

    /// The ports through which this PE may reach other hosts, as people write them; or why there are none.
    pub(in super::super) fn port(_: &Config) -> Result<String, String> {
        Err("this build is without RoCE (feature `roce`)".into())
    }

    pub(super) fn connect(_: Joint<'_>, _: &mut dyn Bootstrap) -> Result<(Net, Vec<String>)> {
        Err(ErrorKind::os("reaching other hosts", std::io::ErrorKind::Unsupported))
    }
}

#[cfg(feature = "roce")]
mod real {
    use std::os::fd::BorrowedFd;
    use std::path::Path;

    use super::{Atomics, Base, Bootstrap, Config, ErrorKind, Joint, Net, Result, net};
    use crate::error::Error;
    use crate::transport::roce::nic::Region;
    use crate::transport::roce::refusal::NoChoice;
    use crate::transport::roce::seen::Seen;
    use crate::transport::roce::select::{Choice, choose};
    use crate::transport::roce::verbs::{Address, Verbs};
    use crate::transport::roce::{LANES, wishes::Wishes};

    /// The ports through which this PE may reach other hosts, as people write them; or why there are none.
    pub(in super::super) fn port(config: &Config) -> Result<String, String> {
        if !Path::new("/sys/class/infiniband").exists() {
            return Err("this machine has no RDMA device (see shmemrun --check)".into());
        }
        let (_, choices) = choices(config).map_err(|error| error.to_string())?;
        Ok(choices.iter().map(Choice::to_string).collect::<Vec<_>>().join("; "))
    }

    fn choices(config: &Config) -> Result<(Seen, Vec<Choice>)> {
        let seen = Seen::read(Path::new("/"));
        let choices = choose(&seen, &Wishes::new(config)).map_err(refused)?;
        Ok((seen, choices))
    }

    fn refused(why: NoChoice) -> Error {
        match why {
            NoChoice::Wish { name, value, why, there } => {
                ErrorKind::BadSetting { name: name.into(), value, form: format!("{why}; there are {there}") }.into()
            }
            other => ErrorKind::Card { device: "RoCE".into(), what: other.to_string() }.into(),
        }
    }

    pub(super) fn connect(joint: Joint<'_>, boot: &mut dyn Bootstrap) -> Result<(Net, Vec<String>)> {
        let Joint { plan, config, me, nonce, heap, memory, .. } = joint;
        let (seen, choices) = choices(config)?;
        // The PEs of a host are spread over its ports, and so are the hosts that a machine plays.
        let place = plan.host.iter().position(|pe| *pe == me).unwrap_or(0) + plan.hosts[me];
        let choice = &choices[place % choices.len()];
        tracing::debug!(me, %choice, "network");
        let segment = heap.segment();
        let region = |(offsets, base, dmabuf): (_, _, Option<BorrowedFd<'_>>)| {
            let dmabuf = dmabuf.map(|dmabuf| dmabuf.try_clone_to_owned()).transpose();
            let dmabuf =
                dmabuf.map_err(|source| ErrorKind::os("keeping the descriptor of the heap's memory", source))?;
            Ok(Region { offsets, base, dmabuf })
        };
        let regions = segment.regions().into_iter().map(region).collect::<Result<Vec<_>>>()?;
        // The key of the job keeps strangers out; the number, members of other worlds of the job.
        let secret = format!("{}-{nonce:016x}", config.job_key.as_deref().unwrap_or_default());
        let addresses = seen.addresses.as_deref().unwrap_or_default();
        let verbs = Verbs::open(&choice.port, config.traffic_class, &regions, me, &secret, addresses)?;
        let mine = postcard::to_stdvec(&(verbs.address(), memory)).map_err(garbled)?;
        let told = boot.allgather(&mine)?;
        let (addresses, memories): (Vec<Address>, Vec<String>) =
            told.iter().map(|bytes| postcard::from_bytes(bytes)).collect::<postcard::Result<_>>().map_err(garbled)?;
        let atomics = addresses.iter().any(|address| address.atomics != Atomics::Global);
        if let Some(pe) = addresses.iter().position(|address| address.atomics == Atomics::None) {
            let what = format!("the card of PE {pe} has no atomics");
            return Err(ErrorKind::Card { device: choice.port.device.clone(), what }.into());
        }
        verbs.introduce(addresses.into_iter().map(Some).collect(), LANES);
        Ok((net(verbs, atomics, plan, Base::of(segment)), memories))
    }

    fn garbled(error: postcard::Error) -> Error {
        ErrorKind::os("exchanging addresses of network cards", std::io::Error::other(error))
    }
}
