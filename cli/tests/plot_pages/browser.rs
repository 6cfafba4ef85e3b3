//! A headless browser, by its protocol through a pipe.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(crate) struct Browser {
    program: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    calls: u64,
    session: Option<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    pub(crate) fn start(program: &Path) -> Self {
        let profile = tempfile::tempdir().expect("a folder");
        // The browser reads from file 3 and writes to file 4.
        let mut program = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 >/dev/null 2>&1"])
            .arg(program)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--force-device-scale-factor=1"])
            .args(["--window-size=1400,1900", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the browser starts");
        let (input, output) = (program.stdin.take().expect("a pipe"), program.stdout.take().expect("a pipe"));
        let output = BufReader::new(output);
        let mut browser = Self { program, input, output, calls: 0, session: None, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].take();
        let attached = browser.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        // Durations are processor time of the page's thread, which other programs do not prolong.
        browser.call("Performance.enable", json!({ "timeDomain": "threadTicks" }));
        browser
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let mut call = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            call["sessionId"] = session.as_str().into();
        }
        write!(self.input, "{call}\0").expect("the browser reads");
        loop {
            let mut message = Vec::new();
            self.output.read_until(0, &mut message).expect("the browser writes");
            message.pop().expect("the browser runs");
            let mut message: Value = serde_json::from_slice(&message).expect("JSON");
            if message["id"] == self.calls {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
        }
    }

    /// The value of an expression, or of the promise that it is.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut outcome = self.call("Runtime.evaluate", parameters);
        assert!(outcome["exceptionDetails"].is_null(), "{outcome}");
        outcome["result"]["value"].take()
    }

    /// Opens a page, until it has drawn everything.
    pub(crate) fn open(&mut self, page: &Path) {
        self.call("Page.navigate", json!({ "url": format!("file://{}", page.display()) }));
        let failed = self.evaluate(
            "new Promise(done => { const look = () => { const data = document.body?.dataset ?? {}; \
             data.loaded || data.failed ? done(data.failed ?? null) : setTimeout(look, 10); }; look(); })",
        );
        assert!(failed.is_null(), "{failed}");
    }

    /// Processor time of the page's thread since it was opened, seconds.
    pub(crate) fn processor_time(&mut self) -> f64 {
        let metrics = self.call("Performance.getMetrics", json!({}))["metrics"].take();
        let metrics = metrics.as_array().expect("metrics");
        let found = metrics.iter().find(|metric| metric["name"] == "TaskDuration").expect("a duration");
        found["value"].as_f64().expect("a number")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Not where the browser ended.
        let _ = write!(self.input, "{}\0", json!({ "id": 0, "method": "Browser.close" }));
        let _ = self.program.wait();
    }
}
