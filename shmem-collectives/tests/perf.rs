//! `shmem-perf` as users run it: under `shmemrun` and alone.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers, too")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use shmem_collectives::select::MoeRow;

const PERF: &str = env!("CARGO_BIN_EXE_shmem-perf");
const OPERATIONS: [&str; 20] = [
    "put",
    "get",
    "put_signal",
    "fetch_add",
    "barrier",
    "sync",
    "allreduce",
    "reduce",
    "reduce_scatter",
    "allgather",
    "gather",
    "scatter",
    "broadcast",
    "alltoall",
    "inscan",
    "exscan",
    "allgatherv",
    "reduce_scatterv",
    "alltoallv",
    "alltoalls",
];

/// The launcher, built once for the profile of this test: it belongs to another package, which cargo does not build for
/// this one's tests.
fn shmemrun() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let directory = Path::new(PERF).parent().unwrap();
        let profile = match directory.file_name().unwrap().to_str().unwrap() {
            "debug" => "dev",
            profile => profile,
        };
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "shmem", "--bin", "shmemrun", "--profile", profile]);
        build.arg("--target-dir").arg(directory.parent().unwrap());
        assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
        directory.join("shmemrun")
    })
}

/// Runs it with `n` PEs under the launcher, or alone.
fn perf(n: Option<usize>, args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = match n {
        Some(n) => {
            let mut command = Command::new(shmemrun());
            command.args(["-n", &n.to_string(), "--timeout", "120", PERF]);
            command
        }
        None => Command::new(PERF),
    };
    for setting in shmem::config::SETTINGS {
        command.env_remove(setting.name);
    }
    command.args(args).envs(env.iter().copied()).env("SHMEM_SYMMETRIC_SIZE", "16M").env("SHMEM_FLIGHT_FILE", "off");
    command.stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*err), (Some(0), ""));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output, status: i32) -> String {
    let err = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(status), "{err}");
    err
}

/// A line of the table.
#[derive(Debug)]
struct Row {
    size: usize,
    count: usize,
    ty: String,
    times: Vec<f64>,
    algorithm: String,
    bus: f64,
    wrong: u64,
}

fn rows(output: &Output) -> Vec<Row> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words.len(), 10, "{line}");
        Row {
            size: words[0].parse().unwrap(),
            count: words[1].parse().unwrap(),
            ty: words[2].into(),
            times: words[3..7].iter().map(|time| time.parse().unwrap()).collect(),
            algorithm: words[7].into(),
            bus: words[8].parse().unwrap(),
            wrong: words[9].parse().unwrap(),
        }
    };
    stdout(output).lines().filter(|line| !line.starts_with('#')).map(row).collect()
}

fn algorithms(output: &Output) -> Vec<String> {
    rows(output).into_iter().map(|row| row.algorithm).collect()
}

const SHORT: [&str; 12] = ["-b", "4", "-e", "8K", "-f", "45", "-n", "3", "-w", "1", "-c", "2"];

#[test]
fn every_operation_is_right_and_fills_its_columns() {
    for n in [Some(1), Some(2), Some(3), None] {
        for operation in OPERATIONS {
            let mut args = [&[operation], &SHORT[..]].concat();
            if n.is_none() {
                args.extend(["--pes", "4"]);
            }
            let rows = rows(&perf(n, &args, &[]));
            let what: Vec<_> = rows.iter().map(|row| (row.size, row.count, row.ty.as_str())).collect();
            match operation {
                "barrier" | "sync" => assert_eq!(what, [(0, 0, "-")]),
                "fetch_add" => assert_eq!(what, [(8, 1, "u64")]),
                _ => assert_eq!(what, [(4, 1, "f32"), (180, 45, "f32"), (8100, 2025, "f32")]),
            }
            for row in rows {
                assert_eq!(row.wrong, 0, "{operation}: {row:?}");
                let [min, median, p99, deviation] = row.times[..] else { panic!("{row:?}") };
                assert!(0.0 <= min && min <= median && median <= p99 && deviation >= 0.0, "{row:?}");
                let named = shmem_collectives::plan::Collective::NAMES.contains(&operation);
                assert_eq!(row.algorithm != "-", named, "{row:?}");
                assert!(row.bus >= 0.0 && row.bus.is_finite());
            }
        }
    }
}

