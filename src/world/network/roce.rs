//! RoCE as the network: which port, and what the PEs tell each other of theirs.

use std::os::fd::BorrowedFd;
use std::path::Path;

use crate::boot::Bootstrap;
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::transport::link::Net;
use crate::transport::loopback::Base;
use crate::transport::roce::LANES;
use crate::transport::roce::nic::{Atomics, Region};
use crate::transport::roce::refusal::NoChoice;
use crate::transport::roce::seen::Seen;
use crate::transport::roce::select::{Choice, choose};
use crate::transport::roce::verbs::{Address, Verbs};
use crate::transport::roce::wishes::Wishes;
use crate::world::network::{Equipment, Joint, net};

/// The ports through which this PE may reach other hosts, as people write them; or why there are none.
pub(in crate::world) fn port(config: &Config) -> Result<String, String> {
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

pub(super) fn connect(joint: Joint<'_>, boot: &mut dyn Bootstrap) -> Result<(Net, Equipment)> {
    let Joint { plan, config, me, nonce, heap, memory, .. } = joint;
    let (seen, choices) = choices(config)?;
    // The PEs of a host are spread over its ports, and so are the hosts that a machine plays.
    let place = plan.host.iter().position(|pe| *pe == me).unwrap_or(0) + plan.hosts[me];
    let choice = &choices[place % choices.len()];
    tracing::debug!(me, %choice, "network");
    let segment = heap.segment();
    let region = |(offsets, base, dmabuf): (_, _, Option<BorrowedFd<'_>>)| {
        let dmabuf = dmabuf.map(|dmabuf| dmabuf.try_clone_to_owned()).transpose();
        let dmabuf = dmabuf.map_err(|source| ErrorKind::os("keeping the descriptor of the heap's memory", source))?;
        Ok(Region { offsets, base, dmabuf })
    };
    let regions = segment.regions().into_iter().map(region).collect::<Result<Vec<_>>>()?;
    // The key of the job keeps strangers out; the number, members of other worlds of the job.
    let secret = format!("{}-{nonce:016x}", config.job_key.as_deref().unwrap_or_default());
    let addresses = seen.addresses.as_deref().unwrap_or_default();
    let verbs = Verbs::open(&choice.port, config.traffic_class, &regions, me, &secret, addresses)?;
    let mine = postcard::to_stdvec(&(verbs.address(), memory, choice.to_string())).map_err(garbled)?;
    let told = boot.allgather(&mine)?;
    let (mut addresses, mut memories, mut ports) = (Vec::new(), Vec::new(), Vec::new());
    for bytes in &told {
        let (address, memory, port): (Address, String, String) = postcard::from_bytes(bytes).map_err(garbled)?;
        addresses.push(address);
        memories.push(memory);
        ports.push(port);
    }
    let atomics = addresses.iter().any(|address| address.atomics != Atomics::Global);
    if let Some(pe) = addresses.iter().position(|address| address.atomics == Atomics::None) {
        let what = format!("the card of PE {pe} has no atomics");
        return Err(ErrorKind::Card { device: choice.port.device.clone(), what }.into());
    }
    verbs.introduce(addresses.into_iter().map(Some).collect(), LANES);
    Ok((net(verbs, atomics, plan, Base::of(segment)), Equipment { memories, ports }))
}

fn garbled(error: postcard::Error) -> Error {
    ErrorKind::os("exchanging addresses of network cards", std::io::Error::other(error))
}
