//! The command line.

use std::path::PathBuf;

use bps_api::PromoteWhen;
use bps_api::{HandoverOrder, keys};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

use super::workload::WorkloadChoice;

/// Image with the agent of the same version as this program, as `deploy` names that of the operator.
fn agent_image() -> String {
    format!("{}:{}", keys::AGENT, env!("CARGO_PKG_VERSION"))
}

/// Shows HAGroups and BackupPodSets, and gives orders to them.
#[derive(Parser, Debug)]
#[command(name = "kubectl-bps", bin_name = "kubectl bps", version)]
pub struct Arguments {
    /// Where to look.
    #[command(flatten)]
    pub target: Target,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// Which cluster and namespace, as kubectl has it.
#[derive(Args, Clone, Debug, Default)]
pub struct Target {
    /// Namespace; default: that of the context.
    #[arg(short, long, global = true)]
    pub namespace: Option<String>,
    /// Context of the kubeconfig; default: its current one.
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// Path of the kubeconfig; default: KUBECONFIG, then ~/.kube/config.
    #[arg(long, global = true)]
    pub kubeconfig: Option<PathBuf>,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Puts the agent into the Pod templates of manifests, or takes it out, and prints them.
    Inject(InjectArguments),
    /// Shows groups with their pairs and sets with their tiers, down to each Pod.
    Status(StatusArguments),
    /// Lets the standby of a pair take over from its active.
    Switchover(SwitchoverArguments),
    /// Says which Pods shall not act.
    Fence {
        /// What to do.
        #[command(subcommand)]
        verb: FenceVerb,
    },
    /// Stops what the operator does for a group or a set; failovers of groups go on.
    Pause(NamedArguments),
    /// Ends a pause.
    Resume(NamedArguments),
    /// Shows takeovers of a group, or conversions of a set.
    History(NamedArguments),
    /// Shows what the operator would do now, and what it waits for.
    Plan(NamedArguments),
    /// Shows what would become of a set without some nodes, or with fewer primaries; ends with 1 if it would not outlive that.
    Whatif(WhatifArguments),
    /// Deletes a Pod of a set, or cordons a node for a while, if the set outlives that; says and notes whether it went as foretold.
    Drill(DrillArguments),
    /// Prints the completions of a shell for the command kubectl-bps, or the program that kubectl asks for those of
    /// `kubectl bps`.
    Completion {
        /// Who completes.
        shell: Shell,
    },
    /// Prints the version.
    Version,
}

/// What to put into which manifests.
#[derive(Args, Clone, Debug)]
pub struct InjectArguments {
    /// File with manifests, YAML or JSON; - is standard input. Their comments and anchors are not in the output.
    #[arg(short, long, default_value = "-")]
    pub file: PathBuf,
    /// Name of the HAGroup that the Pods belong to.
    #[arg(long, required_unless_present = "uninject", value_parser = group_name)]
    pub group: Option<String>,
    /// Container that runs the application; needed if a template has more than one.
    #[arg(long)]
    pub container: Option<String>,
    /// Workload to change, for example sts/web or rollouts.argoproj.io/web; may be given several times, and is needed
    /// if there is more than one. All others stay as they are.
    #[arg(long = "workload", value_name = "KIND/NAME")]
    pub workloads: Vec<WorkloadChoice>,
    /// Command of the application's image, one word or a JSON list of words, for a container that has none: the
    /// ENTRYPOINT followed by the CMD, or the ENTRYPOINT alone if the container has args.
    #[arg(long = "command", value_name = "WORDS", value_parser = image_command, allow_hyphen_values = true)]
    pub image_command: Option<CommandWords>,
    /// How the agent comes into the Pods.
    #[arg(long, value_enum, default_value_t = AgentDelivery::Copy)]
    pub agent_source: AgentDelivery,
    /// Image that brings the agent, to be copied from or mounted.
    #[arg(long, default_value_t = agent_image())]
    pub agent_image: String,
    /// Where the agent is in the application's image, an absolute path; for --agent-source=image only; default: /bps-agent.
    #[arg(long, value_parser = absolute_path)]
    pub agent_path: Option<String>,
    /// State directory of the application, an absolute path, which the agents replicate to the standby.
    #[arg(long, value_parser = absolute_path)]
    pub replicate: Option<String>,
    /// Which standby may act when state is replicated: in-sync unless this says always.
    #[arg(long, value_enum, requires = "replicate")]
    pub promote_when: Option<PromoteWhen>,
    /// In how many pairs a Pod may be the standby, as spec.standbyFor of the HAGroup says; the application finds its state in the folder
    /// active of the one that --replicate names.
    #[arg(long, requires = "replicate", conflicts_with = "promote_when", value_parser = clap::value_parser!(u8).range(2..=8))]
    pub standby_for: Option<u8>,
    /// Which comes first in a planned handover; only needed if that is not as spec.handover of the HAGroup says.
    #[arg(long, value_enum, conflicts_with = "replicate")]
    pub handover: Option<HandoverOrder>,
    /// One further argument of the agent; may be given several times.
    #[arg(long = "agent-argument", allow_hyphen_values = true)]
    pub agent_arguments: Vec<String>,
    /// Takes the agent out again.
    #[arg(long, conflicts_with_all = [
        "group", "container", "image_command", "agent_source", "agent_path", "replicate", "standby_for", "handover", "agent_arguments",
    ])]
    pub uninject: bool,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
    pub output: Format,
}

