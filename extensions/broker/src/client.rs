//! The settings of a client.

use crate::id::DEFAULT_GROUP;
use crate::share::Share;

/// Settings of a client, for [`Broker::register`](crate::Broker::register).
#[derive(Debug, Clone)]
#[must_use]
pub struct Client {
    pub(crate) name: String,
    pub(crate) share: Share,
    pub(crate) group: String,
}

impl Client {
    /// Creates settings with this name, for logs and metrics, an automatic share, and the default group.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), share: Share::Auto, group: DEFAULT_GROUP.into() }
    }

    /// Sets the part of the device that it may hold. Default: [`Share::Auto`]. Shares are enforced while a
    /// client has another one.
    pub fn share(mut self, share: Share) -> Self {
        self.share = share;
        self
    }

    /// Sets the group that it commits with. Default: `default`.
    pub fn group(mut self, group: &str) -> Self {
        self.group = (if group.is_empty() { DEFAULT_GROUP } else { group }).to_owned();
        self
    }
}
