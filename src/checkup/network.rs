//! RoCE: which ports, and whether what lies around them lets them work well.

use super::facts::{Counter, Facts, Limit, Queueing};
use super::{Finding, Verdict, size};
use crate::transport::roce::refusal::{NoChoice, Refusal};
use crate::transport::roce::seen::Net;
use crate::transport::roce::select::{Choice, Judged, choose, judge, roce_mtu};

/// In the order in which they are read best.
pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let (seen, wishes) = (&facts.seen, &facts.wishes);
    let choices = match choose(seen, wishes) {
        Ok(choices) => choices,
        Err(why) => return vec![no_choice(facts, &why), locked(facts, false)],
    };
    let mut found = vec![build(facts)];
    found.extend(choices.iter().map(|choice| Finding::new(Verdict::Ok, "network", choice.to_string())));
    found.extend(judge(seen, wishes).into_iter().flatten().filter_map(passed_over));
    for choice in &choices {
        found.extend(provider(facts, choice));
        found.extend([speed(facts, choice), mtu(facts, choice)]);
        let name = name(choice);
        let counters = facts.counters.iter().find(|(port, _)| *port == name).map_or(&[][..], |(_, all)| all.as_slice());
        found.extend([losses(&name, counters), congestion(facts, choice, counters)]);
    }
    found.push(locked(facts, true));
    found
}

/// No RDMA at all is no failure unless it is asked for.
fn no_choice(facts: &Facts, why: &NoChoice) -> Finding {
    let alone = "PEs of one host talk through shared memory";
    match why {
        NoChoice::NoDevice { .. } if !facts.wishes.any() => {
            Finding::new(Verdict::Ok, "network", format!("{alone}; for other hosts, {why}"))
        }
        NoChoice::NoDevice { hint, .. } => {
            let found = "SHMEM_HCA, SHMEM_GID_INDEX or SHMEM_IFNAME is set, but there is no RDMA device";
            Finding::new(Verdict::Fail, "network", found).fix(hint)
        }
        NoChoice::Wish { name, .. } => {
            Finding::new(Verdict::Fail, "network", why.to_string()).fix(format!("correct or unset {name}"))
        }
        NoChoice::Unusable(refused) if refused.iter().all(|(_, refusal)| refusal.is_harmless()) => {
            Finding::new(Verdict::Look, "network", format!("{why}; {alone}"))
        }
        NoChoice::Unusable(refused) => {
            let list = refused.iter().map(|(name, refusal)| format!("{name}: {refusal}"));
            let found = format!("no port can be used for RoCE: {}", list.collect::<Vec<_>>().join("; "));
            let fixes = refused.iter().filter_map(|(name, refusal)| Some(format!("{name}: {}", refusal.fix()?)));
            Finding::new(Verdict::Fail, "network", found).fix(fixes.collect::<Vec<_>>().join("; "))
        }
    }
}

fn passed_over(Judged { name, outcome }: Judged) -> Option<Finding> {
    let refusal = outcome.err().filter(|refusal| *refusal != Refusal::NotWanted)?;
    let verdict = if refusal.is_harmless() { Verdict::Ok } else { Verdict::Look };
    let finding = Finding::new(verdict, format!("port {name}"), format!("not used: {refusal}"));
    Some(match refusal.fix() {
        Some(fix) => finding.fix(fix),
        None => finding,
    })
}

fn build(facts: &Facts) -> Finding {
    if facts.built {
        return Finding::new(Verdict::Ok, "build", "has RoCE");
    }
    Finding::new(Verdict::Look, "build", "there are RDMA devices, but this build has no RoCE")
        .fix("build with --features roce")
}

