//! Heaps in memory of the program's own.

use super::*;

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
    everywhere("external::the_programs_memory_by_its_descriptor", nowhere(), |_, builder| {
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
