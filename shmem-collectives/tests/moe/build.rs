//! Building: what makes no exchange, what differs between the PEs, and memory of the program's own.

use shmem::{ErrorKind, Result, Team, World};
use shmem_collectives::moe::{Bf16, Builder, F16, F32, Fp8E4m3, Moe, MoeMode};

use crate::common::{job, kind_of, text_of};
use crate::model::{Routing, Size, round};

const SIZE: Size = Size { experts: 4, max_tokens: 3, hidden: 9, top_k: 2 };

fn builder<'t>(world: &'t World, team: &'t Team<'t>) -> Builder<'t> {
    let Size { experts, max_tokens, hidden, top_k } = SIZE;
    Moe::builder(world, team).experts(experts).max_tokens(max_tokens).hidden(hidden).top_k(top_k)
}

#[test]
fn what_makes_no_exchange_is_refused_with_the_limit() {
    shmem::local(3, |world| {
        let team = world.team();
        let bad = |builder: Builder<'_>, name: &str, form: &str| {
            assert!(builder.buffer_bytes().is_err());
            let text = text_of(builder.build());
            assert!(text.starts_with(name) && text.contains(form), "{text}");
        };
        bad(builder(world, &team).experts(0), "experts", "give at least 1");
        bad(builder(world, &team).experts(usize::MAX), "experts", "give at most 1048576");
        bad(builder(world, &team).max_tokens(0), "max_tokens", "give at least 1");
        bad(builder(world, &team).hidden(0), "hidden", "give at least 1");
        bad(builder(world, &team).top_k(0), "top_k", "give 1 to 4");
        bad(builder(world, &team).top_k(5), "top_k=\"5\"", "there are 4 experts");
        bad(builder(world, &team).experts(99).top_k(17), "top_k", "give 1 to 16");
        bad(builder(world, &team).placement(&[0, 1]), "placement: 2", "4 are needed");
        bad(builder(world, &team).placement(&[0, 1, 2, 3]), "PE 3 does not exist", "the team has 3");
        let huge = builder(world, &team).hidden(1 << 40).max_tokens(1 << 29);
        assert!(matches!(kind_of(&huge.build()), ErrorKind::Overflow { .. }));
        let huge = builder(world, &team).experts(64).top_k(16).hidden(1 << 60).max_tokens(usize::MAX);
        assert!(matches!(kind_of(&huge.build()), ErrorKind::Overflow { .. }));
        let large = builder(world, &team).hidden(1 << 30).max_tokens(1 << 12);
        assert!(matches!(kind_of(&large.build()), ErrorKind::HeapFull { .. }));
        let mut moe = builder(world, &team).payload(F32).build()?;
        round(&mut moe, &SIZE, 1, Routing::Uniform)?;
        moe.free()
    })
    .unwrap();
}