/// I08 and I11: one list of types and operations, all of which are there.
#[test]
fn every_type_and_operation_is_checked() {
    use shmem_collectives::op::{Op, Type};
    // 10 integers with all but the scaled sum, 4 floats without the bitwise, 2 complex with 4.
    let pairs = 10 * (Op::ALL.len() - 1) + 4 * (Op::ALL.len() - 3) + 2 * 4;
    let all = ["-t", "all", "-o", "all", "-b", "3", "-e", "600", "-f", "200", "-n", "1", "-w", "0"];
    for (operation, n, algorithm) in [
        ("allreduce", "3", None),
        ("allreduce", "4", Some("ring")),
        ("reduce", "3", Some("tree")),
        ("reduce_scatter", "3", None),
        ("reduce_scatterv", "3", None),
        ("inscan", "3", None),
        ("exscan", "2", None),
    ] {
        let mut args = [&[operation, "--pes", n], &all[..]].concat();
        args.extend(algorithm.iter().flat_map(|name| ["--algo", name]));
        let output = perf(None, &args, &[]);
        let rows = rows(&output);
        assert_eq!(rows.len(), 2 * pairs, "{operation}");
        assert!(rows.iter().all(|row| row.wrong == 0), "{operation}: {rows:?}");
        let says = |op: Op| stdout(&output).contains(&format!(" ({op}), "));
        assert!(Op::ALL.iter().all(|op| says(*op)), "{operation}");
        let of = |ty: Type| rows.iter().filter(|row| row.ty == ty.name()).count() / 2;
        assert_eq!((of(Type::I8), of(Type::Bf16), of(Type::Complex64)), (10, 8, 4), "{operation}");
    }
    for operation in ["allgather", "alltoallv", "broadcast", "put"] {
        let rows = rows(&perf(None, &[&[operation, "--pes", "3"], &all[..]].concat(), &[]));
        let types: Vec<&str> = rows.iter().map(|row| row.ty.as_str()).step_by(2).collect();
        assert_eq!(types, Type::ALL.iter().map(|ty| ty.name()).collect::<Vec<_>>());
        assert!(rows.iter().all(|row| row.wrong == 0), "{operation}: {rows:?}");
    }
}

#[test]
fn one_type_or_one_operation_of_all_is_checked() {
    let count = |args: &[&str]| {
        let rows = rows(&perf(None, &[&["allreduce", "-e", "8", "-n", "1"], args].concat(), &[]));
        assert!(rows.iter().all(|row| row.wrong == 0), "{rows:?}");
        rows.len()
    };
    assert_eq!(count(&["-t", "bf16", "-o", "all"]), 8);
    assert_eq!(count(&["-t", "all", "-o", "xor"]), 10);
    assert_eq!(count(&["-t", "complex64", "-o", "scaled=0.125"]), 1);
    assert_eq!(rows(&perf(None, &["collect", "-e", "8", "-n", "1"], &[])).len(), 1);
}