/// Without it libibverbs passes the device over, or says that it has no userspace driver.
fn provider(facts: &Facts, choice: &Choice) -> Option<Finding> {
    let (_, needed) = facts.providers_needed.iter().find(|(device, _)| *device == choice.port.device)?;
    let what = format!("provider of {}", choice.port.device);
    if facts.providers.iter().any(|provider| provider == needed) {
        return Some(Finding::new(Verdict::Ok, what, format!("libibverbs has {needed}")));
    }
    let found = format!("libibverbs has no provider {needed} (/etc/libibverbs.d/{needed}.driver)");
    let fix = "install the package ibverbs-providers (Debian) or libibverbs (Fedora, RHEL)";
    Some(Finding::new(Verdict::Look, what, found).fix(fix))
}

fn name(choice: &Choice) -> String {
    format!("{}:{}", choice.port.device, choice.port.port)
}

fn speed(facts: &Facts, choice: &Choice) -> Finding {
    let what = format!("speed of {}", name(choice));
    let numa = choice.numa.map_or(String::new(), |node| format!(", near to the memory of NUMA node {node}"));
    let rate = choice.rate.map_or("unknown".to_owned(), |rate| format!("{rate} Gb/s"));
    if is_software(facts, choice) {
        return Finding::new(Verdict::Ok, what, "made in software: for trying, since processors move every byte");
    }
    Finding::new(Verdict::Ok, what, format!("{rate}{numa}"))
}

fn is_software(facts: &Facts, choice: &Choice) -> bool {
    facts.seen.devices.iter().any(|device| device.name == choice.port.device && device.software)
}

/// Bytes of the largest payload.
const BEST_MTU: u32 = 4096;

fn mtu(facts: &Facts, choice: &Choice) -> Finding {
    let what = format!("MTU of {}", name(choice));
    let net = facts.seen.net(&choice.netdev);
    let Some((net, bytes)) = net.and_then(|net| Some((net, net.mtu?))) else {
        return Finding::new(Verdict::Look, what, format!("the MTU of {} cannot be read", choice.netdev));
    };
    let payload = roce_mtu(bytes).map_or("none at all".to_owned(), |payload| payload.to_string());
    let found = format!("packets of {} have {bytes} bytes, RoCE packets a payload of {payload}", net.name);
    if roce_mtu(bytes) == Some(BEST_MTU) {
        return Finding::new(Verdict::Ok, what, found);
    }
    let carrier = net.vlan.as_ref().and_then(|vlan| vlan.over.as_deref());
    let devices = carrier.into_iter().chain([net.name.as_str()]);
    let commands: Vec<String> = devices.map(|device| format!("ip link set {device} mtu 9000")).collect();
    Finding::new(Verdict::Look, what, found)
        .fix(format!("{} (4200 is enough), on all hosts and on the switches between them", commands.join(" && ")))
}

/// Counters that rise when packets are lost, by the drivers of NVIDIA, Broadcom and Microsoft and Soft-RoCE.
const LOSSES: [&str; 16] = [
    "out_of_sequence",
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "req_transport_retries_exceeded",
    "rx_icrc_encapsulated",
    "to_retransmits",
    "seq_err_naks_rcvd",
    "max_retry_exceeded",
    "missing_resp",
    "requester_timeout",
    "requester_oos_nak",
    "responder_oos",
    "rcvd_seq_err",
    "out_of_seq_request",
    "retry_exceeded_err",
];

/// Counters that rise when congestion is noticed and answered.
const NOTICES: [&str; 7] = [
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "rp_cnp_handled",
    "tx_cnp_pkts",
    "rx_cnp_pkts",
    "rx_ecn_marked_pkts",
    "received_cnps",
];

/// Those of `names` that are not zero.
fn risen(counters: &[Counter], names: &[&str]) -> Vec<String> {
    let risen = counters.iter().filter(|counter| counter.value > 0 && names.contains(&counter.name.as_str()));
    risen.map(|counter| format!("{} {}", counter.name, counter.value)).collect()
}

fn losses(name: &str, counters: &[Counter]) -> Finding {
    let (what, risen) = (format!("losses of {name}"), risen(counters, &LOSSES));
    if counters.is_empty() {
        return Finding::new(Verdict::Ok, what, "the driver shows no counters");
    }
    if risen.is_empty() {
        return Finding::new(Verdict::Ok, what, "no counter of lost packets has risen");
    }
    Finding::new(Verdict::Look, what, format!("packets were lost since the counters began: {}", risen.join(", "))).fix(
        "see whether they rise during a job; if so, PFC or ECN is not in force on every switch and host on the way \
         (docs/roce.md)",
    )
}

