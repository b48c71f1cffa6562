//! Kinds of memory: a heap does the same whatever its memory is, and memory that cannot be a heap is refused with a reason.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../common/mod.rs"]
mod common;
mod external;

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Sum, assert_sync, child_builder, is_child, job, job_by_pe, kind_of, spawn, text_of};
use memmap2::{MmapOptions, MmapRaw};
use shmem::{Builder, Cmp, ErrorKind, ExternalMemory, Result, Shared, SigRef, World};

const HEAP: usize = 4 << 20;
const COUNTS: [usize; 3] = [1, 2, 3];

/// Tells a process started again where its heap is.
const PATH: &str = "KINDS_PATH";

/// What a process started again was told.
fn told() -> Option<PathBuf> {
    std::env::var_os(PATH).map(PathBuf::from)
}

/// For those who need no path.
fn nowhere() -> &'static Path {
    Path::new("")
}

/// Everything that a heap is for, with values.
fn exercise(world: &World) -> Result<()> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let (left, right) = ((me + n - 1) % n, (me + 1) % n);
    let of = |pe: usize| (0..3000).map(|i| (pe * 10_000 + i) as u64).collect::<Vec<_>>();

    // Allocation: at the end of the heap, too, aligned, and zero.
    assert!(world.heap_size() >= HEAP);
    let last = world.alloc::<u8>(world.heap_free().1)?;
    last.sym().at(last.sym().len() - 1)?.write(0, 7)?;
    assert_eq!(last.sym().read(last.sym().len() - 1)?, 7);
    last.sym().slice(..4096)?.fill(0xff);
    world.free(last)?;
    let mut block = world.align::<u64>(4096, 3000)?;
    assert!(block.sym().as_ptr().addr().is_multiple_of(4096));
    let words = world.alloc_zeroed::<u64>(8)?;
    assert_eq!(words.sym().to_vec(), [0; 8]);

    // Put, get, single elements, copies between objects.
    ctx.put(block.sym(), &of(me), right)?;
    world.barrier_all()?;
    assert!(block.sym().to_vec() == of(left));
    let mut got = vec![0; 3000];
    ctx.get(&mut got, block.sym(), right)?;
    assert!(got == of(me));
    assert_eq!(ctx.g(block.sym().at(2999)?, right)?, of(me)[2999]);
    ctx.p(words.sym().at(7)?, 77 + me as u64, right)?;
    world.barrier_all()?;
    assert_eq!(words.sym().read(7)?, 77 + left as u64);
    world.realloc(&mut block, 100_000)?;
    assert!(block.sym().slice(..3000)?.to_vec() == of(left));
    let (one, other) = (block.sym().slice(..3000)?, block.sym().slice(50_000..53_000)?);
    ctx.put_from(other, one, right)?;
    world.barrier_all()?;
    assert!(other.to_vec() == of((left + n - 1) % n));
    ctx.get_into(other, one, left)?;
    assert!(other.to_vec() == of((left + n - 1) % n));
    world.barrier_all()?;
    ctx.put_from(block.sym().slice(1..3001)?, one, me)?;
    assert!(block.sym().slice(1..3001)?.to_vec() == of(left));
    if let Some(address) = ctx.ptr(block.sym(), me)? {
        assert_eq!(address, block.sym().as_ptr());
    }
    world.barrier_all()?;

    // Atomics, signals, waiting, locks.
    for pe in 0..n {
        assert!(ctx.atomic_fetch_add(words.sym(), 1 + me as u64, pe)? < 10);
    }
    world.barrier_all()?;
    assert_eq!(words.sym().read(0)?, (n * (n + 1) / 2) as u64);
    assert_eq!(ctx.atomic_compare_swap(words.sym().at(1)?, 0, 5 + me as u64, me)?, 0);
    assert_eq!(ctx.atomic_swap(words.sym().cast::<u32>()?.at(2)?, 9, me)?, 5 + me as u32);
    ctx.put_signal(block.sym().slice(..2)?, &[1, me as u64], SigRef::add(words.sym().at(2)?, 3), right)?;
    assert_eq!(ctx.wait_until(words.sym().at(2)?, Cmp::Ge, 3)?, 3);
    assert_eq!(block.sym().slice(..2)?.to_vec(), [1, left as u64]);
    ctx.wait_until_all(words.sym().slice(2..3)?, &[], Cmp::Eq, 3)?;
    for _ in 0..10 {
        ctx.set_lock(words.sym().at(3)?)?;
        let sum = ctx.g(words.sym().at(4)?, 0)?;
        ctx.p(words.sym().at(4)?, sum + 1, 0)?;
        ctx.clear_lock(words.sym().at(3)?)?;
    }
    world.barrier_all()?;
    assert_eq!(ctx.g(words.sym().at(4)?, 0)?, 10 * n as u64);

    // Folds, and the workspace of a team.
    let sources: Vec<_> = (0..n).map(|pe| (words.sym().at(0).unwrap(), pe)).collect();
    ctx.fold(&sources, &[(words.sym().at(5)?, me)], &Sum)?;
    assert_eq!(words.sym().read(5)?, (n * n * (n + 1) / 2) as u64);
    let team = world.team();
    let space = team.workspace().cast::<u64>()?.slice(..8)?;
    space.copy_from(&[me as u64; 8])?;
    ctx.put_from(block.sym().slice(..8)?, space, me)?;
    assert_eq!(block.sym().slice(..8)?.to_vec(), [me as u64; 8]);
    ctx.put(space, &[3; 8], me)?;
    assert_eq!((space.to_vec(), ctx.g(space, me)?, block.sym().read(0)?), (vec![3; 8], 3, me as u64));

    world.free(block)?;
    world.free(words)
}

