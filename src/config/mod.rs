//! What a user can set: [`Config`], filled from the one table of `SHMEM_*` settings ([`SETTINGS`]).
//!
//! Parsing, error texts, typo hints, the check that PEs agree, `shmemrun --info` and `docs/settings.md` all read that
//! table, so that none of them can know a setting the others do not. Knows what a value looks like, not what it is
//! good for: the choices that depend on the host (heap size, spinning, switch points) are left as `None` for their
//! owners.

mod forms;
mod table;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

pub use forms::{parse_size, show_size};
pub use table::SETTINGS;

/// One row of the table of settings.
pub struct Setting {
    /// The environment variable; names are case-sensitive.
    pub name: &'static str,
    /// The values it takes, as errors and documentation say it.
    pub form: &'static str,
    /// What holds when it is not set, in words where it is not a value.
    pub default: &'static str,
    /// What it does.
    pub help: &'static str,
    /// Whether all PEs of a job must have the same value.
    pub agree: bool,
    /// Whether `shmemrun` sets it for the PEs that it starts, and users do not.
    pub internal: bool,
    set: fn(&mut Config, &str) -> Option<()>,
    show: fn(&Config) -> Option<String>,
}

/// Which way transfers between PEs take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RouteChoice {
    /// The fastest that connects two PEs.
    #[default]
    Auto,
    /// RoCE between hosts; and within, if there is only one.
    Roce,
    /// A simulated network in its place, which delays and reorders whatever the memory model lets it.
    Sim,
}

/// Where the memory of the symmetric heap comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HeapMemory {
    /// The system's memory, in pages of the usual size.
    #[default]
    Normal,
    /// The same in huge pages, as far as they are to be had.
    Huge,
    /// A file or device node at this path, in which `%p` is the number of the PE.
    File(String),
}

/// The settings of one world. `None` is "not set": the default of [`SETTINGS`] holds.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// Bytes of the symmetric heap of each PE.
    pub heap_size: Option<usize>,
    /// Where the memory of the symmetric heap comes from.
    pub heap: HeapMemory,
    /// Teams that can exist at a time.
    pub team_slots: usize,
    /// Bytes of symmetric memory that each team keeps for its collectives.
    pub team_workspace: usize,
    /// How long a call may wait; `None` for ever.
    pub timeout: Option<Duration>,
    /// After how long a wait is reported with a table of all PEs; `None` for never.
    pub stall_warn: Option<Duration>,
    /// How long start-up may take; `None` for ever.
    pub init_timeout: Option<Duration>,
    /// Polls before a waiter yields its core.
    pub spin: Option<u32>,
    /// Bytes from which copies use non-temporal stores; `usize::MAX` for never.
    pub stream_from: Option<usize>,
    /// PEs that each PE signals in one round of a barrier, plus one.
    pub barrier_radix: Option<usize>,
    /// Bytes of a block from which collectives between hosts save bytes rather than steps.
    pub coll_threshold: usize,
    /// Bytes of a block up to which collectives inside a host are one-shot.
    pub coll_small: Option<usize>,
    /// The algorithms that collectives take, as `collective=algorithm` with commas between.
    pub coll_algo: Option<String>,
    /// The path of a measured table of algorithms.
    pub coll_table: Option<String>,
    /// Whether reductions combine in the order of the PEs, whatever the algorithm.
    pub coll_strict: bool,
    /// The identity of this host, in place of the machine's own.
    pub host: Option<String>,
    /// How many hosts this machine plays.
    pub hosts: Option<usize>,
    /// Which way transfers take.
    pub route: RouteChoice,
    /// The ports of RDMA devices that may be used, as a list of names.
    pub hca: Option<String>,
    /// The entry of their GID tables.
    pub gid_index: Option<u8>,
    /// The traffic class of packets between hosts.
    pub traffic_class: u8,
    /// The network devices whose addresses they may have, as a list of names and networks.
    pub ifname: Option<String>,
    /// Where the flight recorders of all PEs are written when one is lost; `off` for nowhere.
    pub flight_file: Option<String>,
    /// Whether accesses to symmetric memory are checked for what is wrong beyond any doubt.
    pub check: bool,
    /// Whether PE 0 prints the settings at start-up.
    pub info: bool,
    /// Whether PE 0 prints the version at start-up.
    pub version: bool,
    /// Whether debugging messages are printed.
    pub debug: bool,
    /// Where the PEs of the job meet.
    pub rendezvous: Option<String>,
    /// The secret that admits a process to the job.
    pub job_key: Option<String>,
    /// The number of this PE.
    pub pe: Option<usize>,
    /// The number of PEs in the job.
    pub n_pes: Option<usize>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            heap_size: None,
            heap: HeapMemory::Normal,
            team_slots: 64,
            team_workspace: 256 << 10,
            timeout: None,
            stall_warn: Some(Duration::from_secs(10)),
            init_timeout: Some(Duration::from_secs(120)),
            spin: None,
            stream_from: None,
            barrier_radix: None,
            coll_threshold: 1 << 20,
            coll_small: None,
            coll_algo: None,
            coll_table: None,
            coll_strict: false,
            host: None,
            hosts: None,
            route: RouteChoice::Auto,
            hca: None,
            gid_index: None,
            traffic_class: 0,
            ifname: None,
            flight_file: None,
            check: false,
            info: false,
            version: false,
            debug: false,
            rendezvous: None,
            job_key: None,
            pe: None,
            n_pes: None,
        }
    }
}

