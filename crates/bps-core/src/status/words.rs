//! Every word that a condition's reason can be and every phrase of the STATUS column, with their meanings.
//!
//! `docs/reference.md` is generated from these tables.

use bps_api as api;

use crate::model::{Reason, Refusal};

/// Condition type: the set is as its specification wants it.
pub(super) const READY: &str = "Ready";
/// Condition type: as many primaries serve as are wanted.
pub(super) const AVAILABLE: &str = "Available";
/// Condition type: the set does not get closer to its specification.
pub(super) const STALLED: &str = "Stalled";
/// Condition type: the operator is getting the set there.
pub(super) const PROGRESSING: &str = "Progressing";
/// Condition type: something needs attention.
pub(super) const DEGRADED: &str = "Degraded";
/// Condition type: the operator only watches.
pub(super) const PAUSED: &str = "Paused";
/// Condition type: whichever node is lost, every primary is replaced by what is there.
pub(super) const SURVIVES_NODE_LOSS: &str = "SurvivesNodeLoss";
/// Condition type: the same of zones.
pub(super) const SURVIVES_ZONE_LOSS: &str = "SurvivesZoneLoss";

/// One word and what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The word as the cluster sees it.
    pub word: &'static str,
    /// What it says, as one sentence.
    pub meaning: &'static str,
}

/// A condition with every reason that it can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionWords {
    /// Its type.
    pub r#type: Word,
    /// Reasons while its status is `True`.
    pub when_true: &'static [Word],
    /// Reasons while its status is `False`.
    pub when_false: &'static [Word],
}

const fn of_reason(reason: Reason) -> Word {
    Word { word: reason.as_str(), meaning: reason.meaning() }
}

const fn of_refusal(refusal: Refusal, meaning: &'static str) -> Word {
    Word { word: refusal.as_str(), meaning }
}

pub(super) const AS_WANTED: Word =
    Word { word: "AsWanted", meaning: "Every role has its wanted number of available Pods." };
pub(super) const PRIMARIES_SERVE: Word =
    Word { word: "PrimariesServe", meaning: "As many primaries serve as are wanted." };
pub(super) const PRIMARIES_NOT_READY: Word =
    Word { word: "PrimariesNotReady", meaning: "Fewer primaries are ready than wanted." };
pub(super) const NOT_EXPOSED: Word =
    Word { word: "NotExposed", meaning: "The Service does not lead to every ready primary." };
pub(super) const BACKUPS_NOT_READY: Word = Word {
    word: "BackupsNotReady",
    meaning: "Primaries serve, but fewer backups are available than wanted.",
};
pub(super) const OUTDATED_PODS: Word =
    Word { word: "OutdatedPods", meaning: "Pods of a former template are still to be replaced." };
pub(super) const SURPLUS_PODS: Word =
    Word { word: "SurplusPods", meaning: "Pods beyond the wanted numbers are still to be removed." };
pub(super) const INVALID_SPEC: Word = Word {
    word: "InvalidSpec",
    meaning: "The specification cannot be used; nothing is written until it is corrected.",
};

pub(super) const STARTING: Word =
    Word { word: "Starting", meaning: "The first Pods of the set are starting." };
pub(super) const SCALING: Word =
    Word { word: "Scaling", meaning: "The set follows a changed specification." };
pub(super) const ROLLING_OUT: Word =
    Word { word: "RollingOut", meaning: "A changed template is brought to the Pods." };
pub(super) const FAILING_OVER: Word =
    Word { word: "FailingOver", meaning: "A primary was lost and its replacement is not ready yet." };
pub(super) const REFILLING: Word =
    Word { word: "Refilling", meaning: "Primaries serve; lost or promoted backups are being replaced." };
pub(super) const COMPLETE: Word = Word { word: "Complete", meaning: "There is nothing left to do." };

pub(super) const NOT_STALLED: Word =
    Word { word: "NotStalled", meaning: "The set is as wanted, or gets closer to it." };
pub(super) const PROGRESS_DEADLINE_EXCEEDED: Word = Word {
    word: "ProgressDeadlineExceeded",
    meaning: "The set has not come closer to its specification within progressDeadlineSeconds.",
};

pub(super) const BY_HOT: Word = Word {
    word: "ByHot",
    meaning: "Standbys and ready hot backups elsewhere would replace every primary that is lost.",
};
pub(super) const BY_COLD: Word = Word {
    word: "ByCold",
    meaning: "Some lost primaries would be replaced by cold backups that are woken: an outage of one start.",
};
pub(super) const NO_PRIMARIES_WANTED: Word =
    Word { word: "NoPrimariesWanted", meaning: "No primary is wanted, so none can be lost." };
pub(super) const NO_BACKUP_OUTSIDE: Word = Word {
    word: "NoBackupOutside",
    meaning: "Too few ready Pods are outside the worst domain to replace the primaries in it.",
};
pub(super) const STANDBY_IN_SAME_DOMAIN: Word =
    Word { word: "StandbyInSameDomain", meaning: "Both Pods of a pair are in the same domain." };
pub(super) const STANDBY_SHARED: Word = Word {
    word: "StandbyShared",
    meaning: "Primaries in one domain have a standby in common, which takes over from one of them.",
};
pub(super) const NOT_IN_SYNC: Word = Word {
    word: "NotInSync",
    meaning: "The standby of a pair does not have every acknowledged write, or there is none.",
};
pub(super) const NO_ZONES: Word = Word {
    word: "NoZones",
    meaning: "No Pod is on a node with the label topology.kubernetes.io/zone, so all may be in one zone.",
};

pub(super) const REDUNDANCY_LOST: Word = Word {
    word: "RedundancyLost",
    meaning: "The counts, or the Pods that are there, do not hold what redundancyModel promises.",
};

