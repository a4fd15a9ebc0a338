//! The check that an application still works: a process of its own beside it, which ends when it works no more.
//!
//! It takes the place of the container's liveness probe, which the kubelet could not use: in a standby no application
//! runs, and a container that the kubelet restarts takes the agent along.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bps_api::keys;
use bps_protocol::Role;
use clap::Args;
use http::header::{HOST, USER_AGENT};
use http::{Request, Uri};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::stdio::dup2_stdout;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use super::launch::OWN_PROGRAM;
use super::{hook, marks};

/// Exit code of the process that checks, once the application works no more.
pub const EXIT_FAILED: u8 = 3;

/// How an application is checked, and how often.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct CheckArguments {
    /// While the application runs it works as long as GET of this path, at this port of the own Pod, is answered with a
    /// code of 200 to 399, for example 8080/healthz. An application that works no more is killed, as if it had crashed.
    #[arg(long = "live-http", group = "check", value_parser = parse_http)]
    http: Option<HttpCheck>,
    /// The same for a TCP port of the own Pod that accepts connections.
    #[arg(long = "live-tcp", group = "check", value_parser = clap::value_parser!(u16).range(1..))]
    tcp: Option<u16>,
    /// The same for a program that ends with the code 0; with its arguments as JSON, such as `["redis-cli", "ping"]`.
    #[arg(long = "live-exec", group = "check", value_parser = parse_words)]
    exec: Option<Words>,
    /// Seconds between two checks.
    #[arg(long = "live-period", requires = "check", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    period: u32,
    /// Seconds that one may take.
    #[arg(long = "live-timeout", requires = "check", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3600))]
    timeout: u32,
    /// How many in a row must fail.
    #[arg(long = "live-failures", requires = "check", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    failures: u32,
    /// Seconds after the start in which failures do not count, until the first success.
    #[arg(long = "live-grace", requires = "check", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=86400))]
    grace: u32,
}

/// A path at a port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HttpCheck {
    port: u16,
    path: String,
}

/// A program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Words(Vec<String>);

fn parse_http(text: &str) -> Result<HttpCheck, String> {
    let wrong = || "expected a port and a path, such as 8080/healthz".to_owned();
    let (port, path) = text.split_once('/').ok_or_else(wrong)?;
    let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
    let path = format!("/{path}");
    path.parse::<Uri>().map_err(|_| wrong())?;
    Ok(HttpCheck { port, path })
}

fn parse_words(text: &str) -> Result<Words, String> {
    let words: Vec<String> = serde_json::from_str(text).unwrap_or_default();
    if words.is_empty() {
        return Err(r#"expected a program and its arguments as JSON, such as ["redis-cli", "ping"]"#.into());
    }
    Ok(Words(words))
}

/// What is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Http(HttpCheck),
    Tcp(u16),
    Exec(Words),
}

/// A check as the process beside the application is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    target: Target,
    address: IpAddr,
    period: Duration,
    timeout: Duration,
    failures: u32,
    grace: Duration,
    state_file: Option<PathBuf>,
}

impl CheckArguments {
    /// The check of an application in the Pod with this address, if there is to be one.
    pub fn check(self, address: IpAddr) -> Option<Check> {
        let target = self.http.map(Target::Http).or(self.tcp.map(Target::Tcp));
        let target = target.or(self.exec.map(Target::Exec))?;
        let [period, timeout, grace] =
            [self.period, self.timeout, self.grace].map(|seconds| Duration::from_secs(seconds.into()));
        Some(Check { target, address, period, timeout, failures: self.failures, grace, state_file: None })
    }
}

impl Check {
    /// The same, but failures count only while this file says that the agent acts: an application that runs in both roles
    /// need not work as standby.
    #[must_use]
    pub fn while_active(self, state_file: Option<PathBuf>) -> Self {
        Self { state_file, ..self }
    }