fn congestion(facts: &Facts, choice: &Choice, counters: &[Counter]) -> Finding {
    let what = format!("congestion of {}", name(choice));
    if is_software(facts, choice) {
        return Finding::new(Verdict::Ok, what, "made in software: no flow control of its own");
    }
    let net = facts.seen.net(&choice.netdev);
    let vlan = net.and_then(|net: &Net| net.vlan.as_ref());
    let carrier = vlan.and_then(|vlan| vlan.over.as_deref()).unwrap_or(&choice.netdev);
    let shown = facts.queueing.iter().find(|(name, _)| name == carrier).map(|(_, queueing)| queueing);
    let Queueing { ecn, trust } = shown.cloned().unwrap_or_default();
    if let Some([np, rp]) = &ecn
        && (np.is_empty() || rp.is_empty())
    {
        let fix = format!("echo 1 > /sys/class/net/{carrier}/ecn/roce_np/enable/3, likewise roce_rp, for the priority");
        let found = "ECN is off: congestion is not noticed, or not answered";
        return Finding::new(Verdict::Look, what, found).fix(format!("{fix} of RoCE on all hosts and switches"));
    }
    if trust.as_deref() == Some("pcp") && vlan.is_none() {
        let found =
            format!("{carrier} tells priorities by VLAN tags, and RoCE packets have none: PFC cannot act on them");
        return Finding::new(Verdict::Look, what, found).fix(format!("mlnx_qos -i {carrier} --trust dscp"));
    }
    let notices = risen(counters, &NOTICES);
    if !notices.is_empty() {
        return Finding::new(Verdict::Ok, what, format!("ECN works: {}", notices.join(", ")));
    }
    if !risen(counters, &LOSSES).is_empty() {
        let found = "packets were lost, and there was no notice of congestion: ECN is not in force on the way";
        return Finding::new(Verdict::Look, what, found).fix("docs/roce.md: ECN on the switches and in the cards");
    }
    let found = match &ecn {
        Some([np, _]) => format!("ECN is on for priorities {}, and nothing was marked yet", np.join(", ")),
        None => "not shown by the driver, and nothing was marked yet".to_owned(),
    };
    Finding::new(Verdict::Ok, what, format!("{found}; PFC: dcb pfc show dev {carrier}"))
}

/// The heap of each PE is locked while it is registered; what one host's PEs share is not.
fn locked(facts: &Facts, used: bool) -> Finding {
    const WHAT: &str = "locked memory";
    let Limit { soft, hard } = facts.locked;
    let text = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), size);
    let have = format!("{} (hard: {})", text(soft), text(hard));
    let need = facts.heaps.as_ref().map_or(0, |heaps| heaps.whole);
    if !used {
        return Finding::new(Verdict::Ok, WHAT, format!("{have}; none is needed without RDMA"));
    }
    if facts.may_lock {
        return Finding::new(Verdict::Ok, WHAT, format!("{have}; CAP_IPC_LOCK lifts the limit"));
    }
    let found = format!("{have}; each PE locks {} for its heap", size(need));
    if soft.is_none_or(|soft| soft >= need) {
        return Finding::new(Verdict::Ok, WHAT, found);
    }
    let verdict = if facts.built { Verdict::Fail } else { Verdict::Look };
    let finding = Finding::new(verdict, WHAT, found);
    if hard.is_none_or(|hard| hard >= need) {
        return finding.fix("ulimit -l unlimited, or as far as it goes, in the shell that starts the job");
    }
    finding.fix(
        "`* - memlock unlimited` in /etc/security/limits.conf; LimitMEMLOCK=infinity in a systemd unit, slurmd's included; \
         --ulimit memlock=-1 for a container; or a smaller SHMEM_SYMMETRIC_SIZE",
    )
}
