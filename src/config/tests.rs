//! The table and everything that is read from it.

use std::collections::HashSet;
use std::os::unix::ffi::OsStringExt;

use super::*;

/// A value that is not the default, and how it shows.
const SAMPLES: &[(&str, &str, &str)] = &[
    ("SHMEM_SYMMETRIC_SIZE", "1.5m", "1536K"),
    ("SHMEM_HEAP", "File:/dev/dax0.%p:1", "file:/dev/dax0.%p:1"),
    ("SHMEM_TEAM_SLOTS", " 256\n", "256"),
    ("SHMEM_TEAM_WORKSPACE", "1m", "1M"),
    ("SHMEM_TIMEOUT", "2.50", "2.5"),
    ("SHMEM_STALL_WARN", "1.5", "1.5"),
    ("SHMEM_INIT_TIMEOUT", "0", "0"),
    ("SHMEM_SPIN", "0", "0"),
    ("SHMEM_STREAM_FROM", "Never", "never"),
    ("SHMEM_BARRIER_RADIX", "64", "64"),
    ("SHMEM_COLL_THRESHOLD", "64k", "64K"),
    ("SHMEM_COLL_SMALL", "512", "512"),
    ("SHMEM_COLL_ALGO", "allreduce = ring, alltoall=pairwise", "allreduce=ring,alltoall=pairwise"),
    ("SHMEM_COLL_TABLE", "/etc/shmem table", "/etc/shmem table"),
    ("SHMEM_COLL_DETERMINISTIC", "Strict", "strict"),
    ("SHMEM_HOST_ID", "host a", "host a"),
    ("SHMEM_HOSTS", "3", "3"),
    ("SHMEM_ROUTE", "sim", "sim"),
    ("SHMEM_HCA", "mlx5_0:1, mlx5_2", "mlx5_0:1,mlx5_2"),
    ("SHMEM_GID_INDEX", "3", "3"),
    ("SHMEM_TRAFFIC_CLASS", "106", "106"),
    ("SHMEM_IFNAME", "^docker,10.1.0.0/16,fd00::1", "^docker,10.1.0.0/16,fd00::1"),
    ("SHMEM_FLIGHT_FILE", "/tmp/last calls", "/tmp/last calls"),
    ("SHMEM_CHECK", "on", "1"),
    ("SHMEM_INFO", "", "1"),
    ("SHMEM_VERSION", "yes", "1"),
    ("SHMEM_DEBUG", "1", "1"),
    ("SHMEM_RENDEZVOUS", "tcp:127.0.0.1:1", "tcp:127.0.0.1:1"),
    ("SHMEM_JOB_KEY", "f00d", "(set)"),
    ("SHMEM_PE", "3", "3"),
    ("SHMEM_N_PES", "4", "4"),
];

fn from(vars: &[(&str, &str)]) -> Result<Config> {
    Config::from_lookup(|name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into()))
}

fn bad(vars: &[(&str, &str)]) -> String {
    let error = from(vars).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::BadSetting { .. }), "{error}");
    error.to_string()
}

fn warnings(names: &[&str]) -> Vec<String> {
    unknown_names(names.iter().map(|n| (OsString::from(n), OsString::new())))
}

#[test]
fn names_are_distinct_and_begin_with_the_prefix() {
    let names: HashSet<_> = SETTINGS.iter().map(|s| s.name).collect();
    assert_eq!(names.len(), SETTINGS.len());
    assert!(names.iter().all(|n| n.starts_with(PREFIX)));
}

#[test]
fn nothing_set_is_the_default() {
    let config = from(&[]).unwrap();
    assert_eq!(config, Config::default());
    for setting in SETTINGS {
        assert_eq!(config.value(setting.name), setting.default, "{}", setting.name);
    }
    assert_eq!(config.value("SHMEM_NO_SUCH"), "");
}

#[test]
fn every_setting_is_read_by_its_name_and_shown_so_that_it_reads_back() {
    assert_eq!(SAMPLES.iter().map(|s| s.0).collect::<Vec<_>>(), SETTINGS.iter().map(|s| s.name).collect::<Vec<_>>());
    for &(name, text, shown) in SAMPLES {
        let config = from(&[(name, text)]).unwrap();
        assert_ne!(config, Config::default(), "{name}");
        assert_eq!(config.value(name), shown);
        for other in SETTINGS.iter().filter(|s| s.name != name) {
            assert_eq!(config.value(other.name), other.default, "{name} changed {}", other.name);
        }
        let mut again = Config::default();
        again.set(name, &config.value(name)).unwrap();
        assert_eq!(again.value(name), shown);
        again.set(name, text).unwrap();
        assert_eq!(again, config);
    }
}