/// Runs it as threads and as processes, plain and checked. The processes find `path` in the variable [`PATH`].
fn everywhere(test: &str, path: &Path, configure: impl Fn(usize, Builder) -> Builder + Sync) {
    if is_child(test) {
        let pe = std::env::var("SHMEM_PE").unwrap().parse().unwrap();
        let world = configure(pe, child_builder().heap(HEAP)).build().unwrap_or_else(|error| panic!("{error}"));
        return exercise(&world).unwrap_or_else(|error| panic!("{error}"));
    }
    for n in COUNTS {
        for check in ["0", "1"] {
            let configure =
                |pe: usize, builder: Builder| configure(pe, builder.set("SHMEM_CHECK", check).unwrap().heap(HEAP));
            for (pe, result) in job_by_pe(n, configure, exercise).into_iter().enumerate() {
                result.unwrap_or_else(|error| panic!("PE {pe} of {n}, SHMEM_CHECK={check}: {error}"));
            }
        }
        for (pe, ended) in spawn(test, n, |_, command| command.env(PATH, path)).into_iter().enumerate() {
            assert!(ended.success, "PE {pe} of {n} ended with {:?}:\n{}", ended.code, ended.output);
        }
    }
}

fn heap_in(value: impl AsRef<str> + Sync) -> impl Fn(usize, Builder) -> Builder + Sync {
    move |_, builder: Builder| builder.set("SHMEM_HEAP", value.as_ref()).unwrap()
}

/// A world of one PE with memory of this kind.
fn alone(value: &str) -> Result<World> {
    World::builder().heap(HEAP).set("SHMEM_HEAP", value).unwrap().build()
}

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("shmem-kinds-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.0.join(name);
        File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn in_file(path: &Path) -> String {
    format!("file:{}", path.display())
}

/// A memfd, and a path by which processes of this user can open it.
fn node(bytes: u64, seals: rustix::fs::SealFlags) -> (File, String) {
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create("kinds", flags).unwrap());
    file.set_len(bytes).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    (file, path)
}

#[test]
fn normal_pages() {
    everywhere("normal_pages", nowhere(), heap_in("normal"));
    assert!(alone("normal").unwrap().info().ends_with("symmetric heaps: PE 0 has normal pages\n"));
}

#[test]
fn huge_pages_or_what_there_is() {
    everywhere("huge_pages_or_what_there_is", nowhere(), heap_in("huge"));
    let odd = World::builder().heap(HEAP + 1).set("SHMEM_HEAP", "huge").unwrap().build().unwrap();
    assert_eq!(odd.heap_size(), HEAP + (2 << 20));
    let said = alone("huge").unwrap().info();
    let said = said.lines().last().unwrap();
    let got = [
        "huge pages of 2 MiB from the host's pool",
        "normal pages, which the kernel joins",
        "normal pages: the kernel",
    ];
    assert!(got.iter().any(|got| said.starts_with(&format!("symmetric heaps: PE 0 has {got}"))), "{said}");
    if std::fs::read_to_string("/proc/sys/vm/nr_hugepages").is_ok_and(|pool| pool.trim() == "0") {
        assert!(said.contains("host's pool: mapping a symmetric heap"), "{said}");
    }
}

