//! Which ports and addresses the user wants: `SHMEM_HCA`, `SHMEM_GID_INDEX` and `SHMEM_IFNAME`.
//!
//! A name means what is called so; if nothing is, whatever begins so, where no number is cut in two: `mlx5` is all of
//! `mlx5_0`, `mlx5_1`, …, `docker` is `docker0`, but `mlx5_1` is never `mlx5_10`, nor `eth0` the VLAN `eth0.7` beside an
//! `eth0`. `=` in front takes whole names only, `^` all but what is named. In `SHMEM_IFNAME` an address or a network
//! (`10.1.0.0/16`) stands for whatever has an address in it. Knows nothing of what is usable.

use std::net::{IpAddr, Ipv6Addr};

use super::seen::{Device, Gid};
use crate::config::Config;

/// What the user wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    pub(crate) hca: Option<List>,
    pub(crate) gid_index: Option<u8>,
    pub(crate) ifname: Option<List>,
}

/// A list of names, and what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List {
    /// As it was given.
    pub(crate) text: String,
    sense: Sense,
    entries: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sense {
    These,
    /// By their whole names.
    Exactly,
    AllBut,
}

impl Wishes {
    pub(crate) fn new(config: &Config) -> Wishes {
        let list = |text: &Option<String>| text.as_deref().map(List::new);
        Wishes { hca: list(&config.hca), gid_index: config.gid_index, ifname: list(&config.ifname) }
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        *self != Wishes::default()
    }
}

impl List {
    /// The settings' forms have been checked.
    fn new(text: &str) -> List {
        let (sense, names) = match (text.strip_prefix('^'), text.strip_prefix('=')) {
            (Some(names), _) => (Sense::AllBut, names),
            (_, Some(names)) => (Sense::Exactly, names),
            _ => (Sense::These, text),
        };
        List { text: text.to_owned(), sense, entries: names.split(',').map(str::to_owned).collect() }
    }

    /// Whether it names what it wants, rather than what it does not want.
    pub(crate) fn names(&self) -> bool {
        self.sense != Sense::AllBut
    }

    /// The first entry that names no port of these devices, if the list names what it wants.
    pub(crate) fn missing(&self, devices: &[Device]) -> Option<&str> {
        let any = |entry: &str| devices.iter().any(|d| d.ports.iter().any(|p| self.means(entry, devices, d, p.number)));
        self.entries.iter().map(String::as_str).find(|entry| self.names() && !any(entry))
    }

    /// Whether this port is wanted.
    pub(crate) fn wants_port(&self, devices: &[Device], device: &Device, port: u8) -> bool {
        self.entries.iter().any(|entry| self.means(entry, devices, device, port)) == self.names()
    }

    fn means(&self, entry: &str, devices: &[Device], device: &Device, port: u8) -> bool {
        let (name, number) = entry.split_once(':').map_or((entry, None), |(name, number)| (name, Some(number)));
        let all = || devices.iter().map(|device| device.name.as_str());
        number.is_none_or(|number| number.parse() == Ok(port)) && self.is_called(name, &device.name, all)
    }

    /// Whether this entry of a GID table is wanted, where there are network devices of these names.
    pub(crate) fn wants_address(&self, netdevs: &[&str], gid: &Gid) -> bool {
        let means = |entry: &String| match network(entry) {
            Some((base, length)) => within(gid.address(), base, length),
            None => {
                let all = || netdevs.iter().copied();
                gid.netdev.as_deref().is_some_and(|netdev| self.is_called(entry, netdev, all))
            }
        };
        self.entries.iter().any(means) == self.names()
    }

    /// Whether `entry` means `name`, which is one of `all`.
    fn is_called<'a, I: Iterator<Item = &'a str>>(&self, entry: &str, name: &str, all: impl Fn() -> I) -> bool {
        let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let begins = |rest: &str| !(digit(entry.chars().last()) && digit(rest.chars().next()));
        let whole = self.sense == Sense::Exactly || all().any(|other| other == entry);
        if whole { name == entry } else { name.strip_prefix(entry).is_some_and(begins) }
    }
}

/// An address is a network of its own.
fn network(text: &str) -> Option<(IpAddr, u32)> {
    let (base, length) = text.split_once('/').map_or((text, None), |(base, length)| (base, Some(length)));
    let base: IpAddr = base.parse().ok()?;
    let most = if base.is_ipv4() { 32 } else { 128 };
    let length = length.map_or(Some(most), |length| length.parse().ok())?;
    (length <= most).then_some((base, length))
}

