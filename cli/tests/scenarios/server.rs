//! A Prometheus, and what it answers.

use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process that serves at an address. It ends with this.
pub(crate) struct Server {
    pub(crate) process: Child,
    pub(crate) address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port").local_addr().expect("bound")
}

impl Server {
    pub(crate) fn start(program: &Path, configuration: &Path, data: &Path) -> Self {
        let address = free_address();
        let process = Command::new(program)
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address={address}"))
            .stderr(Stdio::null())
            .spawn()
            .expect("it runs");
        Self { process, address }
    }

    /// The data of an answer.
    pub(crate) fn ask(&self, path: &str, query: Option<&str>) -> Option<Value> {
        let request = ureq::get(format!("http://{}{path}", self.address));
        let request = query.into_iter().fold(request, |request, query| request.query("query", query));
        let text = request.call().ok()?.body_mut().read_to_string().ok()?;
        let answer: Value = serde_json::from_str(&text).ok()?;
        (answer["status"] == "success").then(|| answer["data"].clone())
    }

    /// The first value of an instant query.
    pub(crate) fn value(&self, query: &str) -> Option<f64> {
        self.ask("/api/v1/query", Some(query))?["result"][0]["value"][1].as_str()?.parse().ok()
    }
}