#[test]
fn a_wrong_command_line_is_one_line_and_status_2() {
    for (args, says) in [
        (&["reduces"][..], "put, get, "),
        (&[], "OP"),
        (&["put", "-b", "0"], "not a size"),
        (&["put", "-e", "many"], "not a size"),
        (&["put", "-b", "8K", "-e", "8"], "-b 8192 is more than -e 8"),
        (&["put", "-f", "1"], "1 is not in 2.."),
        (&["put", "-n", "0"], "0 is not in 1.."),
        (&["put", "--pes", "0"], "not a number of PEs"),
        (&["put", "--size", "8"], "--size"),
        (&["allreduce", "-t", "f31"], "there is no element type"),
        (&["allreduce", "-o", "add"], "there is no operation"),
        (&["allreduce", "-o", "xor"], "xor is not defined for f32"),
        (&["allreduce", "-t", "complex64", "-o", "max"], "max is not defined for complex64"),
        (&["allreduce", "-o", "scaled=0.3"], "scaled=0.3 is not measured: give a power of two"),
        (&["alltoall", "--algo", "ring"], "give an algorithm for alltoall of small, direct, "),
        (&["put", "--algo", "ring"], "put is no collective"),
        (&["plan", "barrier"], "barrier is no collective"),
        (&["plan", "mow"], "alltoalls, moe"),
        (&["plan", "allreduce", "--hosts", "4x"], "not hosts such as 4x8"),
    ] {
        for n in [None, Some(2)] {
            let output = perf(n, args, &[]);
            let err = stderr(&output, 2);
            let own: Vec<&str> = err.lines().filter(|line| line.starts_with("shmem-perf: ")).collect();
            assert!(own.len() == 1 && own[0].contains(says), "{args:?}: {err}");
            assert!(n.is_some() || err.lines().count() == 1, "{args:?}: {err}");
            assert!(output.stdout.is_empty());
        }
    }
}

#[test]
fn forced_algorithms_show() {
    let args = |collective| [&[collective], &SHORT[..]].concat();
    for algorithm in ["ring", "direct", "double-tree"] {
        let forced = perf(Some(3), &[&args("allreduce")[..], &["--algo", algorithm]].concat(), &[]);
        assert_eq!(algorithms(&forced), [algorithm; 3]);
        let setting = format!("alltoall=bruck,allreduce={algorithm}");
        let forced = perf(Some(2), &args("allreduce"), &[("SHMEM_COLL_ALGO", &setting)]);
        assert_eq!(algorithms(&forced), [algorithm; 3]);
    }
    let strict = [("SHMEM_COLL_ALGO", "allreduce=ring,allgather=ring"), ("SHMEM_COLL_DETERMINISTIC", "strict")];
    assert_eq!(algorithms(&perf(None, &args("allreduce"), &strict)), ["small", "direct", "direct"]);
    assert_eq!(algorithms(&perf(None, &args("allgather"), &strict)), ["ring"; 3]);
    let small = [("SHMEM_COLL_SMALL", "2K")];
    assert_eq!(algorithms(&perf(None, &args("allreduce"), &small)), ["small", "small", "direct"]);
}

#[test]
fn settings_that_name_nothing_are_errors() {
    for (name, value, says) in [
        ("SHMEM_COLL_ALGO", "allreduce", "give COLLECTIVE=ALGORITHM"),
        ("SHMEM_COLL_ALGO", "allreduce=rung", "give an algorithm for allreduce of small, direct, "),
        ("SHMEM_COLL_DETERMINISTIC", "perhaps", "give `off` or `strict`"),
        ("SHMEM_COLL_TABLE", "/none/such", "No such file"),
    ] {
        for args in [&["allreduce", "-e", "8"][..], &["plan", "allreduce"]] {
            let output = perf(None, args, &[(name, value)]);
            let err = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && err.lines().count() == 1, "{err}");
            assert!(err.contains(&format!("{name}={value:?} is not valid: ")) && err.contains(says), "{err}");
        }
    }
}