#[test]
fn fields_hold_what_was_set() {
    let vars: Vec<_> = SAMPLES.iter().map(|&(name, text, _)| (name, text)).collect();
    let expected = Config {
        heap_size: Some(3 << 19),
        heap: HeapMemory::File("/dev/dax0.%p:1".to_owned()),
        team_slots: 256,
        team_workspace: 1 << 20,
        timeout: Some(Duration::from_millis(2500)),
        stall_warn: Some(Duration::from_millis(1500)),
        init_timeout: None,
        spin: Some(0),
        stream_from: Some(usize::MAX),
        barrier_radix: Some(64),
        coll_threshold: 64 << 10,
        coll_small: Some(512),
        coll_algo: Some("allreduce=ring,alltoall=pairwise".to_owned()),
        coll_table: Some("/etc/shmem table".to_owned()),
        coll_strict: true,
        host: Some("host a".to_owned()),
        hosts: Some(3),
        route: RouteChoice::Sim,
        hca: Some("mlx5_0:1,mlx5_2".to_owned()),
        gid_index: Some(3),
        traffic_class: 106,
        ifname: Some("^docker,10.1.0.0/16,fd00::1".to_owned()),
        flight_file: Some("/tmp/last calls".to_owned()),
        check: true,
        info: true,
        version: true,
        debug: true,
        rendezvous: Some("tcp:127.0.0.1:1".to_owned()),
        job_key: Some("f00d".to_owned()),
        pe: Some(3),
        n_pes: Some(4),
    };
    assert!(from(&vars).unwrap() == expected);
}

#[test]
fn the_flight_file_is_named_or_there_is_none() {
    for (vars, file) in [
        (&[][..], Some("shmem-flight.txt")),
        (&[("SHMEM_FLIGHT_FILE", "a b")][..], Some("a b")),
        (&[("SHMEM_FLIGHT_FILE", "Off")][..], None),
    ] {
        assert_eq!(from(vars).unwrap().flight_file(), file.map(Into::into));
    }
    assert!(bad(&[("SHMEM_FLIGHT_FILE", " ")]).contains("the path of a file, or `off`"));
}

#[test]
fn a_bad_value_is_an_error_that_shows_the_form() {
    assert_eq!(
        bad(&[("SHMEM_SYMMETRIC_SIZE", "lots")]),
        "SHMEM_SYMMETRIC_SIZE=\"lots\" is not valid: give a size above 0 in bytes, like 512M or 3.1G (the suffixes \
         k, m, g, t are powers of 1024)"
    );
    for (name, texts) in [
        ("SHMEM_SYMMETRIC_SIZE", &["", "0", "-1G", "NaN", "99999999999T"][..]),
        ("SHMEM_TEAM_SLOTS", &["", "1", "257", "64k"]),
        ("SHMEM_TEAM_WORKSPACE", &["", "1K", "2G", "some"]),
        ("SHMEM_TIMEOUT", &["", "-1", "soon"]),
        ("SHMEM_STALL_WARN", &["", "-1", "soon"]),
        ("SHMEM_INIT_TIMEOUT", &["", "inf", " \t"]),
        ("SHMEM_SPIN", &["", "-1", "4294967296"]),
        ("SHMEM_STREAM_FROM", &["", "0", "ever"]),
        ("SHMEM_BARRIER_RADIX", &["", "1", "65"]),
        ("SHMEM_COLL_THRESHOLD", &["", "0", "big"]),
        ("SHMEM_COLL_SMALL", &["", "0", "-1"]),
        ("SHMEM_COLL_ALGO", &["", "ring", "=ring", "allreduce=", "allreduce=ring,", "a=b=c"]),
        ("SHMEM_COLL_TABLE", &[""]),
        ("SHMEM_COLL_DETERMINISTIC", &["", "1", "loose"]),
        ("SHMEM_HOST_ID", &[""]),
        ("SHMEM_ROUTE", &["", "tcp"]),
        ("SHMEM_HCA", &["", "^", "mlx5_0:", "mlx5_0:0", "mlx5_0:256", "mlx5_0:1:1", ":1", "a,,b", "a b", "/sys"]),
        ("SHMEM_GID_INDEX", &["", "-1", "256", "auto"]),
        ("SHMEM_TRAFFIC_CLASS", &["", "-1", "256", "af31"]),
        ("SHMEM_IFNAME", &["", "=", "eth0,", "eth0 eth1", "10.0.0.0/", "10.0.0.0/33", "fd00::/129", "eth0/8", "/8"]),
        ("SHMEM_RENDEZVOUS", &[""]),
        ("SHMEM_JOB_KEY", &[""]),
        ("SHMEM_PE", &["", "-1", "one"]),
        ("SHMEM_N_PES", &["", "2.0"]),
    ] {
        for text in texts {
            let error = bad(&[(name, text)]);
            let form = find(name).unwrap().form;
            assert_eq!(error, format!("{name}={text:?} is not valid: give {form}"));
        }
    }
}

#[test]
fn a_value_that_is_not_utf8_is_a_bad_setting() {
    for setting in SETTINGS {
        let broken = |name: &str| (name == setting.name).then(|| OsString::from_vec(vec![b'1', 0xff]));
        let error = Config::from_lookup(broken).unwrap_err();
        assert!(error.to_string().starts_with(&format!("{}=\"1\u{fffd}\" is not valid", setting.name)), "{error}");
    }
}