fn within(address: IpAddr, base: IpAddr, length: u32) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => Ipv6Addr::from(u128::from(address.to_bits()) << 96).to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
    address.is_ipv4() == base.is_ipv4() && (bits(address) ^ bits(base)) & mask == 0
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::seen::tests::{device, gid, port};
    use super::*;

    pub(crate) fn wishes(hca: &str, gid_index: Option<u8>, ifname: &str) -> Wishes {
        let list = |text: &str| (!text.is_empty()).then(|| List::new(text));
        Wishes { hca: list(hca), gid_index, ifname: list(ifname) }
    }

    fn ports(list: &str) -> Vec<String> {
        let two = |name: &str| device(name, vec![port(1, vec![]), port(2, vec![])]);
        let devices = ["mlx5_1", "mlx5_2", "mlx5_10", "mlx5_bond_0", "rxe0"].map(two);
        let (list, mut found) = (List::new(list), Vec::new());
        for device in &devices {
            for port in [1, 2] {
                if list.wants_port(&devices, device, port) {
                    found.push(format!("{}:{port}", device.name));
                }
            }
        }
        found
    }

    #[test]
    fn ports_are_named_as_people_name_them() {
        assert_eq!(ports("mlx5_1:2"), ["mlx5_1:2"]);
        assert_eq!(ports("mlx5_1"), ["mlx5_1:1", "mlx5_1:2"]);
        assert_eq!(ports("mlx5_1:1,rxe0:2"), ["mlx5_1:1", "rxe0:2"]);
        assert_eq!(ports("mlx5:1"), ["mlx5_1:1", "mlx5_2:1", "mlx5_10:1", "mlx5_bond_0:1"]);
        assert_eq!(ports("mlx"), ports("mlx5"));
        assert_eq!(ports("=mlx5"), Vec::<String>::new());
        assert_eq!(ports("=rxe0:1"), ["rxe0:1"]);
        assert_eq!(ports("^mlx5"), ["rxe0:1", "rxe0:2"]);
        assert_eq!(ports("^mlx5:1,rxe0").len(), 4);
        assert_eq!(ports("^mlx4").len(), 10);
        assert!(ports("rxe").len() == 2 && ports("mlx5_").len() == 8 && ports("lx5").is_empty());
    }

    #[test]
    fn what_is_named_and_not_there_is_found() {
        let devices = [device("mlx5_10", vec![port(1, vec![])])];
        let missing = |text| List::new(text).missing(&devices).map(str::to_owned);
        for (text, entry) in
            [("mlx5_1", "mlx5_1"), ("mlx5,mlx4", "mlx4"), ("mlx5_10:2", "mlx5_10:2"), ("=mlx5", "mlx5")]
        {
            assert_eq!(missing(text).as_deref(), Some(entry));
        }
        for text in ["mlx5", "mlx5_10", "mlx5_10:1", "^mlx4"] {
            assert_eq!(missing(text), None);
        }
    }

    #[test]
    fn network_devices_are_named_by_name_address_or_network() {
        let names = ["docker0", "eth0", "eth0.7", "eth10", "ens1f0np0"];
        let gids = [
            gid(0, "::ffff:172.17.0.1", "docker0"),
            gid(1, "::ffff:10.1.2.3", "eth0"),
            gid(2, "::ffff:10.9.2.3", "eth0.7"),
            gid(3, "fd00:1::3", "eth10"),
            gid(4, "fe80::9", "ens1f0np0"),
        ];
        let wanted = |text: &str| {
            let list = List::new(text);
            gids.iter().filter(|gid| list.wants_address(&names, gid)).map(|gid| gid.index).collect::<Vec<_>>()
        };
        for (text, indices) in [
            ("eth0", &[1][..]),
            ("eth0.7", &[2]),
            ("eth0.", &[2]),
            ("eth", &[1, 2, 3]),
            ("eth1", &[]),
            ("=eth", &[]),
            ("ens1f0", &[4]),
            ("^docker", &[1, 2, 3, 4]),
            ("^docker,eth", &[4]),
            ("^lo", &[0, 1, 2, 3, 4]),
            ("10.1.2.3", &[1]),
            ("10.0.0.0/8", &[1, 2]),
            ("10.1.0.0/16,docker", &[0, 1]),
            ("0.0.0.0/0", &[0, 1, 2]),
            ("fd00::/16", &[3]),
            ("fd00:1::3", &[3]),
            ("::/0", &[3, 4]),
            ("^fe80::/10", &[0, 1, 2, 3]),
            ("10.1.0.0/33", &[]),
        ] {
            assert_eq!(wanted(text), indices, "{text}");
        }
    }

    #[test]
    fn wishes_are_read_from_the_settings() {
        let mut config = Config::default();
        assert!(!Wishes::new(&config).any());
        config.set("SHMEM_HCA", "mlx5_0:1").unwrap();
        config.set("SHMEM_GID_INDEX", "3").unwrap();
        config.set("SHMEM_IFNAME", "^docker").unwrap();
        assert_eq!(Wishes::new(&config), wishes("mlx5_0:1", Some(3), "^docker"));
        assert!(Wishes::new(&config).any());
    }
}
