//! The C interface as programs see it: compiled by `oshcc` and `oshc++`, run by `shmemrun` and `oshrun`.
//!
//! The programs are in `c/`, and check by themselves; `prototypes.txt` has every function of OpenSHMEM 1.6.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The folder with the library and the programs, as a build has left them.
fn tree() -> &'static Path {
    static TREE: OnceLock<PathBuf> = OnceLock::new();
    TREE.get_or_init(|| {
        let tree = Path::new(env!("CARGO_BIN_EXE_oshcc")).parent().unwrap().to_path_buf();
        // Tests are built without the library that no Rust program links, and without the other package's launcher.
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--workspace", "--lib", "--bins", "--target-dir"]).arg(tree.parent().unwrap());
        if tree.file_name().is_some_and(|profile| profile == "release") {
            build.arg("--release");
        }
        let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        tree
    })
}

/// Compiles a program, which is to be without any warning, and returns its place.
fn compile(compiler: &str, options: &[&str], source: &str, name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    let mut command = Command::new(tree().join(compiler));
    command.args(["-Wall", "-Wextra", "-Werror", "-O1"]).args(options);
    let output = command.arg(source).arg("-o").arg(&program).args(["-lpthread", "-lm"]).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    program
}

fn run_with(launcher: &str, n: usize, program: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new(tree().join(launcher));
    command.args(["-n", &n.to_string()]).arg(program).args(arguments).current_dir(env!("CARGO_TARGET_TMPDIR"));
    // What hangs becomes an error.
    command.env("SHMEM_TIMEOUT", "60").envs(settings.iter().copied()).output().unwrap()
}

fn run(n: usize, program: &Path) {
    run_in(n, program, &[]);
}

fn run_in(n: usize, program: &Path, settings: &[(&str, &str)]) {
    let output = run_with("shmemrun", n, program, &[], settings);
    assert!(output.status.success(), "{program:?} {n} {settings:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The status of a job of `end.c`, and the first line of what it says.
fn end(n: usize, how: &str) -> (i32, String) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| compile("oshcc", &["-std=c99", "-D_GNU_SOURCE"], "end.c", "end"));
    let output = run_with("shmemrun", n, program, &[how], &[]);
    let said = String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_string();
    (output.status.code().unwrap(), said)
}

/// The names in the prototypes.
fn names() -> BTreeSet<String> {
    let prototypes = include_str!("prototypes.txt").lines().filter(|line| line.ends_with(';'));
    let name = |line: &str| {
        let before = line.split('(').next().unwrap_or_default();
        before.rsplit([' ', '*']).next().unwrap_or_default().to_string()
    };
    prototypes.map(name).collect()
}

/// The names that the shared library exports.
fn exported() -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(tree().join("libshmem.so")).output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    listed.lines().filter_map(|line| line.split(' ').next_back()).map(str::to_string).collect()
}