#[test]
fn the_plan_says_what_is_chosen_and_why() {
    let plan = |args: &[&str], env: &[(&str, &str)]| {
        let output = perf(None, &[&["plan"], args].concat(), env);
        let text = stdout(&output);
        let sizes = text.lines().skip_while(|line| !line.contains("piece")).skip(1);
        let words = sizes.map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        words
            .map(|words| (words[0].clone(), words[2].clone(), words[if words[4] == "-" { 5 } else { 6 }..].join(" ")))
            .collect::<Vec<_>>()
    };
    let one = plan(&["allreduce", "-b", "64", "-e", "128", "--cores", "2"], &[]);
    assert_eq!((one[0].0.as_str(), one[0].1.as_str()), ("64", "small"));
    assert_eq!((one[1].0.as_str(), one[1].1.as_str()), ("128", "direct"));
    assert!(one[0].2.starts_with("one host up to 112: "), "{one:?}");
    let crowded = plan(&["allreduce", "-b", "2K", "-e", "4K", "--pes", "3", "--cores", "2"], &[]);
    assert_eq!((crowded[0].1.as_str(), crowded[1].1.as_str()), ("small", "direct"));
    assert!(crowded[0].2.starts_with("crowded up to 2K: "), "{crowded:?}");
    let same = plan(&["allreduce", "-b", "2K", "-e", "4K", "--hosts", "1x3", "--cores", "2"], &[]);
    assert_eq!(same, crowded);
    let hosts = plan(&["allreduce", "--hosts", "4x8", "-b", "64K", "-e", "4M", "-f", "8"], &[]);
    let names: Vec<&str> = hosts.iter().map(|row| row.1.as_str()).collect();
    assert_eq!(names, ["halving", "halving", "hierarchical"]);
    let low = plan(&["broadcast", "--hosts", "3,2", "-b", "64K", "-e", "64K"], &[("SHMEM_COLL_THRESHOLD", "32K")]);
    assert_eq!(low[0].1, "hierarchical");
    let forced = plan(&["allgather", "-b", "8", "-e", "8"], &[("SHMEM_COLL_ALGO", "allgather=ring")]);
    assert_eq!((forced[0].1.as_str(), forced[0].2.as_str()), ("ring", "forced"));
}

/// The lines of a plan for exchanges between experts: its rows, and the size, mode and reason of each line below.
fn moe_plan(args: &[&str], env: &[(&str, &str)]) -> (Vec<String>, Vec<(String, String, String)>) {
    let text = stdout(&perf(None, &[&["plan", "moe"], args].concat(), env));
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mut lines = text.lines();
    assert!(lines.next().unwrap().starts_with("# moe: "), "{text}");
    assert_eq!(words(lines.next().unwrap())[..3], ["#", "collective", "on"]);
    let rows = lines.by_ref().take_while(|line| !line.starts_with('#')).map(|line| words(line).join(" ")).collect();
    let line = |line: &str| {
        let words = words(line);
        assert_eq!((&*words[1], &*words[3], &*words[4]), ("-", "-", "-"), "no count, no piece, no predicted time");
        (words[0].clone(), words[2].clone(), words[5..].join(" "))
    };
    (rows, lines.map(line).collect())
}

#[test]
fn the_plan_says_which_mode_exchanges_take_and_why() {
    let told = |plan: &(Vec<String>, Vec<(String, String, String)>)| -> Vec<(String, String)> {
        plan.1.iter().map(|(size, mode, _)| (size.clone(), mode.clone())).collect()
    };
    let pair = |size: &str, mode: &str| (size.to_owned(), mode.to_owned());
    let one = moe_plan(&["-b", "4K", "-e", "4K"], &[]);
    assert_eq!(told(&one), [pair("4K", "throughput")]);
    assert!(one.1[0].2.starts_with("one host up to any: each token is copied once"), "{one:?}");
    assert_eq!(one.0.len(), 3);
    assert!(one.0[0].starts_with("moe one host any throughput "), "{one:?}");
    assert!(one.0[1].starts_with("moe hosts 1M latency ") && one.0[2].starts_with("moe hosts any "), "{one:?}");
    let hosts = moe_plan(&["--hosts", "2x4", "-b", "1M", "-e", "2M"], &[]);
    assert_eq!(told(&hosts), [pair("1M", "latency"), pair("2M", "throughput")]);
    let forced = moe_plan(&["-b", "8", "-e", "8"], &[("SHMEM_COLL_ALGO", "moe=latency")]);
    assert_eq!(forced.1, [("8".into(), "latency".into(), "forced".into())]);
    let table = Scratch::new("moe");
    std::fs::write(&table.0, "# measured\nmoe 64K latency\nmoe any throughput\n").unwrap();
    let measured = moe_plan(&["-b", "64K", "-e", "128K"], &[("SHMEM_COLL_TABLE", table.path())]);
    assert_eq!(told(&measured), [pair("64K", "latency"), pair("128K", "throughput")]);
    assert_eq!(measured.1[0].2, "one host up to 64K: measured");
    assert_eq!(measured.0[..2], ["moe one host 64K latency measured", "moe one host any throughput measured"]);
    assert_eq!(measured.0[2..], one.0[1..]);
}

