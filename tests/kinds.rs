//! Kinds of memory: a heap does the same whatever its memory is, and memory that cannot be a heap is refused with a reason.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{assert_sync, child_builder, is_child, job, job_by_pe, kind_of, spawn, text_of};
use memmap2::{MmapOptions, MmapRaw};
use shmem::{Builder, Cmp, ErrorKind, ExternalMemory, Kernel, Result, Shared, SigRef, World};

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

/// Adds.
struct Sum;

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

/// Memory of the test's own: a memfd that is mapped here.
struct Mapped {
    map: MmapRaw,
    file: File,
}

fn mapped(bytes: usize) -> Mapped {
    let (file, _) = node(bytes as u64, rustix::fs::SealFlags::SHRINK);
    Mapped { map: MmapOptions::new().len(bytes).map_raw(&file).unwrap(), file }
}

impl Mapped {
    fn descriptor(&self) -> OwnedFd {
        self.file.try_clone().unwrap().into()
    }

    fn memory(&self) -> ExternalMemory {
        // SAFETY: the tests keep it mapped until their worlds have ended.
        unsafe { ExternalMemory::new(self.map.as_mut_ptr(), self.map.len()) }.unwrap()
    }
}

#[test]
fn the_programs_memory() {
    assert_sync::<ExternalMemory>();
    for check in ["0", "1"] {
        for descriptor in [false, true] {
            let own = mapped(HEAP + 4096 + 8);
            let mut memory = own.memory();
            if descriptor {
                memory = memory.descriptor(own.descriptor()).unwrap();
            }
            let world = World::builder().external_heap(memory).set("SHMEM_CHECK", check).unwrap().build().unwrap();
            assert_eq!(world.heap_size(), HEAP + 4096);
            let end = if descriptor { ", with a descriptor" } else { "" };
            let expected = format!("PE 0 has the program's memory{end} (4198400 of 4198408 bytes)\n");
            assert!(world.info().ends_with(&expected), "{}", world.info());
            exercise(&world).unwrap();
            // The object lies where the program has its memory.
            let block = world.alloc::<u64>(4).unwrap();
            block.sym().copy_from(&[1, 2, 3, 4]).unwrap();
            assert_eq!(block.sym().as_ptr().cast::<u8>(), own.map.as_mut_ptr());
            let mut bytes = [0; 32];
            own.file.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes.chunks(8).map(|word| word[0]).collect::<Vec<_>>(), [1, 2, 3, 4]);
            assert_eq!(world.ctx::<Shared>().ptr(block.sym(), 0).unwrap(), Some(block.sym().as_ptr()));
            world.free(block).unwrap();
        }
    }
}

#[test]
fn the_programs_memory_by_its_descriptor() {
    everywhere("the_programs_memory_by_its_descriptor", nowhere(), |_, builder| {
        // Leaked, so that it outlives the world.
        let own: &Mapped = Box::leak(Box::new(mapped(HEAP)));
        builder.external_heap(own.memory().descriptor(own.descriptor()).unwrap())
    });
}

#[test]
fn the_programs_memory_that_others_cannot_map() {
    let own: Vec<Mapped> = (0..3).map(|_| mapped(HEAP)).collect();
    let results = job_by_pe(
        3,
        |pe, builder| builder.external_heap(own[pe].memory()),
        |world| {
            let (ctx, me, right) = (world.ctx::<Shared>(), world.me(), (world.me() + 1) % 3);
            let block = world.alloc_zeroed::<u64>(4)?;
            ctx.put(block.sym(), &[5, 6], me)?;
            assert_eq!((block.sym().to_vec(), ctx.ptr(block.sym(), right)?), (vec![5, 6, 0, 0], None));
            let failed = [
                ctx.put(block.sym(), &[5], right),
                ctx.get(&mut [0], block.sym(), right),
                ctx.p(block.sym(), 5, right),
                ctx.g(block.sym(), right).map(drop),
                ctx.put_from(block.sym(), block.sym(), right),
                ctx.get_into(block.sym(), block.sym(), right),
                ctx.atomic_add(block.sym(), 1, right),
                ctx.put_signal(block.sym(), &[1], SigRef::set(block.sym(), 1), right),
                ctx.fold(&[(block.sym(), me)], &[(block.sym(), right)], &Sum),
                ctx.copy((block.sym(), right), &[(block.sym(), me)]),
            ];
            for (i, result) in failed.into_iter().enumerate() {
                let text = result.as_ref().map_or_else(ToString::to_string, |()| "it went well".into());
                assert!(matches!(kind_of(&result), ErrorKind::NotMapped { .. }), "{i}: {text}");
                let end = format!(
                    "of PE {right} are out of this process's reach: they are not mapped here, and no network leads there"
                );
                assert!(text.ends_with(&end), "{i}: {text}");
            }
            // What is not the user's is shared all the same.
            let space = world.team().workspace().cast::<u64>()?;
            ctx.p(space, 40 + me as u64, right)?;
            world.barrier_all()?;
            assert_eq!(space.read(0)?, 40 + ((me + 2) % 3) as u64);
            assert_eq!(block.sym().to_vec(), [5, 6, 0, 0]);
            let half = world.team().split_strided(0, 2, 2)?;
            assert_eq!(half.is_some(), me != 1);
            if let Some(half) = half {
                half.sync()?;
                half.destroy()?;
            }
            world.free(block)
        },
    );
    results.into_iter().for_each(|pe| pe.unwrap());
}

