//! Whether an agent may tell what the application wrote last.

use serde_json::Value;

/// The agent's argument for that.
const TELL: &str = "--tell-last-lines";

/// The argument, if the container lets a kubelet put the end of its log into the Pod's status, unless somebody wrote it.
pub(super) fn last_lines_argument(container: &Value, given: &[String]) -> Option<String> {
    let is_permitted = container["terminationMessagePolicy"] == "FallbackToLogsOnError";
    let is_given = given.iter().any(|argument| argument == TELL);
    (is_permitted && !is_given).then(|| TELL.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn last_lines_are_told_where_the_container_permits_that_to_kubelets() {
        let argument = |policy: Value, given: &[String]| {
            last_lines_argument(&json!({"terminationMessagePolicy": policy}), given)
        };
        let permitted = || json!("FallbackToLogsOnError");
        assert_eq!(argument(permitted(), &[]).as_deref(), Some(TELL));
        assert_eq!(argument(permitted(), &[TELL.to_owned()]), None);
        assert_eq!([argument(json!("File"), &[]), argument(Value::Null, &[])], [None, None]);
    }
}
