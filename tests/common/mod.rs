//! What the integration tests share: jobs of threads with settings of their own, and jobs of real processes without a
//! launcher.
//!
//! A scenario is a function of a [`World`]. [`everywhere`] runs it at every PE count of [`COUNTS`] as threads, then as
//! threads whose puts a testing network delays and reorders; [`processes`] runs it as processes, by starting the test
//! binary itself again for every PE.
#![allow(dead_code, unreachable_pub, reason = "every test file is a crate of its own and uses a part of this")]

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use shmem::config::RouteChoice;
use shmem::{Builder, Cmp, Error, ErrorKind, Kernel, Result, Shared, SigRef, World};

/// The PE counts of every scenario: one, even, odd, a power of two or not, more than cores.
pub const COUNTS: [usize; 6] = [1, 2, 3, 5, 8, 16];

/// Longer than any test takes on a loaded machine: between "works" and "hangs".
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a scenario as threads at every PE count, then in checked mode, then over the network that reorders.
pub fn everywhere(scenario: impl Fn(&World) -> Result<()> + Sync) {
    for n in COUNTS {
        shmem::local(n, &scenario).unwrap_or_else(|error| panic!("n = {n}: {error}"));
    }
    checked(&scenario);
    shuffled(&scenario);
}

/// P06: runs a scenario as threads in checked mode, which must not find fault with it.
pub fn checked(scenario: impl Fn(&World) -> Result<()> + Sync) {
    with(3, &[("SHMEM_CHECK", "1")], &scenario);
}

/// Runs a scenario as threads between which everything goes over a simulated network, late and in random order; then as
/// threads of two and of three hosts, with that network between them.
pub fn shuffled(scenario: impl Fn(&World) -> Result<()> + Sync) {
    for n in [2, 3, 5] {
        with(n, &[("SHMEM_ROUTE", "sim")], &scenario);
    }
    for (n, hosts) in [(3, "2"), (5, "3")] {
        with(n, &[("SHMEM_ROUTE", "sim"), ("SHMEM_HOSTS", hosts)], &scenario);
    }
}

/// Runs a scenario as `n` threads with some settings.
fn with(n: usize, settings: &[(&str, &str)], scenario: &(impl Fn(&World) -> Result<()> + Sync)) {
    let scenario = |world: &World| {
        let result = scenario(world);
        if let Err(error) = &result {
            eprintln!("PE {} of {n} with {settings:?}: {error}", world.me());
            world.abandon();
        }
        result
    };
    let set = |builder: Builder, &(name, value): &(&str, &str)| builder.set(name, value).unwrap();
    job(n, |builder| settings.iter().fold(builder, set), scenario)
        .into_iter()
        .for_each(|pe| pe.unwrap_or_else(|error| panic!("n = {n} with {settings:?}: {error}")));
}

/// How often to repeat something: `rounds`, or a hundredth of it where the network of the test delays every put.
pub fn scaled(world: &World, rounds: usize) -> usize {
    match world.config().route {
        RouteChoice::Auto if world.n_pes() <= 3 => rounds,
        RouteChoice::Auto => (rounds / 10).max(1),
        _ => (rounds / 100).max(1),
    }
}

/// Runs `n` PEs as threads, each with a world that `configure` set up, and returns what each has to say: its world's
/// error, or `f`'s answer.
pub fn job<R: Send>(
    n: usize,
    configure: impl Fn(Builder) -> Builder + Sync,
    f: impl Fn(&World) -> Result<R> + Sync,
) -> Vec<Result<R>> {
    job_by_pe(n, |_, builder| configure(builder), f)
}

/// [`job`], with settings that depend on the PE.
pub fn job_by_pe<R: Send>(
    n: usize,
    configure: impl Fn(usize, Builder) -> Builder + Sync,
    f: impl Fn(&World) -> Result<R> + Sync,
) -> Vec<Result<R>> {
    let address = address();
    let pe = |pe: usize| {
        let builder = World::builder().pe(pe).n_pes(n).rendezvous(&*address).key("tests");
        let world = configure(pe, builder).build()?;
        f(&world)
    };
    let ended: Vec<thread::Result<Result<R>>> = thread::scope(|scope| {
        let pes: Vec<_> = (0..n)
            .map(|me| {
                scope.spawn({
                    let pe = &pe;
                    move || pe(me)
                })
            })
            .collect();
        pes.into_iter().map(|pe| pe.join()).collect()
    });
    ended.into_iter().map(|pe| pe.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
}

/// A rendezvous that nobody else uses.
pub fn address() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let moment = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    format!("unix:@shmem-tests-{}-{moment}-{number}", std::process::id())
}

/// The variable that tells a process started again which test it runs for.
const CHILD: &str = "SHMEM_TESTS_CHILD";