impl Config {
    /// The defaults, changed by whatever `SHMEM_*` variables this process has. Fails with [`ErrorKind::BadSetting`]
    /// at the first (in table order) whose value is not of its form; unknown names are left to [`unknown_names`].
    pub fn from_env() -> Result<Config> {
        Self::from_lookup(|name| std::env::var_os(name))
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Config> {
        let mut config = Config::default();
        for setting in SETTINGS {
            let Some(value) = lookup(setting.name) else { continue };
            match value.to_str() {
                Some(text) => setting.apply(&mut config, text)?,
                None => return Err(setting.rejects(&value.to_string_lossy())),
            }
        }
        Ok(config)
    }

    /// Sets one setting by name, from the text that its variable would hold. On [`ErrorKind::BadSetting`] (no such
    /// name, or a value that is not of its form) nothing changes.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match find(name) {
            Some(setting) => setting.apply(self, value),
            None => Err(ErrorKind::BadSetting {
                name: name.to_owned(),
                value: value.to_owned(),
                form: format!("there is no such setting; {}", hint(name)),
            }
            .into()),
        }
    }

    /// The effective value of a setting: its text, its default where it is not set, and nothing for a name that is no
    /// setting. The job's secret reads `(set)`.
    pub fn value(&self, name: &str) -> String {
        find(name).map_or_else(String::new, |setting| setting.value(self))
    }

    /// The file in which the flight recorders of all PEs are written when one is lost; `None` if nobody wants it.
    pub fn flight_file(&self) -> Option<PathBuf> {
        let file = self.value("SHMEM_FLIGHT_FILE");
        (!file.eq_ignore_ascii_case("off")).then(|| file.into())
    }

    /// Names and effective values of the settings that must be equal on all PEs, in table order.
    pub fn agreement(&self) -> Vec<(&'static str, String)> {
        SETTINGS.iter().filter(|s| s.agree).map(|s| (s.name, s.value(self))).collect()
    }
}

/// By name, as the table says it: this keeps the secret of the job out of logs.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(SETTINGS.iter().map(|s| (s.name, s.value(self)))).finish()
    }
}

impl Setting {
    fn apply(&self, config: &mut Config, text: &str) -> Result<()> {
        (self.set)(config, text.trim_ascii()).ok_or_else(|| self.rejects(text))
    }