pub(super) const AS_EXPECTED: Word = Word { word: "AsExpected", meaning: "Nothing needs attention." };
pub(super) const NOT_PAUSED: Word = Word { word: "NotPaused", meaning: "The operator acts." };
pub(super) const PAUSED_BY_SPEC: Word = of_reason(Reason::Paused);
pub(super) const STORM_BRAKE: Word = of_reason(Reason::StormBrake);
pub(super) const WITHHELD: Word = Word {
    word: api::WITHHELD,
    meaning: "Nobody may act in a pair: no ready Pod has every acknowledged write.",
};

/// The conditions in the order of the status.
pub const CONDITIONS: [ConditionWords; 8] = [
    ConditionWords {
        r#type: Word { word: READY, meaning: "The set is as its specification wants it, backups included." },
        when_true: &[AS_WANTED],
        when_false: &[
            INVALID_SPEC,
            PRIMARIES_NOT_READY,
            NOT_EXPOSED,
            BACKUPS_NOT_READY,
            OUTDATED_PODS,
            SURPLUS_PODS,
        ],
    },
    ConditionWords {
        r#type: Word {
            word: AVAILABLE,
            meaning: "As many primaries serve as are wanted, whatever the backups do.",
        },
        when_true: &[PRIMARIES_SERVE],
        when_false: &[PRIMARIES_NOT_READY, NOT_EXPOSED],
    },
    ConditionWords {
        r#type: Word { word: PROGRESSING, meaning: "The operator is getting the set there." },
        when_true: &[STARTING, SCALING, ROLLING_OUT, FAILING_OVER, REFILLING],
        when_false: &[COMPLETE, INVALID_SPEC, PAUSED_BY_SPEC, STORM_BRAKE],
    },
    ConditionWords {
        r#type: Word {
            word: STALLED,
            meaning: "The set does not get closer to its specification; the operator goes on trying.",
        },
        when_true: &[INVALID_SPEC, PROGRESS_DEADLINE_EXCEEDED],
        when_false: &[NOT_STALLED],
    },
    ConditionWords {
        r#type: Word { word: DEGRADED, meaning: "Something needs attention, or the set is at risk." },
        when_true: &[
            INVALID_SPEC,
            STORM_BRAKE,
            of_refusal(Refusal::QuotaExceeded, "A ResourceQuota has no room for a Pod."),
            of_refusal(
                Refusal::Forbidden,
                "Permissions, Pod security or an admission check refused a write.",
            ),
            of_refusal(Refusal::Invalid, "The API server does not accept a Pod made from the template."),
            WITHHELD,
            of_reason(Reason::CheckRefused),
            of_reason(Reason::ForeignObject),
            of_reason(Reason::BackingOff),
            of_reason(Reason::NoReadyBackup),
            of_reason(Reason::WakeTimedOut),
            of_reason(Reason::GateFails),
            REDUNDANCY_LOST,
            of_reason(Reason::PodUnready),
            of_reason(Reason::OffBalance),
            PROGRESS_DEADLINE_EXCEEDED,
        ],
        when_false: &[AS_EXPECTED],
    },
    ConditionWords {
        r#type: Word { word: PAUSED, meaning: "The operator watches and writes nothing but status." },
        when_true: &[PAUSED_BY_SPEC],
        when_false: &[NOT_PAUSED],
    },
    ConditionWords {
        r#type: Word {
            word: SURVIVES_NODE_LOSS,
            meaning: "Whichever node is lost, Pods that are there already replace every primary.",
        },
        when_true: &[BY_HOT, BY_COLD, NO_PRIMARIES_WANTED],
        when_false: &[NO_BACKUP_OUTSIDE, STANDBY_IN_SAME_DOMAIN, STANDBY_SHARED, NOT_IN_SYNC, PAUSED_BY_SPEC],
    },
    ConditionWords {
        r#type: Word {
            word: SURVIVES_ZONE_LOSS,
            meaning: "Whichever zone is lost, Pods that are there already replace every primary.",
        },
        when_true: &[BY_HOT, BY_COLD, NO_PRIMARIES_WANTED],
        when_false: &[
            NO_BACKUP_OUTSIDE,
            STANDBY_IN_SAME_DOMAIN,
            STANDBY_SHARED,
            NOT_IN_SYNC,
            NO_ZONES,
            PAUSED_BY_SPEC,
        ],
    },
];

/// Most objects that a command names; there is room for the rest of the message then.
const NAMED_OBJECTS_MAX: usize = 5;

/// What is wrong with addresses of others behind a Service of the operator, with the command that deletes them.
///
/// `objects` are named as `kubectl` does, such as `endpointslice/web-mine`.
pub fn foreign_addresses(objects: &[String]) -> String {
    let named = objects.iter().take(NAMED_OBJECTS_MAX).map(String::as_str).collect::<Vec<_>>().join(" ");
    format!(
        "another user or controller wrote addresses behind the Service, so clients may reach other Pods than its own; if these \
         addresses are not needed, delete them in this namespace: kubectl delete {named}"
    )
}

/// The phrases of the STATUS column, most important first. `<reason>` is the reason of `Degraded`.
pub const STATES: [Word; 10] = [
    Word {
        word: "Refused: <reason>",
        meaning: "The specification or a write was refused and waits for a human.",
    },
    Word { word: "Paused", meaning: PAUSED_BY_SPEC.meaning },
    Word { word: "Storm brake", meaning: STORM_BRAKE.meaning },
    Word { word: "Degraded: <reason>", meaning: "Something needs attention, or the set is at risk." },
    FAILING_OVER,
    ROLLING_OUT,
    STARTING,
    SCALING,
    REFILLING,
    Word { word: "Ready", meaning: AS_WANTED.meaning },
];