/// A program and its arguments, at least the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandWords(pub Vec<String>);

/// How the agent comes into a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AgentDelivery {
    /// An init container copies it out of its image; works everywhere.
    Copy,
    /// Its image is mounted as a volume: needs Kubernetes 1.35 or later, and containerd 2.1 or CRI-O 1.31 or later.
    /// Restricted Pod security admits it.
    ImageVolume,
    /// The image of the application has it, by `COPY --from` in its Dockerfile.
    Image,
}

/// What to show.
#[derive(Args, Clone, Debug, Default)]
pub struct StatusArguments {
    /// hag/NAME, bps/NAME or a name that both kinds may have; default: everything in the namespace.
    pub name: Option<String>,
    /// In all namespaces.
    #[arg(short = 'A', long, conflicts_with_all = ["name", "namespace"])]
    pub all_namespaces: bool,
    /// Group the Pods of sets by domain instead of by role: `node`, `zone`, `subset`, or a label of nodes.
    #[arg(long, value_name = "DOMAIN")]
    pub by: Option<String>,
    /// The same as an object instead of a tree.
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
}

/// What is lost or changed; nothing: what becomes of the set as it is.
#[derive(Args, Clone, Debug, Default)]
pub struct WhatifArguments {
    /// Name of the BackupPodSet, or bps/NAME.
    #[arg(required_unless_present = "from", conflicts_with = "from")]
    pub set: Option<String>,
    /// A Pod that is deleted; may be given several times.
    #[arg(long = "pod", value_name = "POD")]
    pub pods: Vec<String>,
    /// A node that is lost; may be given several times.
    #[arg(long = "node", value_name = "NODE")]
    pub nodes: Vec<String>,
    /// A zone all of whose nodes are lost; may be given several times.
    #[arg(long = "zone", value_name = "ZONE")]
    pub zones: Vec<String>,
    /// A subset of the set's topology all of whose nodes are lost; may be given several times.
    #[arg(long = "subset", value_name = "SUBSET")]
    pub subsets: Vec<String>,
    /// A node that is cordoned; may be given several times.
    #[arg(long = "cordon", value_name = "NODE")]
    pub cordoned: Vec<String>,
    /// By how many the wanted primaries become fewer.
    #[arg(long, value_name = "PODS")]
    pub scale_in: Option<u32>,
    /// File that everything is written to that the answer is made from; it holds the set's template.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// File that --save wrote, instead of a cluster.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// The same as an object instead of text.
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
}

/// What is to be broken.
#[derive(Args, Clone, Debug)]
#[command(group(ArgGroup::new("fault").required(true).args(["pod", "cordon"])))]
pub struct DrillArguments {
    /// Name of the BackupPodSet, or bps/NAME.
    pub set: String,
    /// Pod that is deleted.
    #[arg(long, value_name = "POD")]
    pub pod: Option<String>,
    /// Node that is cordoned, and uncordoned at the end.
    #[arg(long, value_name = "NODE")]
    pub cordon: Option<String>,
    /// How long it may take until everything is as foretold, in seconds, or with a unit: 500ms, 30s, 2m.
    #[arg(long, value_parser = duration, default_value = "2m")]
    pub timeout: std::time::Duration,
    /// What became of it as an object instead of sentences.
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
}