    /// The command of the process that checks; `launcher` is this program. With a file that shows the role, see
    /// [`Self::while_active`].
    pub fn command(&self, launcher: &Path, state_file: Option<&Path>) -> Vec<OsString> {
        let target = match &self.target {
            Target::Http(HttpCheck { port, path }) => format!("--live-http={port}{path}"),
            Target::Tcp(port) => format!("--live-tcp={port}"),
            Target::Exec(Words(words)) => format!("--live-exec={}", serde_json::json!(words)),
        };
        let options = [
            format!("--address={}", self.address),
            target,
            format!("--live-period={}", self.period.as_secs()),
            format!("--live-timeout={}", self.timeout.as_secs()),
            format!("--live-failures={}", self.failures),
            format!("--live-grace={}", self.grace.as_secs()),
        ];
        let own = [launcher.into(), OsString::from("check")];
        let state_file = state_file.map(|file| {
            let mut option = OsString::from("--state-file=");
            option.push(file);
            option
        });
        own.into_iter().chain(options.map(OsString::from)).chain(state_file).collect()
    }

    /// Returns once the application works no more, with the reason of the last failure.
    ///
    /// Call it on the main thread of a process of its own: a program that checks is run as hooks are.
    pub async fn fails(&self) -> String {
        if matches!(self.target, Target::Exec(_))
            && let Err(error) = discard_output()
        {
            warn!(
                error = &error as &dyn std::error::Error,
                "What checks say is among the application's output"
            );
        }
        let (mut began, mut failed, mut has_worked) = (Instant::now(), 0, false);
        loop {
            let checked = self.once().await;
            if !self.is_active() {
                // What it does as standby says nothing of what it will do when it acts.
                (began, failed, has_worked) = (Instant::now(), 0, false);
            } else if let Err(reason) = checked {
                if has_worked || began.elapsed() >= self.grace {
                    failed += 1;
                    warn!(reason, failed, of = self.failures, "The application did not pass its check");
                }
                if failed >= self.failures {
                    return reason;
                }
            } else {
                (failed, has_worked) = (0, true);
            }
            sleep(self.period).await;
        }
    }

    fn is_active(&self) -> bool {
        let Some(file) = &self.state_file else { return true };
        let state = std::fs::read(file).ok().and_then(|state| serde_json::from_slice::<Value>(&state).ok());
        state.is_none_or(|state| state["role"] == marks::word(Role::Active))
    }

    async fn once(&self) -> Result<(), String> {
        let overdue = |_| Err("no answer in time".to_owned());
        match &self.target {
            Target::Http(http) => timeout(self.timeout, http.ask(self.address)).await.unwrap_or_else(overdue),
            Target::Tcp(port) => match timeout(self.timeout, TcpStream::connect((self.address, *port))).await
            {
                Ok(connected) => {
                    connected.map(drop).map_err(|error| format!("connect to port {port}: {error}"))
                }
                Err(elapsed) => overdue(elapsed),
            },
            // Not to be dropped when its time is over: it kills what it started then.
            Target::Exec(Words(words)) => {
                let command: Vec<OsString> = words.iter().map(OsString::from).collect();
                match hook::supervise(OWN_PROGRAM.as_ref(), &command, self.timeout).await {
                    Ok(0) => Ok(()),
                    Ok(code) => Err(format!("{} ended with the code {code}", words[0])),
                    Err(error) => Err(format!("run {}: {error}", words[0])),
                }
            }
        }
    }
}

/// What a program that checks prints is nobody's business, each few seconds; its errors are.
fn discard_output() -> io::Result<()> {
    let nowhere = File::options().write(true).open("/dev/null")?;
    Ok(dup2_stdout(nowhere)?)
}