#[test]
fn memory_that_the_processor_must_not_touch() {
    // Whoever touches it gets a signal.
    let forbidden = MmapOptions::new().len(HEAP).map_anon().unwrap();
    let forbidden = MmapRaw::from(forbidden.make_read_only().unwrap());
    // SAFETY: nothing accesses it, which is what is tested; writes would be a fault.
    let memory = || unsafe { ExternalMemory::new(forbidden.as_mut_ptr(), HEAP) }.unwrap().without_cpu_access();
    for check in ["0", "1"] {
        let world = World::builder().external_heap(memory()).set("SHMEM_CHECK", check).unwrap().build().unwrap();
        assert!(world.info().contains("PE 0 has the program's memory, without access by the processor"));
        let ctx = world.ctx::<Shared>();
        let mut block = world.alloc::<u64>(4).unwrap();
        let all = block.sym();
        assert_eq!(all.as_ptr().cast::<u8>(), forbidden.as_mut_ptr());
        let elements = [
            all.read(0).map(drop),
            all.write(0, 1),
            all.copy_from(&[1; 4]),
            all.copy_to(&mut [1; 4]),
            ctx.wait(all, |_| true).map(drop),
            ctx.wait_until_all(all, &[], Cmp::Eq, 0),
            ctx.wait_until_any(all, &[], Cmp::Eq, 0).map(drop),
            ctx.test(all, Cmp::Eq, 0).map(drop),
            ctx.test_all(all, &[], Cmp::Eq, 0).map(drop),
            ctx.signal_fetch(all).map(drop),
            world.alloc_zeroed::<u64>(4).map(drop),
        ];
        for (i, result) in elements.into_iter().enumerate() {
            let text = result.as_ref().map_or_else(ToString::to_string, |()| "it went well".into());
            assert!(matches!(kind_of(&result), ErrorKind::NotMapped { pe: 0, .. }), "{i}: {text}");
            assert!(text.ends_with("its memory was given without access by the processor: use put and get"), "{text}");
        }
        all.fill(1);
        assert_eq!(all.to_vec(), [0; 4]);
        let transfers = [
            ctx.put(all, &[1], 0),
            ctx.get(&mut [1], all, 0),
            ctx.p(all, 1, 0),
            ctx.g(all, 0).map(drop),
            ctx.put_from(all.slice(1..).unwrap(), all.slice(..3).unwrap(), 0),
            ctx.get_into(all.slice(1..).unwrap(), all.slice(..3).unwrap(), 0),
            ctx.put_from(all, world.team().workspace().cast().unwrap().slice(..4).unwrap(), 0),
            ctx.iput(all, 2, &[1, 2], 1, 2, 0),
            ctx.atomic_fetch_add(all, 1, 0).map(drop),
            ctx.put_signal(all, &[1], SigRef::add(all, 1), 0),
            ctx.signal(SigRef::set(all, 1), 0),
            ctx.set_lock(all),
            ctx.fold(&[(all, 0)], &[(all, 0)], &Sum),
        ];
        for (i, result) in transfers.into_iter().enumerate() {
            let text = result.as_ref().map_or_else(ToString::to_string, |()| "it went well".into());
            assert!(matches!(kind_of(&result), ErrorKind::NotMapped { pe: 0, .. }), "{i}: {text}");
            assert!(text.ends_with("they are not mapped here, and no network leads there"), "{i}: {text}");
        }
        assert_eq!(ctx.ptr(all, 0).unwrap(), None);
        // The workspace of a team is the system's memory.
        let space = world.team().workspace();
        space.fill(6);
        ctx.put(space, &[7], 0).unwrap();
        assert_eq!(space.slice(..2).unwrap().to_vec(), [7, 6]);
        // In place it may grow; it cannot move.
        world.realloc(&mut block, 8).unwrap();
        let behind = world.alloc::<u64>(1).unwrap();
        let free = world.heap_free();
        let moved = world.realloc(&mut block, 100);
        assert!(matches!(kind_of(&moved), ErrorKind::NotMapped { .. }));
        assert_eq!((block.sym().len(), world.heap_free()), (8, free));
        world.free(behind).unwrap();
        world.free(block).unwrap();
        assert_eq!(world.heap_free(), (HEAP, HEAP));
    }
    let results =
        job_by_pe(2, |_, builder| builder.external_heap(memory()).set("SHMEM_ROUTE", "sim").unwrap(), |_| Ok(()));
    let errors: Vec<String> = results.into_iter().map(text_of).collect();
    assert!(errors.iter().any(|error| error.contains("a simulated card reaches only what is mapped")), "{errors:?}");
}