#[test]
fn a_refused_set_changes_nothing() {
    let mut config = from(&[("SHMEM_TEAM_SLOTS", "8")]).unwrap();
    let before = config.clone();
    assert!(config.set("SHMEM_TEAM_SLOTS", "1000").is_err());
    assert_eq!(
        config.set("SHMEM_TEAM_SLOT", "9").unwrap_err().to_string(),
        "SHMEM_TEAM_SLOT=\"9\" is not valid: there is no such setting; did you mean SHMEM_TEAM_SLOTS?"
    );
    assert!(config.set("shmem_team_slots", "9").unwrap_err().to_string().contains("did you mean SHMEM_TEAM_SLOTS?"));
    assert!(config.set("", "9").is_err());
    assert_eq!(config, before);
}

#[test]
fn unknown_names_get_one_warning_each_with_the_nearest_name() {
    assert_eq!(
        warnings(&["SHMEM_SYMETRIC_SIZE"]),
        ["SHMEM_SYMETRIC_SIZE is not a setting of shmem; did you mean SHMEM_SYMMETRIC_SIZE?"]
    );
    for (wrong, right) in [
        ("SHMEM_SYMMETRIC_HEAP_SIZE", "SHMEM_SYMMETRIC_SIZE"),
        ("SHMEM_TIME_OUT", "SHMEM_TIMEOUT"),
        ("SHMEM_symmetric_size", "SHMEM_SYMMETRIC_SIZE"),
        ("SHMEM_INIT_TIMOUT", "SHMEM_INIT_TIMEOUT"),
        ("SHMEM_BARIER_RADIX", "SHMEM_BARRIER_RADIX"),
    ] {
        assert_eq!(warnings(&[wrong]), [format!("{wrong} is not a setting of shmem; did you mean {right}?")]);
    }
    assert!(warnings(&["SHMEM_HEAP_SIZE"])[0].contains("SHMEM_SYMMETRIC_SIZE"));
    let two = warnings(&["SHMEM_ZEBRA", "HOME", "SHMEM_INFO", "SHMEM_ANT", "MY_SHMEM_X", "SHMEMX_Y", "SHMEM"]);
    assert_eq!(two.len(), 2);
    assert!(two[0].starts_with("SHMEM_ANT is") && two[1].starts_with("SHMEM_ZEBRA is"), "{two:?}");
    let broken = [(OsString::from_vec(b"SHMEM_\xff".to_vec()), OsString::new())];
    assert_eq!(unknown_names(broken).len(), 1);
}

#[test]
fn valid_names_never_warn() {
    let all: Vec<_> = SETTINGS.iter().map(|s| s.name).collect();
    assert_eq!(warnings(&all), Vec::<String>::new());
}

#[test]
fn agreement_lists_what_must_be_equal() {
    let config = from(&[("SHMEM_SYMMETRIC_SIZE", "1048576"), ("SHMEM_PE", "1"), ("SHMEM_ROUTE", "sim")]).unwrap();
    let expected = [
        ("SHMEM_SYMMETRIC_SIZE", "1M"),
        ("SHMEM_TEAM_SLOTS", "64"),
        ("SHMEM_TEAM_WORKSPACE", "256K"),
        ("SHMEM_BARRIER_RADIX", "from the PEs"),
        ("SHMEM_COLL_THRESHOLD", "1M"),
        ("SHMEM_COLL_SMALL", "from the table"),
        ("SHMEM_COLL_ALGO", "from the table"),
        ("SHMEM_COLL_TABLE", "built in"),
        ("SHMEM_COLL_DETERMINISTIC", "off"),
        ("SHMEM_HOSTS", "1"),
        ("SHMEM_ROUTE", "sim"),
        ("SHMEM_CHECK", "0"),
    ];
    assert_eq!(config.agreement(), expected.map(|(name, value)| (name, value.to_owned())));
}

#[test]
fn the_secret_of_the_job_is_never_shown() {
    let config = from(&[("SHMEM_JOB_KEY", "hunter2")]).unwrap();
    assert!(!format!("{config:?} {}", info(&config)).contains("hunter2"));
}

#[test]
fn info_is_a_table_with_a_line_a_setting() {
    let text = info(&from(&[("SHMEM_SYMMETRIC_SIZE", "4G")]).unwrap());
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 1 + SETTINGS.len());
    let meaning = lines[0].find("meaning").unwrap();
    for (line, setting) in lines[1..].iter().zip(SETTINGS) {
        assert!(line.starts_with(setting.name));
        assert_eq!(&line[meaning..], setting.help);
    }
    assert!(lines[1].split_whitespace().nth(1) == Some("4G"), "{}", lines[1]);
}

#[test]
fn the_settings_page_is_what_the_table_says() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/settings.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(page, markdown()).unwrap();
    }
    let found = std::fs::read_to_string(page).unwrap();
    assert!(found == markdown(), "docs/settings.md is out of date: run `UPDATE_DOCS=1 cargo test the_settings_page`");
}