/// Changes settings of the host, which only the administrator may: run with `--ignored` on a host of your own.
#[test]
#[ignore = "reserves huge pages of the host and lets it join others, and puts back what was"]
fn huge_pages_from_the_host() {
    const TEST: &str = "huge_pages_from_the_host";
    const POOL: &str = "/proc/sys/vm/nr_hugepages";
    const JOIN: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    if is_child(TEST) {
        return everywhere(TEST, nowhere(), heap_in("huge"));
    }
    assert_eq!(std::fs::read_to_string(POOL).unwrap().trim(), "0", "the pool is in use");
    let joins = std::fs::read_to_string(JOIN).unwrap();
    let joins = joins.split_once('[').unwrap().1.split_once(']').unwrap().0;
    let set = |pool: &str, join: &str| {
        std::fs::write(POOL, pool).unwrap();
        std::fs::write(JOIN, join).unwrap();
    };
    let in_smaps =
        |line: &str| std::fs::read_to_string("/proc/self/smaps").unwrap().lines().filter(|l| *l == line).count();
    let tested = std::panic::catch_unwind(|| {
        set("8", "never");
        everywhere(TEST, nowhere(), heap_in("huge"));
        // Two heaps of 4 MiB fit in 8 pages of 2 MiB; what is left is not enough for a third of 12 MiB.
        let (one, two) = (alone("huge").unwrap(), alone("huge").unwrap());
        let large = World::builder().heap(3 * HEAP).set("SHMEM_HEAP", "huge").unwrap().build().unwrap();
        for (world, got) in
            [(&one, "huge pages of 2 MiB from the"), (&two, "huge pages"), (&large, "normal pages: the")]
        {
            assert!(world.info().contains(&format!("symmetric heaps: PE 0 has {got}")), "{}", world.info());
            exercise(world).unwrap();
        }
        assert_eq!(in_smaps("KernelPageSize:     2048 kB"), 2);
        drop((one, two, large));
        set("0", "advise");
        let world = alone("huge").unwrap();
        let got = "symmetric heaps: PE 0 has normal pages, which the kernel joins to huge ones where it can";
        assert!(world.info().contains(got), "{}", world.info());
        exercise(&world).unwrap();
        assert_eq!(in_smaps("ShmemPmdMapped:     4096 kB"), 1);
    });
    set("0", joins);
    assert_eq!(std::fs::read_to_string(POOL).unwrap().trim(), "0", "pages are still in use");
    tested.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn a_file_for_each_pe() {
    const TEST: &str = "a_file_for_each_pe";
    let told = told().filter(|_| is_child(TEST));
    let folder = told.is_none().then(|| Folder::new("each"));
    let path = told.unwrap_or_else(|| folder.as_ref().unwrap().0.clone());
    for pe in 0..3 {
        folder.iter().for_each(|folder| drop(folder.file(&format!("heap {pe}"), 0)));
    }
    everywhere(TEST, &path, heap_in(in_file(&path.join("heap %p"))));
    let Some(folder) = folder else { return };
    for pe in 0..3 {
        assert_eq!(std::fs::metadata(folder.0.join(format!("heap {pe}"))).unwrap().len(), HEAP as u64);
    }
    let world = alone(&in_file(&path.join("heap %p"))).unwrap();
    let expected = format!("symmetric heaps: PE 0 has bytes 0..{HEAP} of {}/heap 0\n", path.display());
    assert!(world.info().ends_with(&expected), "{}", world.info());
}

#[test]
fn slices_of_one_file() {
    // 3 MiB, so that slices begin at multiples of 4.
    const SIZE: usize = 3 << 20;
    let folder = Folder::new("slices");
    let (path, same) = (folder.file("heap", 5), folder.0.join("same"));
    std::fs::write(&path, b"hello").unwrap();
    std::fs::hard_link(&path, &same).unwrap();
    let configure = |pe: usize, builder: Builder| {
        // Two names of one file.
        let name = if pe == 1 { &same } else { &path };
        builder.heap(SIZE).set("SHMEM_HEAP", &in_file(name)).unwrap()
    };
    let said = job_by_pe(3, configure, |world| {
        let (ctx, me) = (world.ctx::<Shared>(), world.me());
        let block = world.alloc::<u64>(SIZE / 8)?;
        if me == 0 {
            assert_eq!(block.sym().cast::<u8>()?.slice(..5)?.to_vec(), b"hello");
        }
        world.barrier_all()?;
        for pe in 0..3 {
            ctx.p(block.sym().at(me)?, 100 + me as u64, pe)?;
            ctx.p(block.sym().at(SIZE / 8 - 1 - me)?, 200 + pe as u64, pe)?;
        }
        world.barrier_all()?;
        assert_eq!(block.sym().slice(..3)?.to_vec(), [100, 101, 102]);
        assert_eq!(block.sym().slice(SIZE / 8 - 3..)?.to_vec(), [200 + me as u64; 3]);
        world.free(block)?;
        Ok(world.info().lines().last().unwrap_or_default().to_owned())
    });
    let said: Vec<String> = said.into_iter().map(|pe| pe.unwrap()).collect();
    assert!(said[2].contains(&format!("PE 1 has bytes 4194304..7340032 of {}", same.display())), "{said:?}");
    assert!(said.iter().all(|line| *line == said[0]), "{said:?}");
    let file = File::open(&path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2 * (4 << 20) + SIZE as u64);
    for pe in 0..3 {
        let mut words = [0; 24];
        file.read_exact_at(&mut words, pe * (4 << 20)).unwrap();
        assert_eq!(words.chunks(8).map(|word| word[0]).collect::<Vec<_>>(), [100, 101, 102]);
        file.read_exact_at(&mut words, pe * (4 << 20) + SIZE as u64 - 24).unwrap();
        assert_eq!(words.chunks(8).map(|word| word[0]).collect::<Vec<_>>(), [200 + pe as u8; 3]);
    }
}

#[test]
fn a_node_without_a_name() {
    const TEST: &str = "a_node_without_a_name";
    if let Some(path) = told().filter(|_| is_child(TEST)) {
        return everywhere(TEST, &path, heap_in(in_file(&path)));
    }
    // As long as three heaps, and it does not grow.
    let (_file, path) = node(3 * HEAP as u64, rustix::fs::SealFlags::GROW | rustix::fs::SealFlags::SHRINK);
    everywhere(TEST, Path::new(&path), heap_in(format!("file:{path}")));
    let results = job_by_pe(4, |_, builder| heap_in(format!("file:{path}"))(0, builder.heap(HEAP)), |_| Ok(()));
    let error = text_of(results.into_iter().nth(3).unwrap());
    assert!(error.contains(&path) && error.contains("up to byte 16777216 of it, which has 12582912 now"), "{error}");
}

/// PEs of one machine that plays two hosts, which have a file in common.
#[test]
fn between_hosts() {
    let folder = Folder::new("hosts");
    let file = in_file(&folder.file("heap", 0));
    for (n, hosts) in [(2, "1"), (2, "2"), (3, "2")] {
        for value in ["normal", "huge", &file] {
            let configure = |pe: usize, builder: Builder| {
                let builder = builder.set("SHMEM_ROUTE", "sim").unwrap().set("SHMEM_HOSTS", hosts).unwrap();
                heap_in(value)(pe, builder.heap(HEAP))
            };
            for (pe, result) in job_by_pe(n, configure, exercise).into_iter().enumerate() {
                result.unwrap_or_else(|error| panic!("PE {pe} of {n} on {hosts} hosts, {value}: {error}"));
            }
        }
    }
    assert_eq!(std::fs::metadata(folder.0.join("heap")).unwrap().len(), 3 * HEAP as u64);
}

#[test]
fn a_device_node() {
    let world = alone("file:/dev/zero").unwrap();
    exercise(&world).unwrap();
    drop(world);
    // Each mapping of it has memory of its own.
    let results = job(2, |builder| heap_in("file:/dev/zero")(0, builder.heap(HEAP)), |_| Ok(()));
    let errors: Vec<String> = results.into_iter().map(text_of).collect();
    let reasons = ["is not seen by another", "it has no memory at bytes 4194304..8388608", "is lost"];
    assert!(errors.iter().all(|error| reasons.iter().any(|reason| error.contains(reason))), "{errors:?}");
    let error = text_of(alone("file:/dev/null").map(drop));
    assert!(error.contains("/dev/null") && error.contains("mapping a symmetric heap"), "{error}");
}

#[test]
fn files_that_cannot_be_a_heap() {
    let folder = Folder::new("bad");
    let refused = |path: &str, part: &str| {
        let error = text_of(alone(&format!("file:{path}")).map(drop));
        assert!(error.contains(path) && error.contains(part), "{error}");
    };
    let path = |name: &str| folder.0.join(name).display().to_string();
    refused(&path("missing"), "which must exist, and may be empty (SHMEM_HEAP) failed: No such file");
    assert!(!folder.0.join("missing").exists(), "nothing is made");
    refused(&path("a/b"), "No such file or directory");
    refused(&path(""), "it is a directory; give a file or a device node");
    // What not even the administrator may write.
    refused("/sys/kernel/notes", "to read and write it (SHMEM_HEAP) failed: Permission denied");
    let (_file, sealed) = node(HEAP as u64, rustix::fs::SealFlags::WRITE);
    refused(&sealed, "mapping a symmetric heap");
    let (_file, short) = node(HEAP as u64 - 1, rustix::fs::SealFlags::GROW);
    refused(&short, "up to byte 4194304 of it, which has 4194303 now");
    let (reader, _writer) = std::io::pipe().unwrap();
    refused(&format!("/proc/self/fd/{}", reader.as_raw_fd()), "it is neither a file nor a character device");
    folder.file("huge", 0);
    let vast = World::builder().heap(1 << 46).set("SHMEM_HEAP", &in_file(&folder.0.join("huge"))).unwrap().build();
    let error = text_of(vast.map(drop));
    assert!(error.contains("reserving room in") && error.contains("up to byte 70368744177664"), "{error}");
    let error = text_of(World::builder().set("SHMEM_HEAP", "file:/dev/zero").unwrap().build().map(drop));
    assert!(error.contains("set SHMEM_SYMMETRIC_SIZE, too"), "{error}");
    for value in ["file:", "file", "pages", "hugetlb", ""] {
        let error = World::builder().set("SHMEM_HEAP", value).map(drop);
        assert!(matches!(kind_of(&error), ErrorKind::BadSetting { .. }), "{value}");
    }
}

/// D01, D03: room that is not there is found missing at start-up, not by a signal at the first touch.
#[test]
fn a_full_file_system_and_a_small_limit() {
    const TEST: &str = "a_full_file_system_and_a_small_limit";
    if is_child(TEST) {
        let path = told().unwrap();
        let world = World::builder().heap(64 << 20).set("SHMEM_HEAP", &in_file(&path)).unwrap().build();
        return eprintln!("said: {}", text_of(world.map(drop)));
    }
    let folder = Folder::new("full");
    let path = folder.file("heap", 0).display().to_string();
    let run = |command: &mut Command| {
        command.args([TEST, "--exact", "--nocapture"]).env("SHMEM_TESTS_CHILD", TEST).env(PATH, &path);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{:?}: {said}", output.status);
        said
    };
    let exe = std::env::current_exe().unwrap();
    // In blocks of 512 bytes: 40 MiB, then less than the words of a heap need.
    let limited = |blocks: &str| {
        run(Command::new("sh").args(["-c", &format!("ulimit -f {blocks}; exec \"$0\" \"$@\"")]).arg(&exe))
    };
    let said = limited("81920");
    let expected = format!("growing {path} to 67108864 bytes (ulimit -f) (SHMEM_HEAP) failed: File too large");
    assert!(said.contains(&expected), "{said}");
    let said = limited("8");
    assert!(said.contains("growing the symmetric heap's memfd to") && said.contains("File too large"), "{said}");
    let may = Command::new("unshare").args(["-rm", "true"]).output().is_ok_and(|output| output.status.success());
    if !may {
        eprintln!("skipped: this user may not make mount namespaces (unshare -rm)");
        return;
    }
    let mount = format!("mount -t tmpfs -o size=1m tmpfs {0} && : > {path} && exec \"$0\" \"$@\"", folder.0.display());
    let said = run(Command::new("unshare").args(["-rm", "sh", "-c", &mount]).arg(&exe));
    assert!(
        said.contains(&format!("reserving room in {path} for")) && said.contains("No space left on device"),
        "{said}"
    );
}

#[test]
fn kinds_that_differ_are_named() {
    let configure = |pe: usize, builder: Builder| {
        builder.heap(HEAP).set("SHMEM_HEAP", if pe == 1 { "huge" } else { "normal" }).unwrap()
    };
    for result in job_by_pe(3, configure, |_| Ok(())) {
        let error = text_of(result);
        assert_eq!(error, "SHMEM_HEAP differs between the PEs: PE 1 has huge, PEs 0 and 2 have normal");
    }
}