/// What is meant, and how the answer looks.
#[derive(Args, Clone, Debug)]
pub struct NamedArguments {
    /// hag/NAME for an HAGroup, bps/NAME for a BackupPodSet, or a name that only one of them has.
    pub name: String,
    /// The same as an object instead of text.
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
}

/// Which pair shall get another active.
#[derive(Args, Clone, Debug)]
pub struct SwitchoverArguments {
    /// Name of the HAGroup.
    pub group: String,
    /// Number of the pair; needed if the group has several.
    #[arg(long)]
    pub pair: Option<u32>,
    /// How long to wait for it, in seconds, or with a unit: 500ms, 30s, 2m. Default: 30s and the grace period of the active's Pod,
    /// which its application may take to end.
    #[arg(long, value_parser = duration)]
    pub timeout: Option<std::time::Duration>,
    /// Whether to wait until the other Pod acts.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true",
        require_equals = true)]
    pub wait: bool,
    /// What became of it as an object instead of a sentence.
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
}

/// Which Pods shall not act.
#[derive(Subcommand, Clone, Debug)]
pub enum FenceVerb {
    /// These Pods shall not act until they are unfenced.
    On(FenceArguments),
    /// These Pods may act again.
    Off(FenceArguments),
    /// Shows which Pods are fenced.
    List {
        /// In all namespaces.
        #[arg(short = 'A', long, conflicts_with = "namespace")]
        all_namespaces: bool,
        /// The same as an object instead of a table.
        #[arg(short, long, value_enum)]
        output: Option<Format>,
    },
}

/// Which Pods are meant.
#[derive(Args, Clone, Debug, Default)]
pub struct FenceArguments {
    /// Names of the Pods; those that are gone may be unfenced by their uids.
    #[arg(required = true)]
    pub pods: Vec<String>,
    /// What became of them as an object instead of sentences.
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
}

/// Form of an output for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// Those who complete what is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU Bash.
    Bash,
    /// Z shell.
    Zsh,
    /// fish.
    Fish,
    /// kubectl: write it to an executable file `kubectl_complete-bps` in the PATH.
    Kubectl,
}

/// Longest name of a group. Source: the rule of its CRD.
const GROUP_NAME_MAX_CHARS: usize = 50;

fn group_name(text: &str) -> Result<String, String> {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_name = (1..=GROUP_NAME_MAX_CHARS).contains(&text.len())
        && text.bytes().all(|byte| is_inner(byte) || byte == b'-')
        && [text.bytes().next(), text.bytes().last()].into_iter().flatten().all(is_inner);
    let advice = "write 1 to 50 lower case letters, digits and dashes, first and last no dash";
    if is_name { Ok(text.to_owned()) } else { Err(advice.to_owned()) }
}

fn absolute_path(text: &str) -> Result<String, String> {
    let advice = "write an absolute path, and not the root";
    if text.len() > 1 && text.starts_with('/') { Ok(text.to_owned()) } else { Err(advice.to_owned()) }
}

/// A list is recognised by its bracket, so that a program and its arguments in one word are not taken for a program.
fn image_command(text: &str) -> Result<CommandWords, String> {
    let advice = r#"write a JSON list of words such as '["docker-entrypoint.sh","postgres"]', or one word"#;
    let words = if text.starts_with('[') {
        serde_json::from_str(text).unwrap_or_default()
    } else if text.contains(char::is_whitespace) {
        Vec::new()
    } else {
        vec![text.to_owned()]
    };
    let has_program = words.first().is_some_and(|program: &String| !program.is_empty());
    if has_program { Ok(CommandWords(words)) } else { Err(advice.to_owned()) }
}