#[test]
fn the_library_has_every_name_and_its_twin_and_no_others() {
    let names = names();
    assert_eq!(names.len(), 1685 + 109);
    let exported = exported();
    let wanted: BTreeSet<String> = names.iter().flat_map(|name| [name.clone(), format!("p{name}")]).collect();
    let missing: Vec<&String> = wanted.iter().filter(|name| !exported.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let extension = |name: &str| name.starts_with("shmemx_") || name.starts_with("pshmemx_");
    let others: Vec<&String> = exported.iter().filter(|name| !extension(name) && !wanted.contains(*name)).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn the_library_has_the_extensions_that_their_header_declares_and_their_twins() {
    let header = include_str!("../include/shmemx.h");
    let declared: BTreeSet<&str> = header
        .split("SHMEM_PROTOTYPE(")
        .skip(1)
        .filter_map(|rest| rest.split(',').nth(1).map(str::trim))
        .filter(|name| name.starts_with("shmemx_"))
        .collect();
    assert!(declared.len() > 30 && declared.contains("shmemx_moe_combine"), "{declared:?}");
    let exported = exported();
    for name in &declared {
        assert!(exported.contains(*name) && exported.contains(&format!("p{name}")), "{name}");
    }
    // Those of one type each are declared by the tables of the other header.
    let of_a_type = |name: &str| ["_short_", "_ushort_"].iter().any(|part| name.contains(part));
    let extensions = exported.iter().filter(|name| name.starts_with("shmemx_") && !of_a_type(name));
    let others: Vec<&String> = extensions.filter(|name| !declared.contains(name.as_str())).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn the_header_declares_every_function_as_the_specification_has_it() {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prototypes.c");
    let prototypes = include_str!("prototypes.txt").replace(" complex", " _Complex");
    // A second declaration of another type is an error.
    std::fs::write(&scratch, format!("#include <shmem.h>\n{prototypes}\n")).unwrap();
    let object = scratch.with_extension("o");
    // C99 has no forms without a type, three of which have names of functions.
    let mut command = Command::new(tree().join("oshcc"));
    command.args(["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-c"]).arg(&scratch).arg("-o").arg(&object);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Of what C++ programs often have their compilers warn, in headers that are not the system's.
#[test]
fn the_headers_are_without_the_warnings_that_cxx_programs_ask_for() {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("warnings.cpp");
    let handles = "bool none(shmem_team_t team, shmem_ctx_t ctx, shmemx_moe_t moe) { return team == SHMEM_TEAM_INVALID || \
                   team == SHMEM_TEAM_WORLD || ctx == SHMEM_CTX_DEFAULT || moe == SHMEMX_MOE_INVALID; }";
    std::fs::write(&scratch, format!("#include <shmem.h>\n#include <shmemx.h>\nextern {handles}\n")).unwrap();
    for standard in ["-std=c++11", "-std=c++17"] {
        let mut command = Command::new(tree().join("oshc++"));
        command.args([standard, "-Wall", "-Wextra", "-Wold-style-cast", "-Wcast-qual", "-Wconversion", "-Wshadow"]);
        let output = command.args(["-Wundef", "-Werror", "-fsyntax-only"]).arg(&scratch).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn every_function_of_every_type_by_its_own_name() {
    let program = compile("oshcc", &["-std=c99", "-pedantic"], "types.c", "types-c99");
    for n in [1, 2, 3, 5, 8] {
        run(n, &program);
    }
    run_in(3, &program, &[("SHMEM_CHECK", "1")]);
}

#[test]
fn every_function_of_every_type_over_a_network() {
    let program = compile("oshcc", &["-std=c99"], "types.c", "types-network");
    for (n, hosts) in [(3, "2"), (5, "3")] {
        run_in(n, &program, &[("SHMEM_ROUTE", "sim"), ("SHMEM_HOSTS", hosts)]);
    }
}

#[test]
fn every_function_of_every_type_by_its_twin_s_name() {
    let program = compile("oshcc", &["-std=c99", "-DTWIN"], "types.c", "types-twin");
    run(3, &program);
}

#[test]
fn every_generic_form_of_c11_with_every_type() {
    let program = compile("oshcc", &["-std=c11", "-DGENERIC"], "types.c", "types-c11");
    for n in [1, 2, 3] {
        run(n, &program);
    }
}

#[test]
fn every_overload_of_cxx_with_every_type() {
    let program = compile("oshc++", &["-x", "c++", "-std=c++17", "-DGENERIC"], "types.c", "types-cxx17");
    for n in [1, 2, 3] {
        run(n, &program);
    }
    run(2, &compile("oshc++", &["-x", "c++", "-std=c++11"], "types.c", "types-cxx11"));
}

#[test]
fn collectives_by_each_algorithm() {
    let program = compile("oshcc", &["-std=c99"], "types.c", "types-algorithms");
    for forced in
        ["allreduce=ring,allgather=ring", "allreduce=halving,alltoall=pairwise", "allreduce=mesh,broadcast=tree"]
    {
        run_in(3, &program, &[("SHMEM_COLL_ALGO", forced)]);
    }
}

#[test]
fn globals_are_symmetric_at_fixed_addresses_and_at_drawn_ones() {
    let options = ["-std=c99", "-D_GNU_SOURCE"];
    let programs = [
        compile("oshcc", &options, "globals.c", "globals-pie"),
        compile("oshcc", &[options.as_slice(), &["-no-pie"]].concat(), "globals.c", "globals-fixed"),
    ];
    for program in &programs {
        for n in [1, 2, 3, 5] {
            run(n, program);
        }
    }
    run_in(3, &programs[0], &[("SHMEM_ROUTE", "sim"), ("SHMEM_HOSTS", "2")]);
    run_in(2, &programs[0], &[("SHMEM_SYMMETRIC_SIZE", "64K")]);
}

/// It puts what is writable while a program is loaded only into a segment of its own, before that of the variables.
#[test]
fn globals_are_symmetric_whoever_links_the_program() {
    let sysroot = Command::new("rustc").args(["--print", "target-libdir"]).output().unwrap();
    let linkers = Path::new(String::from_utf8(sysroot.stdout).unwrap().trim()).with_file_name("bin/gcc-ld");
    assert!(linkers.join("ld.lld").exists(), "{linkers:?}");
    let folder = format!("-B{}", linkers.display());
    let program = compile("oshcc", &["-std=c99", "-D_GNU_SOURCE", &folder, "-fuse-ld=lld"], "globals.c", "globals-lld");
    run(3, &program);
}

#[test]
fn globals_are_symmetric_under_a_sanitizer_of_memory() {
    let program = compile("oshcc", &["-std=c99", "-D_GNU_SOURCE", "-fsanitize=address"], "globals.c", "globals-asan");
    run(2, &program);
}

#[test]
fn globals_are_no_memory_that_a_program_has_forgotten_to_free() {
    let program = compile("oshcc", &["-std=c99", "-D_GNU_SOURCE"], "globals.c", "globals-checked");
    let output = run_with("shmemrun", 2, &program, &[], &[("SHMEM_CHECK", "1")]);
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn the_library_may_be_loaded_and_unloaded_while_a_program_runs() {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("loaded");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/loaded.c");
    assert!(Command::new("cc").arg(source).args(["-ldl", "-o"]).arg(&program).status().unwrap().success());
    let library = tree().join("libshmem.so").to_string_lossy().into_owned();
    let output = run_with("shmemrun", 2, &program, &[&library], &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_program_may_be_linked_with_the_whole_library() {
    let library = tree().join("libshmem.a").to_string_lossy().into_owned();
    let headers = format!("-I{}/include", env!("CARGO_MANIFEST_DIR"));
    for (source, n) in [("globals.c", 3), ("teams.c", 3)] {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("static-{source}.out"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
        let mut cc = Command::new("cc");
        cc.args(["-std=c99", "-D_GNU_SOURCE", &headers]).arg(source).arg(&library);
        let output = cc.args(["-lpthread", "-ldl", "-lm", "-o"]).arg(&program).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        run(n, &program);
    }
}

#[test]
fn active_sets_teams_threads_and_long_double() {
    for (source, counts) in [
        ("old.c", &[1, 2, 3, 5, 8][..]),
        ("teams.c", &[1, 2, 3, 5, 8]),
        ("longdouble.c", &[1, 2, 3, 5]),
        ("threads.c", &[1, 2, 3]),
        // Hangs where a wait gets on its own team's calls only.
        ("started.c", &[1, 2, 3, 5]),
    ] {
        let program = compile("oshcc", &["-std=c99", "-D_GNU_SOURCE"], source, &format!("{source}.out"));
        for &n in counts {
            run(n, &program);
        }
        run_in(3, &program, &[("SHMEM_ROUTE", "sim"), ("SHMEM_HOSTS", "2")]);
    }
}

/// Over a network, too, and with memory that is checked: nothing is left when the program ends.
#[test]
fn exchanges_between_experts() {
    for (compiler, options) in [
        ("oshcc", &["-std=c99", "-pedantic"][..]),
        ("oshc++", &["-x", "c++", "-std=c++11"]),
        ("oshc++", &["-x", "c++", "-std=c++17"]),
    ] {
        let program = compile(compiler, options, "moe.c", &format!("moe-{}", options.last().unwrap()));
        for n in [1, 2, 3, 5] {
            run(n, &program);
        }
        run_in(3, &program, &[("SHMEM_ROUTE", "sim"), ("SHMEM_HOSTS", "2")]);
        let output = run_with("shmemrun", 3, &program, &[], &[("SHMEM_CHECK", "1")]);
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    }
}

#[test]
fn a_tool_puts_its_function_in_the_place_of_another() {
    run(2, &compile("oshcc", &["-std=c99"], "tool.c", "tool"));
}

#[test]
fn a_job_ends_as_the_program_says() {
    for n in [1, 3] {
        assert_eq!(end(n, "exit-0").0, 0);
        assert_eq!(end(n, "exit-3").0, 3);
        assert_eq!(end(n, "global-exit-0").0, 0);
        assert_eq!(end(n, "global-exit-9").0, 9);
        assert_eq!(end(n, "again").0, 0);
        assert_eq!(end(n, "returned").0, 0);
    }
}

#[test]
fn an_error_is_a_line_with_pe_function_and_limit_and_the_end() {
    for (n, how, said) in [
        (3, "bad-pe", "shmem: PE 2: shmem_long_p: PE -1 does not exist: the team has 3"),
        (1, "bad-stride", "shmem: PE 0: shmem_long_iput: dest stride: 0 elements were given, 1 are needed"),
        (1, "too-early", "shmem: shmem_barrier_all: shmem_init has not been called, or shmem_finalize has"),
        (3, "not-symmetric", "shmem: PE 0: shmem_long_put: the 8 bytes at 0x"),
        (1, "freed-twice", "shmem: PE 0: shmem_free: bytes "),
        (2, "exchange-left", "shmem: PE 1: shmem_team_destroy: an exchange of the team has not been freed"),
        (1, "exchange-freed", "shmem: PE 0: shmemx_moe_recv: there is no such exchange, or it has been freed"),
        (1, "destroyed-twice", "shmem: PE 0: shmem_ctx_destroy: there is no such context, or it has been destroyed"),
        (1, "context-destroyed", "shmem: PE 0: shmem_ctx_long_p: there is no such context, or it has been destroyed"),
        (1, "context-of-no-team", "shmem: PE 0: shmem_ctx_long_p: there is no such context, or it has been destroyed"),
        (
            1,
            "context-of-another-job",
            "shmem: PE 0: shmem_ctx_long_p: there is no such context, or it has been destroyed",
        ),
        (1, "pes-null", "shmem: PE 0: shmem_pe_quiet: target_pes is NULL, 2 elements are needed"),
        (1, "pes-too-many", "shmem: PE 0: shmem_pe_quiet: 18446744073709551615 elements of 4 bytes are more than"),
        (1, "values-null", "shmem: PE 0: shmem_long_wait_until_all_vector: cmp_values is NULL, 2 elements are needed"),
        (1, "indices-null", "shmem: PE 0: shmem_long_test_some: indices is NULL, 2 are to be stored"),
        (
            1,
            "set-before-first",
            "shmem: PE 0: shmem_barrier: no such team: 1 PEs from -1 at stride 2^0 leave a job of 1",
        ),
        (1, "freed-global", "shmem: PE 0: shmem_free: bytes "),
        (1, "timeout", "shmem: PE 0: shmem_long_wait_until: wait on PE 0 saw nothing for "),
    ] {
        let (status, line) = end(n, how);
        assert_eq!(status, 70, "{how}: {line}");
        assert!(line.starts_with(said), "{how}: {line}");
    }
    let (status, line) = end(3, "mismatch");
    assert_eq!(status, 70);
    assert!(
        line.contains("PE 0 calls allreduce #1 (i64 × 1, sum), PEs 1-2 call allreduce #1 (i64 × 0, sum)"),
        "{line}"
    );
}

#[test]
fn compilers_say_what_they_run_and_launchers_find_the_library() {
    let shown = Command::new(tree().join("oshcc")).args(["--showme", "x.c"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.starts_with("cc -I") && shown.contains(" x.c -L") && shown.trim_end().ends_with("-lshmem"),
        "{shown}"
    );
    let missing = Command::new(tree().join("oshcc")).env("OSHCC_CC", "no-such-compiler").arg("x.c").output().unwrap();
    assert_eq!(missing.status.code(), Some(127));

    // Linked by hand, without a word about where the library is.
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("by-hand");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cc = Command::new("cc");
    cc.arg("-I").arg(here.join("include")).arg(here.join("tests/c/tool.c")).arg("-L").arg(tree());
    assert!(cc.args(["-lshmem", "-o"]).arg(&program).status().unwrap().success());
    let output = run_with("oshrun", 2, &program, &[], &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