#[test]
fn numbers_that_differ_are_the_same_error_on_all() {
    type Change = fn(Builder<'_>) -> Result<()>;
    let changes: [Change; 8] = [
        |builder| builder.hidden(10).build().map(drop),
        |builder| builder.max_tokens(4).build().map(drop),
        |builder| builder.top_k(1).build().map(drop),
        |builder| builder.experts(5).build().map(drop),
        |builder| builder.placement(&[1, 0, 1, 0]).build().map(drop),
        |builder| builder.payload(F16).build().map(drop),
        |builder| builder.mode(MoeMode::Latency).build().map(drop),
        |builder| builder.hidden(0).build().map(drop),
    ];
    for n in [2, 3, 5] {
        let reports = shmem::local(n, |world| {
            let team = world.team();
            let mut reports = Vec::new();
            for change in changes {
                let builder = builder(world, &team).mode(MoeMode::Throughput);
                let outcome = if world.me() == 1 { change(builder) } else { builder.build().map(drop) };
                // The PE whose numbers make no exchange knows more.
                let error = outcome.unwrap_err();
                match error.kind() {
                    ErrorKind::Mismatch { report } => reports.push(report.clone()),
                    ErrorKind::BadSetting { .. } => reports.push(String::new()),
                    _ => panic!("{error}"),
                }
            }
            let mut moe = builder(world, &team).build()?;
            round(&mut moe, &SIZE, 1, Routing::Uniform)?;
            moe.free()?;
            Ok(reports)
        });
        let reports = reports.unwrap();
        for own in &reports {
            let same = own.iter().zip(&reports[0]).take(changes.len() - 1).all(|(own, first)| own == first);
            assert!(same, "{own:?}");
        }
        assert!(reports[0][0].contains("3 tokens × 10 bf16"), "{}", reports[0][0]);
        assert!(reports[0][5].contains("9 f16"), "{}", reports[0][5]);
    }
}

/// J03's canaries: nothing is written before or behind the memory that an exchange was given, which is exactly what it says it takes.
#[test]
fn an_exchange_takes_what_it_says() {
    const GUARD: usize = 256;
    for n in [1, 2, 3] {
        let run = |world: &World| {
            let team = world.team();
            for mode in MoeMode::ALL {
                let bytes = builder(world, &team).payload(Fp8E4m3).mode(mode).buffer_bytes()?;
                let block = world.align::<u8>(128, bytes + 2 * GUARD)?;
                block.sym().fill(0xa5);
                let memory = |len: usize| block.sym().slice(GUARD..GUARD + len);
                let given = |len| Ok(builder(world, &team).payload(Fp8E4m3).mode(mode).memory(memory(len)?));
                let short = given(bytes - 1).and_then(Builder::build).map(drop);
                assert!(matches!(kind_of(&short), ErrorKind::Length { needed, .. } if *needed == bytes));
                let odd = block.sym().slice(GUARD + 64..)?;
                let odd = builder(world, &team).payload(Fp8E4m3).mode(mode).memory(odd).build().map(drop);
                assert!(matches!(kind_of(&odd), ErrorKind::Misaligned { align: 128, .. }));
                let mut moe = given(bytes)?.build()?;
                for seed in 0..20 {
                    round(&mut moe, &SIZE, seed, [Routing::Uniform, Routing::Single][seed as usize % 2])?;
                }
                moe.free()?;
                world.barrier_all()?;
                let all = block.sym().to_vec();
                assert!(all[..GUARD].iter().chain(&all[GUARD + bytes..]).all(|byte| *byte == 0xa5));
                // Another exchange may follow in the same memory.
                let mut moe = given(bytes)?.build()?;
                round(&mut moe, &SIZE, 5, Routing::Uniform)?;
                moe.free()?;
                world.barrier_all()?;
                world.free(block)?;
            }
            Ok(())
        };
        shmem::local(n, run).unwrap();
        for pe in job(n, |builder| builder.set("SHMEM_ROUTE", "sim").unwrap(), run) {
            pe.unwrap();
        }
    }
}

/// Any placement, and teams of a part of the world, which may be at it at the same time.
#[test]
fn experts_lie_where_they_are_put_and_teams_have_their_own() {
    shmem::local(5, |world| {
        let team = world.team();
        let pes = [4, 0, 4, 4, 2, 0, 1];
        let size = Size { experts: 7, max_tokens: 6, hidden: 12, top_k: 4 };
        let all = Moe::builder(world, &team).experts(7).placement(&pes).max_tokens(6).hidden(12).top_k(4);
        let mut all = all.payload(F32).build()?;
        assert_eq!(
            (0..8).map(|expert| all.pe_of(expert)).collect::<Vec<_>>(),
            pes.map(Some).into_iter().chain([None]).collect::<Vec<_>>()
        );
        let own: Vec<usize> = (0..7).filter(|expert| pes[*expert] == world.me()).collect();
        assert_eq!(all.own_experts(), own);
        let part = team.split_colour(Some(world.me() as u64 % 2), 0)?.unwrap();
        let block = world.align::<u8>(128, 1 << 20)?;
        let mut few = builder(world, &part).payload(Bf16).memory(block.sym()).build()?;
        for seed in 0..10 {
            round(&mut all, &size, seed, Routing::Uniform)?;
            round(&mut few, &SIZE, seed, Routing::Skewed)?;
        }
        few.free()?;
        part.destroy()?;
        all.free()?;
        world.free(block)
    })
    .unwrap();
}

#[test]
fn the_mode_can_be_forced() {
    let mode = |value: &'static str| {
        let run = |world: &World| {
            let team = world.team();
            let moe = builder(world, &team).build()?;
            let mode = moe.mode();
            moe.free().map(|()| mode)
        };
        let set = |builder: shmem::Builder| builder.set("SHMEM_COLL_ALGO", value).unwrap();
        job(2, set, run).into_iter().collect::<Result<Vec<_>>>()
    };
    assert_eq!(mode("moe=latency").unwrap(), [MoeMode::Latency; 2]);
    assert_eq!(mode("moe=throughput,allreduce=ring").unwrap(), [MoeMode::Throughput; 2]);
    let text = text_of(mode("moe=ring"));
    assert!(text.contains("give a mode for moe of latency, throughput"), "{text}");
}

#[test]
fn a_measured_table_gives_the_mode() {
    let path = |name: &str| std::env::temp_dir().join(format!("shmem-moe-{}-{name}", std::process::id()));
    let tables = [
        ("one", "moe 54 latency\nmoe any throughput\n"),
        ("other", "moe any throughput\n"),
        ("open", "moe 1K latency\n"),
    ];
    tables.iter().for_each(|(name, text)| std::fs::write(path(name), text).unwrap());
    let mode = |name: &str, max_tokens: usize| {
        let run = |world: &World| {
            let team = world.team();
            let moe = builder(world, &team).max_tokens(max_tokens).build()?;
            let mode = moe.mode();
            moe.free().map(|()| mode)
        };
        let file = path(name);
        let set = |builder: shmem::Builder| builder.set("SHMEM_COLL_TABLE", file.to_str().unwrap()).unwrap();
        job(2, set, run).into_iter().collect::<Result<Vec<_>>>()
    };
    // Tokens of nine values of bf16.
    assert_eq!(mode("one", 3).unwrap(), [MoeMode::Latency; 2]);
    assert_eq!(mode("one", 4).unwrap(), [MoeMode::Throughput; 2]);
    assert_eq!(mode("other", 3).unwrap(), [MoeMode::Throughput; 2]);
    let text = text_of(mode("open", 3));
    assert!(text.contains("the last line of moe must be for `any` bytes"), "{text}");
    tables.iter().for_each(|(name, _)| std::fs::remove_file(path(name)).unwrap());
}
