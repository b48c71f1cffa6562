//! What a machine is to the model: a few numbers.

/// What lies between two PEs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// From a signal to its arrival, in ns.
    pub latency: f64,
    /// What a read waits before its first byte arrives, in ns. In shared memory it comes with the signal.
    pub read: f64,
    /// Bytes/ns of a copy by one PE while all are at it, for buffers of at most [`Machine::cache`].
    pub cached: f64,
    /// The same for larger ones.
    pub memory: f64,
}

impl Level {
    /// A 400 Gb/s RoCE network with one port a host: 2 us one way, 50 bytes/ns each way. Round figures for a study, not measured.
    pub const ROCE_400: Level = Level { latency: 2000.0, read: 4000.0, cached: 50.0, memory: 50.0 };
}

/// A machine: hosts of core complexes, and what lies between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// PEs of a core complex; at least 1. The first ones of a host share the first complex.
    pub complex_pes: usize,
    /// Inside a PE and a core complex.
    pub complex: Level,
    /// Between the core complexes of a host.
    pub host: Level,
    /// Between hosts: the bandwidth is a host's, each way, whatever the number of its PEs.
    pub network: Level,
    /// Bytes/ns at which one more source is combined, besides its being read.
    pub combine: f64,
    /// What each signal, wait and region of a fold costs the PE, in ns.
    pub step: f64,
    /// Bytes of a PE's larger buffer up to which copies stay in the cache.
    pub cache: usize,
}

impl Machine {
    /// Hosts like the one in docs/performance.md (Sapphire Rapids, two cores of a virtual machine), measured: a
    /// hand-over takes 165 ns, a copy runs at 40 bytes/ns up to 64 KiB and 25 at 1 MiB, a fold of two at about 10.
    pub const MEASURED: Machine = Machine {
        complex_pes: 1,
        complex: Level { latency: 165.0, read: 0.0, cached: 40.0, memory: 25.0 },
        host: Level { latency: 165.0, read: 0.0, cached: 40.0, memory: 25.0 },
        network: Level::ROCE_400,
        combine: 16.0,
        step: 5.0,
        cache: 256 << 10,
    };

    /// Hosts like Zen 4: eight cores a complex. Round figures for a study, not measured.
    pub const ZEN_4: Machine = Machine {
        complex_pes: 8,
        complex: Level { latency: 45.0, read: 0.0, cached: 40.0, memory: 12.0 },
        host: Level { latency: 120.0, read: 0.0, cached: 20.0, memory: 8.0 },
        network: Level::ROCE_400,
        combine: 25.0,
        step: 4.0,
        cache: 512 << 10,
    };
}

impl Default for Machine {
    fn default() -> Self {
        Machine::MEASURED
    }
}
