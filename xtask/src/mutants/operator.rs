//! Defines the mutation operators.

/// A systematic way to change a lifecycle file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MutationOperator {
    DropTransition,
    SwapTransitions,
    RetargetTransition,
    ChangeFromStates,
    WidenBy,
    SwapBy,
    DropGuard,
    NegateGuard,
    DropOperand,
    ShiftComparison,
    ShiftConstant,
    ChangeSign,
    ChangeName,
    DropRefusal,
    ChangeRefusalCode,
    DropSet,
    DropTransfer,
    ChangeTransfer,
    DropAction,
    ChangeAction,
    DropInput,
    DropBound,
    ShiftBound,
    DropConstraint,
    ChangeConstraint,
    MoveErrorCode,
    DoubleDuration,
    UnmarkState,
    RenameState,
    ChangeCaller,
    ShiftPayloadBound,
    DropAudit,
    DropSetting,
}

impl MutationOperator {
    pub(super) const ALL: [Self; 33] = [
        Self::DropTransition,
        Self::SwapTransitions,
        Self::RetargetTransition,
        Self::ChangeFromStates,
        Self::WidenBy,
        Self::SwapBy,
        Self::DropGuard,
        Self::NegateGuard,
        Self::DropOperand,
        Self::ShiftComparison,
        Self::ShiftConstant,
        Self::ChangeSign,
        Self::ChangeName,
        Self::DropRefusal,
        Self::ChangeRefusalCode,
        Self::DropSet,
        Self::DropTransfer,
        Self::ChangeTransfer,
        Self::DropAction,
        Self::ChangeAction,
        Self::DropInput,
        Self::DropBound,
        Self::ShiftBound,
        Self::DropConstraint,
        Self::ChangeConstraint,
        Self::MoveErrorCode,
        Self::DoubleDuration,
        Self::UnmarkState,
        Self::RenameState,
        Self::ChangeCaller,
        Self::ShiftPayloadBound,
        Self::DropAudit,
        Self::DropSetting,
    ];

    /// Returns the name used in tables and in mutants' names.
    pub(super) const fn label(self) -> &'static str {
        self.label_and_description().0
    }

    /// Returns the description for docs/generated/mutants.md.
    pub(super) const fn description(self) -> &'static str {
        self.label_and_description().1
    }

    const fn label_and_description(self) -> (&'static str, &'static str) {
        match self {
            Self::DropTransition => ("drop a transition", "remove one `[[on.…]]`"),
            Self::SwapTransitions => ("swap transitions", "swap two adjacent transitions of one event"),
            Self::RetargetTransition => (
                "retarget a transition",
                "change the target to each other state; make a transition internal, and the reverse",
            ),
            Self::ChangeFromStates => ("change from-states", "remove or add each state"),
            Self::WidenBy => ("widen `by`", "remove `by`, so that every API key with write access is admitted"),
            Self::SwapBy => ("swap `by`", "remove a name, replace it by another name of the file, or add one"),
            Self::DropGuard => ("drop a guard", "remove `when`"),
            Self::NegateGuard => ("negate a guard", "negate `when` or the `if` of a refusal"),
            Self::DropOperand => ("drop an operand", "remove one side of `&&` or `||` in any expression"),
            Self::ShiftComparison => ("shift a comparison", "replace `<` by `<=` and `>` by `>=`, and the reverse"),
            Self::ShiftConstant => {
                ("shift a constant", "add 1 to a number in an expression, or subtract 1; 0.01 for decimals")
            }
            Self::ChangeSign => (
                "change an operator",
                "swap `==` and `!=`, `+` and `-`, `*` and `/`, `min` and `max`; remove a `!`; swap the two branches of `?`",
            ),
            Self::ChangeName => {
                ("change a literal", "swap `true` and `false` or the values of an enum; append a letter to a text")
            }
            Self::DropRefusal => ("drop a refusal", "remove an entry of `refuse`"),
            Self::ChangeRefusalCode => {
                ("change a refusal", "change the code or the status of a refusal, of `clash` or of `short`")
            }
            Self::DropSet => ("drop a set", "remove an entry of `set`"),
            Self::DropTransfer => ("drop a transfer", "remove an entry of `move`"),
            Self::ChangeTransfer => {
                ("change a transfer", "reverse its direction, add 1 to its amount, replace one of its accounts")
            }
            Self::DropAction => ("drop an action", "remove an entry of `spawn`, `require`, `cascade` or `deliver`"),
            Self::ChangeAction => (
                "change an action",
                "remove or negate its `if`, remove a field or an input, replace `require` by `cascade`, and the reverse",
            ),
            Self::DropInput => ("drop an input", "remove a name of `take` or an entry of `input`"),
            Self::DropBound => {
                ("drop a bound", "remove `min`, `max`, `pattern` or a value of `enum`; add or remove `optional`")
            }
            Self::ShiftBound => (
                "shift a bound",
                "change `min`, `max`, `const` or `default` by 1 (0.01 for decimals, a byte for sizes), negate it, or replace its text",
            ),
            Self::DropConstraint => {
                ("drop a key or limit", "remove an entry of `unique`, `limit` or `links`, or the natural key")
            }
            Self::ChangeConstraint => {
                ("change a key or limit", "remove a field of `on`, a state of `in`, `in` or `per`; change `max` by 1")
            }
            Self::MoveErrorCode => {
                ("reclassify an error code", "remove it from its list, or put it into the other list")
            }
            Self::DoubleDuration => {
                ("double a duration", "double `lease`, `after`, `per` and every duration in an expression")
            }
            Self::UnmarkState => ("unmark a state", "remove `final`, `rest` or `ready`; replace `final` by `rest`"),
            Self::RenameState => ("rename a state", "only in its declaration, and consistently in the whole file"),
            Self::ChangeCaller => (
                "change a caller",
                "remove a reader, let every caller read, or let a name of `[who]` match every caller",
            ),
            Self::ShiftPayloadBound => {
                ("shift the payload", "change the smallest or largest payload size by one byte, or remove it")
            }
            Self::DropAudit => ("drop an audit", "remove or change the audit tag of a transition or a refusal"),
            Self::DropSetting => (
                "drop a setting",
                "remove `stop`, `priority`, `key`, `result`, `asset`, `outside`, `clock`, the input of a check, or the time of a timed transition",
            ),
        }
    }
}
