//! Field masks: which fields of a `spec` an update takes.

use astrabox_platform::{Error, Result};
use astrabox_types::ErrorReason;
use prost_types::FieldMask;

/// The fields that an update names, checked.
#[derive(Debug)]
pub(crate) struct Mask(Vec<String>);

impl Mask {
    /// Checks the mask against the fields that can be changed and those that cannot.
    ///
    /// # Errors
    /// `INVALID_FIELD` without a path, or with one of a fixed field; `UNKNOWN_FIELD` naming a path that is none.
    pub(crate) fn of(mask: Option<FieldMask>, changeable: &[&str], fixed: &[&str]) -> Result<Self> {
        let paths = mask.map(|mask| mask.paths).unwrap_or_default();
        if paths.is_empty() {
            return Err(Error::field(
                "update_mask",
                format!(
                    "must name at least one field of spec: {}",
                    changeable.join(", ")
                ),
            ));
        }
        for path in &paths {
            if fixed.contains(&path.as_str()) {
                return Err(Error::field(
                    "update_mask",
                    format!("`{path}` cannot be changed"),
                ));
            }
            if !changeable.contains(&path.as_str()) {
                return Err(Error::new(
                    ErrorReason::UnknownField,
                    format!(
                        "update_mask: spec has no field `{path}`; it has {}",
                        changeable.join(", ")
                    ),
                )
                .with("field", "update_mask")
                .with("path", path.as_str()));
            }
        }
        Ok(Self(paths))
    }

    /// The paths, in the order of the request.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The value, if the mask names its field.
    pub(crate) fn take<T>(&self, path: &str, value: T) -> Option<T> {
        self.0.iter().any(|named| named == path).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(paths: &[&str]) -> Result<Mask> {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        Mask::of(Some(FieldMask { paths }), &["image", "limits"], &["name"])
    }

    #[test]
    fn named_fields_are_taken_and_no_others() {
        let mask = mask(&["image", "image"]).expect("image can be changed");
        assert_eq!(
            (mask.take("image", 1), mask.take("limits", 2)),
            (Some(1), None)
        );
    }

    #[test]
    fn a_mask_that_names_nothing_or_the_wrong_thing_is_refused_by_name() {
        for (paths, reason, text) in [
            (&[][..], ErrorReason::InvalidField, "image, limits"),
            (
                &["name"],
                ErrorReason::InvalidField,
                "`name` cannot be changed",
            ),
            (&["image", "colour"], ErrorReason::UnknownField, "`colour`"),
            (&["*"], ErrorReason::UnknownField, "`*`"),
            (&[""], ErrorReason::UnknownField, "``"),
            (&["limits.pids"], ErrorReason::UnknownField, "`limits.pids`"),
        ] {
            let error = mask(paths).expect_err("it is refused");
            assert_eq!(error.reason(), reason, "{paths:?}");
            assert!(error.to_string().contains(text), "{error}");
        }
        assert!(Mask::of(None, &["image"], &[]).is_err());
    }
}