fn duration(text: &str) -> Result<std::time::Duration, String> {
    let advice = "write a number of seconds, or one with a unit such as 500ms, 30s or 2m";
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let milliseconds: u64 = match &text[number.len()..] {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        _ => return Err(advice.to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| advice.to_owned())?;
    number.checked_mul(milliseconds).map(std::time::Duration::from_millis).ok_or_else(|| advice.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Arguments::command().debug_assert();
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for text in ["", "s", "1h", "-1s", "1.5s"] {
            assert!(duration(text).is_err_and(|advice| advice.contains("500ms")), "{text}");
        }
    }

    #[test]
    fn names_of_groups_are_checked_as_the_server_does() {
        assert_eq!(group_name("web-1"), Ok("web-1".to_owned()));
        for text in ["", "Web", "a.b", "-a", "a-", &"a".repeat(51)] {
            assert!(group_name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_injection_needs_a_group_and_an_uninjection_takes_none() {
        let parse = |words: &[&str]| Arguments::try_parse_from([&["kubectl-bps", "inject"], words].concat());
        assert!(parse(&["--group", "web"]).is_ok());
        assert!(parse(&["--uninject"]).is_ok());
        for words in [&[][..], &["--uninject", "--group", "web"], &["--group", "Web"]] {
            assert_eq!(parse(words).map(drop).map_err(|error| error.exit_code()), Err(2), "{words:?}");
        }
    }

    #[test]
    fn the_agent_comes_in_one_of_three_ways_and_from_an_absolute_path() {
        let parse = |words: &[&str]| {
            let words = [&["kubectl-bps", "inject", "--group=web"], words].concat();
            let Verb::Inject(wanted) = Arguments::try_parse_from(words)?.verb else { panic!("it injects") };
            Ok::<_, clap::Error>((wanted.agent_source, wanted.agent_path))
        };
        assert_eq!(parse(&[]).ok(), Some((AgentDelivery::Copy, None)));
        let volume = parse(&["--agent-source=image-volume"]);
        assert_eq!(volume.ok(), Some((AgentDelivery::ImageVolume, None)));
        let built_in = parse(&["--agent-source=image", "--agent-path=/opt/bps-agent"]);
        assert_eq!(built_in.ok(), Some((AgentDelivery::Image, Some("/opt/bps-agent".to_owned()))));
        let wrong = [
            "--agent-source=sidecar",
            "--agent-path=bps-agent",
            "--agent-path=/",
            "--replicate=state",
            "--standby-for=2",
        ];
        for words in wrong.map(|word| [word]) {
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn the_command_of_an_image_is_a_list_or_one_word() {
        let parse = |text: &str| {
            let words = ["kubectl-bps", "inject", "--group=web", &format!("--command={text}")];
            let Verb::Inject(wanted) = Arguments::try_parse_from(words)?.verb else { panic!("it injects") };
            Ok::<_, clap::Error>(wanted.image_command)
        };
        let words =
            |words: &[&str]| Some(CommandWords(words.iter().map(|word| (*word).to_owned()).collect()));
        let list = r#"["docker-entrypoint.sh", "postgres", ""]"#;
        assert_eq!(parse(list).ok(), Some(words(&["docker-entrypoint.sh", "postgres", ""])));
        assert_eq!(parse("redis-server").ok(), Some(words(&["redis-server"])));
        for text in ["", "[]", r#"[""]"#, "[1]", r#"["a""#, "nginx -g", r#"{"a": "b"}"#] {
            assert!(parse(text).is_err_and(|error| error.to_string().contains("JSON list")), "{text}");
        }
    }

    #[test]
    fn several_losses_of_a_kind_may_be_asked_about_together() {
        let words =
            ["kubectl-bps", "whatif", "web", "--subset=east", "--zone=a", "--subset", "west", "--zone=b"];
        let Verb::Whatif(wanted) = Arguments::try_parse_from(words).unwrap().verb else {
            panic!("it is a question");
        };
        assert_eq!((wanted.subsets, wanted.zones), (strings(["east", "west"]), strings(["a", "b"])));
    }

    fn strings<const COUNT: usize>(words: [&str; COUNT]) -> Vec<String> {
        words.map(str::to_owned).to_vec()
    }

    #[test]
    fn waiting_is_the_default() {
        let parse = |words: &[&str]| {
            let words = [&["kubectl-bps", "switchover", "web"], words].concat();
            let Verb::Switchover(wanted) = Arguments::try_parse_from(words).unwrap().verb else {
                panic!("it is a switchover");
            };
            (wanted.wait, wanted.timeout, wanted.pair)
        };
        assert_eq!(parse(&[]), (true, None, None));
        assert_eq!(parse(&["--wait=false", "--pair", "2"]), (false, None, Some(2)));
        assert_eq!(parse(&["--timeout=2m"]), (true, Some(Duration::from_secs(120)), None));
    }
}