    fn value(&self, config: &Config) -> String {
        (self.show)(config).unwrap_or_else(|| self.default.to_owned())
    }

    #[cold]
    fn rejects(&self, value: &str) -> Error {
        ErrorKind::BadSetting {
            name: self.name.to_owned(),
            value: value.to_owned(),
            form: format!("give {}", self.form),
        }
        .into()
    }
}

/// One warning for each `SHMEM_*` variable of an environment that is no setting, in order of name. Takes what
/// [`std::env::vars_os`] returns; who prints them (PE 0, `shmemrun`) is the caller's affair, so that a job warns once.
pub fn unknown_names(env: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<String> {
    let mut names: Vec<String> = env
        .into_iter()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .filter(|name| name.starts_with(PREFIX) && find(name).is_none())
        .collect();
    names.sort_unstable();
    names.iter().map(|name| format!("{name} is not a setting of shmem; {}", hint(name))).collect()
}

/// The settings in force as a table for people: name, value, default and meaning, a line each.
pub fn info(config: &Config) -> String {
    let head = ["setting", "value", "default", "meaning"].map(str::to_owned);
    let row = |s: &Setting| [s.name.to_owned(), s.value(config), s.default.to_owned(), s.help.to_owned()];
    let rows: Vec<_> = [head].into_iter().chain(SETTINGS.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
    let (name, value, default) = (width(0), width(1), width(2));
    rows.iter().map(|[n, v, d, help]| format!("{n:name$}  {v:value$}  {d:default$}  {help}\n")).collect()
}

/// The text of `docs/settings.md`.
pub fn markdown() -> String {
    let table = |internal: bool| -> String {
        let head = "| setting | value | default | meaning |\n| --- | --- | --- | --- |\n".to_owned();
        let row = |s: &Setting| {
            let same = if s.agree { "; the same on all PEs" } else { "" };
            format!("| `{}` | {} | {} | {}{same} |\n", s.name, s.form, s.default, s.help)
        };
        head + &SETTINGS.iter().filter(|s| s.internal == internal).map(row).collect::<String>()
    };
    format!(
        "# Settings\n\n\
         Environment variables of a job. The table in `src/config/table.rs` is the source of this page, of\n\
         `shmemrun --info` and of every check; `UPDATE_DOCS=1 cargo test the_settings_page` writes the page anew.\n\n\
         A value that is not of its form is an error at start-up. A `SHMEM_*` variable that is not listed here gets\n\
         one warning for the job. Names are case-sensitive.\n\n{}\n\
         ## Set by `shmemrun`\n\n\
         A program that is started in another way may set these itself.\n\n{}",
        table(false),
        table(true)
    )
}

const PREFIX: &str = "SHMEM_";

fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|s| s.name == name)
}

/// What a user who wrote `name` may have meant. The common prefix is left out, since it makes every two names look
/// alike.
fn hint(name: &str) -> String {
    let upper = name.to_ascii_uppercase();
    let rest = upper.strip_prefix(PREFIX).unwrap_or(&upper);
    // The last word says what kind of thing is meant: SHMEM_HEAP_SIZE is SHMEM_SYMMETRIC_SIZE rather than SHMEM_HEAP.
    let last = |name: &str| name.rsplit('_').next().map(str::to_owned);
    let kinship = |name: &str| if last(name) == last(rest) { 0.1 } else { 0.0 };
    let likeness = |s: &Setting| {
        let name = &s.name[PREFIX.len()..];
        strsim::normalized_damerau_levenshtein(rest, name) + kinship(name)
    };
    let best = SETTINGS.iter().map(|s| (likeness(s), s.name)).max_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((likeness, nearest)) if likeness >= 0.5 => format!("did you mean {nearest}?"),
        Some((_, nearest)) => format!("the nearest name is {nearest} (`shmemrun --info` lists all)"),
        None => "there are none".to_owned(),
    }
}

#[cfg(test)]
mod tests;