/// What a process started again was told.
fn told(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

/// Whether this process is a PE that [`processes`] started for `test`.
pub fn is_child(test: &str) -> bool {
    std::env::var(CHILD).is_ok_and(|name| name == test)
}

/// How a PE that is a process ended.
#[derive(Debug)]
pub struct Ended {
    pub success: bool,
    pub code: Option<i32>,
    pub output: String,
}

/// Runs a scenario as processes, `n` of them for each of `counts`; all must succeed. `test` is the name of the calling
/// test.
pub fn processes(test: &str, counts: &[usize], scenario: impl Fn(&World) -> Result<()>) {
    if is_child(test) {
        return child(|builder| builder, scenario);
    }
    for &n in counts {
        for (pe, ended) in spawn(test, n, |_, command| command).into_iter().enumerate() {
            assert!(ended.success, "PE {pe} of {n} ended with {:?}:\n{}", ended.code, ended.output);
        }
    }
}

/// The PE in a process started again.
pub fn child(configure: impl Fn(Builder) -> Builder, scenario: impl Fn(&World) -> Result<()>) {
    let world = configure(child_builder()).build().unwrap_or_else(|error| panic!("{error}"));
    scenario(&world).unwrap_or_else(|error| {
        world.abandon();
        panic!("PE {}: {error}", world.me())
    });
}

/// What the process was told, for its world.
pub fn child_builder() -> Builder {
    World::builder()
        .pe(told("SHMEM_PE").parse().unwrap())
        .n_pes(told("SHMEM_N_PES").parse().unwrap())
        .rendezvous(told("SHMEM_RENDEZVOUS"))
        .key(told("SHMEM_JOB_KEY"))
}

/// Starts this binary again for each of `n` PEs to run `test` there, and waits for all; whoever takes too long fails
/// the test.
pub fn spawn(test: &str, n: usize, adapt: impl Fn(usize, &mut Command) -> &mut Command) -> Vec<Ended> {
    let address = address();
    let start = |pe: usize| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([test, "--exact", "--nocapture", "--include-ignored"]).env(CHILD, test);
        command.env("SHMEM_RENDEZVOUS", &address).env("SHMEM_JOB_KEY", "tests");
        command.env("SHMEM_PE", pe.to_string()).env("SHMEM_N_PES", n.to_string()).env("SHMEM_FLIGHT_FILE", "off");
        start(adapt(pe, &mut command))
    };
    gather((0..n).map(start).collect())
}

/// A process and the thread that reads what it says.
pub struct Started {
    pub process: Child,
    said: std::sync::mpsc::Receiver<String>,
}

/// Starts a command whose output is kept.
pub fn start(command: &mut Command) -> Started {
    let (mut output, writer) = std::io::pipe().unwrap();
    let copy = writer.try_clone().unwrap();
    let process = command.stdin(Stdio::null()).stdout(copy).stderr(writer).spawn().unwrap();
    // The command keeps its ends of the pipe; without them the reader sees the process's own close.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (saying, said) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = output.read_to_end(&mut bytes);
        let _ = saying.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    Started { process, said }
}

/// Waits for all of them, [`PATIENCE`] in all; kills those that are late, and fails.
pub fn gather(mut started: Vec<Started>) -> Vec<Ended> {
    let deadline = Instant::now() + PATIENCE;
    let mut ended: Vec<Option<String>> = Vec::new();
    for pe in &started {
        match pe.said.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(output) => ended.push(Some(output)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => ended.push(None),
        }
    }
    let late: Vec<usize> = (0..started.len()).filter(|pe| ended[*pe].is_none()).collect();
    for &pe in &late {
        let _ = started[pe].process.kill();
    }
    let statuses: Vec<_> = started.iter_mut().map(|pe| pe.process.wait().unwrap()).collect();
    if !late.is_empty() {
        let said: Vec<String> = started
            .iter()
            .zip(ended)
            .map(|(pe, said)| said.unwrap_or_else(|| pe.said.recv().unwrap_or_default()))
            .collect();
        panic!("these PEs did not end within {PATIENCE:?}: {late:?}\n{}", said.join("\n----\n"));
    }
    (statuses.into_iter().zip(ended))
        .map(|(status, output)| Ended {
            success: status.success(),
            code: status.code(),
            output: output.unwrap_or_default(),
        })
        .collect()
}

/// A reproducible sequence of numbers (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// The kind of an error that must be one.
#[track_caller]
pub fn kind_of<T>(result: &Result<T>) -> &ErrorKind {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error.kind(),
    }
}

/// The text of an error that must be one.
#[track_caller]
pub fn text_of<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => Error::to_string(&error),
    }
}

/// A report without the places in the program (` at tests/alloc.rs:12`).
pub fn without_places(report: &str) -> String {
    let mut parts = report.split(" at ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find([',', ' ', ';']).unwrap_or(part.len());
        let line = part[..end].rsplit_once(".rs:").map(|(_, line)| line);
        if line.is_some_and(|line| line.parse::<u32>().is_ok()) {
            text += &part[end..];
        } else {
            text += " at ";
            text += part;
        }
    }
    text
}

/// Asserts that a result is an error of this kind.
#[macro_export]
macro_rules! assert_kind {
    ($result:expr, $kind:pat $(if $guard:expr)?) => {
        match &$result {
            Err(error) => assert!(matches!(error.kind(), $kind $(if $guard)?), "{error}"),
            Ok(_) => panic!("an error was expected: {}", stringify!($result)),
        }
    };
}

/// Compiles for types that threads may share.
pub fn assert_sync<T: Send + Sync>() {}

/// Sums of words, for folds.
pub struct Sum;

impl Kernel<u64> for Sum {
    type Acc = u64;
    fn widen(&self, element: u64) -> u64 {
        element
    }
    fn combine(&self, left: u64, right: u64) -> u64 {
        left + right
    }
    fn narrow(&self, acc: u64) -> u64 {
        acc
    }
}

/// A small piece of work that needs all PEs.
pub fn ring(world: &World) -> Result<()> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let (inbox, bell) = (world.alloc::<u64>(1)?, world.alloc_zeroed::<u64>(1)?);
    ctx.put_signal(inbox.sym(), &[me as u64], SigRef::set(bell.sym(), 1), (me + 1) % n)?;
    ctx.wait_until(bell.sym(), Cmp::Eq, 1)?;
    assert_eq!(inbox.sym().read(0)?, ((me + n - 1) % n) as u64);
    world.free(inbox)?;
    world.free(bell)
}