impl HttpCheck {
    async fn ask(&self, address: IpAddr) -> Result<(), String> {
        let Self { port, path } = self;
        let at = SocketAddr::new(address, *port);
        let failed = |error: &dyn std::fmt::Display| format!("GET {port}{path}: {error}");
        let stream = TcpStream::connect(at).await.map_err(|error| failed(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        // It ends with the sender, and what it says of errors the sender says, too.
        tokio::spawn(async { drop(connection.await) });
        let request = Request::get(path)
            .header(HOST, at.to_string())
            .header(USER_AGENT, keys::AGENT)
            .body(Empty::<Bytes>::new())
            .map_err(|error| failed(&error))?;
        let status = sender.send_request(request).await.map_err(|error| failed(&error))?.status();
        if status.is_success() || status.is_redirection() { Ok(()) } else { Err(failed(&status)) }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use clap::Parser;
    use tokio::io::AsyncReadExt as _;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        check: CheckArguments,
    }

    fn check(arguments: &[&str]) -> Option<Check> {
        let arguments = std::iter::once(&"x").chain(arguments);
        Program::try_parse_from(arguments).expect("arguments").check.check(Ipv4Addr::LOCALHOST.into())
    }

    #[test]
    fn the_process_that_checks_is_told_what_the_agent_was() {
        let options = ["--live-period=2", "--live-timeout=3", "--live-failures=4", "--live-grace=5"];
        let targets = ["--live-http=8080/healthz?deep=1", "--live-tcp=80", r#"--live-exec=["a","b c"]"#];
        for target in targets {
            let told: Vec<&str> = std::iter::once(target).chain(options).collect();
            let command = check(&told).expect("a check").command(Path::new("/agent"), None);
            let command: Vec<&str> = command.iter().map(|word| word.to_str().unwrap()).collect();
            assert_eq!(command[..3], ["/agent", "check", "--address=127.0.0.1"]);
            assert_eq!(command[3..], told);
        }
        assert_eq!(check(&[]), None);
    }

    #[test]
    fn what_cannot_be_checked_is_refused() {
        for wrong in [
            "--live-http=8080",
            "--live-http=x/y",
            "--live-http=0/y",
            "--live-tcp=0",
            "--live-exec=redis-cli ping",
            "--live-exec=[]",
        ] {
            assert!(Program::try_parse_from(["x", wrong]).is_err(), "{wrong}");
        }
        assert!(Program::try_parse_from(["x", "--live-tcp=80", "--live-http=80/"]).is_err(), "two targets");
        assert!(Program::try_parse_from(["x", "--live-period=2"]).is_err(), "no target");
    }

    /// A server that gives each connection the next of these answers, and then none.
    async fn server(answers: &'static [&'static str]) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let mut silent = Vec::new();
            for answer in answers.iter().copied().chain(std::iter::repeat("")) {
                let (mut stream, _) = listener.accept().await.unwrap();
                if answer.is_empty() {
                    silent.push(stream);
                    continue;
                }
                let mut request = [0; 1024];
                let length = stream.read(&mut request).await.unwrap();
                assert!(request[..length].starts_with(b"GET /healthz HTTP/1.1\r\n"));
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        port
    }

    static ANSWERS: [&str; 5] = [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n",
    ];

    #[tokio::test]
    async fn a_path_is_well_if_its_answer_is_none_of_an_error() {
        let codes = ["200 OK", "204 No Content", "302 Found", "404 Not Found", "503 Busy"];
        let port = server(&ANSWERS).await;
        let check = check(&[&format!("--live-http={port}/healthz")]).unwrap();
        for (code, is_well) in codes.into_iter().zip([true, true, true, false, false]) {
            assert_eq!(check.once().await.is_ok(), is_well, "{code}");
        }
        assert_eq!(check.once().await, Err("no answer in time".into()));
    }

    #[tokio::test]
    async fn a_port_is_well_if_somebody_listens() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let check = check(&[&format!("--live-tcp={port}")]).unwrap();
        assert_eq!(check.once().await, Ok(()));
        drop(listener);
        let refused = check.once().await.unwrap_err();
        assert!(refused.starts_with(&format!("connect to port {port}: ")), "{refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_count_once_it_has_worked_or_its_grace_is_over() {
        let port = {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            listener.local_addr().unwrap().port()
        };
        let target = format!("--live-tcp={port}");
        let began = Instant::now();
        check(&[&target, "--live-period=2", "--live-failures=3", "--live-grace=7"]).unwrap().fails().await;
        // Not at 0, 2, 4 and 6 s.
        assert_eq!(began.elapsed().as_secs(), 12);
        let began = Instant::now();
        let check = check(&[&target, "--live-period=2", "--live-failures=1"]).unwrap();
        check.fails().await;
        assert_eq!(began.elapsed().as_secs(), 0);

        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.json");
        std::fs::write(&file, r#"{"epoch":1,"role":"standby"}"#).unwrap();
        let check = check.while_active(Some(file.clone()));
        let (began, fails) = (Instant::now(), check.fails());
        let takes_over = async {
            sleep(Duration::from_secs(11)).await;
            std::fs::write(&file, r#"{"epoch":2,"role":"active"}"#).unwrap();
        };
        tokio::join!(fails, takes_over);
        assert_eq!(began.elapsed().as_secs(), 12);
    }
}
