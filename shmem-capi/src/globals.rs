//! Global and static variables of the executable as symmetric memory.
//!
//! At start the pages of the executable's writable segment become a block of the symmetric heap, where they are: they have two
//! addresses from then on, and other PEs reach them as any block. So nothing is copied when they are used, and it matters
//! not whether the executable's address is drawn by lot. The pages stay what they are when the job ends; the next job copies
//! them into its own heap. A forked child gets private pages again, before it runs on.
//!
//! Variables of shared libraries are not symmetric, as the specification has it.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{MapFlags, MremapFlags, ProtFlags};
use shmem_core::{Result, Shared, World};

const PAGE: usize = 4096;

/// The pages of the executable's own variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Globals {
    start: usize,
    bytes: usize,
    /// Bytes from the start that come from the file, whether they have been touched or not.
    of_file: usize,
}

/// Those that have become shared, for the child of a fork; 0 if none have.
static START: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

impl Globals {
    /// Bytes of the heap that they take.
    pub(crate) fn needs(&self) -> usize {
        // With room for the alignment of the block.
        self.bytes + PAGE
    }
}

/// Looks for the executable's writable segment, without the part that is only writable while it is loaded.
pub(crate) fn find() -> Option<Globals> {
    let mut found = None;
    // SAFETY: the callback takes the argument for what it is.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    found
}

/// Is called with the executable first, and ends the search there.
unsafe extern "C" fn visit(object: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader gives a description that is valid during the call, with so many headers; and `find` an option.
    let (headers, base, found) = unsafe {
        let object = &*object;
        let headers = std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
        (headers, object.dlpi_addr as usize, &mut *found.cast::<Option<Globals>>())
    };
    let of = |header: &libc::Elf64_Phdr| base + header.p_vaddr as usize;
    let down = |address: usize| address / PAGE * PAGE;
    let protected = headers.iter().find(|one| one.p_type == libc::PT_GNU_RELRO);
    let behind = protected.map_or(0, |relro| down(of(relro) + relro.p_memsz as usize));
    let variables = |load: &libc::Elf64_Phdr| {
        let start = down(of(load)).max(behind);
        let end = (of(load) + load.p_memsz as usize).next_multiple_of(PAGE);
        let of_file = (of(load) + load.p_filesz as usize).next_multiple_of(PAGE).saturating_sub(start);
        (start < end).then_some(Globals { start, bytes: end - start, of_file })
    };
    // Some linkers have what is only writable while it is loaded in a segment of its own, in front.
    let writable = headers.iter().filter(|one| one.p_type == libc::PT_LOAD && one.p_flags & libc::PF_W != 0);
    *found = writable.filter_map(variables).max_by_key(|one| one.bytes);
    1
}

/// Makes them symmetric, if all PEs have as many; returns how much of the heap they take. Collective; nobody else writes to
/// them meanwhile.
pub(crate) fn share(world: &'static World, globals: Option<Globals>) -> Result<usize> {
    let mine = globals.map_or(0, |globals| globals.bytes as u64);
    if !all_alike(world, mine)? {
        note(world, "the PEs run different programs: their global variables are not symmetric");
        return Ok(0);
    }
    let Some(globals) = globals else { return Ok(0) };
    let block = world.align::<u8>(PAGE, globals.bytes)?;
    let touched = Touched::new(globals);
    // SAFETY: the pages are the executable's variables, writable, and no memory of this library's own is among them that
    // another thread writes: whoever links it statically has no other thread yet. The heap is fresh, so the block is zero, and
    // it is never freed.
    unsafe { world.overlay(&block, globals.start as *mut u8, |page| touched.is(page)) }?;
    START.store(globals.start, Ordering::Relaxed);
    BYTES.store(globals.bytes, Ordering::Release);
    static AT_FORK: Once = Once::new();
    AT_FORK.call_once(|| {
        // SAFETY: the handler is there as long as this library, which is never unloaded while a job is under way.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    Ok(globals.bytes)
}

/// Whether all PEs have the same number. Collective.
fn all_alike(world: &'static World, mine: u64) -> Result<bool> {
    let (ctx, me, n) = (world.ctx::<Shared>(), world.me(), world.n_pes());
    let words = world.alloc::<u64>(n)?;
    for pe in 0..n {
        ctx.p(words.sym().at(me)?, mine, pe)?;
    }
    world.barrier_all()?;
    let alike = words.sym().to_vec().iter().all(|theirs| *theirs == mine);
    // The room is to be zero again, for what comes next.
    words.sym().fill(0);
    world.free(words)?;
    Ok(alike)
}

fn note(world: &World, what: &str) {
    if world.me() == 0 {
        eprintln!("shmem: {what}");
    }
}

/// Which pages behind the file's part have ever been touched: a program may have large arrays that it hardly uses.
struct Touched {
    of_file: usize,
    entries: Option<Vec<u8>>,
}

impl Touched {
    fn new(globals: Globals) -> Self {
        let pages = globals.bytes / PAGE;
        let read = || {
            let mut entries = vec![0; 8 * pages];
            File::open("/proc/self/pagemap")?.read_exact_at(&mut entries, (globals.start / PAGE * 8) as u64)?;
            std::io::Result::Ok(entries)
        };
        Touched { of_file: globals.of_file, entries: read().ok() }
    }

    /// Whether the page that begins so many bytes from the start may hold anything: it is present, or swapped out.
    fn is(&self, from: usize) -> bool {
        match &self.entries {
            Some(entries) if from >= self.of_file => entries[from / PAGE * 8 + 7] & 0xc0 != 0,
            _ => true,
        }
    }
}

/// In a forked child: what it writes is its own again.
extern "C" fn in_child() {
    let (bytes, start) = (BYTES.load(Ordering::Acquire), START.load(Ordering::Relaxed));
    let Some(shared) = NonNull::new(start as *mut u8).filter(|_| bytes > 0) else { return };
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a copy of the pages takes their place, and nobody runs in the child but this thread. Where the kernel has no
    // memory for it, the pages stay shared, and the child better ends at once.
    unsafe {
        let Ok(copy) = rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE) else {
            libc::_exit(crate::fail::ERROR_STATUS);
        };
        // Word by word, for sanitizers of memory take a copy of what lies between variables for an error.
        for word in 0..bytes / size_of::<u64>() {
            copy.cast::<u64>().add(word).write_volatile(shared.cast::<u64>().add(word).read_volatile());
        }
        if rustix::mm::mremap_fixed(copy, bytes, bytes, MremapFlags::MAYMOVE, shared.as_ptr().cast()).is_err() {
            libc::_exit(crate::fail::ERROR_STATUS);
        }
    }
}