#[test]
fn memory_that_cannot_be_a_heap() {
    let own = mapped(HEAP);
    let (start, bytes) = (own.map.as_mut_ptr(), own.map.len());
    // SAFETY: no world is built on it.
    let refused = |start: *mut u8, bytes: usize| text_of(unsafe { ExternalMemory::new(start, bytes) }.map(drop));
    assert!(refused(std::ptr::null_mut(), bytes).ends_with("a null pointer leads nowhere"));
    assert!(refused(start.wrapping_add(8), bytes - 8).ends_with("it must begin at a multiple of a page (4096 bytes)"));
    for short in [0, 1, 4095] {
        assert!(refused(start, short).ends_with("it must have a page (4096 bytes) at least"));
    }
    for long in [usize::MAX, isize::MAX as usize + 1, usize::MAX - start.addr() + 1] {
        assert!(refused(start, long).ends_with("it ends beyond the last address"));
    }
    let (short, _) = node(4096, rustix::fs::SealFlags::empty());
    let error = text_of(own.memory().descriptor(short.into()).map(drop));
    assert!(error.ends_with("its descriptor leads to 4096 bytes only"), "{error}");
    let small = World::builder().external_heap(own.memory()).heap(HEAP + 1).build();
    assert!(matches!(kind_of(&small), ErrorKind::BadMemory { bytes: HEAP, .. }));
    let error = text_of(small.map(drop));
    assert!(error.ends_with("a heap of 4198400 bytes does not fit (SHMEM_SYMMETRIC_SIZE)"), "{error}");
    let two = World::builder().external_heap(own.memory()).set("SHMEM_HEAP", "huge").unwrap().build();
    let error = text_of(two.map(drop));
    assert!(error.ends_with("the program gives the memory of the heap itself"), "{error}");
    let part = World::builder().external_heap(own.memory()).heap(1 << 20).build().unwrap();
    assert_eq!(part.heap_size(), 1 << 20);
    drop(part);
    let sizes = job_by_pe(
        2,
        |pe, builder| {
            // SAFETY: start-up fails before the memory is used.
            builder.external_heap(unsafe { ExternalMemory::new(own.map.as_mut_ptr(), bytes / (1 + pe)) }.unwrap())
        },
        |_| Ok(()),
    );
    for error in sizes.into_iter().map(text_of) {
        assert_eq!(error, "SHMEM_SYMMETRIC_SIZE differs between the PEs: PE 0 has 4M, PE 1 has 2M");
    }
    let kinds = job_by_pe(
        2,
        |pe, builder| builder.external_heap(if pe == 0 { own.memory() } else { own.memory().without_cpu_access() }),
        |_| Ok(()),
    );
    for error in kinds.into_iter().map(text_of) {
        assert!(error.starts_with("SHMEM_HEAP differs between the PEs: PE 0 has the program's memory,"), "{error}");
    }
}