/// A file that is gone with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Scratch(std::env::temp_dir().join(format!("shmem-perf-{}-{name}", std::process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = if self.0.is_dir() { std::fs::remove_dir_all(&self.0) } else { std::fs::remove_file(&self.0) };
    }
}

#[test]
fn a_measured_table_is_what_the_next_run_takes() {
    let table = Scratch::new("table");
    assert_eq!(stdout(&perf(Some(2), &["tune", "-o", table.path()], &[])), "");
    let measured = shmem_collectives::select::parse(&std::fs::read_to_string(&table.0).unwrap()).unwrap();
    let rows = measured.rows;
    for name in shmem_collectives::plan::Collective::NAMES {
        let mut of = rows.iter().filter(|row| row.collective == name);
        assert_eq!(of.next_back().unwrap().up_to, usize::MAX, "{name}");
    }
    // Of rows for the same bytes the first is taken.
    let mut first = rows.clone();
    first.dedup_by_key(|row| (row.collective, row.up_to));
    for row in first.iter().filter(|row| row.up_to < 1 << 20) {
        let size = row.up_to.to_string();
        let args = [row.collective, "-b", &size, "-e", &size, "-n", "2"];
        let taken = algorithms(&perf(Some(2), &args, &[("SHMEM_COLL_TABLE", table.path())]));
        assert_eq!(taken, [row.algorithm.name()], "{row}");
    }
    let last = measured.moe.last().unwrap();
    assert_eq!(last.up_to, usize::MAX);
    let one_host = |row: &String| row.starts_with("moe one host ");
    let (planned, _) = moe_plan(&["-e", "8"], &[("SHMEM_COLL_TABLE", table.path())]);
    let written = |row: &MoeRow| format!("moe one host {} {} measured", row.limit(), row.mode);
    assert!(planned.iter().filter(|row| one_host(row)).eq(&measured.moe.iter().map(written).collect::<Vec<_>>()));
    for row in &measured.moe {
        let size = if row.up_to == usize::MAX { 1 << 30 } else { row.up_to }.to_string();
        let (_, taken) = moe_plan(&["-b", &size, "-e", &size], &[("SHMEM_COLL_TABLE", table.path())]);
        assert_eq!(taken[0].1, row.mode.name(), "{row}");
    }
    std::fs::write(&table.0, "moe 64K latency\n").unwrap();
    let err = stderr(&perf(None, &["barrier"], &[("SHMEM_COLL_TABLE", table.path())]), 1);
    assert!(err.contains("the last line of moe must be for `any` bytes"), "{err}");
    std::fs::write(&table.0, "allreduce 2K small\n").unwrap();
    let err = stderr(&perf(None, &["barrier"], &[("SHMEM_COLL_TABLE", table.path())]), 1);
    assert!(err.contains("the last line of allreduce must be for `any` bytes"), "{err}");
}

#[test]
fn pes_with_different_tables_are_told() {
    let scratch = Scratch::new("differs");
    for (pe, algorithm) in ["direct", "direct", "ring"].iter().enumerate() {
        let directory = scratch.0.join(pe.to_string());
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("table"), format!("allreduce any {algorithm}\n")).unwrap();
    }
    let script = "cd \"$0/$SHMEM_PE\" && exec \"$1\" allreduce -e 8";
    let mut command = Command::new(shmemrun());
    command.args(["-n", "3", "--timeout", "120", "sh", "-c", script, scratch.path(), PERF]);
    command.env("SHMEM_FLIGHT_FILE", "off");
    let output = command.env("SHMEM_COLL_TABLE", "table").stdin(Stdio::null()).output().unwrap();
    let err = stderr(&output, 1);
    let sides = err.lines().find(|line| line.contains("PEs 0-1")).unwrap_or_else(|| panic!("{err}"));
    assert!(sides.contains("PE 2") && sides.matches("collectives with table ").count() == 2, "{err}");
}
