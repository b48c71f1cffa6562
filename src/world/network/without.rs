//! No network, in a build without the feature `roce`.

use crate::boot::Bootstrap;
use crate::config::Config;
use crate::error::{ErrorKind, Result};
use crate::transport::link::Net;
use crate::world::network::{Equipment, Joint};

/// The ports through which this PE may reach other hosts, as people write them; or why there are none.
pub(in crate::world) fn port(_: &Config) -> Result<String, String> {
    Err("this build is without RoCE (feature `roce`)".into())
}

/// Nobody comes here: the plan has found that there is no port.
pub(super) fn connect(_: Joint<'_>, _: &mut dyn Bootstrap) -> Result<(Net, Equipment)> {
    Err(ErrorKind::os("reaching other hosts", std::io::ErrorKind::Unsupported))
}
